"""Fetcher: routes partitions to brokers, decides when to fetch, and handles the responses.

A BrokerFetcher per broker sends the requests. Records are delivered by RecordSource.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.metadata import NO_LEADER
from aiokq.cluster.partition_reader import leader_hint
from aiokq.connection.backoff import Backoff
from aiokq.consumer.broker_fetcher import BrokerFetcher, Want
from aiokq.consumer.buffers import Buffers, Frame, extent
from aiokq.consumer.decompression import MOST_BYTES, decompress_batches, needs_decompression
from aiokq.consumer.fetch_errors import FetchAction, fetch_action
from aiokq.consumer.fetch_sessions import Ask
from aiokq.consumer.positions import PartitionState, Stage
from aiokq.core.errors import (
    Closed,
    KafkaError,
    LeaderNotAvailable,
    ProtocolError,
    RecordTooLarge,
    error_for,
)
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.node import Node
    from aiokq.consumer.record_source import RecordSource
    from aiokq.consumer.values import ConsumerValues
    from aiokq.fastpath.consume import Cursor
    from aiokq.wire.fetch import FetchPartitionData, FetchResponse

__all__ = ["Fetcher"]

logger = logging.getLogger("aiokq.consumer")

REFUSED: Final = "fetch refused"

NOT_NOW = Want()
ENOUGH = Want(full=True)


class Fetcher:
    """Fetches records of the assigned partitions into the buffers.

    Args:
        out_of_range: called with a partition whose position is not in the log, and the error.
        diverged: called with a partition, and the offset up to which the leader's log equals the
            log that was read.
        spawn: starts a task of the consumer.

    Attributes:
        outages: writes log lines about lasting errors of the cluster and its clients.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        buffers: Buffers,
        *,
        out_of_range: Callable[[PartitionState, KafkaError], None],
        diverged: Callable[[PartitionState, int], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._counters = engine.counters
        self.outages = engine.outages
        self._buffers = buffers
        self._out_of_range = out_of_range
        self._diverged = diverged
        self._spawn = spawn
        self._loops: dict[int, tuple[BrokerFetcher, asyncio.Task[None]]] = {}
        self._stopped = False
        self._partition_bytes = max(1, settings.max_partition_fetch_bytes)
        # Enough for two responses: while a reader handles the records of one response, the broker
        # prepares the next response.
        self._enough_bytes = 2 * self._partition_bytes

    @property
    def brokers(self) -> dict[int, BrokerFetcher]:
        """The fetch loops by node id."""
        return {node_id: loop for node_id, (loop, _) in self._loops.items()}

    def stop(self) -> None:
        """Stop fetching, without waiting for responses."""
        self._stopped = True
        for _, task in self._loops.values():
            task.cancel()

    async def close(self) -> None:
        """End all fetch loops, their sessions and connections."""
        self.stop()
        loops, self._loops = self._loops, {}
        if loops:
            await asyncio.wait([task for _, task in loops.values()])
        # The cluster's supervisor runs these tasks, because a failed consumer cannot start tasks.
        try:
            await concurrently(
                self._engine.supervisor,
                [loop.close() for loop, _ in loops.values()],
                name="end fetches",
            )
        except Closed as error:
            # The cluster is closed, and has closed all connections.
            logger.debug(
                "fetch connections not closed, because the cluster is closed: error=%s", error
            )

    def update(self, state: PartitionState) -> None:
        """Handle a change of the partition's position, pause, leader or buffered data."""
        if self._stopped:
            return
        node_id = self._route(state)
        if node_id != state.node:
            self._leave(state)
            state.node = node_id
            if node_id >= 0:
                self._loop(node_id).add(state)
        else:
            self._touch(state)

    def remove(self, state: PartitionState) -> None:
        """Stop fetching a partition that is not assigned any more, and end its logged outage."""
        self._leave(state)
        state.node = -1
        self.outages.recovered(REFUSED, state.tp)

    def consumed(self, state: PartitionState) -> None:
        """Fetch more if less than twice `max_partition_fetch_bytes` is buffered."""
        if state.queued_bytes < self._enough_bytes:
            self._touch(state)

    def starved(self, source: RecordSource) -> None:
        """Fetch immediately for a waiting reader."""
        if self._buffers.full:
            for state in source.states.values():
                self._touch(state)
        else:
            for loop, _ in self._loops.values():
                loop.wake()

    def opened(self) -> None:
        """Resume fetching, because the buffers have room again."""
        for loop, _ in self._loops.values():
            loop.touch_all()

    def leader_changed(self, state: PartitionState) -> None:
        """Update the leader of the partition from the metadata."""
        metadata = self._engine.metadata
        topic = metadata.topics.get(state.tp.topic)
        info = None if topic is None else topic.partitions.get(state.tp.partition)
        if topic is None or info is None:
            if state.node >= 0:  # the topic was deleted: there is no broker to fetch from
                state.leader = state.preferred = NO_LEADER
                self.update(state)
            return
        state.topic_id = topic.topic_id
        if info.leader != state.leader:
            state.preferred = -1
        state.leader = info.leader
        if info.leader_epoch > state.leader_epoch:
            known, state.leader_epoch = state.leader_epoch, info.leader_epoch
            if known >= 0:
                state.validate()
        self.update(state)

    # Hot path, once per partition and fetch; measured by benchmarks/micro/consumer.py.
    def want(self, state: PartitionState, node_id: int, now: float) -> Want:
        """Decide whether to fetch the partition from this broker now."""
        if state.stage is not Stage.FETCHING or state.paused or state.node != node_id:
            return NOT_NOW
        if state.withheld:
            return NOT_NOW
        if state.preferred == node_id and now >= state.preferred_until:
            # The leader may name a better replica by now, or serve the fetch itself.
            state.preferred = -1
            self.update(state)
            return NOT_NOW
        if state.retry_at > now:
            return Want(at=state.retry_at)
        if state.queued_bytes >= self._enough_bytes:
            return ENOUGH
        if self._buffers.full and (state.chunks or not state.source.hungry):
            return ENOUGH
        return Want(
            Ask(
                state.fetch_offset,
                state.leader_epoch,
                state.fetch_epoch,
                self._partition_bytes,
                state.topic_id,
                state.generation,
                state,
            ),
            at=state.preferred_until if state.preferred == node_id else 0.0,
        )

    def max_bytes(self) -> int:
        """Return the maximum size of a response in bytes."""
        room = max(self._buffers.room, self._partition_bytes)
        return min(self._settings.fetch_max_bytes, room)

    def node(self, node_id: int) -> Node:
        return self._engine.node(node_id)

    def new_backoff(self) -> Backoff:
        return self._engine.new_backoff()

    async def unpack(self, response: FetchResponse) -> None:
        """Decompress data with large batches in the executor, to keep the event loop responsive."""
        size = 0
        room = MOST_BYTES
        for topic in response.responses:
            for data in topic.partitions:
                records = data.records
                if not isinstance(records, memoryview):
                    continue
                size += len(records)
                if room > 0 and needs_decompression(records):
                    opened = await self._engine.environment.offload.run(
                        partial(
                            decompress_batches, records, room, check_crcs=self._settings.check_crcs
                        )
                    )
                    data.records = opened
                    room -= len(opened)
        self._counters.record_bytes_received += size

    def received(
        self, node_id: int, asked: dict[TopicPartition, Ask], response: FetchResponse
    ) -> bool:
        """Handle a response; return whether the response contains any partition.

        Raises:
            ProtocolError: the response has only partitions that were not requested. Without an
                error the same request would be repeated forever, without a pause.
        """
        size = 0
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    size += len(data.records)
        frame = self._buffers.frame(size)
        now = self._engine.now()
        names: dict[UUID, str] | None = None
        strange = bool(response.responses)
        for topic in response.responses:
            name = topic.topic
            if not name:
                if names is None:
                    names = {ask.topic_id: tp.topic for tp, ask in asked.items()}
                name = names.get(topic.topic_id, "")
            for data in topic.partitions:
                ask = asked.get(TopicPartition(name, data.partition_index))
                if ask is not None:
                    strange = False
                    self._take(node_id, ask, data, response, frame, now)
        self._buffers.discard(frame)
        if strange:
            error = ProtocolError(
                "the broker sent only partitions that were not requested", api="Fetch", node=node_id
            )
            # The broker may know the topic by another id. The client then needs new metadata and
            # a new session.
            error.retriable = error.refresh_metadata = True
            raise error
        return bool(response.responses)

    def unreachable(self, node_id: int, states: list[PartitionState], error: KafkaError) -> None:
        """Handle a request that failed for all its partitions."""
        engine = self._engine
        self._counters.retries["Fetch"] += 1
        reported: set[RecordSource] = set()
        for state in states:
            if state.preferred == node_id:
                state.preferred = -1
            elif error.retriable or error.refresh_metadata:
                if error.refresh_metadata:
                    engine.partition_failed(state.tp, error, leader_epoch=state.leader_epoch)
            elif state.source not in reported:
                reported.add(state.source)
                state.source.report(error)
            self.update(state)

    def _take(
        self,
        node_id: int,
        ask: Ask,
        data: FetchPartitionData,
        response: FetchResponse,
        frame: Frame,
        now: float,
    ) -> None:
        state: PartitionState = ask.state
        if state.generation != ask.generation or state.fetch_offset != ask.offset:
            return  # the data is outdated: the position was changed, or the partition was revoked
        if data.error_code:
            self._refused(node_id, state, data, response, now)
            self.update(state)
            return
        if state.stage is not Stage.FETCHING:
            return
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            self._diverged(state, data.diverging_epoch.end_offset)
            self.update(state)
            return
        state.answered()
        self._engine.partition_ok(state.tp)
        if self.outages.troubled:
            self.outages.recovered(REFUSED, state.tp)
        if data.high_watermark >= 0:
            state.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        state.fetched_at_ms = self._engine.environment.clock.timestamp_ms()
        if data.preferred_read_replica >= 0 and data.preferred_read_replica != state.preferred:
            self._prefer(state, data.preferred_read_replica, now)
        if data.records:
            self._buffer(state, data, frame, now)
        self.update(state)

    def _buffer(
        self, state: PartitionState, data: FetchPartitionData, frame: Frame, now: float
    ) -> None:
        tp = state.tp
        records = data.records
        assert isinstance(records, memoryview)
        end, epoch = extent(records)
        aborted = None
        if self._settings.committed_only:
            aborted = [(a.producer_id, a.first_offset) for a in data.aborted_transactions or ()]
        start = state.fetch_offset
        if end <= start:
            # No complete batch ends after the fetch offset.
            cursor = self._buffers.cursor(tp.topic, tp.partition, records, start, aborted)
            self._spoiled(state, cursor, end, now)
            return
        chunk = self._buffers.chunk(frame, tp.topic, tp.partition, records, start, end, aborted)
        state.chunks.append(chunk)
        state.queued_bytes += chunk.size
        state.fetch_offset = end
        if epoch >= 0:
            state.fetch_epoch = epoch
        self._counters.batches_received += 1
        state.source.arrived(state)

    def _spoiled(self, state: PartitionState, cursor: Cursor, end: int, now: float) -> None:
        try:
            cursor.take(1)
        except KafkaError as error:
            self._park(state, error)
        else:
            cut_off = cursor.partial_batch_bytes
            if cut_off and end < 0:
                self._park(
                    state,
                    RecordTooLarge(
                        f"the batch at offset {state.fetch_offset} has {cut_off} bytes, and this "
                        "broker returns at most "
                        f"max_partition_fetch_bytes={self._partition_bytes}: raise that setting, "
                        "or seek() past the batch",
                        topic_partition=state.tp,
                    ),
                )
            else:
                state.later(now, None)

    def _refused(
        self,
        node_id: int,
        state: PartitionState,
        data: FetchPartitionData,
        response: FetchResponse,
        now: float,
    ) -> None:
        error = error_for(
            data.error_code,
            api="Fetch",
            node=node_id,
            topic_partition=state.tp,
            principal=self._engine.settings.principal,
        )
        self._counters.errors[error.name] += 1
        state.later(now, error)
        if state.preferred == node_id:
            # Read from the leader again, whatever error the replica returned.
            state.preferred = -1
            if fetch_action(error.code) is not FetchAction.REFRESH:
                logger.info("reading from the leader again: partition=%s error=%s", state.tp, error)
                return
        action = fetch_action(error.code)
        if state.chunks and action in (FetchAction.RESET, FetchAction.RAISE, FetchAction.PARK):
            return  # buffered records are delivered first; the fetch is then repeated
        match action:
            case FetchAction.RETRY:
                self._report(node_id, state, error)
            case FetchAction.REFRESH:
                self._report(node_id, state, error)
                self._engine.partition_failed(
                    state.tp,
                    error,
                    leader_epoch=state.leader_epoch,
                    hint=leader_hint(response, data),
                )
            case FetchAction.RESET:
                self._out_of_range(state, error)
            case FetchAction.RAISE:
                state.source.report(error)
            case FetchAction.PARK:
                self._park(state, error)

    def _report(self, node_id: int, state: PartitionState, error: KafkaError) -> None:
        where = {"node": node_id, "partition": state.tp}
        self.outages.failed(REFUSED, node_id, error, where=where, member=state.tp)

    def _park(self, state: PartitionState, error: KafkaError) -> None:
        if error.topic_partition is None:
            error.add_context(topic_partition=state.tp)
        state.park(error)
        state.source.report(error)

    def _prefer(self, state: PartitionState, replica: int, now: float) -> None:
        if replica in self._engine.metadata.brokers:
            state.preferred = replica
            state.preferred_until = now + self._settings.metadata_max_age_ms / 1000
            logger.info("reading from a replica: partition=%s node=%s", state.tp, replica)
        else:
            state.later(now, None)
            self._engine.refresher.soon([state.tp.topic])

    def _route(self, state: PartitionState) -> int:
        """Return the broker to fetch the partition from; -1 if there is none."""
        if state.stage is Stage.PARKED:
            return state.node
        brokers = self._engine.metadata.brokers
        if state.preferred >= 0:
            if state.preferred in brokers and state.preferred not in self._engine.state.down:
                return state.preferred
            state.preferred = -1
        if state.leader in brokers:
            return state.leader
        if state.leader < 0 and not self._engine.failed(state.tp):
            self._engine.partition_failed(state.tp, LeaderNotAvailable(topic_partition=state.tp))
        return -1

    def _touch(self, state: PartitionState) -> None:
        if (running := self._loops.get(state.node)) is not None:
            running[0].touch(state.tp)

    def _leave(self, state: PartitionState) -> None:
        running = self._loops.get(state.node)
        if running is None:
            return
        loop, task = running
        loop.remove(state.tp)
        brokers = self._engine.metadata.brokers
        if not (loop.states or self._stopped or state.node in brokers):
            del self._loops[state.node]
            task.cancel()
            self._spawn(loop.close(), f"close fetches from node {loop.node_id}")

    def _loop(self, node_id: int) -> BrokerFetcher:
        running = self._loops.get(node_id)
        if running is not None:
            return running[0]
        loop = BrokerFetcher(node_id, self, self._settings)
        task = self._spawn(loop.run(), f"fetch from node {node_id}")
        self._loops[node_id] = loop, task
        return loop
