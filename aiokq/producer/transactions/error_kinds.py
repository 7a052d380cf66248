"""ErrorKind: the reaction of a transactional producer to an error, with the kinds of KIP-1050.

The kind of an error depends on the API of the request and on the error code.

Source: Kafka ``TransactionManager.java`` (4.2), the handler of each request.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.core import errors
from aiokq.core.codes import BY_CODE
from aiokq.core.errors import BrokerError, KafkaError, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ERROR_KINDS",
    "FENCED_CODES",
    "ErrorKind",
    "kind_of",
    "kind_of_code",
    "may_be_carried_out",
]


class ErrorKind(Enum):
    """The next step of a transactional producer after an error."""

    RETRY = "send the request again after a pause"
    FIND = "find the coordinator again, then send the request again"
    ABORT = "abort the transaction, then begin another one"
    FINISHED = "this producer is finished: create a new one, and read the committed offsets"
    INVALID = "the configuration or the permissions must be changed; no retry helps"


_K: Final = ErrorKind

_COORDINATOR: Final = {
    errors.CoordinatorLoadInProgress.code: _K.RETRY,
    errors.CoordinatorNotAvailable.code: _K.FIND,
    errors.NotCoordinator.code: _K.FIND,
}

FENCED_CODES: Final = frozenset(
    {
        errors.InvalidProducerEpoch.code,
        errors.InvalidTxnState.code,
        errors.InvalidPidMapping.code,
        errors.ProducerFenced.code,
    }
)
"""Codes of a coordinator that mean that the producer was fenced and can only be closed.

Another producer with the transactional id was started, or the coordinator has aborted the
transaction after its timeout (INVALID_TXN_STATE), or the transactional id has expired.
"""

_FENCED: Final = dict.fromkeys(FENCED_CODES, _K.FINISHED)

ERROR_KINDS: Final[Mapping[str, Mapping[int, ErrorKind]]] = MappingProxyType(
    {
        "FindCoordinator": {
            errors.CoordinatorLoadInProgress.code: _K.RETRY,
            errors.CoordinatorNotAvailable.code: _K.RETRY,
            errors.GroupAuthorization.code: _K.ABORT,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "InitProducerId": {
            **_COORDINATOR,
            **_FENCED,
            errors.ClusterAuthorization.code: _K.ABORT,
            errors.InvalidTxnTimeout.code: _K.INVALID,
            errors.TransactionalIdAuthorization.code: _K.ABORT,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "AddPartitionsToTxn": {
            **_COORDINATOR,
            **_FENCED,
            errors.TopicAuthorization.code: _K.ABORT,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.OperationNotAttempted.code: _K.ABORT,
            errors.UnknownProducerId.code: _K.ABORT,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "AddOffsetsToTxn": {
            **_COORDINATOR,
            **_FENCED,
            errors.GroupAuthorization.code: _K.ABORT,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.UnknownProducerId.code: _K.ABORT,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "TxnOffsetCommit": {
            **_COORDINATOR,
            **_FENCED,
            errors.RequestTimeout.code: _K.FIND,
            errors.IllegalGeneration.code: _K.ABORT,
            errors.UnknownMemberId.code: _K.ABORT,
            errors.TopicAuthorization.code: _K.INVALID,
            errors.GroupAuthorization.code: _K.ABORT,
            errors.UnsupportedForMessageFormat.code: _K.INVALID,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.FencedInstanceId.code: _K.ABORT,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "EndTxn": {
            **_COORDINATOR,
            **_FENCED,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.UnknownProducerId.code: _K.ABORT,
            errors.TransactionAbortable.code: _K.ABORT,
        },
        "Produce": {
            errors.ClusterAuthorization.code: _K.INVALID,
            errors.UnsupportedVersion.code: _K.INVALID,
            errors.InvalidPidMapping.code: _K.FINISHED,
            errors.TransactionalIdAuthorization.code: _K.INVALID,
            errors.ProducerFenced.code: _K.FINISHED,
        },
    }
)
"""The kind of each error code, by API. `kind_of_code` has the rules for the codes that are missing.

ABORT is the kind of Java's abortable errors; FINISHED and INVALID are the kinds of its fatal
errors. One more rule of Java is not in this table: if an abort fails with an abortable error, the
error is fatal, because the next abort would fail with the same error.
"""

_OTHERWISE: Final = {"AddPartitionsToTxn": _K.ABORT, "Produce": _K.ABORT}
"""By API, the kind of codes that are neither in the table nor retried.

For other APIs, the kind of these codes is FINISHED.
"""


def kind_of_code(api: str, code: int) -> ErrorKind:
    """Return the kind of an error code in the response of an API.

    A code that is not in the table is RETRY if it is retriable, or else the kind in `_OTHERWISE`.
    For Produce, such a code is always ABORT, because the batch has failed after all its retries.
    """
    kind = ERROR_KINDS[api].get(code)
    if kind is not None:
        return kind
    row = BY_CODE.get(code)
    if api != "Produce" and row is not None and row.retriable:
        return ErrorKind.RETRY
    return _OTHERWISE.get(api, ErrorKind.FINISHED)


def may_be_carried_out(code: int) -> bool:
    """Return whether a coordinator may have carried out a request although it returned this code.

    The coordinator may have appended a record to its log and failed afterwards, for example because
    the replication timed out (15), or because the coordinator lost the partition (16) or was
    loading it again (14).

    Source: Kafka ``TransactionStateManager.appendTransactionToLog``,
    ``CoordinatorOperationExceptionHelper``.
    """
    row = BY_CODE.get(code)
    return row is None or row.may_have_been_written or code in _COORDINATOR


def kind_of(api: str, error: KafkaError) -> ErrorKind:
    """Return the kind of an error, which may also be a lost connection or a timeout.

    Args:
        api: the API that was called. If `error` names another API of the table, such as
            FindCoordinator, the rules of that API apply.
    """
    if error.api is not None and error.api in ERROR_KINDS:
        api = error.api
    if isinstance(error, UnsupportedVersion):
        return ErrorKind.INVALID
    if isinstance(error, BrokerError):
        return kind_of_code(api, error.code)
    if api == "Produce":
        return ErrorKind.ABORT
    return ErrorKind.FIND if error.retriable else ErrorKind.FINISHED
