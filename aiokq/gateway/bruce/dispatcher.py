"""Dispatcher: batches, queues and packs the messages for one broker, and tracks their outcomes.

It is a state machine without I/O: the engine passes in the time and the answers, and sends the
requests. Tests: tests/unit/gateway/bruce/test_dispatcher.py.

Source: Bruce's design document, "Dispatcher" and the table of error ACKs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiokq.errors import BrokerError, InvalidTimestamp, KafkaError
from aiokq.gateway.bruce.batching import Batch, BatchLimits, Now
from aiokq.gateway.bruce.chunk import Chunk
from aiokq.gateway.bruce.error_tables import Action, ErrorTable
from aiokq.gateway.bruce.packing import MessageSet, RequestLimits, pack

if TYPE_CHECKING:
    import random

    from aiokq import ProduceResult

__all__ = ["Delivery", "Dispatcher", "DispatcherOptions", "Failure", "Request"]

MAX_IN_FLIGHT: Final = 5
"""Largest number of requests in flight at a broker."""

FEW: Final = 64
"""Number of outdated deadlines that are kept even if there are few batches."""


class Failure(NamedTuple):
    """The reason why messages are discarded."""

    reason: str
    error: KafkaError | None = None


class Delivery(Protocol):
    """Receives the events of chunks."""

    def queued(self, chunk: Chunk) -> None:
        """Count messages in flight as waiting again."""

    def sent(self, chunk: Chunk) -> None:
        """Count waiting messages as in flight."""

    def acked(self, chunk: Chunk) -> None:
        """Count messages in flight as acknowledged."""

    def discard(self, chunk: Chunk, failure: Failure) -> None:
        """Discard messages in flight."""

    def restamp(self, chunk: Chunk) -> None:
        """Replace timestamps by the time of arrival, and keep the old timestamps in a header."""

    def duplicates(self, chunk: Chunk) -> None:
        """Count messages as possible duplicates: they are sent again, and may have been written."""


class DispatcherOptions(NamedTuple):
    """The options of all dispatchers.

    Attributes:
        resend_wait, longest_resend_wait: first and longest wait in seconds before a message set is
            sent again to the same broker. The wait grows by a factor of four, so that five attempts
            take longer than the restart of a broker, and varies randomly by up to half.
    """

    table: ErrorTable
    max_failed_attempts: int
    limits: RequestLimits
    resend_wait: float = 0.1
    longest_resend_wait: float = 30.0


class Request:
    """A Produce request in flight.

    Attributes:
        broker: the node id.
        sets: its message sets by topic and partition.
        ended: whether it was answered, has failed, or was abandoned.
    """

    def __init__(self, broker: int, sets: dict[tuple[str, int], MessageSet]) -> None:
        self.broker = broker
        self.sets = sets
        self.ended = False

    def chunks(self) -> list[Chunk]:
        return [chunk for each in self.sets.values() for chunk in each.chunks]


class Dispatcher:
    """The messages for one broker.

    Args:
        broker: the node id.
        choose: returns the next partition of a topic for AnyPartition messages.
        delivery: receives the events of the messages.
        pause: called when an answer or a failed request makes a pause necessary. From then on this
            dispatcher sends nothing, until the engine replaces it.

    Attributes:
        options: the options in force.
        in_flight: the requests in flight, in the order in which they were sent.
        stopped: whether a pause has begun.
    """

    def __init__(
        self,
        broker: int,
        options: DispatcherOptions,
        choose: Callable[[str], int | None],
        delivery: Delivery,
        random: random.Random,
        pause: Callable[[Dispatcher, KafkaError], None],
    ) -> None:
        self.broker = broker
        self.options = options
        self._choose = choose
        self._delivery = delivery
        self._random = random
        self._pause = pause
        self._queue: deque[Chunk] = deque()
        self._batches: dict[str | None, Batch] = {}
        """Incomplete batches by topic; None for the combined batch. None of them is empty."""
        self._deadlines: list[tuple[float, int, str | None]] = []
        """A heap of deadlines of batches; some of them are outdated, see `_is_current`."""
        self._batched = 0
        self._delayed: list[tuple[float, int, list[Chunk]]] = []
        self._delays = 0
        self._returned: list[Chunk] = []
        """Messages that a pause will route again."""
        self.in_flight: list[Request] = []
        self.stopped = False

    # ------------------------------------------------------------ messages in

    def enqueue(self, chunk: Chunk) -> None:
        """Add messages that are to be sent without further batching."""
        self._queue.append(chunk)

    def batch(self, topic: str | None, limits: BatchLimits, chunk: Chunk, now: Now) -> None:
        """Add messages to the batch of a topic, or to the combined batch if `topic` is None."""
        if limits == BatchLimits():
            self.enqueue(chunk)
            return
        batch = self._batches.get(topic)
        if batch is None:
            batch = self._batches[topic] = Batch(limits)
        before = batch.deadline
        self._queue.extend(batch.add(chunk, now))
        if not len(batch):
            del self._batches[topic]
        elif batch.deadline is not None and batch.deadline != before:
            self._batched += 1
            heapq.heappush(self._deadlines, (batch.deadline, self._batched, topic))
            if len(self._deadlines) > 2 * len(self._batches) + FEW:
                self._forget_deadlines()

    def flush(self) -> None:
        """Complete all batches. Later messages are batched by the limits that come with them."""
        for batch in self._batches.values():
            self._queue.extend(batch.take())
        self._batches.clear()
        self._deadlines.clear()

    def tick(self, now: float) -> None:
        """Complete batches that are old enough, and queue message sets that waited for a resend."""
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, _, topic = heapq.heappop(self._deadlines)
            batch = self._batches.get(topic)
            if batch is not None and batch.deadline == deadline:
                del self._batches[topic]
                self._queue.extend(batch.take())
        while self._delayed and self._delayed[0][0] <= now:
            _, _, chunks = heapq.heappop(self._delayed)
            self._queue.extendleft(reversed(chunks))

    def deadline(self) -> float | None:
        """Return the time at which `tick` next has work; None if there is no work."""
        while self._deadlines and not self._is_current(self._deadlines[0]):
            heapq.heappop(self._deadlines)
        times = [heap[0][0] for heap in (self._deadlines, self._delayed) if heap]
        return min(times, default=None)

    def _is_current(self, entry: tuple[float, int, str | None]) -> bool:
        batch = self._batches.get(entry[2])
        return batch is not None and batch.deadline == entry[0]

    def _forget_deadlines(self) -> None:
        """Remove the outdated deadlines."""
        self._deadlines = [entry for entry in self._deadlines if self._is_current(entry)]
        heapq.heapify(self._deadlines)

    # ------------------------------------------------------------ requests out

    def next_request(self) -> Request | None:
        """Return the next request, which is then in flight; None if there is nothing to send."""
        if self.stopped or not self._queue or len(self.in_flight) >= MAX_IN_FLIGHT:
            return None
        sets = pack(self._queue, self._choose, self.options.limits)
        if not sets:
            return None
        request = Request(self.broker, sets)
        self.in_flight.append(request)
        for chunk in request.chunks():
            self._delivery.sent(chunk)
        return request

    # ------------------------------------------------------------ answers in

    def answered(
        self, request: Request, results: Mapping[tuple[str, int], ProduceResult], now: float
    ) -> None:
        """Process the answer to a request."""
        self._end(request)
        for place, each in request.sets.items():
            result = results[place]
            if result.error is None:
                for chunk in each.chunks:
                    self._delivery.acked(chunk)
            elif not self._named(each, result, result.error):
                self._refused(each, result.error, now)

    def written(self, request: Request) -> None:
        """End a request with acks=0, which was written to the connection."""
        self._end(request)
        for chunk in request.chunks():
            self._delivery.acked(chunk)

    def failed(self, request: Request, error: KafkaError) -> None:
        """Process the loss of a connection, or an answer that cannot be used.

        The failure does not count as an attempt: the messages are routed again after a pause.
        """
        self._end(request)
        for chunk in request.chunks():
            self._back(chunk, maybe_written=error.may_have_been_written)
            self._returned.append(chunk)
        self._stop(error)

    def abandon(self) -> list[Request]:
        """Stop waiting for the answers to all requests in flight.

        The messages of these requests may have been written.

        Returns:
            The requests.
        """
        abandoned = list(self.in_flight)
        for request in abandoned:
            self._end(request)
            for chunk in request.chunks():
                self._back(chunk, maybe_written=True)
                self._returned.append(chunk)
        return abandoned

    def take_all(self) -> list[Chunk]:
        """Remove and return all messages that are not in flight."""
        self.flush()
        chunks = [*self._returned, *self._queue]
        for _, _, delayed in self._delayed:
            chunks += delayed
        self._returned, self._delayed = [], []
        self._queue.clear()
        return chunks

    # ------------------------------------------------------------ internal

    def _end(self, request: Request) -> None:
        request.ended = True
        self.in_flight.remove(request)

    def _stop(self, error: KafkaError) -> None:
        self.stopped = True
        self._pause(self, error)

    def _back(self, chunk: Chunk, *, maybe_written: bool) -> None:
        if maybe_written:
            self._delivery.duplicates(chunk)
        self._delivery.queued(chunk)

    def _named(self, refused: MessageSet, result: ProduceResult, error: KafkaError) -> bool:
        """Discard the messages that the broker names, and send the others again (KIP-467).

        A message whose timestamp the topic refuses is sent again with the time of arrival.

        Returns:
            False if the broker names no message of the set.
        """
        first = at = 0
        kept: list[Chunk] = []
        found = False
        # A broker may name any number of records, even records that are not in the set.
        size = len(refused)
        named = sorted(n for n in result.record_errors if 0 <= n < size)
        for chunk in refused.chunks:
            end = first + len(chunk)
            stop = bisect_left(named, end, at)
            positions = {n - first for n in named[at:stop]}
            first, at = end, stop
            if not positions:
                kept.append(chunk)
                continue
            found = True
            bad = chunk.without(set(range(len(chunk))) - positions)
            good = chunk.without(positions)
            assert bad is not None
            if good is not None:
                kept.append(good)
            if isinstance(error, InvalidTimestamp) and not bad.restamped:
                self._delivery.restamp(bad)
                kept.append(bad)
            else:
                bad.attempts += 1
                self._delivery.discard(bad, Failure("error_ack", error))
        if found:
            for chunk in kept:
                self._delivery.queued(chunk)
            self._queue.extendleft(reversed(kept))
        return found

    def _refused(self, refused: MessageSet, error: KafkaError, now: float) -> None:
        """Apply the error table to a message set."""
        if not isinstance(error, BrokerError):  # the answer lacks the partition
            for chunk in refused.chunks:
                self._back(chunk, maybe_written=error.may_have_been_written)
                self._returned.append(chunk)
            self._stop(error)
            return
        only = refused.chunks[0]
        if isinstance(error, InvalidTimestamp) and len(refused) == 1 and not only.restamped:
            self._delivery.restamp(only)
            self._delivery.queued(only)
            self._queue.appendleft(only)
            return
        action = self.options.table.action(error.code)
        if action is Action.SPLIT and len(refused) > 1:
            halves = _halves(refused.chunks)
            for chunk in halves:
                self._back(chunk, maybe_written=False)
            self._queue.extendleft(reversed(halves))
        elif action in (Action.RESEND, Action.PAUSE):
            again = self._count_attempt(refused, error)
            if action is Action.PAUSE:
                self._returned += again
            elif again:
                self._delay(again, now)
        else:
            for chunk in refused.chunks:
                chunk.attempts += 1
                self._delivery.discard(chunk, Failure("error_ack", error))
        if action in (Action.PAUSE, Action.DISCARD_AND_PAUSE):
            self._stop(error)

    def _count_attempt(self, refused: MessageSet, error: BrokerError) -> list[Chunk]:
        """Count a failed attempt; discard messages that failed too often, and return the others."""
        again: list[Chunk] = []
        for chunk in refused.chunks:
            chunk.attempts += 1
            if chunk.attempts > self.options.max_failed_attempts:
                bad_topic = error.code in self.options.table.bad_topic
                reason = "bad_topic" if bad_topic else "attempt_limit"
                self._delivery.discard(chunk, Failure(reason, error))
            else:
                self._back(chunk, maybe_written=error.may_have_been_written)
                again.append(chunk)
        return again

    def _delay(self, chunks: list[Chunk], now: float) -> None:
        options = self.options
        attempts = max(chunk.attempts for chunk in chunks)
        wait = min(options.resend_wait * 4.0 ** (attempts - 1), options.longest_resend_wait)
        wait *= self._random.uniform(0.5, 1.5)
        self._delays += 1
        heapq.heappush(self._delayed, (now + wait, self._delays, chunks))


def _halves(chunks: list[Chunk]) -> list[Chunk]:
    """Return the messages of a set as two groups, which are sent in separate sets."""
    first, second = object(), object()
    left = sum(map(len, chunks)) // 2
    halves: list[Chunk] = []
    for chunk in chunks:
        if 0 < left < len(chunk):
            head, chunk = chunk.split(left)
            head.group, chunk.group = first, second
            halves += [head, chunk]
            left = 0
            continue
        chunk.group = first if left else second
        left -= min(left, len(chunk))
        halves.append(chunk)
    return halves
