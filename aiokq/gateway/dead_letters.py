"""`DeadLetters`: writes messages that could not be delivered to a dead letter topic.

Until its dead letter is acknowledged, a message is in flight, and its memory in the pool is not
released. While Kafka is away, dead letters wait. If a dead letter fails, the message is discarded
with its original reason. Tests:
tests/fault/test_gateway_dead_letters.py, tests/unit/gateway/test_dead_letters.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aiokq.errors import BufferFull, Closed, InvalidRecord, KafkaError, RequestTimeout
from aiokq.fastpath.gateway import REASONS, SHUTDOWN, Message
from aiokq.gateway.texts import visible

if TYPE_CHECKING:
    from aiokq import Cluster, Delivery, Producer
    from aiokq.fastpath.gateway import Refused, Taken
    from aiokq.gateway.settings import GatewaySettings
    from aiokq.gateway.settings_tables import DeadLettersSettings

__all__ = ["HEADERS", "DeadLetters", "Letter", "LetterOutcomes", "RefusedMessages"]

logger = logging.getLogger("aiokq.gateway")

PREFIX: Final = "aiokq.dead_letter."
HEADERS: Final = (
    f"{PREFIX}topic",
    f"{PREFIX}reason",
    f"{PREFIX}code",
    f"{PREFIX}error",
    f"{PREFIX}attempts",
    f"{PREFIX}partition_key",
    f"{PREFIX}timestamp_ms",
    f"{PREFIX}arrival_ms",
    f"{PREFIX}time_ms",
)
"""The headers of a dead letter, all as text.

Topic and reason of the message; code and text of Kafka's error, if there is one; number of attempts
to deliver the message; partition key, if there is one. The last three are times in milliseconds
since 1970: the message's timestamp, its arrival, and the time at which it became a dead letter.
"""

FOREVER_MS: Final = 2**31 - 1
BLOCK_MS: Final = 3_000
"""Longest time for which a dead letter waits for a topic that does not exist."""

REFUSED_SECONDS: Final = 10.0
"""Seconds for which dead letters are discarded without an attempt after one was refused."""

BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Size of the producer's buffer, unless a larger message is possible.

The pool does not count these bytes: if it did, messages that fill the pool and become dead letters
could not be written.
"""

SHARE: Final = 4
"""While dead letters use a fourth of the pool, further undeliverable messages are discarded without
a dead letter. Otherwise dead letters would fill the pool when their topic accepts none."""

LETTER_OVERHEAD: Final = 3072
"""Bytes that a `Letter` takes beside its messages. Most of them are for its task."""

OVERHEAD: Final = 64 * 1024
"""Bytes by which a dead letter with its headers may be larger than the message."""

LOG_SECONDS: Final = 30.0
"""Seconds between two lines about dead letters that failed; a program can cause any number."""

ROWS: Final = 20
"""Number of dead letters after which other tasks get a turn."""

PRODUCER_SECONDS: Final = 2.0
"""Longest time for which the letters of a closed producer may have no outcome."""

LEAST_PRODUCER_SECONDS: Final = 0.1
"""The same, if a shutdown has no more time."""

SHUTDOWN_SHARE: Final = 0.25
"""Part of the time of a shutdown that is kept for dead letters of undelivered messages."""


class Rate:
    """A limit of messages per second. After a second without messages, `per_s` may come at once.

    Args:
        per_s: the limit; 0 for none.
        clock: returns the current time in seconds.
    """

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = float(per_s)
        self._at = clock()

    def grant(self, messages: int) -> int:
        """Return how many of `messages` messages are within the limit, and count those."""
        if not self._per_s:
            return messages
        now = self._clock()
        self._left = min(self._per_s, self._left + (now - self._at) * self._per_s)
        self._at = now
        granted = min(messages, int(self._left))
        self._left -= granted
        return granted


