"""The errors that aiokq raises; the table of Kafka's codes is in codes.py.

::

    KafkaError                        retriable, refresh_metadata, fatal, may_have_been_written
    ├── BrokerError                   a broker answered with a code: one subclass per code
    │   ├── UnknownTopicOrPartition, NotLeaderOrFollower, OffsetOutOfRange, ...
    │   ├── RequestTimeout            code 7, and the client's own deadline (also TimeoutError)
    │   └── UnknownBrokerError        a code that aiokq does not know
    ├── BootstrapFailed               no bootstrap address returned metadata in time
    ├── BufferFull                    buffer_memory is used up
    ├── Closed                        the object was closed, has failed, or is not started
    ├── CommitFailed                  offsets of some partitions were not committed
    ├── CommitOutcomeUnknown          it is unknown whether a transaction was committed
    ├── ConfigError                   an invalid setting, or settings in conflict (also ValueError)
    ├── ConnectionLost                the connection ended before a response arrived
    ├── DeliveryFailed                one or more records were not delivered
    ├── ForeignMembers                a group has members that aiokq must not remove
    ├── InternalError                 a bug; `__cause__` is the original exception
    ├── LogTruncated                  the log lost records that were read already
    ├── MaxPollExceeded               no poll within max_poll_interval_ms
    ├── NoNode                        the registry view has no node at a path (also LookupError)
    ├── NoOffsetForPartition          no fetch position, and auto_offset_reset is none
    ├── ProtocolError                 bytes that are not Kafka's protocol
    ├── TransactionAborted            the transaction was aborted, or can only be aborted
    └── WrongLoop                     used from another event loop, or after a fork

    ConfigWarning                     a setting that is ignored (UserWarning)

All of them can be pickled and copied. Tests: tests/unit/core/test_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack, cast

from aiokq.core import broker_errors
from aiokq.core.codes import BY_CODE, NONE
from aiokq.core.error_base import BrokerError, ErrorContext, KafkaError, broker_text, copy_error

if TYPE_CHECKING:
    from aiokq.core.broker_errors import *  # noqa: F403  one class per code, listed in its __all__
    from aiokq.core.types import TopicPartition
else:

    def __getattr__(name: str) -> object:
        """Return `ERROR_CLASSES` or the class of an error code; create it on first use."""
        if name == "ERROR_CLASSES":
            value = _error_classes()
        elif name in broker_errors.__all__:
            value = getattr(broker_errors, name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, value)


class RequestTimeout(BrokerError, TimeoutError):
    """REQUEST_TIMED_OUT (7): the broker's time limit, or the client's own, was exceeded.

    Attributes:
        origin: "broker" for an error code in a response, "client" if no response arrived in time.
    """

    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True
    may_have_been_written = True
    default_message = "no answer within the time limit"

    def __init__(
        self,
        message: str | None = None,
        *,
        origin: Literal["broker", "client"] = "client",
        **context: Unpack[ErrorContext],
    ) -> None:
        super().__init__(message, **context)
        self.origin: Literal["broker", "client"] = origin


class UnknownBrokerError(BrokerError):
    """A code that this version of aiokq does not know.

    It has the flags of UNKNOWN_SERVER_ERROR: not retriable, and the records of a Produce request
    may have been written.
    """

    may_have_been_written = True

    def __init__(
        self, code: int, message: str | None = None, **context: Unpack[ErrorContext]
    ) -> None:
        super().__init__(
            message or "the broker sent an error code newer than this client; see its log",
            **context,
        )
        self.code = code
        self.name = "UNKNOWN"


class ConnectionLost(KafkaError):
    """The connection ended, or could not be made, before a response arrived.

    `may_have_been_written` is True, because the broker may have acted on the request before the
    connection ended. It is False if the request was certainly not sent.
    """

    retriable = True
    refresh_metadata = True
    may_have_been_written = True


class ProtocolError(KafkaError):
    """Bytes that violate Kafka's protocol.

    The peer is not a Kafka broker or has a bug, or the bytes were damaged in transit.

    Args:
        detail: the violation, and what to check.
        version: version of the message being read, if known.
        offset: bytes from the start of the frame to where reading stopped.
    """

    def __init__(
        self,
        detail: str,
        *,
        version: int | None = None,
        offset: int | None = None,
        **context: Unpack[ErrorContext],
    ) -> None:
        where = "".join(
            f", {name} {value}"
            for name, value in (("version", version), ("byte", offset))
            if value is not None
        )
        super().__init__(detail + (f" (at{where[1:]})" if where else ""), **context)
        self.detail = detail
        self.version = version
        self.offset = offset


class ConfigError(KafkaError, ValueError):
    """A setting is unknown or out of range, or conflicts with another setting."""

    fatal = True

    @classmethod
    def unknown(cls, complaint: str, name: str, known: Iterable[str]) -> Self:
        """Return the error for a name that is not one of `known`.

        Args:
            complaint: text of the error. A suggestion follows if `nearest_name` finds a known name
                that is similar to `name`.
        """
        from aiokq.core.nearest_name import nearest_name  # imported here: rarely needed

        near = nearest_name(name, known)
        return cls(f"{complaint}: did you mean {near}?" if near else complaint)


class ConfigWarning(UserWarning):
    """A setting is ignored, because this client does not have it or its name is misspelt."""


class TransactionAborted(KafkaError):
    """The transaction was aborted, or can only be aborted; `__cause__` has the reason, if known.

    None of the transaction's records is visible to `read_committed` consumers. Begin another
    transaction, and send the records again.

    If the cause is an authorization error, `principal`, `operation` and `resource` are those of
    the cause.
    """

    _denied: tuple[str | None, str | None] = (None, None)  # kept for a copy without the cause

    @property
    def operation(self) -> str | None:
        cause = self.__cause__
        return cause.operation if isinstance(cause, KafkaError) else self._denied[0]

    @property
    def resource(self) -> str | None:
        cause = self.__cause__
        return cause.resource if isinstance(cause, KafkaError) else self._denied[1]

    def __reduce__(
        self,
    ) -> tuple[Callable[..., BaseException], tuple[type, tuple[object, ...], dict[str, object]]]:
        make, (cls, args, state) = super().__reduce__()
        return make, (cls, args, {**state, "_denied": (self.operation, self.resource)})


class CommitOutcomeUnknown(KafkaError):
    """It is unknown whether a transaction was committed.

    Commit the transaction again, which is safe, or close the producer; other calls are refused.
    After the close, the committed offsets or the records in the topics show the outcome.
    """

    may_have_been_written = True


class BufferFull(KafkaError):
    """buffer_memory is used up: await enqueue(), which waits, or increase buffer_memory."""

    retriable = True

    def __init__(self, message: str = "", **context: Unpack[ErrorContext]) -> None:
        super().__init__(
            message
            or "no free space in buffer_memory: use `await "
            "producer.enqueue(...)`, which waits for space, or raise buffer_memory",
            **context,
        )


class DeliveryFailed(KafkaError):
    """One or more records were not delivered.

    Raised by `await deliveries` for the records of one `send_many`. Also raised by `flush()`, and
    by an `async with` block that ends without an exception, for the failed records whose errors no
    caller has received.

    Args:
        count: number of records that failed.
        errors: for `send_many`, the outcome of every record in input order (None: delivered);
            otherwise the errors of the first 100 failed records, possibly fewer than `count`.
        topic_partitions: all partitions with failed records.

    Attributes:
        advice: last part of the message; callers remove it if there is no Delivery to await.
    """

    advice: Final = "; await each Delivery to handle failures one by one"

    def __init__(
        self,
        count: int,
        errors: Sequence[BaseException | None],
        topic_partitions: Sequence[TopicPartition],
        **context: Unpack[ErrorContext],
    ) -> None:
        first = next((error for error in errors if error is not None), None)
        # The partition of a record is unknown (-1) if its topic does not exist.
        places = ", ".join(
            str(tp) if tp.partition >= 0 else tp.topic for tp in list(topic_partitions)[:5]
        )
        more = len(topic_partitions) - 5
        text = f"{count} record{'' if count == 1 else 's'} not delivered"
        if places:
            text += f" to {places}" + (f" and {more} more partitions" if more > 0 else "")
        if first is not None:
            text += f"; the first: {first!r}"
        super().__init__(text + self.advice, **context)
        self.count = count
        self.errors = tuple(errors)
        self.topic_partitions = tuple(topic_partitions)
        failed = [error for error in errors if error is not None]
        self.retriable = bool(failed) and all(
            isinstance(error, KafkaError) and error.retriable for error in failed
        )
        self.may_have_been_written = any(
            isinstance(error, KafkaError) and error.may_have_been_written for error in failed
        )


class BootstrapFailed(KafkaError):
    """No bootstrap address returned cluster metadata in time.

    Attributes:
        attempts: one tuple (address, reason of the failure) per bootstrap address.
    """

    retriable = True

    def __init__(
        self, attempts: Sequence[tuple[str, str]], **context: Unpack[ErrorContext]
    ) -> None:
        tried = "; ".join(f"{address}: {reason}" for address, reason in attempts)
        super().__init__(
            "no bootstrap server answered: "
            + (tried or "no address was given")
            + ". Check bootstrap_servers, security_protocol, and that a broker "
            "listens at these addresses",
            **context,
        )
        self.attempts = list(attempts)


class Closed(KafkaError):
    """The object was closed, has failed, or is not started.

    Create another object, or use `async with`.
    """

    fatal = True


class InternalError(KafkaError):
    """A bug in aiokq or in a function passed to aiokq; `__cause__` is the original exception.

    Only the affected records fail with this error. The traceback is logged once.
    """


class WrongLoop(KafkaError, RuntimeError):
    """The object cannot be used on this loop, thread or process, or its loop is not running.

    Create one object per loop and process.
    """

    fatal = True


class NoNode(KafkaError, LookupError):
    """`Cluster.registry`, the view of a cluster as ZooKeeper nodes, has no node at this path.

    The name of the error is ZooKeeper's.
    """


class NoOffsetForPartition(KafkaError):
    """A partition has no valid fetch position, and `auto_offset_reset` is "none".

    Call seek() for the partition, or change the setting. Also raised if a broker returns no offset
    for a lookup, for example of "latest_tiered".
    """

    def __init__(self, message: str = "", **context: Unpack[ErrorContext]) -> None:
        super().__init__(
            message
            or "the partition has no committed or valid position and auto_offset_reset is "
            "none: call seek() for it, or set auto_offset_reset",
            **context,
        )


class LogTruncated(KafkaError):
    """The log was truncated below the fetch position: records already returned are gone.

    Args:
        position: the fetch position, which is the offset of the next record to read.
        divergent_offset: offset up to which the log is unchanged; -1 if unknown. To continue,
            seek() to this offset.

    Source: KIP-320.
    """

    def __init__(
        self, position: int, divergent_offset: int = -1, **context: Unpack[ErrorContext]
    ) -> None:
        known = f" after offset {divergent_offset}" if divergent_offset >= 0 else ""
        super().__init__(
            f"the log was truncated{known}, below the position {position}: seek() to the offset "
            "to continue at, or set auto_offset_reset",
            **context,
        )
        self.position = position
        self.divergent_offset = divergent_offset


class ForeignMembers(KafkaError):
    """A group of the consumer protocol has members that are not aiokq's (KIP-848).

    Foreign members might not rejoin after they are removed. Two kinds of aiokq's own members count
    as foreign too: a member whose id was assigned by the broker (before Kafka 4.0), and a member of
    the classic protocol in a group that is being converted.

    Attributes:
        members: the ids of the foreign members.
    """

    def __init__(
        self, group_id: str, members: Sequence[str], **context: Unpack[ErrorContext]
    ) -> None:
        shown = ", ".join(members[:5]) + (" ..." if len(members) > 5 else "")
        super().__init__(
            f"group {group_id!r} has members that are not aiokq's, or whose ids the broker "
            f"assigned: {shown}; stop these members, then call reset_group_offsets()",
            **context,
        )
        self.group_id = group_id
        self.members = tuple(members)


class CommitFailed(KafkaError):
    """Offsets were not committed.

    Attributes:
        errors: the error of each partition that failed. If a commit raised CommitFailed, the
            offsets of all other partitions were committed. `Consumer.offsets_for_transaction` and
            `Transaction.send_offsets` commit no offsets if they raise CommitFailed.
        lost: failed partitions that this member no longer owns. Their new owner starts at the
            previously committed offset and may process the same records again. Repeating the commit
            can only succeed for the other failed partitions.
    """

    def __init__(
        self,
        errors: Mapping[TopicPartition, KafkaError],
        lost: frozenset[TopicPartition] = frozenset(),
        **context: Unpack[ErrorContext],
    ) -> None:
        shown = ", ".join(f"{tp}: {error}" for tp, error in list(errors.items())[:3])
        more = f" and {len(errors) - 3} more" if len(errors) > 3 else ""
        names = ", ".join(str(tp) for tp in sorted(lost)[:5]) + (" ..." if len(lost) > 5 else "")
        fate = f"; this member no longer owns {names}" if lost else ""
        super().__init__(f"offsets were not committed: {shown}{more}{fate}", **context)
        self.errors = dict(errors)
        self.lost = lost


class MaxPollExceeded(KafkaError):
    """The application did not request records from its consumer within max_poll_interval_ms."""

    retriable = True


def _error_class(code: int) -> type[BrokerError] | None:
    """Return the exception class of a code; None if the code is unknown."""
    if code == RequestTimeout.code:
        return RequestTimeout
    row = BY_CODE.get(code)
    return (
        None if row is None else cast("type[BrokerError]", getattr(broker_errors, row.class_name))
    )


def _error_classes() -> Mapping[int, type[BrokerError]]:
    return MappingProxyType({code: cls for code in BY_CODE if (cls := _error_class(code))})


if TYPE_CHECKING:
    ERROR_CLASSES: Final[Mapping[int, type[BrokerError]]] = _error_classes()
    """Exception classes by code."""


def error_for(
    code: int, message: str | None = None, **context: Unpack[ErrorContext]
) -> BrokerError:
    """Return the error for a code in a response.

    Args:
        code: not 0; an unknown code gives UnknownBrokerError.
        message: the broker's text, if the response has one; see `broker_text`.

    Raises:
        ValueError: the code is 0.
    """
    if code == NONE:
        raise ValueError("code 0 is not an error: use raise_for(), or test for 0 first")
    if message:
        message = broker_text(message)
    if code == RequestTimeout.code:
        return RequestTimeout(
            message or "the request timed out in the broker",
            origin="broker",
            **context,
        )
    cls = _error_class(code)
    if cls is None:
        return UnknownBrokerError(code, message, **context)
    return cls(message, **context)


def raise_for(code: int, message: str | None = None, **context: Unpack[ErrorContext]) -> None:
    """Raise the error for `code`; do nothing for 0.

    Raises:
        BrokerError: the subclass for the code.
    """
    if code != NONE:
        raise error_for(code, message, **context)


__all__ = [
    "ERROR_CLASSES",
    "BootstrapFailed",
    "BrokerError",
    "BufferFull",
    "Closed",
    "CommitFailed",
    "CommitOutcomeUnknown",
    "ConfigError",
    "ConfigWarning",
    "ConnectionLost",
    "DeliveryFailed",
    "ErrorContext",
    "ForeignMembers",
    "InternalError",
    "KafkaError",
    "LogTruncated",
    "MaxPollExceeded",
    "NoNode",
    "NoOffsetForPartition",
    "ProtocolError",
    "RequestTimeout",
    "TransactionAborted",
    "UnknownBrokerError",
    "WrongLoop",
    "copy_error",
    "error_for",
    "raise_for",
]
__all__ += broker_errors.__all__
