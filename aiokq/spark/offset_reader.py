"""OffsetReader: looks up the partitions of a query and their offsets in the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID

from aiokq import Admin, Cluster, TopicPartition
from aiokq.errors import ConfigError, UnknownTopicOrPartition
from aiokq.spark.limits import ByOffset, ByTime, ByTimeEach, Limit
from aiokq.spark.offsets import EARLIEST, LATEST, PartitionOffsets, partitions_text
from aiokq.spark.option_values import of_option
from aiokq.spark.options import ReadOptions
from aiokq.spark.strategy import Assign, Pattern, Strategy, Subscribe

__all__ = ["Ends", "OffsetReader", "Partitions"]

Which: TypeAlias = Literal["starting", "ending"]
NO_ID = UUID(int=0)


@dataclass(frozen=True)
class Partitions:
    """The partitions to read, from the cluster's metadata at one moment.

    Attributes:
        leaders: node id of each partition's leader; -1 if there is no leader.
        topic_ids: topic ids, if the brokers have any.
    """

    leaders: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)


class Ends(NamedTuple):
    """Log start offsets of partitions, and the offsets up to which they can be read."""

    starts: PartitionOffsets
    ends: PartitionOffsets


class OffsetReader:
    """Lookup of partitions and offsets for one query; created in any thread, used on the loop.

    Args:
        cluster: a started cluster.
        options: options of the query.
        timeout: seconds for each request, retries included; None for ``default.api.timeout.ms``.
    """

    def __init__(
        self, cluster: Cluster, options: ReadOptions, timeout: float | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._timeout = timeout
        self._isolation_level = options.isolation_level

    @cached_property
    def _admin(self) -> Admin:
        return self._cluster.admin()

    async def partitions(self, *, missing_ok: bool = False) -> Partitions:
        """Return the partitions that the query reads, as they are now.

        Args:
            missing_ok: leave out named topics and partitions that do not exist.

        Raises:
            UnknownTopicOrPartition: a named topic or partition does not exist.
            KafkaError: a request to the cluster failed.
        """
        strategy = self._options.strategy
        names = await self._topics(strategy)
        leaders: dict[TopicPartition, int] = {}
        ids: dict[str, UUID] = {}
        if not names:
            return Partitions(leaders, ids)
        await self._admin.start()
        described = await self._admin.describe_topics(names, timeout=self._timeout)
        # A topic that matched a pattern may have been deleted since it was listed.
        missing_ok = missing_ok or isinstance(strategy, Pattern)
        for name in names:
            topic = described[name]
            if topic.error is not None:
                if missing_ok and isinstance(topic.error, UnknownTopicOrPartition):
                    continue
                if isinstance(topic.error, UnknownTopicOrPartition):
                    option = "assign" if isinstance(strategy, Assign) else "subscribe"
                    raise UnknownTopicOrPartition(
                        f"option {option}: there is no topic {name!r}",
                        topic_partition=name,
                    ) from topic.error
                raise topic.error
            if topic.topic_id != NO_ID:
                ids[name] = topic.topic_id
            for partition in topic.partitions:
                leaders[TopicPartition(name, partition.partition)] = partition.leader
        if isinstance(strategy, Assign):
            missing = [tp for tp in strategy.partitions if tp not in leaders]
            if missing and not missing_ok:
                raise UnknownTopicOrPartition(
                    f"option assign: there is no {partitions_text(missing)}",
                    topic_partition=missing[0],
                )
            leaders = {tp: leaders[tp] for tp in strategy.partitions if tp in leaders}
        return Partitions(leaders, ids)

    async def _topics(self, strategy: Strategy) -> list[str]:
        match strategy:
            case Subscribe(topics):
                return sorted(topics)
            case Assign(partitions):
                return sorted({tp.topic for tp in partitions})
            case Pattern(pattern):
                await self._admin.start()
                # The pattern may match any part of the name, as in Spark's own connector, which
                # uses findFirstIn.
                found = re.compile(pattern).search
                listed = await self._admin.list_topics(timeout=self._timeout)
                return sorted(name for name in listed if found(name))

    async def log_starts(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the log start offset of each partition."""
        return await self._list(dict.fromkeys(partitions, EARLIEST))

    async def log_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return high watermarks; with ``read_committed``, last stable offsets."""
        return await self._list(dict.fromkeys(partitions, LATEST))

    async def _list(self, wanted: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return the offset for each timestamp in milliseconds, or for EARLIEST or LATEST.

        The offset is -1 if no record has this timestamp or a later timestamp.
        """
        if not wanted:
            return {}
        await self._admin.start()
        found = await self._admin.list_offsets(
            dict(wanted),
            isolation_level=self._isolation_level,
            timeout=self._timeout,
            raise_errors=True,
        )
        return {tp: found[tp].offset for tp in wanted}

    async def ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        """Return the start and end offsets of each partition's log."""
        tps = list(partitions)
        return Ends(await self.log_starts(tps), await self.log_ends(tps))

    async def resolve(
        self, limit: Limit, partitions: Iterable[TopicPartition], ends: Ends, which: Which
    ) -> PartitionOffsets:
        """Return the offset of a limit in each partition.

        Raises:
            ConfigError: the limit names other partitions than `partitions`; or no record is at or
                after the start timestamp, and ``startingOffsetsByTimestampStrategy`` is ``error``.
        """
        tps = set(partitions)
        match limit:
            case ByOffset(dict() as offsets):
                with of_option(f"{which}Offsets"):
                    special = "-1 for latest, -2 for earliest"
                    _check_assigned(offsets, tps, f"{which} offsets", special)
            case ByOffset(end):
                assert not isinstance(end, dict)
                offsets = dict.fromkeys(tps, int(end))
            case ByTime(timestamp):
                with of_option(f"{which}Timestamp"):
                    offsets = await self._by_time(dict.fromkeys(tps, timestamp), which)
            case ByTimeEach(timestamps):
                with of_option(f"{which}OffsetsByTimestamp"):
                    _check_assigned(timestamps, tps, f"timestamp based {which} offsets", "")
                    offsets = await self._by_time(timestamps, which)
        there = {EARLIEST: ends.starts, LATEST: ends.ends}
        return {
            tp: there[offset][tp] if offset in there else offset for tp, offset in offsets.items()
        }

    async def first_since(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> PartitionOffsets:
        """Return the offset of each partition's first record at or after a timestamp.

        Partitions without such a record are left out.
        """
        found = await self._list(dict.fromkeys(partitions, timestamp_ms))
        return {tp: offset for tp, offset in found.items() if offset >= 0}

    async def _by_time(
        self, timestamps: Mapping[TopicPartition, int], which: Which
    ) -> PartitionOffsets:
        """Return the offset of the first record at or after each timestamp, or else LATEST.

        Raises:
            ConfigError: there is no such record, `which` is "starting", and
                ``startingOffsetsByTimestampStrategy`` is ``error``.
        """
        found = await self._list(timestamps)
        for tp, timestamp in timestamps.items():
            if found[tp] < 0 and which == "starting" and not self._options.no_match_latest:
                raise ConfigError(
                    f"No offset matched from request of topic-partition {tp} and timestamp "
                    f"{timestamp}."
                )
        return {tp: offset if offset >= 0 else LATEST for tp, offset in found.items()}


def _check_assigned(
    given: Mapping[TopicPartition, int], assigned: set[TopicPartition], what: str, special: str
) -> None:
    if given.keys() == assigned:
        return
    raise ConfigError(
        f"Partitions specified for Kafka {what} don't match what are assigned. Maybe topic "
        "partitions are created \nor deleted while the query is running"
        + (f". Use {special}.\n" if special else ", or you didn't specify all the partitions.\n")
        + f"Specified: {partitions_text(given)} Assigned: {partitions_text(assigned)}"
    )
