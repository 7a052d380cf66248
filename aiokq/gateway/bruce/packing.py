"""Packing: which messages go into the next Produce request to a broker, and how they are grouped.

Tests: tests/unit/gateway/bruce/test_packing.py.

Source: Bruce's design document: a request has at most the configured amount of data, or a single
larger message; all its AnyPartition messages of a topic go to one partition, chosen in turn;
PartitionKey messages for that partition share its message set; before compression, a message set
has at most the bytes that a single message may have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.gateway.bruce.chunk import Chunk

if TYPE_CHECKING:
    from aiokq.gateway.engine import TopicState

__all__ = ["RECORD_OVERHEAD", "SET_OVERHEAD", "MessageSet", "RequestLimits", "pack"]

RECORD_OVERHEAD: Final = 36
"""Upper bound of the size of a record in a batch without its key and value."""
SET_OVERHEAD: Final = 61
"""Size of the header of a batch."""


class RequestLimits(NamedTuple):
    """Limits of a Produce request.

    Attributes:
        data_bytes: largest size of all keys and values; 0 for one message per request.
        set_bytes: largest size of a message set before compression.
    """

    data_bytes: int
    set_bytes: int


class MessageSet:
    """The messages of one request for one partition.

    Attributes:
        topic: the topic.
        partition: the partition.
        chunks: the messages, in order.
        size: bytes of their keys, values and headers.
        raw_bytes: upper bound of the size before compression.
    """

    __slots__ = ("chunks", "partition", "raw_bytes", "size", "topic")

    def __init__(self, topic: TopicState, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.chunks: list[Chunk] = []
        self.size = 0
        self.raw_bytes = SET_OVERHEAD

    def __len__(self) -> int:
        return sum(map(len, self.chunks))

    def add(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self.size += chunk.size
        self.raw_bytes += chunk.size + RECORD_OVERHEAD * len(chunk)

    def __repr__(self) -> str:
        return f"<MessageSet of {len(self)} for {self.topic.name}-{self.partition}>"


def pack(
    queue: deque[Chunk], choose: Callable[[str], int | None], limits: RequestLimits
) -> dict[tuple[str, int], MessageSet]:
    """Remove the messages of the next request from the front of a queue, and group them.

    The request ends before the first message that does not fit, so that the messages of a partition
    keep their order.

    Args:
        choose: returns the partition for the AnyPartition messages of a topic; called once per
            topic. None if the broker leads no partition of the topic: the request ends before these
            messages.
    """
    sets: dict[tuple[str, int], MessageSet] = {}
    chosen: dict[str, int | None] = {}
    data = 0
    while queue:
        chunk = queue[0]
        topic = chunk.load.topic
        partition = chunk.partition
        if partition is None:
            if topic.name not in chosen:
                chosen[topic.name] = choose(topic.name)
            partition = chosen[topic.name]
            if partition is None:
                break
        place = topic.name, partition
        there = sets.get(place)
        if there is not None and there.chunks[0].group is not chunk.group:
            break
        raw = SET_OVERHEAD if there is None else there.raw_bytes
        largest = limits.set_bytes
        if topic.max_batch_bytes is not None:
            largest = min(largest, topic.max_batch_bytes)
        count = _fitting(chunk, limits.data_bytes - data, largest - raw)
        if not sets and (count == 0 or limits.data_bytes == 0):
            count = 1  # a message that is larger than a limit is sent alone
        if count == 0:
            break
        if there is None:
            there = sets[place] = MessageSet(topic, partition)
        if count < len(chunk):
            head, queue[0] = chunk.split(count)
        else:
            head = queue.popleft()
        there.add(head)
        data += head.size
        if count < len(chunk) or data >= limits.data_bytes:
            break
    return sets


def _fitting(chunk: Chunk, data: int, raw: int) -> int:
    """Return how many messages fit into both the request's and the message set's limit."""
    if chunk.size <= data and chunk.size + RECORD_OVERHEAD * len(chunk) <= raw:
        return len(chunk)
    if data < 0 or raw < 0:
        return 0
    count, _ = chunk.fitting(data)
    if count:
        count, _ = chunk.fitting(raw, max_rows=count, overhead=RECORD_OVERHEAD)
    return count
