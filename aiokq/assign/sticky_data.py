"""The user data of the sticky assignors, in Java's format.

    sticky              [topic, [partition]] and, since version 1, the generation (i32)
    cooperative-sticky  the generation (i32)

The data has no version field: Java tries the newer schema, then the older schema.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from aiokq.core.types import TopicPartition

__all__ = ["decode_generation", "decode_previous", "encode_generation", "encode_previous"]

NO_GENERATION: Final = -1

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


def encode_previous(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Return the user data of "sticky": previous partitions and their generation."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        topics[topic].append(number)
    parts = [_I32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        parts += (
            _I16.pack(len(name)),
            name,
            struct.pack(f">i{len(numbers)}i", len(numbers), *numbers),
        )
    parts.append(_I32.pack(generation))
    return b"".join(parts)


def decode_previous(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """Return the previous partitions and their generation.

    Missing or invalid data counts as no partitions, as in Java.
    """
    if data is None:
        return (), NO_GENERATION
    try:
        return _decode_previous(data)
    except (struct.error, UnicodeDecodeError, ValueError):
        return (), NO_GENERATION


def _decode_previous(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    partitions: list[TopicPartition] = []
    (topics,) = _I32.unpack_from(data)
    position = 4
    for _ in range(topics):
        (length,) = _I16.unpack_from(data, position)
        position += 2
        if length < 0:
            raise ValueError("a topic without a name")
        topic = data[position : position + length].decode()
        position += length
        (count,) = _I32.unpack_from(data, position)
        position += 4
        # Check the count before unpacking: a hostile count must not allocate memory.
        if not 0 <= count <= (len(data) - position) // 4:
            raise ValueError("partition count exceeds the remaining bytes")
        numbers = struct.unpack_from(f">{count}i", data, position)
        position += 4 * count
        partitions += (TopicPartition(topic, number) for number in numbers)
    generation = NO_GENERATION
    if len(data) >= position + 4:  # version 1 ends with the generation
        (generation,) = _I32.unpack_from(data, position)
    return tuple(partitions), generation


def encode_generation(generation: int) -> bytes:
    """Return the user data of "cooperative-sticky"."""
    return _I32.pack(generation)


def decode_generation(data: bytes | None) -> int:
    """Return the generation; -1 if the data has none."""
    if data is None or len(data) < 4:
        return NO_GENERATION
    (generation,) = _I32.unpack_from(data)
    return int(generation)
