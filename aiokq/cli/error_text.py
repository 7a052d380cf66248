"""Errors as one line of text, and advice for errors that contain no advice."""

from __future__ import annotations

from typing import Final

from aiokq.core.errors import (
    BrokerError,
    Closed,
    ClusterAuthorization,
    ConnectionLost,
    KafkaError,
    KafkaStorage,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    RecordTooLarge,
    RequestTimeout,
    TopicAuthorization,
    UnknownTopicOrPartition,
)

__all__ = ["FAILED", "explain", "one_line", "reason"]

FAILED: Final = 1
"""Exit code of a command that failed, in whole or in part."""


_OWN_LIMIT: Final = (
    "raise max.request.size in the file of --config, and the topic's max.message.bytes"
)
_REPLICAS: Final = "wait for the missing replicas, or lower the topic's min.insync.replicas"
_RIGHTS: Final = "ask the operator of the cluster for the permission (an ACL)"
ADVICE: Final[dict[type[KafkaError], str]] = {
    ClusterAuthorization: _RIGHTS,
    ConnectionLost: "check that the broker runs and can be reached: `aiokq doctor -b HOST:PORT`",
    KafkaStorage: "free space on the disk of the broker's data directory, or repair the "
    "disk; the broker's log has details",
    NotEnoughReplicas: _REPLICAS,
    NotEnoughReplicasAfterAppend: _REPLICAS,
    RecordTooLarge: "raise the limit: `aiokq topics alter TOPIC --set max.message.bytes=N`",
    TopicAuthorization: _RIGHTS,
}
"""The advice for each class of errors whose text contains none."""


def explain(error: KafkaError) -> str:
    """Return an error as one line: what failed, why, and advice if the error contains none."""
    advice = _advice(error)
    return f"{reason(error)} -> {advice}" if advice else reason(error)


def reason(error: KafkaError) -> str:
    """Return an error as one line without advice: what failed and why."""
    return one_line(_text(error))


def _advice(error: KafkaError) -> str | None:
    """Return advice for the error, or else for the first of its causes for which there is advice.

    Returns None if there is no advice. The search also ends, without advice, at an error or a cause
    whose text already contains advice.
    """
    cause: BaseException | None = error
    while isinstance(cause, KafkaError):
        if isinstance(cause, RecordTooLarge) and cause.api is None:
            return _OWN_LIMIT  # the record was refused by the producer, not by a broker
        if _is_of_a_directory(cause) or _is_of_an_old_peer(cause):
            return None
        if cause.operation is not None and cause.resource is not None:
            return f"{_RIGHTS}: aiokq acls add '{_missing_acl(cause)}'"
        for kind, advice in ADVICE.items():
            if isinstance(cause, kind):
                return advice
        cause = cause.__cause__
    return None


def _missing_acl(error: KafkaError) -> str:
    """Return the line of an ACL that would allow the denied operation."""
    from aiokq.core.acl_types import Operation, ResourceType
    from aiokq.core.acls import Acl

    assert error.operation is not None
    assert error.resource is not None
    kind, _, name = error.resource.partition(":")
    operation, resource_type = Operation[error.operation], ResourceType[kind]
    return str(Acl(error.principal or "User:NAME", operation, resource_type, name))


def _is_of_a_directory(error: KafkaError) -> bool:
    """Return whether the error is about files that this process read.

    The message of such an error already contains advice.
    """
    return (
        isinstance(error, KafkaStorage)
        and error.api is None
        and error.message not in ("", error.default_message)
    )


def _is_of_an_old_peer(error: KafkaError) -> bool:
    """Return whether the peer closed the connection on ApiVersions.

    The message of such an error already names the possible reasons.
    """
    from aiokq.connection.handshake import ClosedOnApiVersions

    return isinstance(error, ClosedOnApiVersions)


def _text(error: KafkaError) -> str:
    text = error.message or type(error).__name__
    if isinstance(error, UnknownTopicOrPartition) and text == error.default_message:
        text = "there is no such topic or partition; `aiokq topics list` shows the topics"
    elif isinstance(error, BrokerError) and text == error.default_message:
        # Kafka's default text does not name the partition.
        text = f"{error.topic_partition}: {text}" if error.topic_partition is not None else text
    if error.api is not None and isinstance(error, RequestTimeout):
        text = f"{error.api}: {text}"
    if (
        isinstance(error, BrokerError)
        and not isinstance(error, RequestTimeout)
        and not _is_of_a_directory(error)
    ):
        text = f"{text} ({error.name})"
    cause = error.__cause__
    if (
        isinstance(error, RequestTimeout | Closed)
        and isinstance(cause, KafkaError)
        and cause.message not in text
    ):
        text = f"{text}; the last error: {_text(cause)}"
    return text


def one_line(text: str) -> str:
    """Return the text with runs of white space as one space, and unprintable characters escaped."""
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in joined
    )
