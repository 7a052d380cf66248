"""`DiscardWindows`: counts discards and possible duplicates in windows of equal length.

The first window begins when the gateway starts. The pool and the accounting never reset their
counts; the counts of a window are the difference of two snapshots. Tests:
tests/unit/gateway/test_windows.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.fastpath.gateway import (
    API_KEY,
    API_VERSION,
    BAD_TOPIC,
    MALFORMED,
    NEVER,
    NOT_ALLOWED,
    RATE_LIMIT,
    REASONS,
    TOO_LONG,
    TRANSPORTS,
    UNCLEAN_DISCONNECT,
)

if TYPE_CHECKING:
    from aiokq.fastpath.gateway import Pool, PoolCounts, Refused, Sample, Taken, TopicCounts
    from aiokq.gateway.accounting import Accounting, Discard, Snapshot

__all__ = ["KEPT", "DiscardReport", "DiscardWindows", "TopicSpan"]

KEPT: Final = 24
"""Number of finished windows that are kept."""

UNKNOWN_NAMES: Final = 25
"""Largest number of topics in a report that are not known to exist."""

WITHOUT_TOPIC: Final = frozenset(
    {MALFORMED, API_KEY, API_VERSION, UNCLEAN_DISCONNECT, NOT_ALLOWED, BAD_TOPIC}
)
"""Reasons that are not counted by topic, because the messages have no topic that exists."""

UNIX_STREAM: Final = TRANSPORTS.index("unix_stream")
TCP: Final = TRANSPORTS.index("tcp")


class TopicSpan(NamedTuple):
    """Messages of one topic in a window, with their smallest and largest timestamp.

    Attributes:
        topic: name of the topic; "" for all topics together that are not known to exist and have
            no `TopicSpan` of their own.
    """

    topic: str
    earliest_ms: int
    latest_ms: int
    messages: int


class DiscardReport(NamedTuple):
    """The discards and possible duplicates of one window.

    Attributes:
        report_id: number of the window, from 0.
        start_time: seconds since 1970.
        discarded: number of discarded messages by reason, in the order of REASONS.
        malformed, unix_stream_unclean, tcp_unclean: first bytes of the latest messages, newest
            first.
        bad_topics: the latest names of topics that do not exist, newest first.
        too_long: for each of the latest messages, its topic, a space and the first bytes of its
            value.
        rate_limited: number of messages above the rate limit, by topic.
    """

    report_id: int
    start_time: int
    discarded: tuple[int, ...] = (0,) * len(REASONS)
    unix_stream_unclean_count: int = 0
    tcp_unclean_count: int = 0
    versions: Mapping[int, int] = {}
    malformed: Sequence[bytes] = ()
    unix_stream_unclean: Sequence[bytes] = ()
    tcp_unclean: Sequence[bytes] = ()
    bad_topics: Sequence[bytes] = ()
    too_long: Sequence[bytes] = ()
    rate_limited: Sequence[tuple[str, int]] = ()
    topics: Sequence[TopicSpan] = ()
    duplicates: Sequence[TopicSpan] = ()


class UncleanDisconnects(NamedTuple):
    """Numbers of connections that ended within a message since the start, by transport."""

    unix_stream: int
    tcp: int


_Spans = dict[str, tuple[int, int]]


class DiscardWindows:
    """The current window, and the last finished windows.

    Args:
        unclean: returns the unclean disconnects since the gateway started.
        interval: length of a window in seconds.
        now: returns monotonic seconds.
        started_at: seconds since 1970 at which the first window begins.

    Attributes:
        finished: the finished windows, oldest first.
        unread: number of finished windows whose reports nobody read before their end.
    """

    def __init__(
        self,
        accounting: Accounting,
        pool: Pool,
        *,
        unclean: Callable[[], UncleanDisconnects],
        interval: int,
        now: Callable[[], float],
        started_at: float,
    ) -> None:
        self._accounting = accounting
        self._pool = pool
        self._unclean = unclean
        self.interval = interval
        self._now = now
        self._began = now()
        self._started_at = int(started_at)
        self._id = 0
        self._read = False
        self.unread = 0
        self.finished: deque[DiscardReport] = deque(maxlen=KEPT)
        self._spans: _Spans = {}
        self._duplicates: _Spans = {}
        self._base = accounting.snapshot(new_window=True)
        self._base_slots = frozenset(accounting.names)
        """The slots of the topics that were registered when `_base` was made."""
        self._base_unclean = unclean()
        accounting.on_discard.append(self._discarded)
        accounting.on_refused.append(self._refused)
        accounting.on_duplicates.append(self._duplicated)
        accounting.on_forget.append(self._forgotten)

    def until_next(self) -> float:
        """Return the seconds until the current window ends."""
        return max(0.0, self._began + (self._id + 1) * self.interval - self._now())

    def advance(self) -> None:
        """Finish the windows whose time is over. Context: loop."""
        due = int((self._now() - self._began) // self.interval)
        if due <= self._id:
            return
        snapshot = self._accounting.snapshot(new_window=True)
        unclean = self._unclean()
        self.finished.append(self._report(snapshot, unclean, self._pool.samples(clear=True)))
        self._base, self._base_unclean = snapshot, unclean
        self._base_slots = frozenset(self._accounting.names)
        self._spans, self._duplicates = {}, {}
        self.unread += due - self._id - (1 if self._read else 0)
        self._read = False
        self._id += 1
        for skipped in range(max(self._id, due - KEPT), due):
            self.finished.append(DiscardReport(skipped, self._start_of(skipped)))
        self._id = due

    def unfinished(self) -> DiscardReport:
        """Return the report of the current window, and count the window as read. Context: loop."""
        self.advance()
        self._read = True
        return self._report(self._accounting.snapshot(), self._unclean(), self._pool.samples())

    def bad_topics(self) -> list[bytes]:
        """Return up to `UNKNOWN_NAMES` names of topics that do not exist, without duplicates.

        The names of the current window come first, then those of the last finished window; in each
        window the newest name comes first.
        """
        names = _Latest(self._pool.samples()).of(BAD_TOPIC)
        if self.finished:
            names.extend(self.finished[-1].bad_topics)
        return list(dict.fromkeys(names))[:UNKNOWN_NAMES]

    # ------------------------------------------------------------ hooks

    def _discarded(self, note: Discard) -> None:
        if note.reason not in WITHOUT_TOPIC and self._accounting.knows(note.topic):
            _widen(self._spans, note.topic, note.earliest_ms, note.latest_ms)

    def _refused(self, messages: Sequence[Refused]) -> None:
        """Note the timestamps of messages that the pool left to the loop, perhaps windows ago."""
        for one in messages:
            if one.charge and one.reason not in WITHOUT_TOPIC:
                name = one.topic.decode("utf-8", "replace")
                if self._accounting.knows(name):
                    _widen(self._spans, name, one.timestamp_ms, one.timestamp_ms)

    def _duplicated(self, topic: str, taken: Taken, rows: Sequence[int]) -> None:
        stamps = [taken.message(row).timestamp_ms for row in rows]
        if stamps:
            _widen(self._duplicates, topic, min(stamps), max(stamps))

    def _forgotten(self, counts: TopicCounts) -> None:
        _widen(self._spans, counts.topic.decode(), counts.earliest_ms, counts.latest_ms)

    # ------------------------------------------------------------ reports

    def _start_of(self, report_id: int) -> int:
        return self._started_at + report_id * self.interval

    def _report(
        self, snapshot: Snapshot, unclean: UncleanDisconnects, samples: Iterable[Sample]
    ) -> DiscardReport:
        base = self._base
        discarded = _difference(snapshot.total.discarded, base.total.discarded)
        versions = {
            version: count - base.core.versions.get(version, 0)
            for version, count in sorted(snapshot.core.versions.items())
            if count > base.core.versions.get(version, 0)
        }
        spans = dict(self._spans)
        for counts in snapshot.core.topics.values():
            if counts.earliest_ms != NEVER:
                name = counts.topic.decode("ascii", "replace")
                _widen(spans, name, counts.earliest_ms, counts.latest_ms)
        topics, rate_limited = self._by_topic(snapshot, spans)
        topics.extend(self._of_unknown_topics(snapshot.core, discarded, topics, spans))
        latest = _Latest(samples)
        return DiscardReport(
            self._id,
            self._start_of(self._id),
            discarded,
            unclean.unix_stream - self._base_unclean.unix_stream,
            unclean.tcp - self._base_unclean.tcp,
            versions,
            latest.of(MALFORMED),
            latest.of(UNCLEAN_DISCONNECT, UNIX_STREAM),
            latest.of(UNCLEAN_DISCONNECT, TCP),
            latest.of(BAD_TOPIC),
            latest.of(TOO_LONG),
            rate_limited,
            topics,
            self._duplicates_of(snapshot),
        )

    def _by_topic(
        self, snapshot: Snapshot, spans: _Spans
    ) -> tuple[list[TopicSpan], list[tuple[str, int]]]:
        topics: list[TopicSpan] = []
        rate_limited: list[tuple[str, int]] = []
        reported = self._reported_before()
        for name, totals in snapshot.topics.items():
            before = self._base.topics.get(name)
            if before is not None and before.discarded == totals.discarded:
                continue
            if before is None:
                counts: Sequence[int] = totals.discarded
            else:
                counts = _difference(totals.discarded, before.discarded)
            count = sum(n for reason, n in enumerate(counts) if reason not in WITHOUT_TOPIC)
            count -= reported.get(name, 0)
            if count:
                topics.append(TopicSpan(name, *spans.get(name, self._bounds()), count))
            if counts[RATE_LIMIT]:
                rate_limited.append((name, counts[RATE_LIMIT]))
        topics.sort()
        rate_limited.sort()
        return topics, rate_limited

    def _reported_before(self) -> dict[str, int]:
        """Return the discards of earlier windows of topics that are registered since then.

        They were reported for the names, and are part of the totals of the topics now.
        """
        before = self._base.core.topics
        return {
            name: before[slot].no_memory
            for slot, name in self._accounting.names.items()
            if slot not in self._base_slots
            and slot in before
            and before[slot].topic == name.encode()
        }

    def _bounds(self) -> tuple[int, int]:
        """Return the beginning of the current window and the current time."""
        begin = self._start_of(self._id) * 1000
        return begin, begin + int((self._now() - self._began - self._id * self.interval) * 1000)

    def _of_unknown_topics(
        self,
        core: PoolCounts,
        discarded: Sequence[int],
        known: Iterable[TopicSpan],
        spans: _Spans,
    ) -> list[TopicSpan]:
        """Return the discards of topics that are not known to exist.

        The number of names is limited, because a program may invent topics.
        """
        rest = sum(n for reason, n in enumerate(discarded) if reason not in WITHOUT_TOPIC)
        rest -= sum(topic.messages for topic in known)
        if rest <= 0:
            return []
        names: list[TopicSpan] = []
        for slot, counts in core.topics.items():
            name = counts.topic.decode("ascii", "replace")
            if self._accounting.knows(name):
                continue
            count = counts.no_memory + counts.too_long + counts.rate_limit
            before = self._base.core.topics.get(slot)
            if before is not None and before.topic == counts.topic:
                count -= before.no_memory + before.too_long + before.rate_limit
            if count > 0:
                names.append(TopicSpan(name, *spans.get(name, self._bounds()), count))
        names.sort(key=lambda topic: topic.messages, reverse=True)
        found = names[:UNKNOWN_NAMES]
        rest -= sum(topic.messages for topic in found)
        if rest > 0:
            found.append(TopicSpan("", *self._bounds(), rest))
        return found

    def _duplicates_of(self, snapshot: Snapshot) -> list[TopicSpan]:
        found = []
        for name, (earliest, latest) in sorted(self._duplicates.items()):
            totals, before = snapshot.topics.get(name), self._base.topics.get(name)
            if totals is not None:
                count = totals.possible_duplicates
                count -= 0 if before is None else before.possible_duplicates
                found.append(TopicSpan(name, earliest, latest, count))
        return found


class _Latest:
    """Samples by reason, newest first and without duplicates."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = sorted(
            enumerate(samples), key=lambda each: (each[1].arrival_ms, each[0]), reverse=True
        )

    def of(self, reason: int, transport: int | None = None) -> list[bytes]:
        found = dict.fromkeys(
            sample.data
            for _, sample in self._samples
            if sample.reason == reason and transport in (None, sample.transport)
        )
        return list(found)[:UNKNOWN_NAMES]


def _difference(after: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(0, new - old) for new, old in zip(after, before, strict=True))


def _widen(spans: _Spans, topic: str, earliest: int, latest: int) -> None:
    if earliest > latest:
        return
    old = spans.get(topic)
    if old is not None:
        earliest, latest = min(earliest, old[0]), max(latest, old[1])
    spans[topic] = earliest, latest
