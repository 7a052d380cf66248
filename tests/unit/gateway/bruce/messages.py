"""Messages for the state machines of the engine `bruce`, taken from a pool with a fixed clock."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

from aiokq import RecordColumns
from aiokq.errors import BrokerError, error_for
from aiokq.fastpath.gateway.pure_pool import Pool
from aiokq.gateway.bruce.chunk import Chunk, Load
from aiokq.gateway.bruce.dispatcher import Failure
from aiokq.gateway.engine import TopicState
from aiokq.gateway.settings_tables import BatchingSettings, CompressionSettings, TopicRules
from aiokq.producer.produce_once import ProduceResult

WALL_MS = 1_700_000_000_000


def wire(
    topic: str,
    value: bytes,
    *,
    key: bytes = b"",
    partition_key: int | None = None,
    timestamp_ms: int = WALL_MS,
) -> bytes:
    """Return a message as a program sends it."""
    name = topic.encode()
    head = struct.pack(">hhh", 256 if partition_key is None else 257, 0, 0)
    if partition_key is not None:
        head += struct.pack(">I", partition_key % 2**32)
    body = head + struct.pack(">h", len(name)) + name + struct.pack(">q", timestamp_ms)
    body += struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value
    return struct.pack(">i", len(body) + 4) + body


def rules(**batching: Any) -> TopicRules:
    """Return the rules of a topic; without arguments nothing is batched."""
    return TopicRules(
        batching=BatchingSettings(**(batching or {"mode": "off"})),
        compression=CompressionSettings(),
        rate_limit=None,
        max_message_bytes=None,
        empty_key_null=True,
        empty_value_null=False,
    )


class Messages:
    """Makes loads and chunks of topics; each topic is one TopicState."""

    def __init__(self, **batching: Any) -> None:
        self.pool = Pool(1 << 24)
        self.pool.set_clock(1_000, WALL_MS)
        self.topics: dict[str, TopicState] = {}
        self._rules = rules(**batching)
        self._loads = 0

    def topic(self, name: str) -> TopicState:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicState(name, self._rules)
            topic.slot = self.pool.register(name.encode())
        return topic

    def taken(
        self, topic: str, *values: bytes, keys: list[int] | None = None, **options: Any
    ) -> Any:
        """Return messages as the pool gives them out; with `keys` as PartitionKey messages.

        The compiled pool may give out several messages in parts.
        """
        slot = self.topic(topic).slot
        for n, value in enumerate(values):
            key = None if keys is None else keys[n]
            self.pool.feed(wire(topic, value, partition_key=key, **options))
        return self.pool.take(slot, flush=True)

    def load(self, topic: str, *values: bytes, **options: Any) -> Load:
        taken = self.taken(topic, *values, **options)
        self._loads += 1
        columns = RecordColumns(taken.count, **taken.columns(null_keys=True))
        return Load(self._loads, self.topic(topic), taken, columns)

    def chunk(
        self, topic: str, *values: bytes, partition: int | None = None, **options: Any
    ) -> Chunk:
        """Return messages as one chunk."""
        load = self.load(topic, *values, **options)
        return Chunk.of(load, load.columns.rows_by_partition()[None], partition)


def values(*chunks: Chunk) -> list[bytes]:
    """Return the values of all messages, in order."""
    return [chunk.load.columns.record(row)[1] or b"" for chunk in chunks for row in chunk.rows]


class Outcomes:
    """Records what a dispatcher says of chunks. Implements `Delivery`."""

    def __init__(self) -> None:
        self.acks: list[bytes] = []
        self.discards: list[tuple[bytes, str]] = []
        self.doubled: list[bytes] = []
        self.states: Counter[bytes] = Counter()
        """1 for messages in flight."""

    def queued(self, chunk: Chunk) -> None:
        self.states.subtract(values(chunk))

    def sent(self, chunk: Chunk) -> None:
        self.states.update(values(chunk))

    def acked(self, chunk: Chunk) -> None:
        self.acks += values(chunk)

    def discard(self, chunk: Chunk, failure: Failure) -> None:
        self.discards += [(value, failure.reason) for value in values(chunk)]

    def restamp(self, chunk: Chunk) -> None:
        load = chunk.load
        columns = load.taken.columns(null_keys=True, earliest_ms=1, latest_ms=0)
        load.restamped = RecordColumns(load.taken.count, **columns)
        chunk.restamped = True

    def duplicates(self, chunk: Chunk) -> None:
        self.doubled += values(chunk)


def acked(offset: int = 0) -> ProduceResult:
    return ProduceResult(None, offset, -1, -1, {})


def refused(code: int, records: dict[int, str | None] | None = None) -> ProduceResult:
    error = error_for(code)
    assert isinstance(error, BrokerError)
    return ProduceResult(error, -1, -1, -1, records or {})
