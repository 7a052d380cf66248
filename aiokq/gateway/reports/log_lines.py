"""The lines of the discard log, in the format of Bruce and Dory."""

from __future__ import annotations

from aiokq.gateway.texts import base64_text, bracketed, text_of, visible

__all__ = ["log_line"]


def log_line(
    now_ms: int, timestamp_ms: int, event: str, info: str, topic: bytes, key: bytes, value: bytes
) -> bytes:
    """Return one line; `key` and `value` are already shortened."""
    return (
        f"now: {now_ms} ts: {timestamp_ms} event: {event} info: {info} "
        f"topic: {bracketed(visible(text_of(topic)))} key: {bracketed(base64_text(key))} "
        f"msg: {bracketed(base64_text(value))}\n"
    ).encode()
