"""RecordHooks: runs the user's interceptors, serializers and partitioner before an append.

A producer without such hooks has no RecordHooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.core.errors import BufferFull, ConfigError, UnknownTopicOrPartition
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer
from aiokq.core.user_errors import passable
from aiokq.producer.interceptors import Interceptors, ProducerRecord
from aiokq.producer.partitioner import choose_with
from aiokq.producer.serializers import Headers, serialize_with

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.fastpath.produce import Accumulator, Delivery
    from aiokq.producer.values import ProducerValues

__all__ = [
    "UnknownPartitionAfterHooks",
    "PartitionsNotYetKnown",
    "BufferFullAfterHooks",
    "RecordHooks",
    "PreparedRecord",
]


class PreparedRecord(NamedTuple):
    """The arguments of `Accumulator.append`, in the order of its parameters."""

    topic: str
    value: Buffer | None
    key: Buffer | None
    partition: int | None
    timestamp_ms: int | None
    headers: Headers | None


class BufferFullAfterHooks(BufferFull):
    """BufferFull for a prepared record; its interceptors and serializers must not run again."""

    def __init__(self, record: PreparedRecord) -> None:
        super().__init__()
        self.record = record


class UnknownPartitionAfterHooks(UnknownTopicOrPartition):
    """UnknownTopicOrPartition for a record whose hooks have run; the hooks must not run again.

    The partition may exist, because the client's metadata may be old.
    """

    def __init__(self, record: PreparedRecord, error: UnknownTopicOrPartition) -> None:
        super().__init__(error.message, topic_partition=error.topic_partition)
        self.record = record


class PartitionsNotYetKnown(UnknownTopicOrPartition):
    """The partitioner needs metadata; the record's interceptors and serializers have run."""

    def __init__(self, record: PreparedRecord) -> None:
        super().__init__(
            "the partitioner needs the topic's metadata, which is not available yet: use "
            "enqueue(), or await partitions_for() first",
            topic_partition=record.topic,
        )
        self.record = record


class RecordHooks:
    """Runs on_enqueue, then the serializers, then the partitioner of a record."""

    def __init__(
        self, settings: ProducerValues, engine: ClusterEngine, accumulator: Accumulator
    ) -> None:
        self._engine = engine
        self._accumulator = accumulator
        self._interceptors = Interceptors(settings.interceptors)
        partitioner = settings.partitioner
        self._choice = None if partitioner is None else choose_with(partitioner)
        key, value = settings.key_serializer, settings.value_serializer
        self._serialize_key = None if key is None else serialize_with(key)
        self._serialize_value = None if value is None else serialize_with(value)

    @staticmethod
    def wanted(settings: ProducerValues) -> bool:
        """Return whether the settings have any hook."""
        return bool(
            settings.interceptors
            or settings.partitioner is not None
            or settings.key_serializer is not None
            or settings.value_serializer is not None
        )

    @property
    def needs_metadata(self) -> bool:
        """Whether records need the topic's partitions before they can be appended."""
        return self._choice is not None

    def append(
        self,
        topic: str,
        value: object,
        key: object = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Run the record's hooks and append the record.

        No hook runs if records are refused now, or if other calls wait for memory.

        Raises:
            BufferFull: other calls wait for memory.
            BufferFullAfterHooks: there is no memory for the record.
            UnknownPartitionAfterHooks: the topic has no such partition, according to the metadata.
            PartitionsNotYetKnown: the partitioner needs partitions that are not known yet.
            others: the errors of `SendNowait`.
        """
        self._accumulator.guard.require()
        self._accumulator.check_accepts()
        if self._accumulator.waiting:
            raise BufferFull("other calls wait for buffer_memory: await enqueue()")
        record = self.place(self.prepare(topic, value, key, partition, timestamp_ms, headers))
        try:
            return self._accumulator.append(*record)
        except BufferFull:
            raise BufferFullAfterHooks(record) from None
        except UnknownTopicOrPartition as error:
            raise UnknownPartitionAfterHooks(record, error) from None

    def prepare(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> PreparedRecord:
        """Run the interceptors and serializers; return the arguments of `Accumulator.append`.

        `place` chooses the partition later.

        Raises:
            Exception: the exception of a serializer, as `passable` converts it.
        """
        if self._interceptors:
            record = self._interceptors.enqueue(
                ProducerRecord(topic, value, key, partition, timestamp_ms, headers)
            )
            topic, value, key = record.topic, record.value, record.key
            partition, timestamp_ms, headers = record.partition, record.timestamp_ms, record.headers
        try:
            if self._serialize_key is not None:
                key = self._serialize_key(topic, headers, key)
            if self._serialize_value is not None:
                value = self._serialize_value(topic, headers, value)
        except BaseException as error:
            if (raised := passable(error, "a serializer")) is error:
                raise
            raise raised from error
        # No check here: the accumulator raises TypeError for a value that is not bytes-like.
        return PreparedRecord(topic, value, key, partition, timestamp_ms, headers)  # type: ignore[arg-type]

    def place(self, record: PreparedRecord) -> PreparedRecord:
        """Return the record; if it has no partition, let a custom partitioner choose one.

        Raises:
            PartitionsNotYetKnown: the partitioner needs partitions that are not known yet.
            ConfigError: the partitioner returned neither an existing partition nor None.
            Exception: the exception of the partitioner, as `passable` converts it.
        """
        if self._choice is None or record.partition is not None:
            return record
        return record._replace(partition=self._choose(record))

    def _choose(self, record: PreparedRecord) -> int | None:
        assert self._choice is not None
        info = self._engine.metadata.topics.get(record.topic)
        if info is None or not info.partitions:
            raise PartitionsNotYetKnown(record)
        partitions: Sequence[int] = sorted(info.partitions)
        available = [n for n in partitions if info.partitions[n].leader >= 0]
        try:
            chosen = self._choice(record.topic, record.key, record.value, partitions, available)
        except BaseException as error:
            if (raised := passable(error, "the partitioner")) is error:
                raise
            raise raised from error
        if chosen is None:
            return None
        # User code may return anything; numpy integers are accepted, True is not a partition.
        number = chosen.__index__() if hasattr(chosen, "__index__") else -1
        if isinstance(chosen, bool) or number not in info.partitions:
            raise ConfigError(
                f"the partitioner chose partition {chosen!r} of {record.topic!r}, which has "
                f"{len(partitions)} partitions: it must return one of their numbers, or None"
            )
        return number
