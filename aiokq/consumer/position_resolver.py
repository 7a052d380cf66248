"""PositionResolver: finds positions, and validates them after a leader change (KIP-320).

Each leader is queried in a task of its own, so that an unresponsive leader delays no other lookup.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.cluster.denials import name_denial
from aiokq.cluster.offsets import list_offsets, no_such_partition, offset_spec
from aiokq.consumer.positions import PartitionState, Positions, Stage, Start
from aiokq.core.errors import (
    KafkaError,
    LeaderNotAvailable,
    LogTruncated,
    NoOffsetForPartition,
    OffsetOutOfRange,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    error_for,
)
from aiokq.core.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiokq.wire.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.values import ConsumerValues
    from aiokq.group.offsets import GroupOffsets

__all__ = ["PositionResolver"]

logger = logging.getLogger("aiokq.consumer")

NO_OFFSET: Final = "no offset yet"
NOT_COMMITTED: Final = "no committed offsets yet"
NOT_CHECKED: Final = "position not checked"

EARLIEST: Final = offset_spec("earliest")
LATEST: Final = offset_spec("latest")
_COMMITTED: Final = {Start.COMMITTED: Start.POLICY, Start.COMMITTED_NEW: Start.EARLIEST}
"""For each `Start` at the committed offset, the `Start` that applies if no offset is committed."""

VALIDATION_SINCE: Final = 3
"""The first version of OffsetForLeaderEpoch that consumers may use.

