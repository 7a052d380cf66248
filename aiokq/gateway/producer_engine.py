"""`ProducerEngine`: delivers messages with aiokq's Producer, idempotently and in order.

The order is kept per partition. There is one Producer for each compression configuration, all on
one Cluster. Each topic has a `Lane`, whose messages are appended in order. A lane that waits does
not delay other lanes. Tests: tests/fault/test_gateway_delivery.py,
tests/unit/gateway/test_producer_engine.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from aiokq import ClusterSettings
from aiokq.errors import (
    AuthenticationFailed,
    BufferFull,
    Closed,
    DeliveryFailed,
    IllegalSaslState,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    ProtocolError,
    RecordBatchTooLarge,
    RecordTooLarge,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from aiokq.fastpath.gateway import BAD_TOPIC, ERROR_ACK, SHUTDOWN, TOO_LONG
from aiokq.gateway.budget import MOST_ROOM, Budget, budget_bytes
from aiokq.gateway.engine import InEngine, TopicState
from aiokq.gateway.lane import Lane, Piece
from aiokq.gateway.load import LOAD_BYTES, Load, record_columns

if TYPE_CHECKING:
    from aiokq import Cluster, Producer, RecordColumns
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.engine import Outcomes
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.settings_tables import CompressionSettings

__all__ = ["ProducerEngine"]

logger = logging.getLogger("aiokq.gateway")

FOREVER_MS: Final = 2**31 - 1
MISSING_TOPIC_MS: Final = 5_000
"""Time that messages of a deleted topic wait for the topic to be created again."""

IDLE_METADATA_MS: Final = 24 * 3600 * 1000
RETRY_SECONDS: Final = 0.5
MOST_IN_FLIGHT: Final = 16
"""Largest number of pieces of one topic that are in flight."""

RECORD_OVERHEAD: Final = 256
"""Bytes by which a request with one message is larger than its key and value."""

BATCH_SIZE: Final = 2 * 128 * 1024
"""Default of `batch_size`: twice the size of the keys and values in a default batch of the pool.

