"""The gateway's pool in Python, for builds without the compiled core; see pool.h.

Tests: tests/unit/fastpath/test_gateway_pool.py runs both implementations.
"""

# Hot path, measured by benchmarks/micro/gateway.py with the pure core.

from __future__ import annotations

import math
import os
import re
import struct
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from aiokq.core.types import Buffer
from aiokq.fastpath.gateway.values import (
    API_KEY,
    API_VERSION,
    BAD_TOPIC,
    LONGEST_TOPIC,
    MALFORMED,
    NEVER,
    NO_MEMORY,
    NOT_ALLOWED,
    RATE_LIMIT,
    REASONS,
    SAMPLES,
    TOO_LONG,
    TRANSPORTS,
    Message,
    PoolCounts,
    Refused,
    Sample,
    TopicCounts,
    check_limits,
    most_names,
)

MESSAGE_OVERHEAD: Final = 48
TOPIC_OVERHEAD: Final = 1024
REFUSED_OVERHEAD: Final = 96
OPEN_OVERHEAD: Final = 512
FED: Final = TRANSPORTS.index("fed")
COUNTED: Final = 32
VERSIONS: Final = 64
EVALUATED: Final = 65536
CANDIDATES: Final = 8
FEW: Final = 64
FEW_BYTES: Final = 16 * 1024
SENDERS: Final = 1024
RESERVED: Final = 8
"""If this part of the pool or less is free (an eighth), see `Pool._press_if_full`."""

DISCARD, WAIT, FORCE = range(3)
"""What `accept` does with a message for which there is no room.

DISCARD discards it, WAIT returns False so that the caller waits, FORCE stores it nevertheless.
"""

_LEGAL: Final = re.compile(rb"[a-zA-Z0-9._-]{1,249}")
_HEAD: Final = struct.Struct(">ihh")
_LATEST: Final = NEVER // 1000


