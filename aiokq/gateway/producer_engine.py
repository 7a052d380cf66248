"""ProducerEngine: delivers messages by aiokq's Producer, idempotently and in order per partition.

There is one Producer for each configuration of compression, all on one Cluster. Each topic has a
lane: its messages are appended in order, and what a lane waits for holds up no other lane. Tests:
tests/fault/test_gateway_delivery.py, tests/unit/gateway/test_producer_engine.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from aiokq import ClusterSettings, RecordColumns
from aiokq.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aiokq.fastpath.gateway import BAD_TOPIC, ERROR_ACK, SHUTDOWN, TOO_LONG
from aiokq.gateway.engine import InEngine, TopicState

if TYPE_CHECKING:
    from aiokq import Cluster, Producer
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.engine import Outcomes
    from aiokq.gateway.settings import CompressionSettings, GatewaySettings

__all__ = ["ProducerEngine"]

logger = logging.getLogger("aiokq.gateway")

FOREVER_MS: Final = 2**31 - 1
MISSING_TOPIC_MS: Final = 5_000
"""Time that messages of a deleted topic wait for the topic to be created again."""

IDLE_METADATA_MS: Final = 24 * 3600 * 1000
RETRY_SECONDS: Final = 0.5
PIECE: Final = 1024 * 1024
"""Largest number of bytes that a lane appends at once."""

MOST_IN_FLIGHT: Final = 16
"""Largest number of pieces of one topic that are in flight."""

LEAST_PIECE: Final = 64 * 1024
"""Bytes for which a topic has room as long as the engine holds none of its messages."""

LEAST_BUDGET: Final = 4 * 1024 * 1024
MOST_BUDGET: Final = 32 * 1024 * 1024
RECORD_OVERHEAD: Final = 256
"""Bytes by which a request with one message is larger than its key and value."""

TOO_LARGE: Final = (RecordTooLarge, RecordBatchTooLarge)
NO_TOPIC: Final = (UnknownTopicOrPartition, UnknownTopicId, InvalidTopic)


class _Held:
    """Messages of one `accept`, and how many of them have no outcome yet."""

    __slots__ = ("left", "taken")

    def __init__(self, taken: Taken) -> None:
        self.taken = taken
        self.left = taken.count

    def charge_of(self, messages: int) -> int:
        """Return the bytes to release with these messages: all of them with the last message."""
        self.left -= messages
        return 0 if self.left else self.taken.charge


class _Piece:
    """Rows of a `_Held` that are to be sent, or are sent.

    Attributes:
        rows: the indexes of the rows, in order.
        number: the pieces of a topic are numbered in the order in which they arrived. Parts of a
            piece that are sent again keep its number.
        restamped: whether the timestamps are replaced, because the topic refused them.
        alone: whether each record is sent in a batch of its own.
        attempts: number of times that the rows were sent.
    """

    __slots__ = ("alone", "attempts", "held", "number", "restamped", "rows")

    def __init__(self, held: _Held, rows: Sequence[int], number: int, attempts: int = 0) -> None:
        self.held = held
        self.rows = rows
        self.number = number
        self.restamped = False
        self.alone = False
        self.attempts = attempts


class _Lane:
    """The messages of one topic in the engine.

    Attributes:
        bytes: bytes of the messages.
        compression: the compression of the pieces in flight, and with it their producer.
        queue: pieces that were not sent.
        again: pieces that failed, in any order; they are sent again in the order of their arrival,
            before `queue`, when nothing is in flight.
        appending: the piece that is being passed to a producer, which may wait for metadata.
        in_flight: the pieces that a producer has, without outcome.
        sent: number of messages in flight.
        running: whether a task serves the lane.
    """

    __slots__ = (
        "again",
        "appending",
        "bytes",
        "compression",
        "in_flight",
        "queue",
        "running",
        "sent",
        "topic",
        "woken",
    )

    def __init__(self, topic: TopicState) -> None:
        self.topic = topic
        self.compression = topic.rules.compression
        self.bytes = 0
        self.queue: deque[_Piece] = deque()
        self.again: list[_Piece] = []
        self.appending: _Piece | None = None
        self.in_flight: dict[_Piece, None] = {}
        self.sent = 0
        self.running = False
        self.woken = asyncio.Event()

    @property
    def waiting(self) -> int:
        return sum(len(piece.rows) for piece in self.not_sent())

    def not_sent(self) -> list[_Piece]:
        """Return the pieces that no producer has."""
        appending = () if self.appending is None else (self.appending,)
        return [*appending, *self.again, *self.queue]


class ProducerEngine:
    """Delivers by Producers that share a Cluster. Implements `Engine`.

    Args:
        cluster: a started Cluster; it need not have metadata.
        spawn: starts a task that belongs to the gateway.
        now_ms: returns the current time in milliseconds since 1970.
        on_room: called with a topic for which there is room again.
        on_gone: called with a topic that the cluster does not know any more.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GatewaySettings,
        outcomes: Outcomes,
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        now_ms: Callable[[], int],
        on_room: Callable[[TopicState], None],
        on_gone: Callable[[TopicState], None],
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._outcomes = outcomes
        self._now_ms = now_ms
        self._on_room = on_room
        self._on_gone = on_gone
        self._spawn = spawn
        self._producers: dict[CompressionSettings, Producer] = {}
        self._lanes: dict[TopicState, _Lane] = {}
        self._refused: dict[TopicState, None] = {}
        """The topics for which `room` returned 0 since they last had room, longest first."""
        self._bytes = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = itertools.count()
        self._closing = False
        self._broken = False
        """Whether a producer has failed: no lane is served any more, until `close`."""
        self._options = _producer_options(settings)
        largest = max([one.limit for one in settings.inputs], default=0)
        self.max_message_bytes = self._options["max_request_size"] - RECORD_OVERHEAD
        """Largest size of key and value that a producer accepts."""
        share = min(MOST_BUDGET, settings.pool.max_bytes // 8)
        self._budget = max(share, min(LEAST_BUDGET, settings.pool.max_bytes), largest)

    @property
    def pauses(self) -> tuple[int, int]:
        return 0, 0  # the producers pause single partitions

    async def start(self) -> None:
        """Start the producers of all configured compressions, so that errors show at once."""
        for topic in ("", *self._settings.topics):
            await self._producer(self._settings.of_topic(topic).compression)

    def room(self, topic: TopicState) -> int:
        # Each topic may hold as much as is left of the budget: the fewer topics are stuck, the more
        # each of them may hold, and something is always left for the others.
        if self._closing:
            return 0
        lane = self._lanes.get(topic)
        own = 0 if lane is None else lane.bytes
        left = self._budget - self._bytes - own
        if left >= LEAST_PIECE:
            return min(left, PIECE)
        if own == 0 and self._bytes < self._budget + self._budget // 2:
            return LEAST_PIECE
        self._refused[topic] = None
        return 0

    def accept(self, topic: TopicState, taken: Taken) -> None:
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = _Lane(topic)
        held, start = _Held(taken), 0
        for end in taken.batches(0, PIECE) if taken.charge > PIECE else (taken.count,):
            lane.queue.append(_Piece(held, range(start, end), next(self._numbers)))
            start = end
        lane.bytes += taken.charge
        self._bytes += taken.charge
        self._idle.clear()
        if lane.running:
            lane.woken.set()
        else:
            self._run(lane)

    def held(self) -> Mapping[str, InEngine]:
        found: dict[str, InEngine] = {}
        for lane in self._lanes.values():
            waiting, sent, name = lane.waiting, lane.sent, lane.topic.name
            if waiting or sent:
                # A topic that was deleted and created again has two lanes for a while.
                more_waiting, more_sent = found.get(name, (0, 0))
                found[name] = InEngine(waiting + more_waiting, sent + more_sent)
        return found

    def reconfigure(self) -> None:
        """Nothing to do: each piece is sent by the producer of the topic's current compression."""

    async def drain(self) -> None:
        await self._idle.wait()

    async def close(self) -> None:
        self._closing = True
        for producer in self._producers.values():
            # Its Deliveries fail with Closed, and their tasks discard the messages.
            await producer.close(timeout=0)
        for lane in self._lanes.values():
            lane.woken.set()
        try:
            self._spawn(self.drain(), "end of lanes")
        except Closed:  # the gateway has failed: nothing serves the lanes
            self._discard_all()
            return
        for lane in list(self._lanes.values()):
            if not lane.running:
                self._discard_waiting(lane)
                self._end_if_empty(lane)
        try:
            async with asyncio.timeout(5):
                await self._idle.wait()
        except TimeoutError:
            logger.error("messages have no outcome after the producers were closed")

    def _run(self, lane: _Lane) -> None:
        """Start the task that serves a lane, unless the gateway has failed."""
        if self._broken:
            return
        with contextlib.suppress(Closed):  # `close` discards the messages then
            self._spawn(self._serve(lane), f"lane of {lane.topic.name}")
            lane.running = True

    async def _serve(self, lane: _Lane) -> None:
        try:
            await self._send_all(lane)
        except Closed:  # of a producer that has failed
            self._broken = True
            raise
        finally:
            lane.running = False
            self._end_if_empty(lane)

    async def _send_all(self, lane: _Lane) -> None:
        """Send the pieces of a lane, until there are none."""
        while True:
            lane.woken.clear()
            if self._closing:
                self._discard_waiting(lane)
                return
            if lane.again:
                if lane.in_flight:
                    await lane.woken.wait()  # later pieces must not overtake these
                    continue
                again = sorted(lane.again, key=lambda piece: (piece.number, piece.rows[0]))
                lane.again = []
                if any(not piece.restamped and not piece.alone for piece in again):
                    await self._pause(lane)
                lane.queue.extendleft(reversed(again))
            if not lane.queue:
                return
            compression = lane.topic.rules.compression
            if len(lane.in_flight) >= MOST_IN_FLIGHT or (
                # A reload has changed it: what the other producer sends must not be overtaken.
                lane.in_flight and lane.compression != compression
            ):
                await lane.woken.wait()
                continue
            lane.compression = compression
            await self._send(lane, lane.queue.popleft())

    async def _pause(self, lane: _Lane) -> None:
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while not self._closing:
                    await lane.woken.wait()
                    lane.woken.clear()
        except TimeoutError:
            pass

    async def _send(self, lane: _Lane, piece: _Piece) -> None:
        topic = lane.topic
        if topic.gone:
            self._finish(lane, piece, {BAD_TOPIC: list(piece.rows)}, [], None)
            return
        piece.attempts += 1
        lane.appending = piece
        if piece.alone:
            await self._send_alone(lane, piece)
            return
        try:
            producer = await self._producer(lane.compression)
            deliveries = await producer.send_columns(topic.name, self._columns(topic, piece))
        except RecordTooLarge as error:
            if len(piece.rows) > 1:
                await self._send_alone(lane, piece)  # the producer refused all of them for one
            else:
                self._not_sent(lane, piece, error)
            return
        except (KafkaError, ValueError) as error:
            self._not_sent(lane, piece, _kafka_error(error))
            if isinstance(error, Closed) and not self._closing:
                raise  # the producer has failed: end the gateway instead of discarding everything
            return
        if lane.appending is piece:  # else `close` has discarded it
            self._launched(lane, piece)
            self._spawn(self._settle(lane, piece, deliveries), "outcome")

    def _not_sent(self, lane: _Lane, piece: _Piece, error: KafkaError) -> None:
        if lane.appending is piece:
            lane.appending = None
            self._failed(lane, piece, [error] * len(piece.rows))

    def _landed(self, lane: _Lane, piece: _Piece) -> bool:
        """Note the outcome of a piece; return False if `close` has discarded it."""
        if piece not in lane.in_flight:
            return False
        del lane.in_flight[piece]
        lane.sent -= len(piece.rows)
        return True

    def _launched(self, lane: _Lane, piece: _Piece) -> None:
        lane.appending = None
        lane.in_flight[piece] = None
        lane.sent += len(piece.rows)
        if lane.topic.trace is not None:
            lane.topic.trace.sent(lane.topic.name, piece.held.taken, piece.rows)

    # hot: once per piece
    async def _settle(self, lane: _Lane, piece: _Piece, deliveries: Any) -> None:
        errors: Sequence[BaseException | None] | None = None
        try:
            await deliveries
        except DeliveryFailed as failed:
            errors = failed.errors
        if not self._landed(lane, piece):
            return
        if errors is None:
            held = piece.held
            charge = held.charge_of(len(piece.rows))
            self._outcomes.acked(lane.topic, held.taken, piece.rows, charge)
            self._released(lane, charge)
        else:
            self._failed(lane, piece, errors)
        lane.woken.set()
        self._end_if_empty(lane)

    async def _send_alone(self, lane: _Lane, piece: _Piece) -> None:
        """Send each record in a batch of its own, so that a bad record fails no other record."""
        topic = lane.topic
        errors: list[BaseException | None] = []
        self._launched(lane, piece)
        for row in piece.rows:
            try:
                producer = await self._producer(lane.compression)
                one = self._columns(topic, _Piece(piece.held, [row], piece.number))
                await (await producer.send_columns(topic.name, one))
                errors.append(None)
            except DeliveryFailed as failed:
                errors.append(failed.errors[0])
            except (KafkaError, ValueError) as error:
                errors.append(_kafka_error(error))
        if self._landed(lane, piece):
            self._failed(lane, piece, errors)

    def _columns(self, topic: TopicState, piece: _Piece) -> RecordColumns:
        taken = piece.held.taken
        if len(piece.rows) != taken.count:
            taken = taken.select(piece.rows)
        now = self._now_ms()
        limits: dict[str, Any] = {}
        if piece.restamped:
            limits = {"earliest_ms": 1, "latest_ms": 0}  # no timestamp is within these
        else:
            if topic.earliest_ms is not None:
                limits["earliest_ms"] = max(0, now - topic.earliest_ms)
            if topic.latest_ms is not None:
                limits["latest_ms"] = now + topic.latest_ms
        columns = taken.columns(
            partitions=topic.partitions,
            usable=topic.usable,
            null_keys=topic.rules.empty_key_null,
            null_values=topic.rules.empty_value_null,
            **limits,
        )
        return RecordColumns(taken.count, **columns)

    async def _producer(self, compression: CompressionSettings) -> Producer:
        producer = self._producers.get(compression)
        if producer is None:
            producer = self._cluster.producer(**self._options, **_compression(compression))
            self._producers[compression] = producer
        await producer.start()
        return producer

    def _failed(self, lane: _Lane, piece: _Piece, errors: Sequence[BaseException | None]) -> None:
        """Decide for each row whether it is delivered, sent again, or discarded."""
        topic = lane.topic
        delivered: list[int] = []
        reasons: dict[int, list[int]] = {}
        again: list[tuple[tuple[bool, bool], int]] = []
        uncertain: list[int] = []
        first: KafkaError | None = None
        for row, cause in zip(piece.rows, errors, strict=True):
            if cause is None:
                delivered.append(row)
                continue
            error = _kafka_error(cause)
            first = first or error
            if isinstance(error, NO_TOPIC) and not self._closing:
                reasons.setdefault(BAD_TOPIC, []).append(row)
                continue
            how = self._retry(piece, error)
            if how is None:
                reasons.setdefault(self._reason(error), []).append(row)
                continue
            again.append((how, row))
            if error.may_have_been_written:
                uncertain.append(row)
        if uncertain:
            self._outcomes.possible_duplicates(topic, piece.held.taken, uncertain)
        # Each run of rows is a part, so that no row of a partition overtakes another one.
        for how, run in itertools.groupby(again, key=itemgetter(0)):
            part = _Piece(piece.held, [row for _, row in run], piece.number, piece.attempts)
            part.restamped, part.alone = how
            lane.again.append(part)
        if BAD_TOPIC in reasons:
            self._on_gone(topic)
        self._finish(lane, piece, reasons, delivered, first)
        lane.woken.set()

    def _retry(self, piece: _Piece, error: KafkaError) -> tuple[bool, bool] | None:
        """Return whether a failed row is sent again restamped, and alone; None if it is not."""
        if self._closing or isinstance(error, Closed):
            return None
        if isinstance(error, InvalidTimestamp | InvalidRecord):
            if isinstance(error, InvalidTimestamp) and not piece.restamped:
                return True, piece.alone
            if not error.names_record and not piece.alone:
                return piece.restamped, True
            return None
        if error.retriable or isinstance(error, BufferFull):
            return piece.restamped, piece.alone
        return None

    def _reason(self, error: KafkaError) -> int:
        if self._closing or isinstance(error, Closed):
            return SHUTDOWN
        return TOO_LONG if isinstance(error, TOO_LARGE) else ERROR_ACK

    def _finish(
        self,
        lane: _Lane,
        piece: _Piece,
        reasons: Mapping[int, list[int]],
        delivered: list[int],
        error: KafkaError | None,
    ) -> None:
        """Report the outcomes of rows of a piece."""
        held, outcomes = piece.held, self._outcomes
        released = 0
        if delivered:
            charge = held.charge_of(len(delivered))
            outcomes.acked(lane.topic, held.taken, delivered, charge)
            released += charge
        for reason, rows in reasons.items():
            charge = held.charge_of(len(rows))
            outcomes.discarded(
                lane.topic,
                held.taken,
                rows,
                reason,
                charge,
                error=error,
                attempts=piece.attempts,
            )
            released += charge
        self._released(lane, released)

    def _released(self, lane: _Lane, charge: int) -> None:
        lane.bytes -= charge
        self._bytes -= charge
        while self._refused and self._bytes < self._budget:
            topic = next(iter(self._refused))
            del self._refused[topic]
            self._on_room(topic)
            if topic in self._refused:
                break  # still no room for it

    def _discard_waiting(self, lane: _Lane) -> None:
        pieces = [*lane.again, *lane.queue]
        lane.again, lane.queue = [], deque()
        for piece in pieces:
            self._finish(lane, piece, {SHUTDOWN: list(piece.rows)}, [], None)

    def _discard_all(self) -> None:
        """Discard what has no outcome, after the gateway has failed."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            pieces = [*lane.in_flight, *lane.not_sent()]
            lane.appending, lane.in_flight, lane.sent = None, {}, 0
            lane.again, lane.queue = [], deque()
            for piece in pieces:
                self._finish(lane, piece, {SHUTDOWN: list(piece.rows)}, [], None)
        self._idle.set()

    def _end_if_empty(self, lane: _Lane) -> None:
        if lane.running or lane.in_flight:
            return
        if lane.again or lane.queue:
            self._run(lane)
            return
        self._lanes.pop(lane.topic, None)
        if not self._lanes:
            self._idle.set()


def _kafka_error(error: BaseException) -> KafkaError:
    return error if isinstance(error, KafkaError) else KafkaError(str(error))


def _producer_options(settings: GatewaySettings) -> dict[str, Any]:
    """Return the settings of all producers of the engine, without compression."""
    shared = ClusterSettings.model_fields
    own = {name: value for name, value in settings.kafka.items() if name not in shared}
    largest = max([one.limit for one in settings.inputs], default=0)
    defaults = {
        "delivery_timeout_ms": FOREVER_MS,
        "max_block_ms": MISSING_TOPIC_MS,
        "metadata_max_idle_ms": IDLE_METADATA_MS,
        "max_request_size": max(1024 * 1024, largest + RECORD_OVERHEAD),
    }
    fixed = {
        "linger_ms": 0.0,
        "partitioner_ignore_keys": True,
        # The engine bounds what it holds, so that no lane waits for the memory of another.
        "buffer_memory": 2**40,
    }
    return {**defaults, **own, **fixed}


def _compression(compression: CompressionSettings) -> dict[str, Any]:
    options: dict[str, Any] = {"compression_type": compression.type}
    if compression.type == "none":
        return options
    options["compression_min_bytes"] = compression.min_bytes
    options["compression_max_ratio"] = compression.max_ratio
    if compression.level is not None:
        options[f"compression_{compression.type}_level"] = compression.level
    return options
