"""Owns what is said about errors: one line, in words, with what to do."""

from __future__ import annotations

from typing import Final

from aiokq.core.errors import BrokerError, KafkaError, RequestTimeout, UnknownTopicOrPartition

__all__ = ["FAILED", "explain", "one_line"]

FAILED: Final = 1
"""Exit code of what did not work, in whole or in part."""


def explain(error: KafkaError) -> str:
    """An error as one line."""
    text = error.message or type(error).__name__
    if isinstance(error, UnknownTopicOrPartition) and text == error.default_message:
        text = "there is no such topic or partition; `aiokq topics list` shows what there is"
    elif isinstance(error, BrokerError) and text == error.default_message:
        # Kafka's own words do not say what about.
        text = f"{error.topic_partition}: {text}" if error.topic_partition is not None else text
    if error.api is not None and isinstance(error, RequestTimeout):
        text = f"{error.api}: {text}"
    if isinstance(error, BrokerError) and not isinstance(error, RequestTimeout):
        text = f"{text} ({error.name})"
    cause = error.__cause__
    if isinstance(error, RequestTimeout) and isinstance(cause, KafkaError):
        text = f"{text}; the last error: {explain(cause)}"
    return one_line(text)


def one_line(text: str) -> str:
    """Without line breaks, nor anything else that a terminal would obey."""
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in joined
    )