class Row:
    """A stored message."""

    __slots__ = ("arrival", "key", "partition_key", "sequence", "timestamp", "value")

    def __init__(
        self, key: bytes, value: bytes, timestamp: int, arrival: int, partition_key: int | None
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.arrival = arrival
        self.partition_key = partition_key
        self.sequence = -1

    @property
    def size(self) -> int:
        return len(self.key) + len(self.value)

    @property
    def charge(self) -> int:
        return len(self.key) + len(self.value) + MESSAGE_OVERHEAD


class Parsed:
    """A message as it was sent: a topic and a row, or the reason for which it was discarded."""

    __slots__ = ("reason", "row", "topic", "version")

    def __init__(
        self, reason: int, version: int = 0, topic: bytes = b"", row: Row | None = None
    ) -> None:
        self.reason = reason
        self.version = version
        self.topic = topic
        self.row = row


def parse(data: bytes, arrival: int) -> Parsed:
    """Read one message, which is all of `data`."""
    if len(data) < _HEAD.size:
        return Parsed(MALFORMED)
    size, api_key, version = _HEAD.unpack_from(data)
    if size != len(data):
        return Parsed(MALFORMED)
    if api_key not in (256, 257):
        return Parsed(API_KEY)
    if version != 0:
        return Parsed(API_VERSION, version)
    at = 10 if api_key == 256 else 14
    if at + 2 > size or data[8:10] != b"\0\0":
        return Parsed(MALFORMED)
    topic_size = int.from_bytes(data[at : at + 2], "big", signed=True)
    at += 2
    if topic_size < 1 or at + topic_size + 12 > size:
        return Parsed(MALFORMED)
    topic = data[at : at + topic_size]
    at += topic_size
    timestamp, key_size = struct.unpack_from(">qi", data, at)
    at += 12
    if key_size < 0 or at + key_size + 4 > size:
        return Parsed(MALFORMED)
    key = data[at : at + key_size]
    at += key_size
    if int.from_bytes(data[at : at + 4], "big", signed=True) != size - at - 4:
        return Parsed(MALFORMED)
    partition_key = int.from_bytes(data[10:14], "big") if api_key == 257 else None
    return Parsed(-1, 0, topic, Row(key, data[at + 4 :], timestamp, arrival, partition_key))


class Slot:
    """The messages of a topic that were not taken."""

    def __init__(self, number: int, topic: bytes) -> None:
        self.number = number
        self.topic = topic
        self.registered = False
        self.senders = -1
        self.rows: deque[Row] = deque()
        self.held_bytes = 0
        self.due = 0
        self.pending = self.pending_bytes = 0
        self.deadline: int | None = None
        self.batch_messages = self.batch_bytes = 0
        self.batch_ms = self.max_message_bytes = self.rate_max_messages = -1
        self.rate_interval_ms = 0
        self.window: int | None = None
        self.in_window = 0
        self.received = self.too_long = self.rate_limited = self.no_memory = self.queued = 0
        self.earliest, self.latest = NEVER, -NEVER

    def limits(self) -> tuple[int, ...]:
        return self.batch_messages, self.batch_bytes, self.batch_ms

    def limited(self, now: int) -> bool:
        """Count a message against the rate limit; return whether it is above the limit."""
        if self.rate_interval_ms <= 0 or self.rate_max_messages < 0:
            return False
        if self.window is None:
            self.window, self.in_window = now, 0
        elif now - self.window >= self.rate_interval_ms:
            self.window = now - (now - self.window) % self.rate_interval_ms
            self.in_window = 0
        self.in_window += 1
        return self.in_window > self.rate_max_messages

    def append(self, row: Row, wall: int, mono: int) -> None:
        """Add a message; decide which of the messages are due."""
        self.rows.append(row)
        self.held_bytes += row.charge
        if self.registered:
            self.account(row, len(self.rows), wall, mono)

    def account(self, row: Row, held: int, wall: int, mono: int) -> None:
        """Count `row`, message number `held` of the topic; mark the messages that became due."""
        size = row.size or 1
        if self.batch_bytes > 0:
            if size >= self.batch_bytes:
                self.mark_due(held)
                return
            if self.pending_bytes + size > self.batch_bytes:
                self.mark_due(held - 1)
        self.pending += 1
        self.pending_bytes += size
        if (
            (self.batch_messages > 0 and self.pending >= self.batch_messages)
            or (self.batch_bytes > 0 and self.pending_bytes >= self.batch_bytes)
            or self.limits() == (0, 0, -1)
        ):
            self.mark_due(held)
        elif self.batch_ms >= 0:
            oldest = min(row.timestamp, row.arrival, wall)
            if oldest <= wall - self.batch_ms:
                self.mark_due(held)
                return
            deadline = mono + self.batch_ms - (wall - oldest)
            if self.deadline is None or deadline < self.deadline:
                self.deadline = deadline

    def mark_due(self, count: int) -> None:
        self.due = count
        self.pending = self.pending_bytes = 0
        self.deadline = None

    def noted(self, timestamp: int) -> None:
        self.earliest = min(self.earliest, timestamp)
        self.latest = max(self.latest, timestamp)


class Taken:
    """Messages of one topic, in the order of arrival. Their memory stays charged until release().

    Attributes:
        count: number of messages.
        charge: bytes of the pool that the messages use.
        size: bytes of the keys and values.
        slot: the slot of the topic; -1 if the topic was not registered.
        oldest_ms: the smallest of the timestamps and arrival times.
    """

    __slots__ = ("_rows", "charge", "count", "oldest_ms", "size", "slot")

    def __init__(self, slot: int, rows: Sequence[Row]) -> None:
        self._rows = rows
        self.slot = slot
        self.count = len(rows)
        self.size = sum(row.size for row in rows)
        self.charge = self.size + self.count * MESSAGE_OVERHEAD
        self.oldest_ms = min((min(row.timestamp, row.arrival) for row in rows), default=NEVER)

    def __len__(self) -> int:
        return self.count

    def message(self, index: int) -> Message:
        row = self._rows[self._checked(index)]
        return Message(
            row.key, row.value, row.timestamp, row.arrival, row.partition_key, row.sequence
        )

    def timestamps(self) -> tuple[int, int]:
        stamps = [row.timestamp for row in self._rows]
        return min(stamps, default=NEVER), max(stamps, default=-NEVER)

    def sequences(self, rows: Iterable[int] | None = None) -> memoryview:
        chosen = self._rows if rows is None else [self._rows[self._checked(row)] for row in rows]
        stored = b"".join(row.sequence.to_bytes(8, _ORDER, signed=True) for row in chosen)
        return memoryview(stored).cast("q") if stored else memoryview(b"").cast("B")

    def select(self, rows: Sequence[int]) -> Taken:
        return Taken(self.slot, [self._rows[self._checked(row)] for row in rows])

    def batches(self, messages: int, size: int) -> list[int]:
        ends: list[int] = []
        count = total = 0
        for n, row in enumerate(self._rows):
            own = row.size or 1
            if size > 0 and count and (own >= size or total + own > size):
                ends.append(n)
                count = total = 0
            count += 1
            total += own
            if (messages > 0 and count >= messages) or (size > 0 and total >= size):
                ends.append(n + 1)
                count = total = 0
        if count:
            ends.append(self.count)
        return ends

    def columns(
        self,
        *,
        partitions: int = 0,
        usable: Buffer | None = None,
        null_keys: bool = False,
        null_values: bool = False,
        earliest_ms: int = 0,
        latest_ms: int = _LATEST,
        header: bytes = b"aiokq.timestamp",
    ) -> dict[str, object]:
        rows = self._rows
        earliest_ms, latest_ms = max(earliest_ms, 0), min(latest_ms, _LATEST)
        usable_at = None if usable is None else bytes(usable)
        if usable_at is not None and len(usable_at) != partitions:
            raise ValueError(f"usable: {len(usable_at)} bytes for {partitions} partitions")
        given: dict[str, object] = {
            "value": _column([row.value for row in rows], null_values),
        }
        if any(row.key for row in rows) or not null_keys:
            given["key"] = _column([row.key for row in rows], null_keys)
        stamps, replaced = [], []
        for row in rows:
            if earliest_ms <= row.timestamp <= latest_ms:
                stamps.append(row.timestamp)
                replaced.append(b"")
            else:
                stamps.append(row.arrival)
                replaced.append(b"%d" % row.timestamp)
        given["timestamp"] = None, struct.pack(f"={len(rows)}q", *(ms * 1000 for ms in stamps))
        if any(replaced):
            given["headers"] = _headers(header, replaced)
        if partitions > 0 and any(row.partition_key is not None for row in rows):
            numbers = [
                None
                if row.partition_key is None
                else _partition(row.partition_key, partitions, usable_at)
                for row in rows
            ]
            given["partition"] = (
                _bits([number is not None for number in numbers]),
                struct.pack(f"={len(rows)}i", *(number or 0 for number in numbers)),
            )
        return given

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise IndexError("message index out of range")
        return index


_ORDER: Final = sys.byteorder


_ONE: Final = (1).to_bytes(8, _ORDER)


def _partition(partition_key: int, partitions: int, usable: bytes | None) -> int:
    """Return the first usable partition at or after the partition of a key."""
    first = partition_key % partitions
    for n in range(partitions if usable is not None else 0):
        at = (first + n) % partitions
        if usable is not None and usable[at]:
            return at
    return first


def _bits(present: Sequence[bool]) -> bytes:
    bits = bytearray((len(present) + 7) // 8)
    for n, one in enumerate(present):
        bits[n >> 3] |= one << (n & 7)
    return bytes(bits)


def _offsets(parts: Sequence[bytes]) -> bytes:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"={len(offsets)}i", *offsets)


def _column(parts: Sequence[bytes], nulls: bool) -> tuple[bytes | None, bytes, bytes]:
    bits = None
    if nulls and not all(parts):
        bits = _bits([bool(part) for part in parts])
    return bits, _offsets(parts), b"".join(parts)


def _headers(
    name: bytes, values: Sequence[bytes]
) -> tuple[None, bytes, bytes, bytes, None, bytes, bytes]:
    """Return the column of headers, with one header for each value that is not empty."""
    rows = [0]
    for value in values:
        rows.append(rows[-1] + bool(value))
    texts = [value for value in values if value]
    names = [name] * len(texts)
    return (
        None,
        struct.pack(f"={len(rows)}i", *rows),
        _offsets(names),
        b"".join(names),
        None,
        _offsets(texts),
        b"".join(texts),
    )


class Pool:
    """The memory of a gateway: the messages that were received and not delivered yet.

    Args:
        max_bytes: limit in bytes. A message counts with its key, its value and MESSAGE_OVERHEAD, an
            unregistered topic with its name and TOPIC_OVERHEAD, and an incomplete message of a
            stream with its memory.
        wake_fd: an eventfd, or the writing end of a pipe; when messages become due, 8 bytes are
            written, but only once until the next `due()`. The same is written when a topic is new,
            when a message may become due before the time that `due()` returned, when `refused()`
            has a message, when the pool is nearly full, when memory is freed for which a call of
            `feed` or `press` waits, and when the thread of an input ends by itself. -1 to write
            nothing.
        topic_share: the messages of a topic that were not taken may use this many times as much as
            is free. A topic with none may use all that is free. 0 for no limit.
        sample_bytes: number of bytes of a sample.
        max_topic_names: maximum number of unregistered topics; fewer if half of `max_bytes` is too
            little for their names. A further topic replaces the oldest topic with few messages, of
            the sender with the most topics; the messages are discarded as BAD_TOPIC. If the 8
            oldest topics of this sender all have many messages (more than 64 messages, or more than
            16 KiB), no topic is replaced, and the new message is discarded as BAD_TOPIC.
        refused_bytes: size of the queue of `refused()`, in addition to `max_bytes`.
        refused_reasons: the reasons for which messages are put into this queue.
        refused_whole: reasons in `refused_reasons` whose messages are kept whole, as far as
            `limit_whole` allows and there is room. They are charged, and held until `release()`.
            The next two limits do not apply to them. Messages for which there is no room, or that
            exceed `limit_whole`, count as discarded; with `refused_prefix`, they are queued like
            messages of other reasons.
        refused_prefix: number of bytes of each key and value that the queue keeps; -1 for all.
        refused_per_s: number of messages that the queue takes per second; 0 for any number.
        spooled: whether `finished()` names the messages that the pool discards.

    Raises:
        ValueError: `max_bytes` is less than 1, or a number is negative.
    """

    MESSAGE_OVERHEAD = MESSAGE_OVERHEAD
    TOPIC_OVERHEAD = TOPIC_OVERHEAD

    def __init__(
        self,
        max_bytes: int,
        *,
        wake_fd: int = -1,
        topic_share: int = 0,
        sample_bytes: int = 256,
        max_topic_names: int = 65536,
        refused_bytes: int = 0,
        refused_reasons: Collection[int] = (),
        refused_whole: Collection[int] = (),
        refused_prefix: int = -1,
        refused_per_s: int = 0,
        spooled: bool = False,
    ) -> None:
        least = min(topic_share, sample_bytes, max_topic_names, refused_bytes, refused_per_s)
        if max_bytes < 1 or least < 0:
            raise ValueError("max_bytes is at least 1, and no number is negative")
        self.max_bytes = max_bytes
        self._wake_fd = wake_fd
        self._topic_share = topic_share
        self._sample_bytes = sample_bytes
        self._max_topic_names = most_names(max_topic_names, max_bytes)
        self._names_of: dict[int, OrderedDict[bytes, Slot]] = {}
        """The unregistered topics of each group of senders.

        They are ordered by their last messages, the oldest first.
        """
        self.turn: object = None
        """The connection whose incomplete message may still grow."""
        self.crowded_at = -math.inf
        """Monotonic seconds at which a connection last waited for the turn."""
        self._refused_bytes = refused_bytes
        self._refused_reasons = _reasons(refused_reasons)
        self._refused_whole = _reasons(refused_whole)
        self._refused_prefix = refused_prefix
        self._refused_per_s = refused_per_s
        self._refused_second = self._refused_in_second = 0
        self._whole_rate = self._whole_next = 0
        self._spooled = spooled
        self._finished: list[int] = []
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._memory = threading.Condition(self._lock)
        self._clock: tuple[int, int] | None = None
        self._closed = False
        self._slots: dict[int, Slot] = {}
        self._free: list[int] = []
        self._topics: dict[bytes, Slot] = {}
        self._fresh: deque[Slot] = deque()
        self._ready: dict[int, None] = {}
        """The slots that became due since the last `due()`."""
        self._woken = False
        self._armed: int | None = None
        self._pressed = False
        """Whether there is hardly any room, so that the next `due()` makes all messages due."""
        self._starved = False
        """Whether the loop waits for room, so that it is woken when memory is freed."""
        self._used = self._partial = 0
        self._held = self._taken = self._unresolved = self._names = 0
        self._received = self._received_bytes = self._replayed = self._sequence = 0
        self._discarded = [0] * COUNTED
        self.outcome = -1
        self._versions: dict[int, int] = {}
        self._samples: dict[tuple[int, int], deque[Sample]] = {}
        self._bad_topics: OrderedDict[bytes, Sample] = OrderedDict()
        self._refused: deque[Refused] = deque()
        self._refused_used = self._refused_lost = 0

    # ------------------------------------------------------------ topics

    def register(
        self,
        topic: bytes,
        *,
        batch_messages: int = 0,
        batch_bytes: int = 0,
        batch_ms: int = -1,
        max_message_bytes: int = -1,
        rate_interval_ms: int = 0,
        rate_max_messages: int = -1,
    ) -> int:
        self._check()
        check_limits(
            batch_messages,
            batch_bytes,
            batch_ms,
            max_message_bytes,
            rate_interval_ms,
            rate_max_messages,
        )
        topic = bytes(memoryview(topic))
        if len(topic) > LONGEST_TOPIC:
            raise ValueError(
                f"the topic has {len(topic)} bytes; at most {LONGEST_TOPIC} are possible"
            )
        with self._lock:
            slot = self._topics.get(topic)
            if slot is None:
                slot = self._new_slot(topic)
            known = slot.registered
            self._limit(
                slot,
                batch_messages,
                batch_bytes,
                batch_ms,
                max_message_bytes,
                rate_interval_ms,
                rate_max_messages,
            )
            if not known:
                self._resolve(slot)
            return slot.number

    def configure(
        self,
        slot: int,
        *,
        batch_messages: int = 0,
        batch_bytes: int = 0,
        batch_ms: int = -1,
        max_message_bytes: int = -1,
        rate_interval_ms: int = 0,
        rate_max_messages: int = -1,
    ) -> None:
        check_limits(
            batch_messages,
            batch_bytes,
            batch_ms,
            max_message_bytes,
            rate_interval_ms,
            rate_max_messages,
        )
        self._check()
        with self._lock:
            self._limit(
                self._slot(slot),
                batch_messages,
                batch_bytes,
                batch_ms,
                max_message_bytes,
                rate_interval_ms,
                rate_max_messages,
            )

    def forget(self, slot: int) -> None:
        self._check()
        with self._lock:
            known = self._slot(slot)
            if self._topics.get(known.topic) is known:
                del self._topics[known.topic]
            self._mark_due(known)

    def unresolved(self, limit: int = 1000) -> list[tuple[bytes, int]]:
        self._check()
        found: list[tuple[bytes, int]] = []
        with self._lock:
            while self._fresh and len(found) < limit:
                slot = self._fresh.popleft()
                if not slot.registered and self._topics.get(slot.topic) is slot:
                    found.append((slot.topic, len(slot.rows)))
        return found

    def waits(self, topic: bytes) -> bool:
        self._check()
        with self._lock:
            slot = self._topics.get(topic)
            return slot is not None and not slot.registered

    def discard_unresolved(self, topic: bytes, reason: int) -> int:
        self._check()
        if not 0 <= reason < len(REASONS):
            raise ValueError(f"reason {reason}: not an index of REASONS")
        with self._lock:
            slot = self._topics.get(topic)
            if slot is None or slot.registered:
                return 0
            count = len(slot.rows)
            self._end_unresolved(slot)
            self._used -= slot.held_bytes
            self._held -= count
            self._discarded[reason] += count
            if self._spooled:
                self._finished.extend(row.sequence for row in slot.rows)
            self._sample_topic(topic, self.now()[1])
            self._freed()
            return count

    def take_unresolved(self, topic: bytes) -> Taken | None:
        self._check()
        with self._lock:
            slot = self._topics.get(topic)
            if slot is None or slot.registered:
                return None
            self._end_unresolved(slot)
            self._taken += len(slot.rows)
            self._sample_topic(topic, self.now()[1])
            return Taken(-1, list(slot.rows))

    # ------------------------------------------------------------ batches

    def due(self) -> tuple[list[int], int | None]:
        self._check()
        with self._lock:
            self._woken = False
            now, _ = self.now()
            self._armed = None
            for slot in self._slots.values():
                if self._pressed and slot.pending:
                    if not slot.due:
                        self._ready[slot.number] = None
                    slot.mark_due(len(slot.rows))
                elif slot.deadline is not None:
                    if slot.deadline <= now:
                        if not slot.due:
                            self._ready[slot.number] = None
                        slot.mark_due(len(slot.rows))
                    elif self._armed is None or slot.deadline < self._armed:
                        self._armed = slot.deadline
            self._pressed = False
            ready = list(self._ready)
            self._ready.clear()
            return ready, None if self._armed is None else self._armed - now

    def take(self, slot: int, *, flush: bool = False, max_bytes: int = 0) -> Taken | None:
        self._check()
        with self._lock:
            known = self._slot(slot)
            if flush:
                self._mark_due(known)
            if not known.due:
                if self._topics.get(known.topic) is not known:
                    self._drop(known)  # the slot was forgotten
                return None
            rows = [known.rows.popleft()]
            charge = rows[0].charge
            while len(rows) < known.due:
                charge += known.rows[0].charge
                if 0 < max_bytes < charge:
                    break
                rows.append(known.rows.popleft())
            known.due -= len(rows)
            if not known.due:
                self._ready.pop(slot, None)
            taken = Taken(slot, rows)
            known.held_bytes -= taken.charge
            self._taken += taken.count
            if self._topic_share:
                self._freed()  # the topic holds less of its share
            return taken

    def limit_whole(self, per_s: int) -> None:
        self._check()
        if per_s < 0:
            raise ValueError(f"per_s is {per_s}, and must not be negative")
        with self._lock:
            self._whole_rate, self._whole_next = per_s, 0

    def press(self) -> int:
        self._check()
        with self._lock:
            self._press()
            self._starved = True
            return self._used

    def charge(self, size: int) -> None:
        self._check()
        if size < 0:
            raise ValueError(f"size is {size}, and must not be negative")
        with self._lock:
            self._used += size
            self._press_if_full()

    def release(self, messages: int, charge: int) -> None:
        self._check(closed=True)
        with self._lock:
            if messages > self._taken or charge > self._used or messages < 0 or charge < 0:
                raise ValueError(f"{messages} messages of {charge} bytes were not taken")
            self._taken -= messages
            self._held -= messages
            self._used -= charge
            self._freed()

    # ------------------------------------------------------------ reports

    def counts(self, *, topics: bool = False, new_window: bool = False) -> PoolCounts:
        self._check(closed=True)
        with self._lock:
            by_slot: dict[int, TopicCounts] = {}
            if topics:
                by_slot = {
                    number: _topic_counts(slot)
                    for number, slot in self._slots.items()
                    if slot.registered or slot.too_long or slot.rate_limited or slot.no_memory
                }
            if new_window:
                for slot in self._slots.values():
                    slot.earliest, slot.latest = NEVER, -NEVER
            return PoolCounts(
                self._received,
                self._received_bytes,
                self._replayed,
                self._held,
                self._taken,
                self._used,
                self._partial,
                self._unresolved,
                self._names,
                self._refused_lost,
                tuple(self._discarded[: len(REASONS)]),
                dict(self._versions),
                by_slot,
            )

    def used_bytes(self) -> int:
        self._check(closed=True)
        with self._lock:
            return self._used

    def counts_of(self, slot: int) -> TopicCounts:
        self._check()
        with self._lock:
            return _topic_counts(self._slot(slot))

    def samples(self, *, clear: bool = False) -> list[Sample]:
        self._check(closed=True)
        with self._lock:
            found = [
                sample for key in sorted(self._samples) for sample in self._samples[key]
            ] + list(self._bad_topics.values())
            if clear:
                self._samples.clear()
                self._bad_topics.clear()
            return found

    def refused(self) -> list[Refused]:
        self._check(closed=True)
        with self._lock:
            found = list(self._refused)
            self._refused.clear()
            self._refused_used = 0
            self._taken += sum(one.charge > 0 for one in found)
            return found

    # ------------------------------------------------------------ messages

    def finished(self) -> memoryview:
        self._check(closed=True)
        with self._lock:
            found, self._finished = self._finished, []
        stored = struct.pack(f"={len(found)}q", *found)
        return memoryview(stored).cast("q") if stored else memoryview(b"").cast("B")

    def feed(
        self,
        data: Buffer,
        *,
        sequence: int = -1,
        replayed: bool = False,
        stop_when_full: bool = False,
        max_message_bytes: int = 0x7FFFFFFF,
        arrival_ms: int = -1,
    ) -> int:
        self._check()
        view = memoryview(data).cast("B")
        at = 0
        with self._lock:
            mono, wall = self.now()
            arrival = wall if arrival_ms < 0 else min(arrival_ms, wall)
            when_full = WAIT if stop_when_full else DISCARD
            while len(view) - at >= 4:
                size = int.from_bytes(view[at : at + 4], "big", signed=True)
                if size < 4 or size - 4 > max_message_bytes:
                    self.fault(bytes(view[at : at + self._sample_bytes]), FED, wall)
                    return len(view)
                if size > len(view) - at:
                    break
                message = bytes(view[at : at + size])
                if not self.accept(message, mono, wall, FED, when_full, sequence, arrival):
                    self._starved = True
                    break
                self._replayed += replayed
                sequence += sequence >= 0
                at += size
        return at

    def close(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            self.max_bytes = 0  # an input that still runs finds no room
            self._slots.clear()
            self._topics.clear()
            self._fresh.clear()
            self._ready.clear()
            self._refused.clear()
            self._freed()

    def set_clock(self, monotonic_ms: int, wall_ms: int) -> None:
        self._check()
        with self._lock:
            self._clock = monotonic_ms, wall_ms

    # ------------------------------------------------------------ for inputs, under the lock

    def accept(
        self,
        data: bytes,
        mono: int,
        wall: int,
        transport: int,
        when_full: int,
        sequence: int = -1,
        arrival: int = -1,
        sender: int = 0,
    ) -> bool:
        """Store or discard one message; return False, without counting it, if it has to wait."""
        self.outcome = -1
        arrival = wall if arrival < 0 else arrival
        parsed = parse(data, arrival)
        if parsed.row is not None:
            parsed.row.sequence = sequence
        row = parsed.row
        if row is None:
            self._receive(data)
            if parsed.reason == API_VERSION and (
                parsed.version in self._versions or len(self._versions) < VERSIONS
            ):
                self._versions[parsed.version] = self._versions.get(parsed.version, 0) + 1
            self.discard_raw(parsed.reason, transport, data, arrival, sequence)
            return True
        slot = self._topics.get(parsed.topic)
        need = row.charge
        if slot is None:
            if not legal(parsed.topic):
                self._receive(data)
                self._sample_topic(parsed.topic, wall)
                self._discard(BAD_TOPIC, transport, parsed.topic, row, None)
                return True
            need += TOPIC_OVERHEAD + len(parsed.topic)
        elif slot.registered and 0 <= slot.max_message_bytes < row.size:
            self._receive(data)
            slot.received += 1
            self._sample_long(transport, parsed.topic, row)
            self._discard(TOO_LONG, transport, parsed.topic, row, slot)
            return True
        wanted = when_full
        if when_full == WAIT and not self._held:
            when_full = FORCE  # no message will make room: waiting frees nothing
        if need > self.max_bytes or (
            when_full != FORCE
            and (self._used + need > self.max_bytes or self._over_share(slot, need))
        ):
            if need <= self.max_bytes < self._used + need:
                self._press()
            elif need <= self.max_bytes and slot is not None and slot.registered:
                self._mark_due(slot)  # the topic has its share: only that helps it
            if when_full == WAIT and need <= self.max_bytes:
                return False
            self._receive(data)
            if slot is not None:
                slot.received += 1
            self._discard(NO_MEMORY, transport, parsed.topic, row, slot)
            return True
        full = slot is None and self._names >= self._max_topic_names
        if full and transport == FED and wanted == WAIT:
            return False  # fed messages wait in the spool, so no topic is removed for them
        self._receive(data)
        if slot is not None and slot.registered and slot.limited(mono - (wall - arrival)):
            slot.received += 1
            self._discard(RATE_LIMIT, transport, parsed.topic, row, slot)
            return True
        if full and not self._evict(wall):
            self._sample_topic(parsed.topic, wall)
            self._discard(BAD_TOPIC, transport, parsed.topic, row, None)
            return True
        self.outcome = -1
        if sequence < 0:
            row.sequence = self._sequence
            self._sequence += 1
        if slot is None:
            slot = self._new_slot(parsed.topic)
            slot.senders = (sender * 2654435761 & 0xFFFFFFFF) >> 22
            self._names_of.setdefault(slot.senders, OrderedDict())[slot.topic] = slot
            self._names += 1
            self._fresh.append(slot)
            self.wake()
        elif not slot.registered:
            self._names_of[slot.senders].move_to_end(slot.topic)
        slot.received += 1
        self._used += need
        self._held += 1
        self._unresolved += not slot.registered
        was_due = slot.due
        slot.append(row, wall, mono)
        self._wake_for(slot, was_due)
        self._press_if_full()
        return True

    def discard_raw(
        self, reason: int, transport: int, data: bytes, wall: int, sequence: int = -1
    ) -> None:
        """Discard a message that cannot be read; the caller has counted it as received."""
        self._sample(reason, transport, wall, data[: self._sample_bytes])
        row = Row(b"", data, 0, wall, None)
        row.sequence = sequence
        self._discard(reason, transport, b"", row, None)

    def refuse(self, data: bytes, wall: int, transport: int, reason: int) -> None:
        """Discard a well-formed message for the given reason."""
        parsed = parse(data, wall)
        self._receive(data)
        if parsed.row is not None:
            self._discard(reason, transport, parsed.topic, parsed.row, None)
        else:
            self.discard_raw(parsed.reason, transport, data, wall)

    def fault(self, data: bytes, transport: int, wall: int) -> None:
        """Count a message whose size, its first 4 bytes, is impossible or above the limit."""
        self.lost(MALFORMED, 4, transport, data, wall)

    def lost(self, reason: int, size: int, transport: int, data: bytes, wall: int) -> None:
        """Count a message of `size` bytes of which only the beginning is known."""
        self._received += 1
        self._received_bytes += size
        if reason in (NO_MEMORY, NOT_ALLOWED):
            self._discard(reason, transport, b"", Row(b"", data, 0, wall, None), None)
        else:
            self.discard_raw(reason, transport, data, wall)

    def partials_full(self, size: int, own: int = 0) -> bool:
        """Return whether incomplete messages would use more than half of the pool.

        A single incomplete message may use the whole pool.

        Args:
            size: bytes of an incomplete message that are not charged yet.
            own: bytes of this message that are charged.
        """
        return self._partial > own and self._partial + size > self.max_bytes // 2

    def charge_partial(self, size: int, when_full: int) -> bool:
        """Charge the beginning of a message; return False if there is no room for it."""
        if size > 0 and when_full == DISCARD and self._used + size > self.max_bytes:
            return False
        self._used += size
        self._partial += size
        if size < 0:
            self._freed()
        else:
            self._press_if_full()
        return True

    def crowded(self) -> bool:
        """Return whether a blocking input has to wait for memory."""
        return self._used >= self.max_bytes and self._held > 0

    def used(self) -> int:
        return self._used

    def partial(self) -> int:
        return self._partial

    @property
    def lock(self) -> threading.Lock:
        return self._lock

    @property
    def memory(self) -> threading.Condition:
        return self._memory

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            if self._wake_fd >= 0:
                try:
                    os.write(self._wake_fd, _ONE)
                except OSError:
                    pass  # the pipe is full, or the loop closed it

    # ------------------------------------------------------------ internal

    def _check(self, closed: bool = False) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("the pool belongs to the process that created it")
        if self._closed and not closed:
            raise RuntimeError("the pool is closed")

    def now(self) -> tuple[int, int]:
        if self._clock is not None:
            return self._clock
        return time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000

    def _slot(self, number: int) -> Slot:
        slot = self._slots.get(number)
        if slot is None or not slot.registered:
            raise ValueError(f"slot {number} is not in use")
        return slot

    def _new_slot(self, topic: bytes) -> Slot:
        number = self._free.pop() if self._free else len(self._slots)
        slot = self._slots[number] = self._topics[topic] = Slot(number, topic)
        return slot

    def _drop(self, slot: Slot) -> None:
        del self._slots[slot.number]
        self._ready.pop(slot.number, None)
        self._free.append(slot.number)

    def _over_share(self, slot: Slot | None, need: int) -> bool:
        """Return whether a topic with messages would hold more than its share with `need` bytes."""
        if not self._topic_share or slot is None or not slot.rows:
            return False
        free = self.max_bytes - self._used - need
        return slot.held_bytes + need > self._topic_share * free

    def _evict(self, wall: int) -> bool:
        """Remove an unregistered topic with few messages, and discard its messages.

        The topic is the oldest such topic of the group of senders with the most unregistered
        topics, so that a program that invents topic names loses its own topics. Return False if
        there is no such topic among the CANDIDATES oldest topics of this group.
        """
        if not self._names_of:
            return False
        least = min(self._names_of, key=lambda group: (-len(self._names_of[group]), group))
        names = self._names_of[least]
        for _ in range(CANDIDATES):
            slot = next(iter(names.values()))
            if len(slot.rows) <= FEW and slot.held_bytes <= FEW_BYTES:
                break
            names.move_to_end(slot.topic)
        else:
            return False
        self._sample_topic(slot.topic, wall)
        for row in slot.rows:
            self._used -= row.charge
            self._held -= 1
            self._discard(BAD_TOPIC, FED, slot.topic, row, None)
        self._end_unresolved(slot)
        slot.rows = deque()  # free the messages: `_fresh` may refer to the slot for longer
        return True

    def _end_name(self, slot: Slot) -> None:
        """Remove an unregistered topic from the lists."""
        self._used -= TOPIC_OVERHEAD + len(slot.topic)
        self._names -= 1
        self._unresolved -= len(slot.rows)
        names = self._names_of[slot.senders]
        del names[slot.topic]
        if not names:
            del self._names_of[slot.senders]

    def _end_unresolved(self, slot: Slot) -> None:
        """Remove an unregistered topic; the caller takes over its messages."""
        self._end_name(slot)
        del self._topics[slot.topic]
        self._drop(slot)
        self._freed()

    def _limit(
        self,
        slot: Slot,
        batch_messages: int,
        batch_bytes: int,
        batch_ms: int,
        max_message_bytes: int,
        rate_interval_ms: int,
        rate_max_messages: int,
    ) -> None:
        before = slot.limits()
        rates = slot.rate_interval_ms, slot.rate_max_messages
        slot.batch_messages, slot.batch_bytes, slot.batch_ms = batch_messages, batch_bytes, batch_ms
        slot.max_message_bytes = max_message_bytes
        slot.rate_interval_ms, slot.rate_max_messages = rate_interval_ms, rate_max_messages
        if rates != (rate_interval_ms, rate_max_messages):
            slot.window = None
        if slot.registered and before != slot.limits() and slot.rows:
            self._mark_due(slot)

    def _resolve(self, slot: Slot) -> None:
        """Mark the topic of a slot as registered; apply the limits to the messages it holds."""
        if slot.rows:
            self._end_name(slot)
        slot.registered = True
        mono, wall = self.now()
        rows = slot.rows
        slot.rows = deque()
        for row in rows:
            if 0 <= slot.max_message_bytes < row.size:
                reason = TOO_LONG
                self._sample_long(FED, slot.topic, row)
            elif slot.limited(min(row.arrival - wall, 0) + mono):
                reason = RATE_LIMIT
            else:
                slot.rows.append(row)
                continue
            slot.held_bytes -= row.charge
            self._used -= row.charge
            self._held -= 1
            self._discard(reason, FED, slot.topic, row, slot)
        if len(slot.rows) > EVALUATED:
            slot.mark_due(len(slot.rows))
        else:
            for held, row in enumerate(slot.rows, 1):
                slot.account(row, held, wall, mono)
        self._wake_for(slot, 0)
        self._press_if_full()
        self._freed()

    def _mark_due(self, slot: Slot) -> None:
        """Make all messages of a slot due."""
        was_due = slot.due
        slot.mark_due(len(slot.rows))
        self._wake_for(slot, was_due)

    def _wake_for(self, slot: Slot, was_due: int) -> None:
        if slot.due and not was_due:
            self._ready[slot.number] = None
            self.wake()
        elif slot.deadline is not None and (self._armed is None or slot.deadline < self._armed):
            self.wake()

    def _press(self) -> None:
        """Make all messages due at the next `due()`, because there is hardly any room.

        Messages may wait for a batch that has no limit of time, and that would never be complete in
        a full pool.
        """
        if not self._pressed and any(slot.pending for slot in self._slots.values()):
            self._pressed = True
            self.wake()

    def _press_if_full(self) -> None:
        """Call `_press` if little is free, and messages that wait for batches use at least as much.

        If they use less, others fill the pool, for example those of a topic without a leader: then
        smaller batches would free hardly any memory.
        """
        left = self.max_bytes - self._used
        if left <= self.max_bytes // RESERVED and left <= sum(
            slot.pending_bytes + slot.pending * MESSAGE_OVERHEAD for slot in self._slots.values()
        ):
            self._press()

    def _freed(self) -> None:
        """Wake those who wait for memory."""
        self._memory.notify_all()
        if self._starved:
            self._starved = False
            self.wake()

    def _receive(self, data: bytes) -> None:
        self._received += 1
        self._received_bytes += len(data)

    def _discard(
        self, reason: int, transport: int, topic: bytes, row: Row, slot: Slot | None
    ) -> None:
        self.outcome = reason
        if slot is not None:
            slot.noted(row.timestamp)
            slot.too_long += reason == TOO_LONG
            slot.rate_limited += reason == RATE_LIMIT
            slot.no_memory += reason == NO_MEMORY
        entry = None
        if reason in self._refused_reasons:
            entry = self._refused_of(reason, transport, topic, row)
            self._refused_lost += entry is None
        if entry is not None and entry.charge:
            self._held += 1
            self._used += entry.charge
            if slot is not None:
                slot.queued += reason == TOO_LONG
            self._press_if_full()
        else:
            self._discarded[reason] += 1
            if self._spooled and row.sequence >= 0:
                self._finished.append(row.sequence)
        if entry is not None:
            self._refused_used += _entry_size(entry.topic, entry.key, entry.value)
            self._refused.append(entry)
            self.wake()

    def _refused_of(self, reason: int, transport: int, topic: bytes, row: Row) -> Refused | None:
        """Return the entry of a message in the queue; None if the queue does not take it."""
        key, value, charge = row.key, row.value, 0
        if reason in self._refused_whole:
            size = _entry_size(topic, key, value)
            charge = size - REFUSED_OVERHEAD + OPEN_OVERHEAD
            if (
                self._refused_used + size > self._refused_bytes
                or self._used + charge > self.max_bytes
                or not self._within_rate()
            ):
                if self._refused_prefix < 0:
                    return None
                charge = 0
        if not charge:
            if self._refused_prefix >= 0:
                key, value = key[: self._refused_prefix], value[: self._refused_prefix]
            if not self._queues_refused(_entry_size(topic, key, value), row.arrival):
                return None
        sequence = row.sequence if self._spooled else -1
        return Refused(
            reason,
            transport,
            topic,
            key,
            value,
            row.timestamp,
            row.arrival,
            row.partition_key,
            sequence,
            charge,
        )

    def _queues_refused(self, size: int, wall: int) -> bool:
        """Return whether the queue takes a refused message, and count the message.

        Called for messages that are cut, or whose reason is not in `refused_whole`.
        """
        if self._refused_used + size > self._refused_bytes:
            return False
        if not self._refused_per_s:
            return True
        if wall // 1000 != self._refused_second:
            self._refused_second, self._refused_in_second = wall // 1000, 0
        self._refused_in_second += 1
        return self._refused_in_second <= self._refused_per_s

    def _within_rate(self) -> bool:
        """Count a message against `limit_whole`; return whether it is within the rate."""
        if not self._whole_rate:
            return True
        now = self.now()[0] * 1_000_000
        step = 1_000_000_000 // self._whole_rate
        self._whole_next = max(self._whole_next, now)
        if self._whole_next + step - now > 1_000_000_000:
            return False
        self._whole_next += step
        return True

    def _sample(self, reason: int, transport: int, wall: int, data: bytes) -> None:
        kept = self._samples.setdefault((reason, transport), deque(maxlen=SAMPLES))
        kept.append(Sample(reason, transport, wall, data))

    def _sample_long(self, transport: int, topic: bytes, row: Row) -> None:
        text = topic + b" " + row.value[: self._sample_bytes]
        self._sample(TOO_LONG, transport, row.arrival, text[: self._sample_bytes])

    def _sample_topic(self, topic: bytes, wall: int) -> None:
        topic = topic[: self._sample_bytes]
        self._bad_topics.pop(topic, None)
        self._bad_topics[topic] = Sample(BAD_TOPIC, FED, wall, topic)
        if len(self._bad_topics) > SAMPLES:
            self._bad_topics.popitem(last=False)


def legal(topic: bytes) -> bool:
    """Return whether a topic name is valid in Kafka."""
    return _LEGAL.fullmatch(topic) is not None and topic not in (b".", b"..")


def _entry_size(topic: bytes, key: bytes, value: bytes) -> int:
    """Return the bytes that a message uses in the queue of refused messages."""
    return len(topic) + len(key) + len(value) + REFUSED_OVERHEAD


def _reasons(reasons: Collection[int]) -> frozenset[int]:
    for reason in reasons:
        if not 0 <= reason < len(REASONS):
            raise ValueError(f"reason {reason}: not an index of REASONS")
    return frozenset(reasons)


def _topic_counts(slot: Slot) -> TopicCounts:
    return TopicCounts(
        slot.topic,
        slot.received,
        len(slot.rows),
        slot.held_bytes,
        slot.too_long,
        slot.rate_limited,
        slot.no_memory,
        slot.earliest,
        slot.latest,
        slot.queued,
    )
