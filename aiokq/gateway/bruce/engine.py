"""BruceEngine: delivers messages after the design of Bruce, on `Cluster.produce`.

The engine chooses a broker for each message, and a Dispatcher per broker batches messages and packs
requests. After an error that new metadata may resolve, the engine pauses, and then replaces all
dispatchers. Dispatchers have no I/O; this module sends their requests, waits for the pauses, and
follows the metadata. Tests: tests/sim/test_gateway_bruce.py, tests/unit/gateway/bruce.

Source: Bruce's design document.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Final

from aiokq.errors import (
    BrokerError,
    Closed,
    InvalidTopic,
    KafkaError,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.fastpath.gateway import BAD_TOPIC, NO_PARTITION, REASONS, SHUTDOWN
from aiokq.gateway.bruce.batching import Batch, BatchLimits, Now
from aiokq.gateway.bruce.chunk import ANY_SIZE, Chunk, Load, in_order
from aiokq.gateway.bruce.counters import BruceCounters
from aiokq.gateway.bruce.dispatcher import Dispatcher, Failure, Request
from aiokq.gateway.bruce.holdings import Holdings
from aiokq.gateway.bruce.options import BruceOptions
from aiokq.gateway.bruce.packing import SET_OVERHEAD, MessageSet
from aiokq.gateway.bruce.partitions import PartitionMap, TopicPartitions
from aiokq.gateway.bruce.pausing import PauseBackoff
from aiokq.gateway.bruce.rerouting import divided, partitions_of
from aiokq.gateway.budget import Budget
from aiokq.gateway.load import LOAD_BYTES, record_columns

if TYPE_CHECKING:
    from aiokq import BatchBuilder, Cluster, ProduceResult, RecordColumns
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.engine import Guard, InEngine, Outcomes, TopicState

__all__ = ["BruceEngine"]

logger = logging.getLogger("aiokq.gateway")

OLD_MESSAGE_OVERHEAD: Final = 26
"""Bytes that `min_bytes` of the compression counts for each message besides key and value.

