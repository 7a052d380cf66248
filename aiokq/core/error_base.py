"""KafkaError and BrokerError, the base classes of all errors; errors.py shows the whole tree."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, TypedDict, TypeVar, Unpack

from aiokq.core.codes import BY_CODE, ErrorCode

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition

E = TypeVar("E", bound=BaseException)

TOPIC_DENIED: Final = 29
"""The code TOPIC_AUTHORIZATION_FAILED."""

DENIED: Final = (TOPIC_DENIED, 30, 31, 53)
"""The codes of the errors for operations that the broker's authorizer denies."""


_MOST_SHOWN: Final = 1000
"""Maximum number of characters that an error shows of a broker's text."""


class ErrorContext(TypedDict, total=False):
    """The context of an error, as the keyword arguments of a KafkaError."""

    node: int | str | None
    topic_partition: TopicPartition | str | None
    api: str | None
    attempt: int | None
    may_have_been_written: bool
    principal: str | None
    resource_name: str | None


class KafkaError(Exception):
    """Base class of aiokq's own errors.

    Attributes:
        retriable: whether the same call may succeed later.
        refresh_metadata: whether the client's metadata is out of date.
        fatal: whether the object that raised the error cannot continue, so that retrying does not
            help.
        may_have_been_written: if a Produce request failed, whether its records may be in the log
            despite the error.
        names_record: if a Produce request failed, whether the broker named this record as the cause
            (KIP-467), so that the other records of its batch were sent again without it.
        node: broker id, or "host:port" before the id is known.
        topic_partition: the partition, or the topic's name, that the error is about.
        api: Kafka's name of the request, such as "Produce".
        attempt: number of attempts made when the error was raised; the first is 1.
        principal: for an authorization error, the client's principal, such as "User:alice"; None if
            the client does not know it.
        operation: for an authorization error, the denied operation, such as "WRITE".
        resource: for an authorization error, the type and name of the resource, such as
            "TOPIC:orders".
        resource_name: for an authorization error, the group id or the transactional id.
    """

    retriable: bool = False
    refresh_metadata: bool = False
    fatal: bool = False
    may_have_been_written: bool = False
    names_record: bool = False
    node: int | str | None = None
    topic_partition: TopicPartition | str | None = None
    api: str | None = None
    attempt: int | None = None
    principal: str | None = None
    resource_name: str | None = None

    def __init__(self, message: str = "", **context: Unpack[ErrorContext]) -> None:
        super().__init__(message)
        if context:
            self.add_context(**context)

    def add_context(self, **context: Unpack[ErrorContext]) -> None:
        """Set the attributes that the arguments name; None leaves an attribute unchanged."""
        for name, value in context.items():
            if name not in ErrorContext.__annotations__:
                raise TypeError(f"{type(self).__name__} has no context named {name!r}")
            if value is not None:
                setattr(self, name, value)

    @property
    def operation(self) -> str | None:
        return None

    @property
    def resource(self) -> str | None:
        return None

    @property
    def message(self) -> str:
        """The text without the context that `str()` adds."""
        return str(self.args[0]) if self.args else ""

    def __str__(self) -> str:
        context = ", ".join(
            f"{name}={value}"
            for name in ("api", "node", "topic_partition", "attempt")
            if (value := getattr(self, name)) is not None
        )
        return f"{self.message} ({context})" if context else self.message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    # Neither pickle nor copy may call __init__ again, because its parameters differ between
    # classes and `args` need not be its arguments. As with all exceptions, the cause is dropped.
    def __reduce__(
        self,
    ) -> tuple[Callable[..., BaseException], tuple[type, tuple[object, ...], dict[str, object]]]:
        return revive, (type(self), self.args, dict(self.__dict__))


class BrokerError(KafkaError):
    """Error code in a broker's response; there is one subclass per code.

    Attributes:
        code: Kafka's number, never 0.
        name: Kafka's name of the code, such as "UNKNOWN_TOPIC_OR_PARTITION".
    """

    code: int = BY_CODE[-1].code
    name: str = BY_CODE[-1].name
    default_message: ClassVar[str] = BY_CODE[-1].message

    def __init__(self, message: str | None = None, **context: Unpack[ErrorContext]) -> None:
        """Use the broker's `message` if there is one, else Kafka's default for the code."""
        super().__init__(message or self.default_message, **context)

    @property
    def operation(self) -> str | None:
        if self.code not in DENIED:
            return None
        from aiokq.core.denials import denied_operation  # few processes need the table

        return denied_operation(self.api, self.code)

    @property
    def resource(self) -> str | None:
        if self.code not in DENIED:
            return None
        from aiokq.core.denials import denied_resource

        topic = self.topic_partition
        if topic is not None and not isinstance(topic, str):
            topic = topic.topic
        return denied_resource(
            self.code, topic if self.code == TOPIC_DENIED else self.resource_name
        )

    def __str__(self) -> str:
        text = f"{self.name} ({self.code}): {super().__str__()}"
        if self.resource is None or self.operation is None:
            return text
        return (
            f"{text}: {self.principal or 'this client'} lacks {self.operation} on {self.resource}"
        )


def code_attributes(row: ErrorCode) -> dict[str, object]:
    """Return the class attributes of the exception class of an error code."""
    return {
        "code": row.code,
        "name": row.name,
        "default_message": row.message,
        "retriable": row.retriable,
        "refresh_metadata": row.refresh_metadata,
        "fatal": row.fatal,
        "may_have_been_written": row.may_have_been_written,
    }


def revive(cls: type[E], args: tuple[object, ...], state: dict[str, object]) -> E:
    """Return an exception made from its parts, without calling __init__."""
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def broker_text(text: str) -> str:
    """Return a text of a broker for an error: on one line, and with at most 1,000 characters.

    Errors are logged and shown in terminals, where line breaks could forge lines of the log, and
    escape sequences could change what the terminal shows.
    """
    if len(text) > _MOST_SHOWN:
        text = f"{text[:_MOST_SHOWN]}..."
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def copy_error(error: E) -> E:
    """Return a copy of `error` for another waiter, with the same cause but without a traceback.

    A failed batch stores one error, which many tasks raise. If all tasks raised the same object,
    its traceback would grow without end and show each task the frames of other tasks. If the class
    is not aiokq's and cannot be called with the exception's `args`, `error` itself is returned.
    """
    try:
        twin = copy.copy(error)
    except Exception:  # noqa: BLE001  a foreign __init__ may raise anything
        return error
    notes = getattr(error, "__notes__", None)
    # A foreign class may forbid setting attributes, so BaseException's own method sets them.
    if notes is not None:
        BaseException.__setattr__(twin, "__notes__", list(notes))
    for name in ("__cause__", "__context__", "__suppress_context__"):
        BaseException.__setattr__(twin, name, getattr(error, name))
    return twin
