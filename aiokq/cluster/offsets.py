"""Lookup of offsets by timestamp (ListOffsets), with concurrent requests to leaders and retries."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.denials import name_denial
from aiokq.core import limits
from aiokq.core.errors import (
    ConfigError,
    KafkaError,
    LeaderNotAvailable,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.types import OffsetAndTimestamp, TopicPartition
from aiokq.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["IsolationLevel", "OffsetSpec", "isolation_level_code", "list_offsets", "offset_spec"]

OffsetSpec: TypeAlias = (
    int
    | Literal[
        "earliest",
        "latest",
        "max_timestamp",
        "earliest_local",
        "latest_tiered",
        "earliest_pending_upload",
    ]
)
"""A time in milliseconds since the epoch, or a special offset.

A special offset is given by its name, or by Kafka's number for it, from -1 for "latest" to -6 for
"earliest_pending_upload".
"""

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]

SPECIAL: Final[Mapping[str, int]] = {
    "latest": -1,
    "earliest": -2,
    "max_timestamp": -3,
    "earliest_local": -4,
    "latest_tiered": -5,
    "earliest_pending_upload": -6,
}
SINCE: Final[Mapping[int, int]] = {-3: 7, -4: 8, -5: 9, -6: 11}
"""The first ListOffsets version with each special timestamp that version 1 lacks."""


def offset_spec(value: OffsetSpec) -> int:
    """Return the timestamp to put into a ListOffsets request.

    Source: Kafka `ListOffsetsRequest` (KIP-734, KIP-405, KIP-1005, KIP-1023).

    Raises:
        ConfigError: the name is unknown, or the number is neither a time nor a special offset.
        TypeError: `value` is neither a str nor an int.
    """
    if isinstance(value, str):
        if value not in SPECIAL:
            known = ", ".join(map(repr, SPECIAL))
            raise ConfigError(f"{value!r} is not an offset: use a time in ms, or one of {known}")
        return SPECIAL[value]
    limits.whole(value, "a time", -limits.INT64_MAX, limits.INT64_MAX, error=ConfigError)
    if value < min(SPECIAL.values()):
        raise ConfigError(
            f"{value} is not a time: times are milliseconds since 1970; use 'earliest' or "
            "'latest' (Kafka's -2 and -1) for the start or the end of the log"
        )
    return value


def isolation_level_code(level: IsolationLevel) -> int:
    """Return the protocol's number of an isolation level, 0 or 1.

    Raises:
        ConfigError: `level` is not the name of an isolation level.
    """
    codes = {"read_uncommitted": 0, "read_committed": 1}
    if not isinstance(level, str) or level not in codes:
        raise ConfigError(
            f"isolation_level={level!r} is neither 'read_uncommitted' nor 'read_committed'"
        )
    return codes[level]


async def list_offsets(
    engine: ClusterEngine,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: IsolationLevel = "read_uncommitted",
    timeout: float,
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
    """Look up the offset of each partition.

    Args:
        wanted: timestamps as returned by `offset_spec`.
        timeout: seconds, retries included.

    Returns:
        The offset or the error of each partition; None if there is no such offset, for example
        because all records have earlier timestamps.

    Raises:
        ConfigError: ``isolation_level`` is not the name of an isolation level.
        Closed: the cluster was closed during the lookup.
    """
    lookup = _Lookup(engine, wanted, isolation_level_code(isolation_level))
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await lookup.run()
    except TimeoutError:
        if not limit.expired():
            raise
        lookup.give_up(timeout)
    return lookup.outcomes


class _Lookup:
    """One lookup: the outcomes that are known, and the last errors of the pending partitions."""

    def __init__(
        self, engine: ClusterEngine, wanted: Mapping[TopicPartition, int], isolation_level: int
    ) -> None:
        self._engine = engine
        self._pending = dict(wanted)
        self._isolation_level = isolation_level
        self._errors: dict[TopicPartition, KafkaError] = {}
        self._refreshed: set[str] = set()
        self.outcomes: dict[TopicPartition, OffsetAndTimestamp | KafkaError | None] = {}

    async def run(self) -> None:
        # Each topic has its own task, because a topic that does not exist must not delay other
        # topics.
        ended = await concurrently(
            self._engine.supervisor,
            (self._settle_topic(topic) for topic in sorted({tp.topic for tp in self._pending})),
            name="list offsets",
        )
        for error in ended:
            if error is not None:  # errors of partitions are in `outcomes` instead
                raise error

    async def _settle_topic(self, topic: str) -> None:
        backoff = self._engine.new_backoff()
        while True:
            await self._look_up_topic(topic)
            if not any(tp.topic == topic for tp in self._pending):
                return
            await asyncio.sleep(backoff.next())

    def give_up(self, waited: float) -> None:
        for tp in self._pending:
            cause = self._errors.get(tp)
            error: KafkaError
            if tp.topic not in self._engine.metadata.topics:
                error = self._engine.topics.error(tp.topic, waited)
            else:
                error = RequestTimeout(
                    f"no offset within {waited:.3g} s" + (f": {cause}" if cause else ""),
                    api="ListOffsets",
                    topic_partition=tp,
                )
                error.__cause__ = cause
            self.outcomes[tp] = error
        self._pending.clear()

    async def _look_up_topic(self, topic: str) -> None:
        engine = self._engine
        mine = {tp: when for tp, when in self._pending.items() if tp.topic == topic}
        try:
            info = await engine.topic(topic, create=False)
            if any(tp.partition not in info.partitions for tp in mine):
                await self._expect_growth(topic, mine)
        except KafkaError as error:
            self._refused(mine, error)
            return
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, when in mine.items():
            if tp not in self._pending:
                continue
            leader = engine.metadata.leader(tp)
            if leader in engine.metadata.brokers:
                by_leader[leader][tp] = when
            else:
                engine.refresher.soon([topic])
                self._errors[tp] = LeaderNotAvailable(topic_partition=tp)
        await concurrently(
            engine.supervisor,
            (self._ask(node_id, asked) for node_id, asked in by_leader.items()),
            name="list offsets",
        )

    async def _expect_growth(self, topic: str, mine: Iterable[TopicPartition]) -> None:
        """Refresh metadata once and fail the partitions that still do not exist."""
        if topic not in self._refreshed:
            await self._engine.refresh([topic])
            self._refreshed.add(topic)
        info = self._engine.metadata.topics.get(topic)
        for tp in mine:
            if info is not None and tp.partition not in info.partitions:
                self._settle(tp, no_such_partition(tp, len(info.partitions)))

    async def _ask(self, node_id: int, asked: Mapping[TopicPartition, int]) -> None:
        engine = self._engine
        epochs = {tp: engine.metadata.leader_epoch(tp) for tp in asked}
        try:
            response = await engine.router.request(
                lambda version: self._request(asked, epochs, version),
                ListOffsetsRequest,
                node_id,
                timeout=engine.settings.request_timeout,
            )
        except KafkaError as error:
            self._refused(asked, error, epochs)
            return
        self._take(response, epochs)

    def _request(
        self,
        asked: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        version: int,
    ) -> ListOffsetsRequest:
        needed = max(SINCE.get(when, 1) for when in asked.values())
        if version < needed:
            raise UnsupportedVersion(
                f"the broker has ListOffsets {version}, this request needs version {needed}: "
                "upgrade the broker",
                api="ListOffsets",
            )
        topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for tp, when in asked.items():
            topics[tp.topic].append(
                ListOffsetsPartition(
                    partition_index=tp.partition,
                    current_leader_epoch=epochs[tp],
                    timestamp=when,
                )
            )
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self._isolation_level,
            timeout_ms=self._engine.settings.request_timeout_ms,
            topics=[ListOffsetsTopic(name=name, partitions=ps) for name, ps in topics.items()],
        )

    def _take(self, response: ListOffsetsResponse, epochs: Mapping[TopicPartition, int]) -> None:
        for topic in response.topics:
            for answer in topic.partitions:
                tp = TopicPartition(topic.name, answer.partition_index)
                if tp not in self._pending:
                    continue
                if answer.error_code:
                    error = error_for(answer.error_code, api="ListOffsets", topic_partition=tp)
                    self._refused([tp], error, epochs)
                    continue
                self._engine.partition_ok(tp)
                found = OffsetAndTimestamp(
                    answer.offset,
                    answer.timestamp,
                    answer.leader_epoch if answer.leader_epoch >= 0 else None,
                )
                self._settle(tp, found if answer.offset >= 0 else None)

    def _refused(
        self,
        partitions: Iterable[TopicPartition],
        error: KafkaError,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        for tp in list(partitions):
            if not error.retriable:
                name_denial(self._engine, error)
                self._settle(tp, error)
                continue
            self._errors[tp] = error
            if error.refresh_metadata:
                epoch = None if epochs is None else epochs.get(tp)
                self._engine.partition_failed(tp, error, leader_epoch=epoch)

    def _settle(self, tp: TopicPartition, outcome: OffsetAndTimestamp | KafkaError | None) -> None:
        if self._pending.pop(tp, None) is not None:
            self.outcomes[tp] = outcome


def no_such_partition(tp: TopicPartition, count: int) -> UnknownTopicOrPartition:
    """Return a non-retriable error for a partition number that the topic does not have."""
    error = UnknownTopicOrPartition(
        f"topic {tp.topic!r} has {count} partition{'' if count == 1 else 's'} (0 to {count - 1}): "
        f"there is no partition {tp.partition}",
        topic_partition=tp,
    )
    error.retriable = False
    return error
