"""Owns what is said about errors: one line, in words, with what to do."""

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
"""Exit code of what did not work, in whole or in part."""


_OWN_LIMIT: Final = (
    "raise max.request.size in the file of --config, and the topic's max.message.bytes"
)
_REPLICAS: Final = "wait for the missing replicas, or lower the topic's min.insync.replicas"
_RIGHTS: Final = "ask who runs the cluster for the right to do this (an ACL)"
ADVICE: Final[dict[type[KafkaError], str]] = {
    ClusterAuthorization: _RIGHTS,
    ConnectionLost: "see that the broker runs and can be reached: `aiokq doctor -b HOST:PORT`",
    KafkaStorage: "make room on, or mend, the disk of that broker's data directory; its log says "
    "more",
    NotEnoughReplicas: _REPLICAS,
    NotEnoughReplicasAfterAppend: _REPLICAS,
    RecordTooLarge: "raise the limit: `aiokq topics alter TOPIC --set max.message.bytes=N`",
    TopicAuthorization: _RIGHTS,
}
"""What to do about errors whose words come from a broker and do not say."""


def explain(error: KafkaError) -> str:
    """An error as one line: what, why, and what to do where the error does not say that itself."""
    advice = _advice(error)
    return f"{reason(error)} -> {advice}" if advice else reason(error)


def reason(error: KafkaError) -> str:
    """An error as one line: what and why, for who says himself what to do."""
    return one_line(_text(error))


def _advice(error: KafkaError) -> str | None:
    """For the error, or for the first one behind it that has some."""
    cause: BaseException | None = error
    while isinstance(cause, KafkaError):
        if isinstance(cause, RecordTooLarge) and cause.api is None:
            return _OWN_LIMIT  # no broker was asked
        if _is_of_a_directory(cause):
            return None
        for kind, advice in ADVICE.items():
            if isinstance(cause, kind):
                return advice
        cause = cause.__cause__
    return None


def _is_of_a_directory(error: KafkaError) -> bool:
    """Whether it comes from files that this process looked at: it says itself what to do."""
    return (
        isinstance(error, KafkaStorage)
        and error.api is None
        and error.message not in ("", error.default_message)
    )


def _text(error: KafkaError) -> str:
    text = error.message or type(error).__name__
    if isinstance(error, UnknownTopicOrPartition) and text == error.default_message:
        text = "there is no such topic or partition; `aiokq topics list` shows what there is"
    elif isinstance(error, BrokerError) and text == error.default_message:
        # Kafka's own words do not say what about.
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
    """Without line breaks, nor anything else that a terminal would obey."""
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in joined
    )
