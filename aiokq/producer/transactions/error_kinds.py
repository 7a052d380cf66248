"""What an error means for a transactional producer: one table of API and error code.

The kinds are those of KIP-1050.

Source: Kafka ``TransactionManager.java`` (4.2), the handler of each request.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.core.codes import BY_CODE
from aiokq.core.errors import BrokerError, KafkaError, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ERROR_KINDS", "ErrorKind", "kind_of", "kind_of_code", "may_be_carried_out"]


class ErrorKind(Enum):
    """What a producer does after an error."""

    RETRY = "send the request again after a pause"
    FIND = "find the coordinator again, then send the request again"
    ABORT = "abort the transaction, and go on with the next one"
    FINISHED = "this producer is finished: create a new one, and read the committed offsets"
    INVALID = "the configuration or the permissions must be changed; no retry helps"


_K: Final = ErrorKind

_COORDINATOR: Final = {14: _K.RETRY, 15: _K.FIND, 16: _K.FIND}
_FENCED: Final = {47: _K.FINISHED, 90: _K.FINISHED}

ERROR_KINDS: Final[Mapping[str, Mapping[int, ErrorKind]]] = MappingProxyType(
    {
        "FindCoordinator": {
            14: _K.RETRY,
            15: _K.RETRY,
            30: _K.ABORT,
            53: _K.INVALID,
            120: _K.ABORT,
        },
        "InitProducerId": {
            **_COORDINATOR,
            **_FENCED,
            31: _K.ABORT,
            50: _K.INVALID,
            53: _K.ABORT,
            120: _K.ABORT,
        },
        "AddPartitionsToTxn": {
            **_COORDINATOR,
            **_FENCED,
            29: _K.ABORT,
            48: _K.FINISHED,
            49: _K.FINISHED,
            53: _K.INVALID,
            55: _K.ABORT,
            59: _K.ABORT,
            120: _K.ABORT,
        },
        "AddOffsetsToTxn": {
            **_COORDINATOR,
            **_FENCED,
            30: _K.ABORT,
            48: _K.FINISHED,
            49: _K.FINISHED,
            53: _K.INVALID,
            59: _K.ABORT,
            120: _K.ABORT,
        },
        "TxnOffsetCommit": {
            **_COORDINATOR,
            **_FENCED,
            7: _K.FIND,
            22: _K.ABORT,
            25: _K.ABORT,
            29: _K.INVALID,
            30: _K.ABORT,
            43: _K.INVALID,
            53: _K.INVALID,
            82: _K.ABORT,
            120: _K.ABORT,
        },
        "EndTxn": {
            **_COORDINATOR,
            **_FENCED,
            48: _K.FINISHED,
            49: _K.FINISHED,
            53: _K.INVALID,
            59: _K.ABORT,
            120: _K.ABORT,
        },
        "Produce": {
            31: _K.INVALID,
            35: _K.INVALID,
            49: _K.FINISHED,
            53: _K.INVALID,
            90: _K.FINISHED,
        },
    }
)
"""The kind of each error code, by API. See `kind_of_code` for the codes that are missing here.

ABORT is what Java's handlers call an abortable error; FINISHED and INVALID are its fatal errors.
Java has one more rule, which is not in the table: an abort that is refused with an abortable error
is fatal, because it would be aborted again and again.
"""

_OTHERWISE: Final = {"AddPartitionsToTxn": _K.ABORT, "Produce": _K.ABORT}
"""The kind of codes that are not in the table; FINISHED for the other APIs."""


def kind_of_code(api: str, code: int) -> ErrorKind:
    """Return the kind of an error code in the response of an API.

    Codes that are not in the table are retried if they are retriable. A retriable error of a
    Produce request ends the transaction, because its batch was given up after all retries.
    """
    kind = ERROR_KINDS[api].get(code)
    if kind is not None:
        return kind
    row = BY_CODE.get(code)
    if api != "Produce" and row is not None and row.retriable:
        return ErrorKind.RETRY
    return _OTHERWISE.get(api, ErrorKind.FINISHED)


def may_be_carried_out(code: int) -> bool:
    """Return whether a coordinator that answered a code may have carried out the request.

    Its record may be in the log although the coordinator could not wait for its replicas (15), has
    lost or changed its office since the append (14, 16), or failed in another way.

    Source: Kafka ``TransactionStateManager.appendTransactionToLog``,
    ``CoordinatorOperationExceptionHelper``.
    """
    row = BY_CODE.get(code)
    return row is None or row.may_have_been_written or code in _COORDINATOR


def kind_of(api: str, error: KafkaError) -> ErrorKind:
    """Return the kind of an error, which may also be a lost connection or a timeout.

    Args:
        api: the API that was called; `error` may come from another one, as the lookup of its
            coordinator.
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
