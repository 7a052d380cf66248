"""FetchPipeline: connects the parts of one consumer, from partition discovery to record sources.

partition_discovery.py decides which partitions are read, position_resolver.py finds their
positions, fetcher.py and buffers.py fetch, and record_source.py delivers the records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokq.cluster.events import EventKey, LoopStalled
from aiokq.consumer.buffers import Buffers
from aiokq.consumer.deserializers import record_deserializer
from aiokq.consumer.fetcher import Fetcher
from aiokq.consumer.health import BrokerHealth, ConsumerHealth, GroupHealth, partition_health
from aiokq.consumer.partition_discovery import PartitionDiscovery
from aiokq.consumer.position_resolver import PositionResolver
from aiokq.consumer.positions import PartitionState, Positions, Start
from aiokq.consumer.reader import Reader
from aiokq.consumer.record_source import RecordSource
from aiokq.consumer.streams import RecordSources
from aiokq.consumer.time_limit import TimeLimit
from aiokq.core.errors import Closed, ConfigError, copy_error
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.codecs import RecordCodecs

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.loop_binding import LoopBinding
    from aiokq.consumer.acknowledgements import Acknowledgements
    from aiokq.consumer.subscription import Subscription
    from aiokq.consumer.values import ConsumerValues
    from aiokq.core.supervisor import Supervisor
    from aiokq.group.offsets import GroupOffsets

__all__ = ["FetchPipeline"]

T = TypeVar("T")

_STALLS: Final = EventKey("loop", None)


class FetchPipeline:
    """The parts of one consumer that read partitions.

    Args:
        supervisor: the consumer's supervisor, the parent of all tasks.
        binding: binds the consumer to its event loop.
        stored: the committed offsets of the group; None without a group.
        acks: is notified of delivered records; None unless ``ack_mode="explicit"``.

    Attributes:
        positions: the states of all assigned partitions.
        sources: the record sources that deliver the records.
        committed_at: called with a partition and the committed offset that was found for it.
        replaced: called before the position of a partition is discarded because its topic was
            deleted and created again.
        starved: called when a reader of a source begins to wait for records, and no other reader of
            the source waits.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        subscription: Subscription,
        supervisor: Supervisor,
        binding: LoopBinding,
        stored: GroupOffsets | None = None,
        acks: Acknowledgements | None = None,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._subscription = subscription
        self._supervisor = supervisor
        self._binding = binding
        self._stored = stored
        self._acks = acks
        self._work = asyncio.Event()
        self.committed_at: Callable[[TopicPartition, int], None] = lambda tp, offset: None
        self.replaced: Callable[[PartitionState], None] = lambda state: None
        self.starved: Callable[[], None] = lambda: None
        self._deserializer = record_deserializer(settings)
        self._forget_gauges: list[Callable[[], None]] = []
        self._discovery: PartitionDiscovery | None = None
        self.positions = Positions()
        self.buffers = Buffers(
            settings.queued_max_bytes, codecs=RecordCodecs(crc32c), check_crcs=settings.check_crcs
        )
        self.fetcher = Fetcher(
            settings,
            engine,
            self.buffers,
            out_of_range=lambda state, error: self._resolver.out_of_range(state, error),
            diverged=lambda state, end: self._resolver.diverged(state, end),
            spawn=self._spawn,
        )
        self._resolver = PositionResolver(
            settings,
            engine,
            self.positions,
            settled=self.fetcher.update,
            dropped=self._drop,
            stored=stored,
            found=lambda tp, offset: self.committed_at(tp, offset),
            spawn=self._spawn,
        )
        self.sources = RecordSources(self._make_source)

    @property
    def discovery(self) -> PartitionDiscovery:
        """The partition discovery, which updates the assignment; available after `start`."""
        assert self._discovery is not None
        return self._discovery

    def start(self, topics: Callable[[frozenset[str] | None], None] | None = None) -> None:
        """Start the tasks that keep the assignment and the positions up to date.

        Args:
            topics: called with the subscribed topics, whose partitions the group assigns. If there
                is no group, `topics` is None.
        """
        self._discovery = PartitionDiscovery(
            self._settings,
            self._engine,
            self._subscription,
            self.positions,
            assigned=self._assigned,
            removed=self._removed,
            recreated=self._recreated,
            moved=self._moved,
            topics=topics,
            report=self.sources.report,
            spawn=self._spawn,
        )
        self._spawn(self._resolver.run(), "positions")
        self._spawn(self._end_with_cluster(), "cluster")
        counters = self._engine.counters
        self._forget_gauges = [
            counters.read_ahead_bytes.add_source(lambda: self.buffers.used),
            counters.fetch_lag.add_source(self._lags),
            counters.records_received.add_source(self._in_hand),
        ]

    async def close(self) -> None:
        """Stop reading, and close fetch sessions and connections."""
        self.sources.close()
        for forget in self._forget_gauges:
            forget()
        if self._discovery is None:
            return
        self._discovery.close()
        self.fetcher.stop()
        for state in list(self.positions):
            self._removed(state)
        await self.fetcher.close()

    def fail(self, failure: Closed) -> None:
        """Stop reading and raise `failure` to all waiters, because the consumer cannot continue."""
        if self._discovery is not None:
            self._discovery.close()
        self.fetcher.stop()
        self.sources.close(failure)
        for state in self.positions:
            state.refused(failure)

    def closed_error(self) -> Closed:
        """Return the error for the use of a consumer that is closed, or whose Cluster is closed."""
        if self._engine.ending:
            return Closed(
                "the Cluster of this consumer is closed: create a new Cluster and consumer"
            )
        return Closed("this consumer is closed: create a new one")

    def reader(self, source: RecordSource) -> Reader:
        return Reader(
            source, self.buffers, self._deserializer, self._acks, self._binding.check_bound
        )

    def seek(self, state: PartitionState, offset: int) -> None:
        self._drop(state)
        self._forget_work(state)
        state.source.forget_errors(state.tp)
        state.jump(offset)
        self.fetcher.update(state)

    def reset(self, state: PartitionState, start: Start) -> None:
        """Discard the position and the errors of a partition, and look up a new position."""
        state.source.forget_errors(state.tp)
        self._resolver.reset(state, start)
        self._forget_work(state)

    def pause(self, state: PartitionState) -> None:
        """Stop delivering the partition, and copy its buffered chunks out of shared frames."""
        if state.paused:
            return
        state.paused = True
        state.source.interrupt(state)
        for chunk in state.chunks:
            if chunk.frame.own:
                continue  # the chunk was copied before; its frame has chunks of this partition only
            self._count(chunk.received)
            if self.buffers.detach(chunk):
                self.fetcher.opened()
        self.fetcher.update(state)

    def resume(self, state: PartitionState) -> None:
        if state.paused:
            state.paused = False
            state.source.arrived(state)
            self.fetcher.update(state)

    def close_stream(self, source: RecordSource, failed: bool) -> None:
        """Close a stream.

        Args:
            failed: whether an exception ended the processing of the stream's last record. If so, a
                group must not commit the record as finished.
        """
        if failed and self._stored is not None:
            for state in list(source.states.values()):
                if source.unfinished(state):
                    self.seek(state, source.finished(state))
        self.sources.close_one(source)

    def withhold(self, state: PartitionState) -> None:
        """Stop delivering records now; records that are being processed stay unfinished."""
        if not state.withheld:
            state.withheld = True
            state.source.interrupt(state)
            self.fetcher.update(state)

    def release(self, state: PartitionState) -> None:
        """Resume delivering the records of a withheld partition."""
        if state.withheld:
            state.withheld = False
            state.source.arrived(state)
            self.fetcher.update(state)

    def let_go(self, state: PartitionState) -> None:
        """Stop reading a revoked or lost partition, unless it is also assigned manually.

        A manually assigned partition is read from its committed offset instead.
        """
        if state.tp in self._subscription.partitions:
            self.reset(state, Start.COMMITTED)
            self.release(state)
        else:
            self.discovery.leave(state.tp)

    async def work_changes(self) -> None:
        """Wait until `work_changed` is called."""
        self._work.clear()
        await self._work.wait()

    def work_changed(self) -> None:
        """End the wait of `work_changes`; its caller checks again for unfinished records."""
        self._work.set()

    async def await_positions(
        self, states: Iterable[PartitionState], timeout: float | None
    ) -> None:
        """Wait until all partitions have a position.

        Args:
            timeout: seconds; default `default_api_timeout_ms`.

        Raises:
            KafkaError: a partition has no position; the error says why.
        """
        seconds = self._settings.default_api_timeout if timeout is None else timeout
        waiting: PartitionState
        async with TimeLimit(seconds, lambda waited: self._resolver.overdue(waiting, waited)):
            for waiting in states:
                await waiting.has_position()
                if waiting.fetch_offset >= 0:
                    continue
                if waiting.error is not None:
                    raise copy_error(waiting.error)
                if self.sources.main.closed:
                    raise self.closed_error()
                raise ConfigError(f"{waiting.tp} is no longer assigned to this consumer")

    def health(self, *, works: bool, group: GroupHealth | None) -> ConsumerHealth:
        """Return the present state of partitions and brokers. May be called in any thread.

        Args:
            works: whether the consumer is open, and none of its tasks has failed.
            group: the state of the membership.
        """
        now = self._engine.environment.clock.timestamp_ms()
        committed_only = self._settings.committed_only
        partitions = {
            state.tp: partition_health(state, now, committed_only=committed_only)
            for state in list(self.positions)
        }
        brokers = {
            node_id: BrokerHealth(
                len(loop.states),
                loop.in_flight,
                None if loop.last_error is None else str(loop.last_error),
            )
            for node_id, loop in list(self.fetcher.brokers.items())
        }
        missing = self._subscription.names - self._engine.metadata.topics.keys()
        ok = works and not missing and (group is None or group.joined)
        ok = ok and all(p.error is None and p.node is not None for p in partitions.values())
        ok = ok and all(broker.error is None for broker in brokers.values() if broker.partitions)
        stalled = self._engine.changes.get(_STALLS)
        return ConsumerHealth(
            ok,
            partitions,
            brokers,
            self.buffers.used,
            missing,
            group,
            stalled if isinstance(stalled, LoopStalled) else None,
        )

    def _lags(self) -> dict[tuple[str, ...], int]:
        committed_only = self._settings.committed_only
        return {
            (state.tp.topic, str(state.tp.partition)): lag
            for state in list(self.positions)
            if (lag := state.lag(committed_only=committed_only)) is not None
        }

    def _in_hand(self) -> int:
        """Return the number of delivered records that `records_received` does not include yet."""
        # This runs in the exporter's thread. The event loop may change the deque `chunks`
        # meanwhile, so copy it.
        firsts = [list(state.chunks)[:1] for state in list(self.positions)]
        return sum(chunk.received for first in firsts for chunk in first)

    def _assigned(self, tp: TopicPartition, start: Start) -> PartitionState:
        start = self._in_group(start)
        state = PartitionState(tp, start, self.sources.main, self._engine.new_backoff())
        self.positions.add(state)
        self.sources.place(state)
        self._resolver.kick()
        return state

    def _removed(self, state: PartitionState) -> None:
        self._drop(state)
        self._forget_work(state)
        state.source.remove(state)
        state.source.forget_errors(state.tp)
        self.fetcher.remove(state)
        self.positions.remove(state.tp)

    def _in_group(self, start: Start) -> Start:
        """Return `start`; in a group, the committed offset, with `start` as its fallback."""
        if self._stored is None:
            return start
        return Start.COMMITTED if start is Start.POLICY else Start.COMMITTED_NEW

    def _recreated(self, state: PartitionState, start: Start) -> None:
        self.replaced(state)
        state.source.abandon(state)
        self._forget_work(state)
        state.source.forget_errors(state.tp)
        state.replace_topic(self._in_group(start))
        self.fetcher.update(state)
        self._resolver.kick()

    def _moved(self, state: PartitionState) -> None:
        self.fetcher.leader_changed(state)
        self._resolver.kick()

    def _drop(self, state: PartitionState) -> None:
        state.source.drop(state)

    def _forget_work(self, state: PartitionState) -> None:
        if self._acks is not None:
            self._acks.forget(state.tp)

    def _taken_back(self, tp: TopicPartition, base: int, position: int) -> None:
        if self._acks is not None:
            self._acks.taken_back(tp, base, position)

    async def _end_with_cluster(self) -> None:
        """Wait for the end of the cluster and raise its error, which ends the consumer."""
        await self._engine.changes.wait_for(lambda key, event: False)

    def _make_source(self) -> RecordSource:
        return RecordSource(
            self.buffers,
            consumed=self.fetcher.consumed,
            starved=self._starved,
            counted=self._count,
            opened=self.fetcher.opened,
            finished_some=self.work_changed,
            taken_back=self._taken_back,
            closed_error=self.closed_error,
            guard=self._binding.guard,
        )

    def _starved(self, source: RecordSource) -> None:
        self.fetcher.starved(source)
        self.starved()

    def _count(self, records: int) -> None:
        self._engine.counters.records_received.value += records

    def _spawn(self, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return self._supervisor.spawn(coro, name=name)