With the producer's own default, 128 KiB, each such batch was divided between two partitions,
because records are larger than their keys and values. Now about every second one is.
"""

RETIRE_SECONDS: Final = 1.0
"""Seconds between two checks whether an unused producer can be closed."""

TOO_LARGE: Final = (RecordTooLarge, RecordBatchTooLarge)
NO_TOPIC: Final = (UnknownTopicOrPartition, UnknownTopicId, InvalidTopic)
NO_BROKER: Final = (
    AuthenticationFailed,
    IllegalSaslState,
    ProtocolError,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
"""Errors because of which a broker cannot be used. They concern no record, so messages wait, as
while Kafka is away: an operator has to correct a password, a certificate or an address."""


class ProducerEngine:
    """Delivers messages with Producers that share a Cluster. Implements `Engine`.

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
        self._on_gone = on_gone
        self._spawn = spawn
        self._producers: dict[CompressionSettings, Producer] = {}
        self._started: dict[CompressionSettings, Producer] = {}
        self._retiring = False
        """Whether a task closes producers that no rule uses."""
        self._lanes: dict[TopicState, Lane] = {}
        self._budget = Budget(budget_bytes(settings), on_room)
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = itertools.count()
        self._closing = False
        self._suspended = False
        self._broken = False
        """Whether a producer has failed: no lane is served any more, until `close`."""
        self._options = _producer_options(settings)
        self.max_message_bytes = self._options["max_request_size"] - RECORD_OVERHEAD
        """Largest size of key and value that a producer accepts."""

    @property
    def pauses(self) -> tuple[int, int]:
        return 0, 0  # producers pause partitions, not brokers

    async def start(self) -> None:
        """Start the producers of all configured compressions, so that errors show at once."""
        for topic in ("", *self._settings.topics):
            await self._producer(self._settings.of_topic(topic).compression)

    def room(self, topic: TopicState) -> int:
        return 0 if self._closing else self._budget.room(topic)

    def accept(self, topic: TopicState, taken: Taken) -> None:
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(topic)
        load, start = Load(taken), 0
        for end in taken.batches(0, MOST_ROOM) if taken.charge > MOST_ROOM else (taken.count,):
            lane.queue.append(Piece(load, range(start, end), next(self._numbers)))
            start = end
        self._outcomes.charged(LOAD_BYTES)
        self._budget.add(topic, taken.charge + LOAD_BYTES)
        self._idle.clear()
        if lane.running:
            lane.woken.set()
        elif not self._send_now(lane):
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
        """Do nothing, because each piece is sent by the producer for the topic's compression."""

    def configure(self, settings: GatewaySettings) -> None:
        """Use other settings, and close the producers whose compression is no longer used."""
        self._settings = settings
        if not self._retiring and self._unused():
            with contextlib.suppress(Closed):  # `close` closes all producers
                self._spawn(self._retire(), "end of producers")
                self._retiring = True

    def _unused(self) -> list[CompressionSettings]:
        """Return the compressions that have a producer, and that no topic uses."""
        used = {self._settings.of_topic(name).compression for name in ("", *self._settings.topics)}
        return [compression for compression in self._producers if compression not in used]

    async def _retire(self) -> None:
        """Close producers that no rule uses, as soon as they have nothing in flight."""
        try:
            while not self._closing and (unused := self._unused()):
                busy = {
                    lane.compression
                    for lane in self._lanes.values()
                    if lane.in_flight or lane.appending is not None
                }
                for compression in unused:
                    if compression not in busy:
                        self._started.pop(compression, None)
                        await self._producers.pop(compression).close()
                        break  # begin again: a reload or a lane may have changed
                else:
                    await asyncio.sleep(RETIRE_SECONDS)
        finally:
            self._retiring = False

    async def drain(self) -> None:
        await self._idle.wait()

    @property
    def sending(self) -> bool:
        return any(lane.in_flight or lane.appending is not None for lane in self._lanes.values())

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        for lane in list(self._lanes.values()):
            lane.woken.set()

    def adopt(self, other: ProducerEngine) -> None:
        self._numbers = other._numbers  # pieces that fail are sorted by their numbers
        self._budget.adopt(other._budget)
        lanes, other._lanes = other._lanes, {}
        for topic, old in lanes.items():
            pieces = old.take_waiting()
            old.woken.set()  # its task ends
            if pieces:
                lane = self._lanes[topic] = Lane(topic)
                lane.queue.extend(pieces)
                self._idle.clear()
                self._run(lane)
        other._suspended = False
        other._idle.set()

    async def close(self) -> None:
        self._closing = True
        for producer in list(self._producers.values()):
            # The Deliveries of the producer fail with Closed, and their tasks discard the messages.
            await producer.close(timeout=0)
        for lane in self._lanes.values():
            lane.woken.set()
        try:
            self._spawn(self.drain(), "end of lanes")
        except Closed:  # the gateway has failed, so no task serves the lanes
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

    # hot: once per batch of the pool
    def _send_now(self, lane: Lane) -> bool:
        """Send the pieces of a lane that no task serves, as long as nothing has to be awaited.

        A task for each batch would account for a third of the time between a datagram and its
        request, and would begin only in the next iteration of the loop.

        Returns:
            Whether all pieces are sent; else a task has to send the rest.
        """
        topic, compression = lane.topic, lane.topic.rules.compression
        producer = self._started.get(compression)
        if producer is None or self._closing or self._broken or self._suspended:
            return False
        if topic.gone or topic.stale or lane.failed:
            return False
        if lane.in_flight and lane.compression != compression:
            return False
        lane.compression = compression
        while lane.queue and len(lane.in_flight) < MOST_IN_FLIGHT and not lane.queue[0].alone:
            piece = lane.queue[0]
            try:
                deliveries = producer.send_columns_nowait(topic.name, self._columns(topic, piece))
            except (KafkaError, ValueError):  # nothing is accepted; the task gets the error again
                return False
            del lane.queue[0]
            piece.attempts += 1
            self._launched(lane, piece)
            # Create the task for the outcome later, so that it does not delay the request.
            asyncio.get_running_loop().call_soon(self._await_outcome, lane, piece, deliveries)
        return not lane.queue

    def _await_outcome(self, lane: Lane, piece: Piece, deliveries: Any) -> None:
        with contextlib.suppress(Closed):  # `close` discards the messages
            self._spawn(self._settle(lane, piece, deliveries), "outcome")

    def _run(self, lane: Lane) -> None:
        """Start the task that serves a lane, unless the gateway has failed."""
        if self._broken:
            return
        with contextlib.suppress(Closed):  # `close` discards the messages
            self._spawn(self._serve(lane), f"lane of {lane.topic.name}")
            lane.running = True

    async def _serve(self, lane: Lane) -> None:
        try:
            await self._send_all(lane)
        except Closed:  # the producer has failed
            self._broken = True
            raise
        finally:
            lane.running = False
            self._end_if_empty(lane)

    async def _send_all(self, lane: Lane) -> None:
        """Send the pieces of a lane, until there are none."""
        while True:
            lane.woken.clear()
            if self._closing:
                self._discard_waiting(lane)
                return
            if self._suspended:
                await lane.woken.wait()
                continue
            if lane.failed:
                if lane.in_flight:
                    await lane.woken.wait()  # later pieces must not overtake the failed ones
                    continue
                if lane.pauses:
                    lane.pauses = False
                    await self._pause(lane)
                    continue
                lane.queue.extendleft(reversed(lane.take_failed()))
            if not lane.queue:
                return
            compression = lane.topic.rules.compression
            if len(lane.in_flight) >= MOST_IN_FLIGHT or (
                # A reload has changed the compression. Messages must not overtake those of the
                # other producer.
                lane.in_flight and lane.compression != compression
            ):
                await lane.woken.wait()
                continue
            lane.compression = compression
            await self._send(lane, lane.queue.popleft())

    async def _pause(self, lane: Lane) -> None:
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while not self._closing and not self._suspended:
                    await lane.woken.wait()
                    lane.woken.clear()
        except TimeoutError:
            pass

    async def _send(self, lane: Lane, piece: Piece) -> None:
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
            producer = await self._producer_of(lane)
            deliveries = await producer.send_columns(topic.name, self._columns(topic, piece))
        except RecordTooLarge as error:
            if len(piece.rows) > 1:
                await self._send_alone(lane, piece)  # one row that is too large fails all rows
            else:
                self._not_sent(lane, piece, error)
            return
        except (KafkaError, ValueError) as error:
            self._not_sent(lane, piece, _kafka_error(error))
            if isinstance(error, Closed) and not self._closing:
                raise  # the producer has failed: end the gateway instead of discarding everything
            return
        if lane.appending is piece:  # otherwise, `close` has discarded the piece
            self._launched(lane, piece)
            self._spawn(self._settle(lane, piece, deliveries), "outcome")

    def _not_sent(self, lane: Lane, piece: Piece, error: KafkaError) -> None:
        if lane.appending is piece:
            lane.appending = None
            self._failed(lane, piece, [error] * len(piece.rows))

    def _landed(self, lane: Lane, piece: Piece) -> bool:
        """Remove a piece from the pieces in flight; return False if `close` has discarded it."""
        if piece not in lane.in_flight:
            return False
        del lane.in_flight[piece]
        lane.sent -= len(piece.rows)
        return True

    def _launched(self, lane: Lane, piece: Piece) -> None:
        lane.appending = None
        lane.in_flight[piece] = None
        lane.sent += len(piece.rows)
        if lane.topic.trace is not None:
            lane.topic.trace.sent(lane.topic.name, piece.load.taken, piece.rows)

    # hot: once per piece
    async def _settle(self, lane: Lane, piece: Piece, deliveries: Any) -> None:
        errors: Sequence[BaseException | None] | None = None
        try:
            await deliveries
        except DeliveryFailed as failed:
            errors = failed.errors
        if not self._landed(lane, piece):
            return
        if errors is None:
            charge = piece.load.settle(len(piece.rows))
            self._outcomes.acked(lane.topic, piece.load.taken, piece.rows, charge)
            self._released(lane, charge)
        else:
            self._failed(lane, piece, errors)
        lane.woken.set()
        self._end_if_empty(lane)

    async def _send_alone(self, lane: Lane, piece: Piece) -> None:
        """Send each record in a batch of its own, so that a bad record fails no other record."""
        topic = lane.topic
        errors: list[BaseException | None] = []
        closed: Closed | None = None
        self._launched(lane, piece)
        for row in piece.rows:
            try:
                producer = await self._producer_of(lane)
                one = Piece(piece.load, [row], piece.number)
                one.restamped = piece.restamped
                await (await producer.send_columns(topic.name, self._columns(topic, one)))
                errors.append(None)
            except DeliveryFailed as failed:
                errors.append(failed.errors[0])
            except (KafkaError, ValueError) as error:
                errors.append(_kafka_error(error))
                closed = error if isinstance(error, Closed) else None
            if closed is not None or isinstance(errors[-1], (*NO_BROKER, *NO_TOPIC)):
                break  # the next records would fail, too, perhaps each after some seconds
        sent = len(errors)
        errors += errors[-1:] * (len(piece.rows) - sent)
        if self._landed(lane, piece):
            self._failed(lane, piece, errors, sent=sent)
        if closed is not None and not self._closing:
            raise closed  # the producer has failed: end the gateway, as `_send` does

    def _columns(self, topic: TopicState, piece: Piece) -> RecordColumns:
        topic.update(self._cluster.metadata.topics.get(topic.name))
        taken = piece.load.taken
        if len(piece.rows) != taken.count:
            taken = taken.select(piece.rows)
        return record_columns(
            topic,
            taken,
            partitions=topic.partitions,
            usable=topic.usable,
            now_ms=None if piece.restamped else self._now_ms(),
        )

    async def _producer_of(self, lane: Lane) -> Producer:
        """Return the producer for a lane.

        If a reload has replaced the Cluster, wait until the new one has the topic's partitions.
        """
        producer = await self._producer(lane.compression)
        if lane.topic.stale:
            await producer.partitions_for(lane.topic.name)
        return producer

    async def _producer(self, compression: CompressionSettings) -> Producer:
        producer = self._producers.get(compression)
        if producer is None:
            producer = self._cluster.producer(**self._options, **_compression(compression))
            self._producers[compression] = producer
        await producer.start()
        self._started[compression] = producer
        return producer

    def _failed(
        self,
        lane: Lane,
        piece: Piece,
        errors: Sequence[BaseException | None],
        *,
        sent: int | None = None,
    ) -> None:
        """Decide for each row whether it is delivered, sent again, or discarded.

        Args:
            sent: number of rows that were sent, if the last rows were not.
        """
        topic = lane.topic
        delivered: list[int] = []
        reasons: dict[int, list[int]] = {}
        again: list[tuple[tuple[bool, bool], int]] = []
        uncertain: list[int] = []
        first: KafkaError | None = None
        for number, (row, cause) in enumerate(zip(piece.rows, errors, strict=True)):
            if cause is None:
                delivered.append(row)
                continue
            error = _kafka_error(cause)
            first = first or error
            if isinstance(error, NO_TOPIC) and not self._closing and not self._exists(topic, error):
                reasons.setdefault(BAD_TOPIC, []).append(row)
                continue
            how = self._retry(piece, error)
            if how is None:
                reasons.setdefault(self._reason(error), []).append(row)
                continue
            again.append((how, row))
            if how == (piece.restamped, piece.alone):
                lane.pauses = True  # wait, because the same attempt is repeated
            if error.may_have_been_written and (sent is None or number < sent):
                uncertain.append(row)
        if uncertain:
            self._outcomes.possible_duplicates(topic, piece.load.taken, uncertain)
        # Each run of adjacent rows is a part, so that no row overtakes another row of its
        # partition.
        for how, run in itertools.groupby(again, key=itemgetter(0)):
            part = Piece(piece.load, [row for _, row in run], piece.number, piece.attempts)
            part.restamped, part.alone = how
            lane.failed.append(part)
        if BAD_TOPIC in reasons:
            self._on_gone(topic)
        self._finish(lane, piece, reasons, delivered, first)
        lane.woken.set()

    def _exists(self, topic: TopicState, error: KafkaError) -> bool:
        """Whether the topic exists, and only a partition is unknown.

        This is so if the topic was created again with fewer partitions.
        """
        if isinstance(error, InvalidTopic):
            return False
        info = self._cluster.metadata.topics.get(topic.name)
        return info is not None and bool(info.partitions)

    def _retry(self, piece: Piece, error: KafkaError) -> tuple[bool, bool] | None:
        """Return how to resend a failed row, as (restamped, alone); None to discard the row."""
        if self._closing or isinstance(error, Closed):
            return None
        if isinstance(error, InvalidTimestamp | InvalidRecord):
            if isinstance(error, InvalidTimestamp) and not piece.restamped:
                return True, piece.alone
            if not error.names_record and not piece.alone:
                return piece.restamped, True
            return None
        if error.retriable or isinstance(error, (BufferFull, *NO_BROKER, *NO_TOPIC)):
            return piece.restamped, piece.alone
        return None

    def _reason(self, error: KafkaError) -> int:
        if self._closing or isinstance(error, Closed):
            return SHUTDOWN
        return TOO_LONG if isinstance(error, TOO_LARGE) else ERROR_ACK

    def _finish(
        self,
        lane: Lane,
        piece: Piece,
        reasons: Mapping[int, list[int]],
        delivered: list[int],
        error: KafkaError | None,
    ) -> None:
        """Report the outcomes of rows of a piece."""
        load, outcomes = piece.load, self._outcomes
        released = 0
        if delivered:
            charge = load.settle(len(delivered))
            outcomes.acked(lane.topic, load.taken, delivered, charge)
            released += charge
        for reason, rows in reasons.items():
            charge = load.settle(len(rows))
            outcomes.discarded(
                lane.topic,
                load.taken,
                rows,
                reason,
                charge,
                error=error,
                attempts=piece.attempts,
            )
            released += charge
        self._released(lane, released)

    def _released(self, lane: Lane, charge: int) -> None:
        self._budget.remove(lane.topic, charge)
        self._budget.offer()

    def _discard_waiting(self, lane: Lane) -> None:
        for piece in lane.take_waiting():
            self._finish(lane, piece, {SHUTDOWN: list(piece.rows)}, [], None)

    def _discard_all(self) -> None:
        """Discard all messages without an outcome, after the gateway has failed."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            for piece in lane.take_all():
                self._finish(lane, piece, {SHUTDOWN: list(piece.rows)}, [], None)
        self._idle.set()

    def _end_if_empty(self, lane: Lane) -> None:
        if lane.running or lane.in_flight:
            return
        if lane.failed or lane.queue:
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
        "batch_size": BATCH_SIZE,
        "delivery_timeout_ms": FOREVER_MS,
        "max_block_ms": MISSING_TOPIC_MS,
        "metadata_max_idle_ms": IDLE_METADATA_MS,
        "max_request_size": max(1024 * 1024, largest + RECORD_OVERHEAD),
    }
    fixed = {
        "linger_ms": 0.0,
        "partitioner_ignore_keys": True,
        # Practically unlimited, so that no lane waits for the memory of another lane. The engine
        # itself limits the messages that it holds.
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
