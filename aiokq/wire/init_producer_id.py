"""The InitProducerId API (key 22), all versions."""

from __future__ import annotations

from aiokq.wire.fields import boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Request of the InitProducerId API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Version 3 adds ProducerId and ProducerEpoch, allowing producers to try to resume after an
    INVALID_PRODUCER_EPOCH error.

    Version 4 adds the support for new error code PRODUCER_FENCED.

    Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 adds support for 2PC (KIP-939).

    Source: `InitProducerIdRequest.json`.
    """

    API_KEY = 22
    NAME = "InitProducerId"
    MIN_VERSION = 0
    MAX_VERSION = 5
    UNSTABLE_VERSION = 6
    FLEXIBLE_SINCE = 2

    transactional_id: str | None = string(nullable_since=0)
    """The transactional id, or null if the producer is not transactional."""

    transaction_timeout_ms: int = i32()
    """The time in ms to wait before aborting idle transactions sent by this producer. This is
    only relevant if a TransactionalId has been defined.
    """

    producer_id: int = i64(since=3, default=-1)
    """The producer id. This is used to disambiguate requests if a transactional id is reused
    following its expiration.
    """

    producer_epoch: int = i16(since=3, default=-1)
    """The producer's current epoch. This will be checked against the producer epoch on the
    broker, and the request will return an error if they do not match.
    """

    enable2_pc: bool = boolean(since=6)
    """True if the client wants to enable two-phase commit (2PC) protocol for transactions."""

    keep_prepared_txn: bool = boolean(since=6)
    """True if the client wants to keep the currently ongoing transaction instead of aborting it."""


class InitProducerIdResponse(Response, request=InitProducerIdRequest):
    """Response to `InitProducerIdRequest`.

    Starting in version 1, on quota violation, brokers send out responses before throttling.

    Version 2 is the first flexible version.

    Version 3 is the same as version 2.

    Version 4 adds the support for new error code PRODUCER_FENCED.

    Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 adds support for 2PC (KIP-939).

    Source: `InitProducerIdResponse.json`.
    """

    throttle_time_ms: int = i32(ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    producer_id: int = i64(default=-1)
    """The current producer id."""

    producer_epoch: int = i16()
    """The current epoch associated with the producer id."""

    ongoing_txn_producer_id: int = i64(since=6, default=-1)
    """The producer id for ongoing transaction when KeepPreparedTxn is used, -1 if there is no
    transaction ongoing.
    """

    ongoing_txn_producer_epoch: int = i16(since=6, default=-1)
    """The epoch associated with the producer id for ongoing transaction when KeepPreparedTxn is
    used, -1 if there is no transaction ongoing.
    """
