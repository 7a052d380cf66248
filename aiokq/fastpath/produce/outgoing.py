"""Outgoing, which handlers of `process()` return, and HandlerResults, which appends the results.

    records to send             Outgoing
    results of handlers         HandlerResults: calls a handler for many items, appends the results

This module does not depend on consumers or transactions: an item is any argument of a handler.

Tests: tests/unit/fastpath/test_outgoing.py.
"""

# Hot path, measured by benchmarks/suites/transactions.py (section transactions-process).

from __future__ import annotations

import time
from asyncio import CancelledError
from types import CoroutineType

from aiokq.core.errors import copy_error
from aiokq.fastpath.produce.suspended import Suspended

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath._shared import require_loop
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH, aiokq_monotonic
    from cython.cimports.aiokq.fastpath.produce._accumulator import (
        append_noted,
        note_delivery,
        now_ms,
    )
    from cython.cimports.aiokq.fastpath.produce._arguments import checked_timestamp
    from cython.cimports.aiokq.fastpath.produce._batch import Batch
    from cython.cimports.aiokq.fastpath.produce._deliveries import (
        Deliveries,
        Delivery,
        delivery_at,
        enlarge,
        new_deliveries,
        observe,
        settle,
    )
    from cython.cimports.aiokq.fastpath.produce.coroutines import aiokq_first_step
    from cython.cimports.aiokq.fastpath.produce.states import FAILED, MOVED
else:
    from aiokq.fastpath.produce.accumulator import append_noted, note_delivery, now_ms
    from aiokq.fastpath.produce.arguments import checked_timestamp
    from aiokq.fastpath.produce.deliveries import (
        delivery_at,
        enlarge,
        new_deliveries,
        observe,
        settle,
    )
    from aiokq.fastpath.produce.states import FAILED, MOVED
    from aiokq.fastpath.shared import require_loop

__all__ = ["HandlerResults", "Outgoing"]

_COROUTINE = CoroutineType

_FIRST_CAPACITY = 1024
"""Number of results for which memory is reserved at first."""

_HELD_RESULT_BYTES = 1024
"""Estimated bytes of a held result without its value; values that are not bytes count as 0."""


# ---------------------------------------------------------------- records to send


@cython.freelist(64)
@cython.cclass
class Outgoing:
    """A record to send; the fields are the arguments of `Producer.send`.

    Attributes:
        topic: name of the topic.
        value: the value; None deletes the key in a compacted topic.
        key: determines the partition; None spreads records evenly.
        headers: (name, value) pairs.
        partition: number of the partition; overrides the key.
        timestamp_ms: milliseconds since 1970; None for the time of sending.
    """

    __slots__ = ("headers", "key", "partition", "timestamp_ms", "topic", "value")

    __match_args__ = ("topic", "value", "key", "headers", "partition", "timestamp_ms")

    def __init__(self, topic, value, key=None, headers=None, partition=None, timestamp_ms=None):
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms

    def _values(self):
        return (
            self.topic,
            self.value,
            self.key,
            self.headers,
            self.partition,
            self.timestamp_ms,
        )

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self):
        return hash(self._values())

    def __repr__(self):
        return (
            f"Outgoing(topic={self.topic!r}, value={self.value!r}, key={self.key!r}, "
            f"headers={self.headers!r}, partition={self.partition!r}, "
            f"timestamp_ms={self.timestamp_ms!r})"
        )

    def __reduce__(self):
        from aiokq.fastpath import restore_outgoing

        return restore_outgoing, self._values()


# ---------------------------------------------------------------- results of handlers


