"""InitProducerId (API key 22): obtain a producer id and epoch, and fence older producers."""

from __future__ import annotations

from aiokq.wire.fields import boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Request of the InitProducerId API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Version 3 adds ProducerId and ProducerEpoch, with which a producer tries to recover from an
    INVALID_PRODUCER_EPOCH error.

    Version 4 adds the error code PRODUCER_FENCED.

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 adds the fields for two-phase commit (KIP-939).

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
    """The maximum duration of a transaction, in milliseconds from its start, after which the
    coordinator aborts it; not used without a transactional id.
    """

    producer_id: int = i64(since=3, default=-1)
    """The producer id that the client has, or -1. With this id, the coordinator detects that the
    transactional id has expired and is now used by another producer.
    """

    producer_epoch: int = i16(since=3, default=-1)
    """The producer epoch that the client has, for the coordinator to check; -1 for no check."""

    enable2_pc: bool = boolean(since=6)
    """Whether the transactions of the producer use two-phase commit."""

    keep_prepared_txn: bool = boolean(since=6)
    """Whether to keep an open transaction instead of aborting it."""


class InitProducerIdResponse(Response, request=InitProducerIdRequest):
    """Response to `InitProducerIdRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 is the same as version 2.

    Version 4 adds the error code PRODUCER_FENCED.

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 adds the fields for two-phase commit (KIP-939).

    Source: `InitProducerIdResponse.json`.
    """

    throttle_time_ms: int = i32(ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    producer_id: int = i64(default=-1)
    """The producer id to use; -1 after an error."""

    producer_epoch: int = i16()
    """The epoch of the producer id."""

    ongoing_txn_producer_id: int = i64(since=6, default=-1)
    """The producer id of the kept transaction; -1 if there is none."""

    ongoing_txn_producer_epoch: int = i16(since=6, default=-1)
    """The producer epoch of the kept transaction; -1 if there is none."""
