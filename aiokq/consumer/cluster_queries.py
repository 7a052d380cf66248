"""ClusterQueries: queries about topics, partitions and offsets, without a subscription."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from aiokq.cluster.offsets import IsolationLevel, OffsetSpec, list_offsets, offset_spec
from aiokq.cluster.partition_arguments import checked_partition, checked_topic
from aiokq.consumer.subscription import Partition
from aiokq.consumer.time_limit import TimeLimit
from aiokq.core import limits
from aiokq.core.errors import ConfigError, KafkaError, RequestTimeout
from aiokq.core.types import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.values import ConsumerValues

__all__ = ["ClusterQueries"]

P = TypeVar("P", bound=tuple[str, int])


class ClusterQueries:
    """The queries of a consumer about the cluster.

    Once `partitions` was called for an existing topic, the topic's metadata is refreshed until
    `close`.
    """

    def __init__(self, settings: ConsumerValues, engine: ClusterEngine) -> None:
        self._settings = settings
        self._engine = engine
        self._watched: set[str] = set()

    def close(self) -> None:
        """Stop watching topics."""
        watched, self._watched = self._watched, set()
        self._engine.unwatch(watched)

    async def topics(self, timeout: float | None) -> frozenset[str]:
        """Return the names of all topics; see `Consumer.topics`."""
        engine = self._engine
        engine.watch_all()
        try:
            async with TimeLimit(self._seconds(timeout), self._no_topics):
                await engine.refresh()
        finally:
            engine.unwatch_all()
        return frozenset(engine.metadata.topics)

    def partitions(self, topic: str) -> frozenset[int] | None:
        """Return the known partitions of a topic; see `Consumer.partitions_for_topic`."""
        engine = self._engine
        info = engine.metadata.topics.get(checked_topic(topic))
        engine.watched_topics.used(topic, engine.now())
        if info is None:
            # An unknown topic is looked up, but not watched: a watched topic that never exists
            # would be requested once a second.
            engine.refresher.soon([topic])
            return None
        if topic not in self._watched:
            self._watched.add(topic)
            engine.watch([topic])
        return frozenset(info.partitions)

    async def ends(
        self, partitions: Iterable[Partition], spec: OffsetSpec, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """Return the log start offset or the end offset of each partition, as `spec` requires.

        The offset is -1 if the broker returns none. See `Consumer.beginning_offsets` and
        `Consumer.end_offsets`.
        """
        wanted = dict.fromkeys(map(checked_partition, partitions), offset_spec(spec))
        found = await self._offsets(wanted, self._settings.isolation_level, timeout)
        return {tp: -1 if offset is None else offset.offset for tp, offset in found.items()}

    async def times(
        self, timestamps: Mapping[P, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset and timestamp of each partition's first record at or after a timestamp.

        The value is None if there is no such record; see `Consumer.offsets_for_times`.
        """
        wanted = {checked_partition(tp): _checked_time(when) for tp, when in timestamps.items()}
        return await self._offsets(wanted, "read_uncommitted", timeout)

    async def _offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        isolation_level: IsolationLevel,
        timeout: float | None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        outcomes = await list_offsets(
            self._engine,
            wanted,
            isolation_level=isolation_level,
            timeout=self._seconds(timeout),
        )
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for tp in wanted:
            outcome = outcomes[tp]
            if isinstance(outcome, KafkaError):
                raise outcome
            found[tp] = outcome
        return found

    def _seconds(self, timeout: float | None) -> float:
        return self._settings.default_api_timeout if timeout is None else timeout

    def _no_topics(self, waited: float) -> RequestTimeout:
        cause = self._engine.last_error
        error = RequestTimeout(
            f"the topics could not be listed within {waited:.3g} s"
            + (f": {cause}" if cause else ""),
            api="Metadata",
        )
        error.__cause__ = cause
        return error


def _checked_time(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise TypeError(f"a time must be an int, milliseconds since 1970, not {timestamp_ms!r}")
    if not 0 <= timestamp_ms <= limits.INT64_MAX:
        raise ConfigError(
            f"{timestamp_ms} is not a time: times are milliseconds since 1970; "
            "beginning_offsets() and end_offsets() return the start and the end of the log"
        )
    return timestamp_ms