@cython.final
@cython.cclass
class HandlerResults:
    """The records that handlers returned for items, in the order of appending, and their outcomes.

    Args:
        accumulator: the Accumulator to which the results are appended.
        direct: whether the results are appended as they are. If not, for example because a
            serializer must be called, the caller sends each result itself, and calls `add`.
        holds: whether results are kept until `release`, because records are refused until then.

    Attributes:
        held_bytes: the estimated memory of the results that are kept.
    """

    __slots__ = ("accumulator", "direct", "held", "held_bytes", "items", "many")

    def __init__(self, accumulator, direct, holds=False):
        self.accumulator = accumulator
        self.direct = direct
        self.held = [] if holds else None
        self.held_bytes = 0
        self.items = []
        self.many = new_deliveries(_FIRST_CAPACITY, 0)

    def __len__(self):
        return len(self.items)

    def handle(self, handler, items, start, stop, seconds, ended):
        """Call the handler for items one after the other, and append their results.

        The clock is read after each call, so that no call begins after the time limit. The step of
        a coroutine up to its first wait is part of the call.

        Args:
            handler: a function of one item. It returns None, an Outgoing, a list of Outgoing, or a
                coroutine that returns one of these. Any other result is returned to the caller.
            items: a list.
            start, stop: index of the first item, and index after the last item.
            seconds: time limit, after which no further item is handled.
            ended: called after an item if its index is the last of eight, or if 0.1 ms have passed
                since the last call. If it returns True, no further item is handled. It is not
                called for each item, because a call takes a sixth of the time of a fast handler.

        Returns:
            A tuple (reached, rest, error). The items before the index `reached` are done. If `rest`
            is not None, the handler was also called for the item at `reached`, and `rest` is the
            part of its result that is not appended: an awaitable, a list of results, or any other
            result. If `error` is not None, the handler raised it for the item at `reached`.

        Raises:
            BaseException: the handler raised an error that is neither an Exception nor a
                CancelledError.
        """
        n: cython.Py_ssize_t = start
        end: cython.Py_ssize_t = stop
        limit: cython.double = seconds
        clock = self.accumulator.clock
        began: cython.double
        spent: cython.double
        asked: cython.double = 0.0
        began_ms: cython.longlong
        now: cython.longlong
        todo: list = items
        require_loop(self.accumulator.guard)
        if not 0 <= n <= end or end > len(todo):
            raise ValueError("`start` and `stop` are no range of the items")
        began = _monotonic(clock)
        began_ms = now_ms(self.accumulator)
        while n < end:
            item = todo[n]
            try:
                result = handler(item)
                if type(result) is _COROUTINE:
                    result = _step(result)
            except (Exception, CancelledError) as error:  # noqa: BLE001 - returned
                return n, None, error
            spent = _monotonic(clock) - began
            if result is not None:
                if cython.compiled:
                    now = began_ms + cython.cast(cython.longlong, spent * 1000)
                else:
                    now = began_ms + int(spent * 1000)
                rest = _append(self, item, result, now)
                if rest is not None:
                    return n, rest, None
            n += 1
            if spent >= limit:
                break
            if n % 8 == 0 or spent - asked >= 1e-4:
                asked = spent
                if ended():
                    break
        return n, None, None

    def append(self, item, outputs, start):
        """Append the results from index `start` on, until a result must wait or is refused.

        Args:
            item: the item for which the handler returned the results.
            outputs: a list.

        Returns:
            The index of the first result that was not appended; `len(outputs)` if all were.
        """
        require_loop(self.accumulator.guard)
        return _append_list(self, item, outputs, start, now_ms(self.accumulator))

    def add(self, item, delivery):
        """Add a result that the caller has sent."""
        _reserve(self)
        note_delivery(self.many, delivery)
        self.items.append(item)

    def release(self):
        """Append the held results; from now on, results are appended when they are returned.

        Returns:
            A list of (item, result): the first held result that must wait or is refused, and all
                later results.
        """
        n: cython.Py_ssize_t = 0
        held: list = self.held
        require_loop(self.accumulator.guard)
        self.held = None
        self.held_bytes = 0
        now: cython.longlong = now_ms(self.accumulator)
        for item, output in held:
            if not _append_one(self, item, output, now):
                break
            n += 1
        return held[n:]

    def failures(self):
        """Return (item, error) for each result whose delivery has failed."""
        n: cython.Py_ssize_t
        batch: Batch
        delivery: Delivery
        many: Deliveries = self.many
        failed: list = []
        for batch in many.batches:
            if batch.state == FAILED or batch.state == MOVED:
                break
        else:
            return failed
        for n in range(len(self.items)):
            delivery = delivery_at(many, n)
            batch = settle(delivery)
            if batch.state == FAILED:
                observe(batch, delivery.index)
                failed.append((self.items[n], copy_error(batch.error)))
        return failed


@cython.cfunc
@cython.inline
def _monotonic(clock: object) -> cython.double:
    if clock is not None:
        return clock.monotonic()
    if cython.compiled:
        return aiokq_monotonic()
    else:
        return time.monotonic()


@cython.cfunc
def _step(coroutine: object) -> object:
    """Run a new coroutine up to its first wait; return its result, or a Suspended if it waits.

    For a handler that never waits, no object is created except its coroutine.
    """
    if cython.compiled:
        yielded: cython.int = 0
        value = aiokq_first_step(coroutine, cython.address(yielded))
        return Suspended(coroutine, value) if yielded else value
    else:
        try:
            value = coroutine.send(None)
        except StopIteration as end:
            return end.value
        return Suspended(coroutine, value)


@cython.cfunc
def _append(
    results: HandlerResults, item: object, result: object, timestamp: cython.longlong
) -> object:
    """Append the result of a handler's call; return the part that was not appended, or None."""
    reached: cython.Py_ssize_t
    if type(result) is Outgoing:
        return None if _append_one(results, item, result, timestamp) else [result]
    if type(result) is list:
        reached = _append_list(results, item, result, 0, timestamp)
        return None if reached == len(result) else result[reached:]
    return result


@cython.cfunc
def _append_list(
    results: HandlerResults,
    item: object,
    outputs: list,
    start: cython.Py_ssize_t,
    timestamp: cython.longlong,
) -> cython.Py_ssize_t:
    n: cython.Py_ssize_t = start
    while n < len(outputs):
        output = outputs[n]
        if type(output) is not Outgoing or not _append_one(results, item, output, timestamp):
            break
        n += 1
    return n


@cython.cfunc
def _append_one(
    results: HandlerResults, item: object, output: Outgoing, timestamp: cython.longlong
) -> cython.bint:
    """Append or hold a result; return False if it must wait, or is refused.

    The error of a refused result is not reported here: the caller sends the result, and gets the
    error then.
    """
    headers = output.headers
    if results.held is not None:
        value = output.value
        results.held.append((item, output))
        results.held_bytes += _HELD_RESULT_BYTES + (len(value) if type(value) is bytes else 0)
        return True
    if not results.direct or results.accumulator.queued:
        return False
    if headers is not None and type(headers) is not list and type(headers) is not tuple:
        return False  # a generator can be read only once
    try:
        if output.timestamp_ms is not None:
            timestamp = checked_timestamp(output.timestamp_ms)
        _reserve(results)
        append_noted(
            results.accumulator,
            output.topic,
            output.value,
            output.key,
            output.partition,
            timestamp,
            headers,
            results.many,
        )
    except Exception:  # noqa: BLE001 - see above
        return False
    results.items.append(item)
    return True


@cython.cfunc
@cython.inline
def _reserve(results: HandlerResults) -> object:
    """Make room for one more delivery."""
    if results.many.filled == results.many.capacity:
        enlarge(results.many)
    return None


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
