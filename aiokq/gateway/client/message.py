"""Encodes messages in the format that the gateway's inputs read. All integers are big-endian."""

from __future__ import annotations

import operator
import struct
import time
from typing import Final, TypeAlias

from aiokq.gateway.client.errors import InvalidMessage, MessageTooLarge, TopicTooLarge, WrongType

__all__ = ["encode"]

BytesLike: TypeAlias = bytes | bytearray | memoryview

ANY_PARTITION: Final = 256
PARTITION_KEY: Final = 257
MAX_MESSAGE_BYTES: Final = 2**31 - 1
MAX_TOPIC_BYTES: Final = 32767

_HEAD: Final = struct.Struct(">ihhhh")  # size, ApiKey, ApiVersion, flags, size of the topic
_HEAD_WITH_KEY: Final = struct.Struct(">ihhhIh")  # the same with the partition key
_MIDDLE: Final = struct.Struct(">qi")  # timestamp, size of the key
_SIZE: Final = struct.Struct(">i")


def encode(
    topic: str | bytes,
    value: BytesLike,
    *,
    key: BytesLike = b"",
    partition_key: int | None = None,
    timestamp_ms: int | None = None,
) -> bytes:
    """Return a message as the gateway's inputs read it.

    A datagram is one message. On a stream, one message follows the other.

    Args:
        topic: its name; a str is encoded as UTF-8.
        partition_key: from -2**31 to 2**32 - 1. The gateway takes it as an unsigned number and
            writes to the partition `partition_key` modulo the number of partitions. None: the
            gateway chooses the partition.
        timestamp_ms: milliseconds since 1970; None for now.

    Raises:
        InvalidMessage: the topic is empty or has lone surrogates, or a number is out of range.
        TopicTooLarge: the topic has more than 32767 bytes.
        MessageTooLarge: the message has more than 2**31 - 1 bytes.
        WrongType: key or value is not bytes, the topic is neither str nor bytes, or a number is not
            an int.

    Source:
        The format of Bruce and Dory: ApiKey 256 (AnyPartition) and 257 (PartitionKey), version 0.
    """
    name = _topic(topic)
    key, value = _bytes(key, "key"), _bytes(value, "value")
    key_size, value_size = _size(key), _size(value)
    if not 1 <= len(name) <= MAX_TOPIC_BYTES:
        if not name:
            raise InvalidMessage("the topic is empty")
        raise TopicTooLarge(f"the topic has {len(name)} bytes; at most {MAX_TOPIC_BYTES} fit")
    head = 12 if partition_key is None else 16
    size = head + len(name) + 12 + key_size + 4 + value_size
    if size > MAX_MESSAGE_BYTES:
        text = f"the message has {size} bytes; at most {MAX_MESSAGE_BYTES} fit"
        raise MessageTooLarge(text, size=size, limit=MAX_MESSAGE_BYTES)
    if timestamp_ms is None:
        timestamp_ms = time.time_ns() // 1_000_000
    else:
        timestamp_ms = _int(timestamp_ms, "timestamp_ms")
        if not -(2**63) <= timestamp_ms < 2**63:
            raise InvalidMessage(f"timestamp_ms is {timestamp_ms}, and does not fit into 64 bits")
    if partition_key is None:
        first = _HEAD.pack(size, ANY_PARTITION, 0, 0, len(name))
    else:
        unsigned = _int(partition_key, "partition_key")
        if not -(2**31) <= unsigned < 2**32:
            raise InvalidMessage(f"partition_key is {unsigned}; it is from -2**31 to 2**32 - 1")
        unsigned &= 0xFFFFFFFF
        first = _HEAD_WITH_KEY.pack(size, PARTITION_KEY, 0, 0, unsigned, len(name))
    middle = _MIDDLE.pack(timestamp_ms, key_size)
    return b"".join((first, name, middle, key, _SIZE.pack(value_size), value))


def _topic(topic: str | bytes) -> BytesLike:
    if not isinstance(topic, str):
        name = _bytes(topic, "topic", "str or bytes")
        return name.tobytes() if isinstance(name, memoryview) else name
    try:
        return topic.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"topic cannot be encoded as UTF-8: {error.reason}") from error


def _bytes(data: BytesLike, what: str, wanted: str = "bytes") -> BytesLike:
    if isinstance(data, bytes | bytearray):
        return data
    if isinstance(data, str):
        raise WrongType(f"{what} is a str: encode it, for example with .encode()")
    try:
        view = memoryview(data)
    except TypeError:
        raise WrongType(f"{what} is of type {type(data).__name__}, and must be {wanted}") from None
    except ValueError as error:  # a memoryview that was released
        raise InvalidMessage(f"{what} cannot be read: {error}") from error
    return view if view.c_contiguous else view.tobytes()


def _int(number: int, what: str) -> int:
    try:
        return operator.index(number)
    except TypeError:
        raise WrongType(f"{what} is of type {type(number).__name__}, and must be an int") from None


def _size(data: BytesLike) -> int:
    return data.nbytes if isinstance(data, memoryview) else len(data)
