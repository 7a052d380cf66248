"""Encodes messages from the fields in the order of the format; tests use it."""

from __future__ import annotations

from aiokq.gateway import client

__all__ = ["encode"]


def encode(
    topic: bytes, key: bytes, value: bytes, timestamp_ms: int, partition_key: int | None = None
) -> bytes:
    """Return one message.

    Raises:
        ValueError: as `aiokq.gateway.client.encode`.
    """
    return client.encode(
        topic, value, key=key, partition_key=partition_key, timestamp_ms=timestamp_ms
    )