Earlier versions require the permission ClusterAction.
"""


class PositionResolver:
    """Finds the positions of partitions, and validates them after a leader change.

    Args:
        settled: called after the position or the stage of a partition has changed.
        dropped: discards the buffered chunks of a partition.
        stored: the group's offsets; None without a group.
        found: called with a partition and its committed offset.
        spawn: starts a task of the consumer.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        positions: Positions,
        *,
        settled: Callable[[PartitionState], None],
        dropped: Callable[[PartitionState], None],
        stored: GroupOffsets | None,
        found: Callable[[TopicPartition, int], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._positions = positions
        self._settled = settled
        self._dropped = dropped
        self._stored = stored
        self._found = found
        self._spawn = spawn
        self._wake = asyncio.Event()

    def kick(self) -> None:
        """Make `run` look for partitions that need a lookup or a validation."""
        self._wake.set()

    async def run(self) -> None:
        """Start lookups and validations until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            due = self._start(now)
            if due is None:
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(due - now):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def out_of_range(self, state: PartitionState, error: KafkaError) -> None:
        """Handle a position outside of the log, after retention or a truncation."""
        if self._settings.auto_offset_reset == "none":
            self._park(
                state,
                OffsetOutOfRange(
                    f"offset {state.fetch_offset} is outside the log, and auto_offset_reset is "
                    "'none': seek() to another offset (beginning_offsets() and end_offsets() "
                    "return the start and the end of the log)",
                    topic_partition=state.tp,
                ),
            )
            return
        logger.warning(
            "position out of range: partition=%s position=%s reset=%s",
            state.tp,
            state.fetch_offset,
            self._settings.auto_offset_reset,
        )
        self.reset(state, Start.POLICY)

    def diverged(self, state: PartitionState, end_offset: int) -> None:
        """Handle a truncation of the log.

        Args:
            end_offset: the offset up to which the leader's log equals the log that was read; -1 if
                unknown.
        """
        position = state.position
        if end_offset >= position:
            # Only buffered records were truncated, so the position stays valid.
            logger.info("prefetched records discarded: partition=%s from=%s", state.tp, position)
            self._dropped(state)
            state.jump(position)
            self._settled(state)
            return
        logger.warning(
            "log was truncated: partition=%s position=%s shared_up_to=%s",
            state.tp,
            position,
            end_offset,
        )
        if self._settings.auto_offset_reset == "none":
            self._dropped(state)
            self._park(state, LogTruncated(position, end_offset, topic_partition=state.tp))
        elif end_offset >= 0:
            self._dropped(state)
            state.jump(end_offset)
            self._settled(state)
        else:
            self.reset(state, Start.POLICY)

    def reset(self, state: PartitionState, start: Start) -> None:
        """Discard the position and the buffered chunks, and look up a new position."""
        self._dropped(state)
        state.reset(start)
        self._settled(state)
        self.kick()

    def overdue(self, state: PartitionState, waited: float) -> KafkaError:
        """Return the error for a partition that has no position after `waited` seconds."""
        engine, tp = self._engine, state.tp
        info = engine.metadata.topics.get(tp.topic)
        if info is None:
            return engine.topics.error(tp.topic, waited)
        if tp.partition not in info.partitions:
            return no_such_partition(tp, len(info.partitions))
        cause = state.error or engine.last_error
        if cause is None and state.leader not in engine.metadata.brokers:
            cause = LeaderNotAvailable(topic_partition=tp)
        error = RequestTimeout(
            f"the position of {tp} was not known within {waited:.3g} s"
            + (f": {cause}" if cause is not None else ""),
            topic_partition=tp,
        )
        error.__cause__ = cause
        return error

    def _start(self, now: float) -> float | None:
        """Start all lookups that are due.

        Returns:
            Loop time at which the next lookup is due; None if no lookup is waiting.
        """
        due: float | None = None
        resets: dict[tuple[int, str, int], list[PartitionState]] = defaultdict(list)
        checks: dict[int, list[PartitionState]] = defaultdict(list)
        committed: list[PartitionState] = []
        for state in self._positions:
            if state.stage not in (Stage.RESETTING, Stage.VALIDATING):
                continue
            if state.looking_up == state.generation:
                continue
            if state.retry_at > now:
                due = state.retry_at if due is None else min(due, state.retry_at)
            elif state.stage is Stage.VALIDATING:
                if state.leader >= 0:
                    checks[state.leader].append(state)
            elif state.reset_to in _COMMITTED:
                committed.append(state)
            elif (spec := self._spec(state)) is not None:
                # Without a leader, each topic is looked up on its own: a missing topic must not
                # delay the lookups of other topics.
                topic = "" if state.leader >= 0 else state.tp.topic
                resets[state.leader, topic, spec].append(state)
        if committed:
            self._begin(committed, self._look_up_committed(committed), "look up committed offsets")
        for (_, _, spec), states in resets.items():
            self._begin(states, self._look_up(states, spec), "look up offsets")
        for leader, states in checks.items():
            self._begin(states, self._check(leader, states), "check positions")
        return due

    def _begin(
        self, states: list[PartitionState], coro: Coroutine[Any, Any, None], name: str
    ) -> None:
        for state in states:
            state.looking_up = state.generation
        self._spawn(coro, name)

    def _spec(self, state: PartitionState) -> int | None:
        """Return the timestamp to request; None if `auto_offset_reset` applies and is "none".

        If the result is None, the call has reported NoOffsetForPartition to the reader, and the
        partition is not fetched until its position is set or reset.
        """
        start = state.reset_to
        if start is Start.EARLIEST:
            return EARLIEST
        if start is Start.LATEST:
            return LATEST
        policy = self._settings.auto_offset_reset
        if policy == "earliest":
            return EARLIEST
        if policy == "latest":
            return LATEST
        if policy == "none":
            self._park(state, NoOffsetForPartition(topic_partition=state.tp))
            return None
        duration = self._settings.reset_duration_ms or 0
        return max(0, self._engine.environment.clock.timestamp_ms() - duration)

    async def _look_up(self, states: list[PartitionState], spec: int) -> None:
        generations = {state: state.generation for state in states}
        wanted = [state.tp for state in states]
        try:
            found = await self._offsets(wanted, spec)
        finally:
            for state, generation in generations.items():
                if state.looking_up == generation:
                    state.looking_up = -1
        now = self._engine.now()
        for state, generation in generations.items():
            if state.generation != generation:
                continue
            outcome = found[state.tp]
            if isinstance(outcome, OffsetAndTimestamp):
                self._engine.outages.recovered(NO_OFFSET, state.tp)
                logger.info("position reset: partition=%s offset=%s", state.tp, outcome.offset)
                epoch = -1 if outcome.leader_epoch is None else outcome.leader_epoch
                state.jump(outcome.offset, epoch)
                self._settled(state)
                continue
            error = outcome or NoOffsetForPartition(
                "the broker returned no offset for the partition", topic_partition=state.tp
            )
            state.later(now, error)
            if isinstance(error, UnknownTopicOrPartition):
                logger.debug("no offset yet: partition=%s error=%s", state.tp, error)
                continue  # topic_search.py reports the error
            self._report(NO_OFFSET, state, error)
            if not error.retriable:
                state.refused(error)
                state.source.report(error)
        self.kick()

    async def _look_up_committed(self, states: list[PartitionState]) -> None:
        generations = {state: state.generation for state in states}
        stored = self._stored
        assert stored is not None  # only a consumer in a group starts at committed offsets
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        failure: KafkaError | None = None
        try:
            found = await stored.committed(
                [state.tp for state in states], timeout=self._settings.default_api_timeout
            )
        except KafkaError as error:
            failure = error
        finally:
            for state, generation in generations.items():
                if state.looking_up == generation:
                    state.looking_up = -1
        wanting = [
            state for state, generation in generations.items() if state.generation == generation
        ]
        group_id = self._settings.group_id
        if failure is None:
            self._engine.outages.ended(NOT_COMMITTED, group_id)
        elif wanting:
            where = {"group": group_id, "partitions": len(wanting), "first": wanting[0].tp}
            self._engine.outages.failed(NOT_COMMITTED, group_id, failure, where=where)
        for state in wanting:
            if failure is not None:
                state.later(self._engine.now(), failure)
                if not failure.retriable:
                    state.refused(failure)
                    state.source.report(failure)
            elif (offset := found.get(state.tp)) is not None:
                logger.info("position committed: partition=%s offset=%d", state.tp, offset.offset)
                self._found(state.tp, offset.offset)
                epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
                state.jump(offset.offset, epoch)
                self._settled(state)
            else:
                state.reset(_COMMITTED[state.reset_to])
        self.kick()

    async def _offsets(
        self, wanted: list[TopicPartition], spec: int
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        settings = self._settings
        ends: Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None] = {}
        if spec >= 0:
            # If no record is at or after the requested time, the position is the end of the log.
            # The end is looked up first, so that a record that is written between the two lookups
            # is not skipped.
            ends = await list_offsets(
                self._engine,
                dict.fromkeys(wanted, LATEST),
                isolation_level=settings.isolation_level,
                timeout=settings.default_api_timeout,
            )
        found = await list_offsets(
            self._engine,
            dict.fromkeys(wanted, spec),
            isolation_level=settings.isolation_level,
            timeout=settings.default_api_timeout,
        )
        return {tp: ends.get(tp) if found[tp] is None else found[tp] for tp in wanted}

    async def _check(self, leader: int, states: list[PartitionState]) -> None:
        generations = {state: state.generation for state in states}
        failure: KafkaError | None = None
        response: OffsetForLeaderEpochResponse | None = None
        try:
            response = await self._engine.router.request(
                lambda version: _epoch_request(states, version),
                OffsetForLeaderEpochRequest,
                leader,
                timeout=self._settings.request_timeout,
            )
        except KafkaError as error:
            failure = error
        finally:
            for state, generation in generations.items():
                if state.looking_up == generation:
                    state.looking_up = -1
        answers = {
            (topic.topic, answer.partition): answer
            for topic in (response.topics if response is not None else ())
            for answer in topic.partitions
        }
        for state, generation in generations.items():
            if state.generation != generation or state.stage is not Stage.VALIDATING:
                continue
            answer = answers.get(state.tp)
            if isinstance(failure, UnsupportedVersion):
                state.validated()  # the broker does not support the check
                self._settled(state)
            elif answer is None:
                self._check_failed(state, failure)
            elif answer.error_code:
                refusal = error_for(
                    answer.error_code, api="OffsetForLeaderEpoch", topic_partition=state.tp
                )
                name_denial(self._engine, refusal)
                self._check_failed(state, refusal)
            elif answer.end_offset < 0 or answer.leader_epoch < 0:
                self.diverged(state, -1)
            elif answer.end_offset < state.fetch_offset:
                self.diverged(state, answer.end_offset)
            else:
                self._engine.outages.recovered(NOT_CHECKED, state.tp)
                state.validated()
                self._settled(state)
        self.kick()

    def _report(self, what: str, state: PartitionState, error: KafkaError) -> None:
        self._engine.outages.failed(
            what, None, error, where={"partition": state.tp}, member=state.tp
        )

    def _check_failed(self, state: PartitionState, error: KafkaError | None) -> None:
        state.later(self._engine.now(), error)
        if error is None:
            logger.warning(
                "position not checked, because the response lacks the partition: partition=%s",
                state.tp,
            )
            return
        self._report(NOT_CHECKED, state, error)
        if error.refresh_metadata:
            self._engine.partition_failed(state.tp, error, leader_epoch=state.leader_epoch)
        elif not error.retriable:
            state.source.report(error)

    def _park(self, state: PartitionState, error: KafkaError) -> None:
        state.park(error)
        state.refused(error)
        state.source.report(error)
        self._settled(state)


def _epoch_request(states: list[PartitionState], version: int) -> OffsetForLeaderEpochRequest:
    if version < VALIDATION_SINCE:
        raise UnsupportedVersion(
            f"the broker has OffsetForLeaderEpoch {version}, consumers need {VALIDATION_SINCE}",
            api="OffsetForLeaderEpoch",
        )
    topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for state in states:
        topics[state.tp.topic].append(
            OffsetForLeaderPartition(
                partition=state.tp.partition,
                current_leader_epoch=state.leader_epoch,
                leader_epoch=state.fetch_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[OffsetForLeaderTopic(topic=name, partitions=ps) for name, ps in topics.items()],
    )