This is the overhead of a message in Kafka's message format 0.
"""

LONE_RECORD_OVERHEAD: Final = 20
"""Maximum bytes of a single record in addition to its key and value."""

MISSING_SECONDS: Final = 2.0
"""Seconds for which a topic must be missing before its messages are discarded."""

ANSWER_SECONDS: Final = 5.0
"""Seconds that the engine waits for an answer in addition to `timeout_ms`."""


class BruceEngine:
    """Delivers by Produce requests of its own. Implements `Engine` and `Delivery`.

    Args:
        cluster: a started Cluster; it need not have metadata.
        spawn: starts a task that belongs to the gateway.
        guarded: wraps a callback of the loop, so that its exceptions end the gateway.
        now_ms: returns the current time in milliseconds since 1970.
        on_room: called with a topic for which there is room again.
        on_gone: called with a topic that the cluster does not know any more.
        random: for shuffled partitions and for jitter.

    Attributes:
        counters: the counts of events so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: BruceOptions,
        outcomes: Outcomes,
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        guarded: Guard,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_room: Callable[[TopicState], None] = lambda topic: None,
        on_gone: Callable[[TopicState], None] = lambda topic: None,
        random: Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._outcomes = outcomes
        self._spawn = spawn
        self._guarded = guarded
        self._now_ms = now_ms
        self._on_gone = on_gone
        self._random = Random() if random is None else random
        self._budget = Budget(options.held_bytes, on_room)
        self._holdings = Holdings(self._budget)
        self._seen = cluster.metadata
        self._map = PartitionMap(self._seen, self._random)
        self._dispatchers: dict[int, Dispatcher] = {}
        self._tasks: dict[Request, asyncio.Task[None]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self._loads = 0
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._answered = asyncio.Event()
        """Set when the last request in flight has ended; cleared when a request is sent."""
        self._pausing = False
        self._suspended = False
        self._restarting = False
        """Whether a restart waits for answers or metadata: nothing is sent."""
        self._arrived: dict[TopicState, list[Taken]] = {}
        """Messages that were accepted in this iteration of the loop."""
        self._unrouted: list[Chunk] = []
        """Messages that are routed at the end of a restart."""
        self._unknown: dict[str, list[Chunk]] = {}
        """Messages of topics that the metadata lacks, until their metadata is received."""
        self._flushing = False
        self._pumping = False
        self._pumps_soon = False
        self._closed = False
        self._pauses = self._new_backoff()
        self._requests_for_metadata = self._new_backoff()
        self.counters = BruceCounters()
        self.max_message_bytes = _max_message_bytes(options)

    def _new_backoff(self) -> PauseBackoff:
        options = self._options
        return PauseBackoff(
            options.pause_initial, options.pause_max_doublings, options.min_pause, self._random
        )

    # ------------------------------------------------------------ Engine

    @property
    def pauses(self) -> tuple[int, int]:
        return self.counters.pauses_started, self.counters.pauses_finished

    async def start(self) -> None:
        self._task(self._follow_metadata(), "bruce: events")
        self._task(self._refresh_metadata(), "bruce: metadata")

    def room(self, topic: TopicState) -> int:
        room = self._budget.room(topic)
        if not room and not self._tasks and not self._pumps_soon:
            # No answer will make room. Perhaps only incomplete batches fill the engine.
            self._pumps_soon = True
            asyncio.get_running_loop().call_soon(self._guarded(self._pump))
        return room

    def accept(self, topic: TopicState, taken: Taken) -> None:
        self._notice_metadata()
        self._outcomes.charged(LOAD_BYTES)
        self._holdings.accepted(topic, taken)
        self._idle.clear()
        # The messages of a batch may come in several calls: they are routed together.
        if not self._arrived:
            asyncio.get_running_loop().call_soon(self._guarded(self._route_arrived))
        self._arrived.setdefault(topic, []).append(taken)

    def held(self) -> Mapping[str, InEngine]:
        return self._holdings.counts()

    def reconfigure(self) -> None:
        # `drain` may have set `_flushing`. From now on, messages are batched again, by the changed
        # rules.
        self._flushing = False
        for dispatcher in self._dispatchers.values():
            # Ends batches begun by the old rules; new batches use the changed rules.
            dispatcher.flush()
        if self._dispatchers:
            asyncio.get_running_loop().call_soon(self._guarded(self._pump))

    def configure(self, options: BruceOptions) -> None:
        """Use other options from now on, except for `held_bytes`, which does not change."""
        before, self._options = self._options, options
        self.max_message_bytes = _max_message_bytes(options)
        if _pauses(before) != _pauses(options):
            self._pauses = self._new_backoff()
            self._requests_for_metadata = self._new_backoff()
        for dispatcher in self._dispatchers.values():
            dispatcher.options = options.dispatcher

    async def drain(self) -> None:
        self._flushing = True
        for dispatcher in self._dispatchers.values():
            dispatcher.flush()
        self._pump()
        await self._idle.wait()

    @property
    def sending(self) -> bool:
        return bool(self._tasks)

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        if not self._closed:
            asyncio.get_running_loop().call_soon(self._guarded(self._pump))

    def adopt(self, other: BruceEngine) -> None:
        chunks = other._end()
        # Later loads need higher numbers, because chunks are sorted by the numbers of their loads.
        self._loads = other._loads
        self._holdings.adopt(other._holdings)
        if chunks:
            self._idle.clear()
            self._reroute(chunks)
            self._pump()

    async def close(self) -> None:
        for chunk in self._end():
            self._discard(chunk, SHUTDOWN)

    def _end(self) -> list[Chunk]:
        """Stop everything, and return the messages without an outcome."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._others:
            task.cancel()
        self._restarting = True  # messages that have just arrived are kept, too
        self._route_arrived()
        chunks, self._unrouted = self._unrouted + self._collect(), []
        for waiting in self._unknown.values():
            chunks += waiting
        self._unknown.clear()
        return in_order(chunks)

    # ------------------------------------------------------------ Delivery

    def queued(self, chunk: Chunk) -> None:
        self._holdings.queued(chunk)

    def sent(self, chunk: Chunk) -> None:
        self._holdings.sent(chunk)
        topic = chunk.load.topic
        if topic.trace is not None:
            topic.trace.sent(topic.name, chunk.load.taken, chunk.numbers())

    def acked(self, chunk: Chunk) -> None:
        load = chunk.load
        charge = load.settle(len(chunk))
        self._holdings.ended(chunk, charge, in_flight=True)
        self._outcomes.acked(load.topic, load.taken, chunk.numbers(), charge)

    def discard(self, chunk: Chunk, failure: Failure) -> None:
        reason = REASONS.index(failure.reason)
        self._discard(chunk, reason, failure.error, in_flight=True)

    def restamp(self, chunk: Chunk) -> None:
        load = chunk.load
        if load.restamped is None:
            load.restamped = self._columns(load.topic, load.taken, None, None)
        chunk.restamped = True
        _, chunk.size = chunk.fitting(ANY_SIZE)

    def duplicates(self, chunk: Chunk) -> None:
        load = chunk.load
        self._outcomes.possible_duplicates(load.topic, load.taken, chunk.numbers())

    def _discard(
        self,
        chunk: Chunk,
        reason: int,
        error: KafkaError | None = None,
        *,
        in_flight: bool = False,
    ) -> None:
        load = chunk.load
        charge = load.settle(len(chunk))
        self._holdings.ended(chunk, charge, in_flight=in_flight)
        self._outcomes.discarded(
            load.topic,
            load.taken,
            chunk.numbers(),
            reason,
            charge,
            error=error,
            attempts=chunk.attempts,
        )

    # ------------------------------------------------------------ routing

    def _route_arrived(self) -> None:
        arrived, self._arrived = self._arrived, {}
        for topic, takens in arrived.items():
            self._enter(topic, takens)
        self._pump()

    def _enter(self, topic: TopicState, takens: list[Taken]) -> None:
        """Divide new messages by their partitions, and route them."""
        partitions = self._partitions(topic)
        anywhere: list[Chunk] = []
        for taken in takens:
            load = self._load(topic, taken, partitions)
            for partition, rows in load.columns.rows_by_partition().items():
                chunk = Chunk.of(load, rows, partition)
                if not self._divert(chunk, partitions):
                    assert partitions is not None
                    if partition is None:
                        anywhere.append(chunk)
                    else:
                        self._route_keyed(chunk, partitions.leaders[partition])
        if anywhere and partitions is not None:
            self._route_anywhere(anywhere, partitions)

    def _partitions(self, topic: TopicState) -> TopicPartitions | None:
        partitions = self._map.topic(topic.name)
        if partitions is None:
            self._map.extend(self._cluster.metadata)  # the topic may be new
            partitions = self._map.topic(topic.name)
        return partitions

    def _load(self, topic: TopicState, taken: Taken, partitions: TopicPartitions | None) -> Load:
        columns = self._columns(topic, taken, partitions, self._now_ms())
        self._loads += 1
        return Load(self._loads, topic, taken, columns, mapped=partitions is not None)

    @staticmethod
    def _columns(
        topic: TopicState,
        taken: Taken,
        partitions: TopicPartitions | None,
        now_ms: int | None,
    ) -> RecordColumns:
        return record_columns(
            topic,
            taken,
            partitions=0 if partitions is None else len(partitions.leaders),
            usable=None if partitions is None else partitions.usable,
            now_ms=now_ms,
        )

    def _divert(self, chunk: Chunk, partitions: TopicPartitions | None) -> bool:
        """Discard or keep new messages that cannot be routed now; return whether this was done."""
        if chunk.load.topic.gone:
            self._gone(chunk)
        elif partitions is None or chunk.topic in self._unknown:
            self._learn(chunk)  # after the messages that already wait
        elif self._restarting:
            self._unrouted.append(chunk)
        elif not partitions.any_usable:
            self._discard(chunk, NO_PARTITION)
        else:
            return False
        return True

    def _route_keyed(self, chunk: Chunk, leader: int) -> None:
        """Pass PartitionKey messages to the leader's dispatcher, which may batch them."""
        topic = chunk.load.topic
        batching = topic.rules.batching
        dispatcher = self._dispatcher(leader)
        if batching.mode == "off" or self._flushing:
            dispatcher.enqueue(chunk)
        elif batching.mode == "combined":
            self._combine(dispatcher, chunk)
        else:
            dispatcher.batch(topic.name, BatchLimits.of(batching), chunk, self._now())

    def _route_anywhere(self, chunks: list[Chunk], partitions: TopicPartitions) -> None:
        """Choose brokers for AnyPartition messages of a topic: by batch, or by message."""
        batching = chunks[0].load.topic.rules.batching
        if batching.mode == "per_topic":
            # The pool has already applied the limit of time. Messages that do not reach the other
            # limits are therefore sent at once.
            batch = Batch(BatchLimits(None, batching.messages, batching.bytes))
            for chunk in chunks:
                for complete in batch.add_all(chunk, self._now()):
                    self._enqueue(partitions.next_broker(), complete)
            if len(batch):
                self._enqueue(partitions.next_broker(), batch.take())
            return
        for chunk in chunks:
            for broker, rows in partitions.spread(chunk.rows).items():
                part = Chunk.of(chunk.load, rows) if len(rows) < len(chunk) else chunk
                if batching.mode == "combined" and not self._flushing:
                    self._combine(self._dispatcher(broker), part)
                else:
                    self._enqueue(broker, [part])

    def _enqueue(self, broker: int, chunks: list[Chunk]) -> None:
        dispatcher = self._dispatcher(broker)
        for chunk in chunks:
            dispatcher.enqueue(chunk)

    def _combine(self, dispatcher: Dispatcher, chunk: Chunk) -> None:
        dispatcher.batch(None, self._options.combined or BatchLimits(), chunk, self._now())

    def _learn(self, chunk: Chunk) -> None:
        """Keep messages of a topic that the metadata lacks, and request the topic's metadata."""
        if self._closed:
            self._unrouted.append(chunk)
            return
        name = chunk.topic
        waiting = self._unknown.get(name)
        if waiting is not None:
            waiting.append(chunk)
            return
        self._unknown[name] = [chunk]
        self._task(self._look_up(name), f"bruce: metadata of {name}")

    async def _look_up(self, name: str) -> None:
        """Find out whether a topic exists, and route its messages or discard them."""
        exists = True
        while not self._closed:
            try:
                await self._cluster.refresh(name, timeout=MISSING_SECONDS)
                break
            except (UnknownTopicOrPartition, InvalidTopic, TopicAuthorization):
                exists = False
                break
            except KafkaError as error:
                await self._wait_for_metadata(error)
        if self._closed:
            return
        chunks = self._unknown.pop(name)
        self._map.extend(self._cluster.metadata)
        if not exists:
            for chunk in chunks:
                self._gone(chunk)
        elif self._restarting:
            self._unrouted += chunks
        else:
            self._reroute(chunks)
        self._pump()

    def _gone(self, chunk: Chunk) -> None:
        topic = chunk.load.topic
        self._discard(chunk, BAD_TOPIC)
        self._on_gone(topic)

    def _reroute(self, chunks: list[Chunk]) -> None:
        """Route messages to the brokers of the current metadata, without batching them again."""
        remapped: dict[tuple[Load, TopicPartitions], memoryview | None] = {}
        for chunk in chunks:
            topic = chunk.load.topic
            partitions = self._partitions(topic)
            if topic.gone:
                self._gone(chunk)
            elif partitions is None:
                self._learn(chunk)
            elif not chunk.load.mapped:
                self._enter(topic, [chunk.load.taken])  # all messages of the load
            elif not partitions.any_usable:
                self._discard(chunk, NO_PARTITION)
            elif chunk.partition is None:
                self._dispatcher(partitions.next_broker()).enqueue(chunk)
            else:
                key = chunk.load, partitions
                if key not in remapped:
                    remapped[key] = partitions_of(chunk.load.taken, partitions)
                for part in divided(chunk, remapped[key]):
                    assert part.partition is not None
                    self._dispatcher(partitions.leaders[part.partition]).enqueue(part)

    def _dispatcher(self, broker: int) -> Dispatcher:
        dispatcher = self._dispatchers.get(broker)
        if dispatcher is None:

            def choose(topic: str) -> int | None:
                partitions = self._map.topic(topic)
                return None if partitions is None else partitions.next_partition(broker)

            dispatcher = self._dispatchers[broker] = Dispatcher(
                broker, self._options.dispatcher, choose, self, self._random, self._paused
            )
        return dispatcher

    # ------------------------------------------------------------ requests

    def _now(self) -> Now:
        return Now(asyncio.get_running_loop().time(), self._now_ms())

    # hot: once per batch and per answer
    def _pump(self) -> None:
        """Send the requests that can be sent, request more messages, and set the timer."""
        if self._pumping:
            return
        self._pumping = True
        self._pumps_soon = False
        try:
            self._send_ready()
            self._budget.offer()  # new messages are routed in the next iteration of the loop
            if self._budget.refuses and not self._tasks:
                self._complete_batches()
        finally:
            self._pumping = False
        self._set_timer()
        if not self._holdings:
            self._idle.set()

    def _send_ready(self) -> None:
        if self._restarting or self._suspended or self._closed:
            return
        now = asyncio.get_running_loop().time()
        for dispatcher in self._dispatchers.values():
            dispatcher.tick(now)
            while (request := dispatcher.next_request()) is not None:
                try:
                    task = self._spawn(
                        self._send(dispatcher, request), f"produce to node {request.broker}"
                    )
                except Closed:  # the gateway has failed; `close` discards the messages
                    return
                self._answered.clear()
                self.counters.requests += 1
                self._tasks[request] = task

    def _complete_batches(self) -> None:
        """Send incomplete batches, because there is no room for the messages that they wait for.

        A batch without a time limit would otherwise wait for ever.
        """
        for dispatcher in self._dispatchers.values():
            dispatcher.flush()
        self._send_ready()

    def _set_timer(self) -> None:
        deadlines = [each.deadline() for each in self._dispatchers.values()]
        deadline = min((each for each in deadlines if each is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        paused = self._restarting or self._suspended or self._closed
        if deadline is not None and not paused:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(deadline, self._guarded(self._pump))

    async def _send(self, dispatcher: Dispatcher, request: Request) -> None:
        """Send a request, and pass its answer to the dispatcher."""
        options = self._options
        try:
            try:
                results = await self._cluster.produce(
                    {place: self._batch(each) for place, each in request.sets.items()},
                    node=request.broker,
                    acks=options.acks,
                    timeout_ms=options.timeout_ms,
                    timeout=options.timeout_ms / 1000 + ANSWER_SECONDS,
                )
            except KafkaError as error:
                self.counters.requests_failed += 1
                if not request.ended:
                    dispatcher.failed(request, error)
            else:
                self._count(results)
                if not request.ended and options.acks == 0:
                    dispatcher.written(request)
                elif not request.ended:
                    now = asyncio.get_running_loop().time()
                    dispatcher.answered(request, results, now)
        finally:
            self._tasks.pop(request, None)
            if not self._tasks:
                self._answered.set()
        self._pump()

    def _count(self, results: Mapping[tuple[str, int], ProduceResult]) -> None:
        for result in results.values():
            if isinstance(result.error, BrokerError):
                self.counters.refused[result.error.code] += 1
            elif result.error is None:
                self.counters.acked += 1

    def _batch(self, messages: MessageSet) -> BatchBuilder:
        """Return a message set as a batch with the compression of its topic.

        A set below `min_bytes` is not compressed.
        """
        compression = messages.topic.rules.compression
        kind, level = compression.type, compression.level
        size = messages.size + OLD_MESSAGE_OVERHEAD * len(messages)
        if size < compression.min_bytes:
            kind, level = "none", None
        batch = self._cluster.create_batch(
            max_bytes=messages.raw_bytes,
            compression_type=kind,
            compression_level=level,
            compression_max_ratio=None if kind == "none" else compression.max_ratio,
        )
        for chunk in messages.chunks:
            appended = batch.append_columns(chunk.columns, chunk.rows)
            assert appended == len(chunk)
        return batch

    # ------------------------------------------------------------ pauses and metadata

    def _task(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        """If the gateway has not failed, start a task. The end of the engine cancels the task."""
        try:
            task = self._spawn(coro, name)
        except Closed:  # `close` discards the messages
            return
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _paused(self, dispatcher: Dispatcher, error: KafkaError) -> None:
        """Begin a pause, unless one has begun already."""
        if self._pausing or self._closed:
            return
        self._pausing = True
        now = asyncio.get_running_loop().time()
        delay = self._pauses.next(now)
        self.counters.pauses_started += 1
        logger.warning("pause: node=%s error=%s restart_in=%.3gs", dispatcher.broker, error, delay)
        self._task(self._pause(delay), "bruce: pause")

    async def _pause(self, delay: float) -> None:
        """Wait, then replace all dispatchers."""
        await asyncio.sleep(delay)
        await self._restart(refresh=True)
        self.counters.pauses_finished += 1
        logger.info("pause ended: brokers=%s", len(self._dispatchers))

    async def _restart(self, *, refresh: bool) -> None:
        """Route all messages again, after a limited wait for the answers to all requests.

        Args:
            refresh: whether to wait for new metadata, without a limit in time.
        """
        self._restarting = True
        if self._tasks:
            self._answered.clear()
            try:
                async with asyncio.timeout(self._options.restart_delay):
                    await self._answered.wait()
            except TimeoutError:
                pass
        self._unrouted += self._collect()
        while refresh and not self._closed:
            try:
                await self._refresh()
                break
            except KafkaError as error:
                await self._wait_for_metadata(error)
        if self._closed:
            return
        self._seen = self._cluster.metadata
        self._map = PartitionMap(self._seen, self._random)
        self._restarting = self._pausing = False
        chunks, self._unrouted = self._unrouted, []
        self.counters.rerouted += sum(map(len, chunks))
        self._reroute(in_order(chunks))
        self._pump()

    def _collect(self) -> list[Chunk]:
        """Give up all requests, and return the messages of all dispatchers."""
        dispatchers, self._dispatchers = self._dispatchers, {}
        collected: list[Chunk] = []
        for dispatcher in dispatchers.values():
            for request in dispatcher.abandon():
                # A task that is cancelled before it begins does not remove itself.
                task = self._tasks.pop(request, None)
                if task is not None:
                    task.cancel()
            collected += dispatcher.take_all()
        return collected

    async def _refresh(self) -> None:
        """Request the metadata of the topics in use."""
        found = self._cluster.metadata.topics
        usable = {name for name, info in found.items() if not info.error_code}
        await self._cluster.refresh(*usable.intersection(self._map.names()))

    async def _wait_for_metadata(self, error: KafkaError) -> None:
        if isinstance(error, Closed) and not self._closed:
            raise error
        self.counters.metadata_failures += 1
        delay = self._requests_for_metadata.next(asyncio.get_running_loop().time())
        logger.warning("no metadata: error=%s again_in=%.3gs", error, delay)
        await asyncio.sleep(delay)

    async def _refresh_metadata(self) -> None:
        """Request metadata periodically, as a Producer does for its topics."""
        while not self._closed:
            seconds = self._cluster.settings.metadata_max_age_ms / 1000
            await asyncio.sleep(seconds * self._random.uniform(0.8, 1.2))
            with contextlib.suppress(KafkaError):
                await self._refresh()
            self._notice_metadata()

    async def _follow_metadata(self) -> None:
        """Check the metadata at each event, to route waiting messages again."""
        with contextlib.suppress(Closed):  # the gateway closes the cluster after the engine
            async with self._cluster.events() as events:
                async for _ in events:
                    self._notice_metadata()

    def _notice_metadata(self) -> None:
        """Restart the dispatchers if the metadata has other leaders for the topics in use."""
        metadata = self._cluster.metadata
        if metadata is self._seen:
            return
        self._seen = metadata
        if not self._pausing and not self._closed and self._map.differs(metadata):
            self._pausing = self._restarting = True
            self.counters.restarts += 1
            logger.info("leaders have changed: messages are routed again")
            self._task(self._restart(refresh=False), "bruce: restart")


def _max_message_bytes(options: BruceOptions) -> int:
    return options.dispatcher.limits.set_bytes - SET_OVERHEAD - LONE_RECORD_OVERHEAD


def _pauses(options: BruceOptions) -> tuple[float, int, float]:
    return options.pause_initial, options.pause_max_doublings, options.min_pause