class RefusedMessages:
    """Messages that the pool refused, with the method `message` of a `Taken`."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    def message(self, row: int) -> Message:
        one = self.refused[row]
        return Message(one.key, one.value, one.timestamp_ms, one.arrival_ms, one.partition_key, -1)


class Letter(NamedTuple):
    """Messages of one topic with one reason.

    Attributes:
        known: whether the topic exists or existed.
        charge: bytes of the pool that the letter holds.
        error: the error of the last attempt; None if there was none.
        target: the topic of dead letters that was configured when the messages were accepted.
    """

    topic: str
    known: bool
    taken: Taken | RefusedMessages
    rows: Sequence[int]
    reason: int
    charge: int
    error: KafkaError | None
    attempts: int
    target: str | None = None


class LetterOutcomes(Protocol):
    """Receives the outcomes of messages that became dead letters."""

    def dead_lettered(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        """Count messages whose dead letters were acknowledged, and release their memory."""

    def dead_letter_failed(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        """Discard messages whose dead letters failed, with their original reason.

        At the end of a gateway with a spool, they stay in the spool instead.
        """


class DeadLetters:
    """Writes dead letters with a Producer of its own, for both engines. Context: loop.

    Args:
        cluster: a started Cluster; it need not have metadata.
        outcomes: gets the outcome of each message.
        spawn: starts a task that belongs to the gateway.
        now_ms: returns the current time in milliseconds since 1970.

    Attributes:
        held: number of messages whose dead letters are not written yet.
        held_of: `held` by name of each topic that exists or existed.
        held_bytes: bytes of the pool that these messages hold.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GatewaySettings,
        outcomes: LetterOutcomes,
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        now_ms: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._outcomes = outcomes
        self._spawn = spawn
        self._now_ms = now_ms
        self._queue: deque[Letter] = deque()
        self._open: dict[int, Letter] = {}
        """The letters that were taken from the queue and have no outcome, by their ids."""
        self._running = False
        self._suspended = False
        self._closing = False
        self._failed = False
        """Whether the gateway has failed: the messages in the queue wait for `close`."""
        self._refused_until = 0.0
        self._logged_at: float | None = None
        self._unlogged = 0
        """The messages whose dead letters failed since the last line about them."""
        self._producer: Producer | None = None
        self._lookup: asyncio.Timeout | None = None
        """The wait for the metadata of a topic; `close` ends it."""
        self.held = 0
        self.held_of: Counter[str] = Counter()
        self.held_bytes = 0
        largest = max([one.limit for one in settings.inputs], default=0)
        self._options: dict[str, Any] = {
            "linger_ms": 5.0,
            "delivery_timeout_ms": FOREVER_MS,
            "max_block_ms": BLOCK_MS,
            "buffer_memory": max(BUFFER_BYTES, largest + OVERHEAD),
            "max_request_size": max(1024 * 1024, largest + OVERHEAD),
        }
        self.configure(settings)

    def configure(self, settings: GatewaySettings) -> None:
        """Use other settings; earlier dead letters keep their topic."""
        chosen: DeadLettersSettings | None = settings.dead_letters
        self._topic = None if chosen is None else chosen.topic
        self._reasons = frozenset(
            () if chosen is None else (REASONS.index(name) for name in chosen.reasons)
        )
        self._most_bytes = settings.pool.max_bytes // SHARE
        self._refused_until = 0.0
        self._rate = Rate(0 if chosen is None else chosen.max_per_s, time.monotonic)

    def wants(self, topic: str, reason: int, more: int = 0) -> bool:
        """Return whether messages of a topic become dead letters for a reason.

        Args:
            more: bytes of other messages in the pool, which will be accepted before these.
        """
        if reason not in self._reasons or topic == self._topic or self._closing:
            return False
        # A shutdown gets no further messages that need the memory.
        return reason == SHUTDOWN or self.held_bytes + more < self._most_bytes

    def grant(self, messages: int) -> int:
        """Return how many of `messages` messages may become dead letters now, and count them.

        Only messages whose topic does not exist, and those that are too long, have this limit:
        a program can send any number of them, and a dead letter takes a hundred times as long as a
        discarded message.
        """
        return self._rate.grant(messages)

    @property
    def enabled(self) -> bool:
        """Whether there is a topic of dead letters."""
        return self._topic is not None

    @property
    def wants_shutdown(self) -> bool:
        """Whether messages that are not delivered at shutdown become dead letters."""
        return SHUTDOWN in self._reasons

    @property
    def sending(self) -> bool:
        """Whether letters are being written, and have no outcome yet."""
        return bool(self._open)

    def accept(self, letter: Letter) -> None:
        """Take over messages. The accounting gets the outcome of each of them."""
        self._hold(letter._replace(target=self._topic))

    def adopt(self, old: DeadLetters) -> None:
        """Take over the letters that `old` has not begun to write; they keep their topic."""
        while old._queue:
            letter = old._queue.popleft()
            old._settled(letter, letter.rows, letter.charge)
            self._hold(letter)

    def _hold(self, letter: Letter) -> None:
        self.held += len(letter.rows)
        if letter.known:
            self.held_of[letter.topic] += len(letter.rows)
        self.held_bytes += letter.charge
        self._queue.append(letter)
        self._begin()

    def _begin(self) -> None:
        """Start the task that writes the queued letters, unless it runs."""
        if self._running or self._suspended or not self._queue:
            return
        try:
            self._spawn(self._work(), "dead letters")
            self._running = True
        except Closed:
            self._failed = True

    def suspend(self) -> None:
        """Begin to write no more letters until `resume`; those being written get their outcomes.

        Otherwise a reload would wait for the end of the letters, of which there is none while
        programs send to topics that do not exist.
        """
        self._suspended = True

    def resume(self) -> None:
        """Write letters again after `suspend`."""
        self._suspended = False
        self._begin()

    async def drain(self, until: float) -> None:
        """Wait until all dead letters have an outcome, or until a time on the loop's clock."""
        loop = asyncio.get_running_loop()
        # Polled, because many tasks change `held`.
        while self.held and not self._failed and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def close(self, until: float, end_by: float = math.inf) -> None:
        """Wait for the dead letters until `until`; then those without an outcome fail.

        If the gateway has failed, the call does not wait.

        Args:
            until: a time on the loop's clock.
            end_by: time on the loop's clock at which the producer has to end, too. It has at least
                LEAST_PRODUCER_SECONDS and at most PRODUCER_SECONDS.
        """
        loop = asyncio.get_running_loop()
        try:
            self._spawn(self.drain(until), "end of dead letters")
        except Closed:
            self._failed = True
        await self.drain(until)
        self._closing = True
        if self._unlogged:
            logger.error("dead letters failed: messages=%s", self._unlogged)
        self._lose_waiting()
        if self._lookup is not None:
            self._lookup.reschedule(loop.time())
            self._lookup = None
        if self._producer is not None:
            await self._producer.close(timeout=0)  # the deliveries fail
        now = loop.time()
        await self.drain(min(now + PRODUCER_SECONDS, max(now + LEAST_PRODUCER_SECONDS, end_by)))
        if self._open and not self._failed:
            logger.error("dead letters have no outcome: messages=%s", self.held)
        self._queue.extend(self._open.values())
        self._lose_waiting()

    async def _work(self) -> None:
        rows = 0
        try:
            while self._queue and not self._failed and not self._suspended:
                if rows >= ROWS:
                    rows = 0
                    await asyncio.sleep(0)  # letters of many topics may have a row each
                    continue
                # Until its topic has been looked up, a letter stays in the queue: a reload can
                # give it to another cluster.
                letter = self._queue[0]
                rows += len(letter.rows)
                refusal = await self._look_up(letter.target)
                if self._suspended or not self._queue or self._queue[0] is not letter:
                    continue  # `close` has discarded it, or `adopt` has given it away
                self._queue.popleft()
                self._open[id(letter)] = letter
                if refusal is not None:
                    assert letter.target is not None
                    self._refused(letter.target, refusal)
                    self._lost(letter, letter.rows, letter.charge, refusal)
                    continue
                try:
                    await self._write(letter)
                except KafkaError as error:  # the producer could not be started
                    self._lost(letter, letter.rows, letter.charge, error)
                except asyncio.CancelledError:
                    self._leave(letter)
                    raise
        finally:
            self._running = False

    async def _look_up(self, topic: str | None) -> KafkaError | None:
        """Wait until a broker has answered whether a topic exists, or until `close`.

        The producer would give its records up after `BLOCK_MS`, also if no broker answers.

        Returns:
            The error if the topic does not exist, or the brokers refuse it or the client; None
            otherwise.
        """
        loop = asyncio.get_running_loop()
        cluster = self._cluster
        limit = self._lookup = asyncio.timeout(None)
        try:
            async with limit:
                while (
                    topic is not None
                    and not self._closing
                    and loop.time() >= self._refused_until
                    and topic not in cluster.metadata.topics
                ):
                    # While no broker answers, the letter waits, as other messages do. An error in
                    # the metadata may be an old one.
                    with contextlib.suppress(RequestTimeout):
                        await cluster.refresh(topic, timeout=BLOCK_MS / 1000)
        except KafkaError as error:
            return error
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._lookup = None
        return None

    async def _write(self, letter: Letter) -> None:
        """Append the dead letters of some messages, and start a task that waits for them."""
        loop = asyncio.get_running_loop()
        topic = letter.target
        if self._closing or topic is None or loop.time() < self._refused_until:
            self._lost(letter, letter.rows, letter.charge, None)
            return
        producer = await self._started()
        deliveries: list[tuple[int, Delivery | None]] = []
        for count, row in enumerate(letter.rows):
            if count % ROWS == ROWS - 1:
                await asyncio.sleep(0)
            delivery: Delivery | None = None
            if loop.time() >= self._refused_until and not self._closing:
                delivery = await self._appended(letter, topic, producer, row)
            deliveries.append((row, delivery))
        settle = self._settle(letter, topic, producer, deliveries)
        try:
            self._spawn(settle, "outcome of dead letters")
        except Closed:
            self._leave(letter)

    async def _appended(
        self, letter: Letter, topic: str, producer: Producer, row: int
    ) -> Delivery | None:
        """Append one dead letter, after waiting for room; return None if it is not accepted."""
        message = letter.taken.message(row)
        headers = self._headers(letter, message)
        while True:
            try:
                return await producer.enqueue(
                    topic, message.value, message.key or None, headers=headers
                )
            except BufferFull:
                continue  # Kafka takes none now: the letter waits, as other messages do
            except KafkaError as error:
                self._refused(topic, error)
                return None

    async def _settle(
        self,
        letter: Letter,
        topic: str,
        producer: Producer,
        deliveries: Sequence[tuple[int, Delivery | None]],
    ) -> None:
        written: list[int] = []
        lost: list[int] = []
        last: KafkaError | None = None
        try:
            for row, delivery in deliveries:
                error: KafkaError | None = None
                if delivery is not None:
                    try:
                        await delivery
                        written.append(row)
                        continue
                    except InvalidRecord as refusal:
                        error = refusal
                        if not error.names_record and await self._alone(
                            letter, topic, producer, row
                        ):
                            written.append(row)
                            continue
                    except KafkaError as refusal:
                        error = refusal
                lost.append(row)
                last = last or error
        except asyncio.CancelledError:
            self._leave(letter)
            raise
        if id(letter) not in self._open:
            return  # `close` has discarded the letter
        charge = 0 if lost else letter.charge
        if written:
            self._settled(letter, written, charge)
            self._outcomes.dead_lettered(letter, written, charge)
        if lost:
            self._lost(letter, lost, letter.charge, last)

    async def _alone(self, letter: Letter, topic: str, producer: Producer, row: int) -> bool:
        """Write one dead letter whose batch was refused; return whether that succeeds."""
        delivery = await self._appended(letter, topic, producer, row)
        if delivery is None:
            return False
        try:
            await delivery
        except KafkaError:
            return False
        return True

    async def _started(self) -> Producer:
        if self._producer is None:
            self._producer = self._cluster.producer(**self._options)
        await self._producer.start()
        return self._producer

    def _refused(self, topic: str, error: KafkaError) -> None:
        """Record that the topic refuses dead letters now, unless only this letter is too large."""
        from aiokq.errors import RecordTooLarge

        if not isinstance(error, RecordTooLarge):
            self._refused_until = asyncio.get_running_loop().time() + REFUSED_SECONDS
        logger.error("dead letter was not accepted: topic=%s error=%s", topic, error)

    def _lost(
        self, letter: Letter, rows: Sequence[int], charge: int, error: KafkaError | None
    ) -> None:
        """Discard messages with their original reason."""
        if error is not None and not self._closing:
            self._unlogged += len(rows)
            now = asyncio.get_running_loop().time()
            if self._logged_at is None or now >= self._logged_at + LOG_SECONDS:
                self._logged_at = now
                logger.error(
                    "dead letters failed: last topic=%s messages=%s error=%s",
                    visible(letter.topic),  # a program may have sent any bytes
                    self._unlogged,
                    error,
                )
                self._unlogged = 0
        self._settled(letter, rows, charge)
        self._outcomes.dead_letter_failed(letter, rows, charge)

    def _leave(self, letter: Letter) -> None:
        """Leave messages to be discarded by `close`, because the gateway has failed."""
        self._failed = True
        if self._open.pop(id(letter), None) is not None:
            self._queue.append(letter)

    def _lose_waiting(self) -> None:
        """Discard the messages of the dead letters in the queue."""
        while self._queue:
            letter = self._queue.popleft()
            self._lost(letter, letter.rows, letter.charge, None)

    def _settled(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        self._open.pop(id(letter), None)
        self.held -= len(rows)
        self.held_bytes -= charge
        if letter.known:
            self.held_of[letter.topic] -= len(rows)
            if not self.held_of[letter.topic]:
                del self.held_of[letter.topic]

    def _headers(self, letter: Letter, message: Message) -> list[tuple[str, bytes]]:
        error, key = letter.error, message.partition_key
        values = (
            letter.topic,
            REASONS[letter.reason],
            None if error is None else getattr(error, "code", None),
            error,
            letter.attempts,
            key,
            message.timestamp_ms,
            message.arrival_ms,
            self._now_ms(),
        )
        return [
            (name, str(value).encode())
            for name, value in zip(HEADERS, values, strict=True)
            if value is not None
        ]
