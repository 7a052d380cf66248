"""Accounting: received = acked + discarded + dead-lettered + in flight, at any moment.

The pool counts the messages that it received, discarded and still holds; this module counts the
outcomes of the messages taken from the pool. All counts of the pool are read at once, under its
lock, and outcomes are counted only on the loop, so a snapshot made on the loop is consistent.
Tests: tests/unit/gateway/test_accounting.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.fastpath.gateway import (
    NEVER,
    NO_MEMORY,
    RATE_LIMIT,
    REASONS,
    SHUTDOWN,
    SPOOL_DAMAGED,
    TOO_LONG,
)
from aiokq.gateway.dead_letters import LETTER_OVERHEAD, Letter, RefusedMessages

if TYPE_CHECKING:
    from aiokq.errors import KafkaError
    from aiokq.fastpath.gateway import Pool, PoolCounts, Refused, Taken, TopicCounts
    from aiokq.gateway.dead_letters import DeadLetters
    from aiokq.gateway.engine import TopicState
    from aiokq.gateway.spool.spool import Spool

__all__ = ["Accounting", "Discard", "Snapshot", "Totals"]

REASON_COUNT: Final = len(REASONS)


class Totals:
    """Numbers of messages by outcome. The numbers never decrease, except `in_flight`.

    Attributes:
        discarded: number of discarded messages by reason, in the order of REASONS.
    """

    __slots__ = (
        "acked",
        "dead_lettered",
        "discarded",
        "in_flight",
        "possible_duplicates",
        "received",
        "replayed",
    )

    def __init__(self) -> None:
        self.received = 0
        self.acked = 0
        self.dead_lettered = 0
        self.possible_duplicates = 0
        self.in_flight = 0
        self.replayed = 0
        self.discarded = [0] * REASON_COUNT

    def document(self) -> dict[str, object]:
        """Return the numbers as in the JSON document, with the reasons that occurred."""
        discarded = {
            name: count for name, count in zip(REASONS, self.discarded, strict=True) if count
        }
        return {
            "received": self.received,
            "acked": self.acked,
            "discarded": discarded,
            "dead_lettered": self.dead_lettered,
            "in_flight": self.in_flight,
            "possible_duplicates": self.possible_duplicates,
            **({"replayed": self.replayed} if self.replayed else {}),
        }


class Snapshot(NamedTuple):
    """All counts at one moment: in total, and by name of each topic that exists or existed.

    Attributes:
        core: the pool's counts at this moment, with those of topics.
        waiting: messages in the spool that are not in the pool yet.
        unassigned: the part of `total` that may belong to a topic, but is not in `topics` yet:
            messages whose topic is not known to exist yet, and messages that wait in the spool.
    """

    total: Totals
    topics: dict[str, Totals]
    core: PoolCounts
    waiting: int
    unassigned: Totals

    def document(self) -> dict[str, object]:
        """Return the document of `/accounting/json`."""
        topics = {name: totals.document() for name, totals in sorted(self.topics.items())}
        return {**self.total.document(), "topics": topics}


class Discard(NamedTuple):
    """Messages of one topic that were discarded for one reason, for reports and logs.

    Attributes:
        topic: name of the topic.
        reason: index of REASONS.
        taken: the messages; None if only their number is known.
        rows: the indexes of the messages in `taken`.
        earliest_ms, latest_ms: smallest and largest timestamp of the messages.
    """

    topic: str
    reason: int
    taken: Taken | None
    rows: Sequence[int]
    messages: int
    earliest_ms: int
    latest_ms: int
    error: KafkaError | None
    attempts: int


class Accounting:
    """Counts outcomes, and releases the memory of messages whose outcome is known.

    It implements `Outcomes` and `LetterOutcomes`.

    Attributes:
        on_discard: called with each `Discard` of messages that were taken from the pool.
        on_refused: called with messages that the pool or the spool did not take, if the pool has a
            queue for them.
        on_duplicates: called with topic, messages and rows that may be written twice.
        dead_letters: takes messages that would otherwise be discarded, if there is a topic for dead
            letters. None until `Delivery` sets it.
        on_registered: called with each topic that was registered.
        on_forget: called with the last counts of a topic that was deleted.
        keeps_messages: whether a hook needs the messages of topics that do not exist; if not, only
            their number is kept.
        keeps: whether messages whose dead letters fail stay in the spool, because a gateway with a
            spool is closing.
    """

    def __init__(self, pool: Pool, spool: Spool | None = None) -> None:
        self._pool = pool
        self._spool = spool
        self.keeps = False
        self._topics: dict[str, Totals] = {}
        self._total = Totals()
        self._slots: dict[int, str] = {}
        self.on_discard: list[Callable[[Discard], None]] = []
        self.on_refused: list[Callable[[Sequence[Refused]], None]] = []
        self.on_duplicates: list[Callable[[str, Taken, Sequence[int]], None]] = []
        self.dead_letters: DeadLetters | None = None
        self.on_registered: list[Callable[[TopicState], None]] = []
        self.on_forget: list[Callable[[TopicCounts], None]] = []
        self.keeps_messages = False

    @property
    def names(self) -> Mapping[int, str]:
        """The names of the registered topics, by slot."""
        return self._slots

    def knows(self, topic: str) -> bool:
        """Return whether a topic exists or existed."""
        return topic in self._topics

    def registered(self, topic: TopicState) -> None:
        """Store the slot of a registered topic."""
        self._slots[topic.slot] = topic.name
        self._topics.setdefault(topic.name, Totals())
        if self._spool is not None:
            # When the pool registered the topic, it applied the topic's limits to the messages that
            # waited for the topic, and may have discarded some of them.
            self._spool.note_discards()
        for call in self.on_registered:
            call(topic)

    def forget(self, topic: TopicState) -> None:
        """Add the counts of a deleted topic's slot to the totals of the topic.

        Call it before the messages of the slot are taken, because the pool then frees the slot.
        """
        slot = topic.slot
        counts = self._pool.counts_of(slot)
        self._slots.pop(slot, None)
        kept = self._topics.setdefault(topic.name, Totals())
        kept.received += counts.received
        kept.discarded[TOO_LONG] += counts.too_long - counts.queued
        kept.discarded[RATE_LIMIT] += counts.rate_limit
        kept.discarded[NO_MEMORY] += counts.no_memory
        for call in self.on_forget:
            call(counts)

    def drain(self) -> None:
        """Empty the pool's queue of refused messages: log them, or make them dead letters."""
        dead = self.dead_letters
        charge = 0
        letters: dict[tuple[bytes, int], RefusedMessages] = {}
        discarded: list[Refused] = []
        lost = RefusedMessages()
        for one in self._pool.refused():
            if one.charge:
                topic = one.topic.decode("utf-8", "replace")
                key = one.topic, one.reason
                more = charge if key in letters else charge + LETTER_OVERHEAD
                if dead is not None and dead.wants(topic, one.reason, more) and dead.grant(1):
                    letters.setdefault(key, RefusedMessages()).refused.append(one)
                    charge = more + one.charge
                    continue
                self._total.discarded[one.reason] += 1
                if self._counts_by_topic(topic, one.reason):
                    self._of(topic).discarded[one.reason] += 1
                lost.refused.append(one)
            discarded.append(one)
        if lost.refused:
            rows = range(len(lost.refused))
            self._settled(lost, rows, sum(one.charge for one in lost.refused))
        for (name, reason), taken in letters.items():
            topic = name.decode("utf-8", "replace")
            rows, known = range(len(taken.refused)), self._counts_by_topic(topic, reason)
            charge = sum(one.charge for one in taken.refused)
            self._write(Letter(topic, known, taken, rows, reason, charge, None, 0))
        if discarded:
            for call in self.on_refused:
                call(discarded)

    def _counts_by_topic(self, topic: str, reason: int) -> bool:
        """Return whether a message that the pool refused is counted here for its topic.

        Only messages that are too long are counted here, because they are in flight until their
        outcome is known. Messages that are refused for another reason are counted by the pool, for
        their topic or for none.
        """
        return reason == TOO_LONG and topic in self._topics

    def _write(self, letter: Letter) -> None:
        """Pass messages to the dead letters; they stay in flight."""
        assert self.dead_letters is not None
        self._pool.charge(LETTER_OVERHEAD)
        self.dead_letters.accept(letter._replace(charge=letter.charge + LETTER_OVERHEAD))

    def _write_taken(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        """Pass some rows of a `Taken` to the dead letters.

        Args:
            charge: bytes of the pool that are released with these rows.
        """
        taken = letter.taken
        assert not isinstance(taken, RefusedMessages)
        if len(rows) < taken.count:
            # A copy, because the letter would otherwise keep the memory of all messages of `taken`.
            # The pool stops counting the other messages when they have an outcome, which may be
            # long before the letter is written.
            taken, released = taken.select(rows), charge
            charge = taken.charge
            self._pool.charge(charge)
            self._pool.release(0, released)
        self._write(letter._replace(taken=taken, rows=range(len(rows)), charge=charge))

    def charged(self, size: int) -> None:
        self._pool.charge(size)

    def acked(self, topic: TopicState, taken: Taken, rows: Sequence[int], charge: int) -> None:
        messages = len(rows)
        self._of(topic.name).acked += messages
        self._total.acked += messages
        if topic.trace is not None:
            topic.trace.acked(topic.name, taken, rows)
        self._settled(taken, rows, charge)

    def discarded(
        self,
        topic: TopicState,
        taken: Taken,
        rows: Sequence[int],
        reason: int,
        charge: int,
        *,
        error: KafkaError | None = None,
        attempts: int = 0,
    ) -> None:
        if reason == SHUTDOWN and self._spool is not None:
            self._pool.release(len(rows), charge)  # the spool keeps the messages
            return
        letter = Letter(topic.name, True, taken, rows, reason, charge, error, attempts)
        if self.dead_letters is not None and self.dead_letters.wants(topic.name, reason):
            self._write_taken(letter, rows, charge)
        else:
            self._discard(letter, rows, charge)

    def discard_unresolved(self, topic: str, reason: int) -> int:
        """Discard or dead-letter the messages of a topic that is not known to exist.

        Returns:
            The number of messages.
        """
        dead = self.dead_letters
        if not self.keeps_messages and (dead is None or not dead.wants(topic, reason)):
            count = self._pool.discard_unresolved(topic.encode(), reason)
            if self._spool is not None:
                self._spool.note_discards()
            return count
        count = 0
        while (taken := self._pool.take_unresolved(topic.encode())) is not None:
            rows = range(taken.count)
            letter = Letter(topic, False, taken, rows, reason, taken.charge, None, 0)
            granted = 0
            if dead is not None and dead.wants(topic, reason):
                granted = taken.count if reason == SHUTDOWN else dead.grant(taken.count)
            charge = taken.charge if granted == taken.count else 0
            if granted:
                self._write_taken(letter, rows[:granted], charge)
            if granted < taken.count:
                self._discard(letter, rows[granted:], taken.charge)
            count += taken.count
        return count

    def dead_lettered(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        """Count messages whose dead letters were acknowledged, and release their memory."""
        messages = len(rows)
        if letter.known:
            self._of(letter.topic).dead_lettered += messages
        self._total.dead_lettered += messages
        self._settled(letter.taken, rows, charge)

    def dead_letter_failed(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        """Discard messages whose dead letters failed, or leave them in the spool (`keeps`)."""
        if self.keeps:
            self._pool.release(len(rows), charge)
        else:
            self._discard(letter, rows, charge)

    def _discard(self, letter: Letter, rows: Sequence[int], charge: int) -> None:
        count, taken, reason = len(rows), letter.taken, letter.reason
        if letter.known:
            self._of(letter.topic).discarded[reason] += count
        self._total.discarded[reason] += count
        if isinstance(taken, RefusedMessages):
            for refusal in self.on_refused:
                refusal([taken.refused[row] for row in rows])
            self._settled(taken, rows, charge)
            return
        if self.on_discard:
            stamps = _stamps(taken, rows)
            note = Discard(
                letter.topic, reason, taken, rows, count, *stamps, letter.error, letter.attempts
            )
            for call in self.on_discard:
                call(note)
        self._settled(taken, rows, charge)

    def possible_duplicates(self, topic: TopicState, taken: Taken, rows: Sequence[int]) -> None:
        self._of(topic.name).possible_duplicates += len(rows)
        self._total.possible_duplicates += len(rows)
        for call in self.on_duplicates:
            call(topic.name, taken, rows)

    def _settled(self, taken: Taken | RefusedMessages, rows: Sequence[int], charge: int) -> None:
        """Release the memory of messages whose outcome is counted, and finish them in the spool."""
        self._pool.release(len(rows), charge)
        if self._spool is None:
            return
        if isinstance(taken, RefusedMessages):
            for row in rows:
                self._spool.finished_one(taken.refused[row].sequence)
        else:
            self._spool.finished(taken, rows)

    def in_all(self) -> Totals:
        """Return the numbers of all topics together. Context: loop."""
        self.drain()
        return self._in_all(self._pool.counts(), self._waiting)

    def in_pool(self) -> tuple[PoolCounts, int]:
        """Return the pool's counts with topics, and the number of messages waiting in the spool."""
        self.drain()
        return self._pool.counts(topics=True), self._waiting

    @property
    def _waiting(self) -> int:
        return 0 if self._spool is None else self._spool.waiting

    def snapshot(self, *, new_window: bool = False) -> Snapshot:
        """Return all counts at this moment. Context: loop.

        Args:
            new_window: whether to reset the smallest and largest timestamps that the pool has
                for the discarded messages of each topic.
        """
        self.drain()
        counts = self._pool.counts(topics=True, new_window=new_window)
        waiting = self._waiting
        topics: dict[str, Totals] = {}
        by_name = {name: slot for slot, name in self._slots.items()}
        for name, own in self._topics.items():
            topic = _copy(own)
            slot = by_name.get(name)
            core = None if slot is None else counts.topics.get(slot)
            if core is not None:
                topic.received += core.received
                topic.discarded[TOO_LONG] += core.too_long - core.queued
                topic.discarded[RATE_LIMIT] += core.rate_limit
                topic.discarded[NO_MEMORY] += core.no_memory
            topic.in_flight = _in_flight(topic)
            topics[name] = topic
        unassigned = self._unassigned(counts, waiting)
        return Snapshot(self._in_all(counts, waiting), topics, counts, waiting, unassigned)

    def _unassigned(self, counts: PoolCounts, waiting: int) -> Totals:
        """Return `Snapshot.unassigned`: messages that are in no topic's counts yet."""
        found = Totals()
        found.in_flight = counts.unresolved + waiting
        for slot, topic in counts.topics.items():
            if slot not in self._slots:
                found.discarded[NO_MEMORY] += topic.no_memory
        found.received = found.in_flight + found.discarded[NO_MEMORY]
        return found

    def _in_all(self, counts: PoolCounts, waiting: int) -> Totals:
        total = _copy(self._total)
        total.received = counts.received
        total.replayed = counts.replayed
        for reason, count in enumerate(counts.discarded):
            total.discarded[reason] += count
        spool = self._spool
        if spool is not None:
            # Messages that wait in the spool are received, but the pool counts them only when they
            # are fed from the spool into the pool.
            total.received += waiting + spool.damaged
            total.replayed = spool.recovered
            total.discarded[SPOOL_DAMAGED] += spool.damaged
        total.in_flight = _in_flight(total)
        return total

    def _of(self, topic: str) -> Totals:
        return self._topics.setdefault(topic, Totals())


def _in_flight(totals: Totals) -> int:
    known = totals.acked + totals.dead_lettered + sum(totals.discarded)
    return totals.received - known


def _copy(totals: Totals) -> Totals:
    copy = Totals()
    copy.received = totals.received
    copy.acked = totals.acked
    copy.dead_lettered = totals.dead_lettered
    copy.possible_duplicates = totals.possible_duplicates
    copy.in_flight = totals.in_flight
    copy.replayed = totals.replayed
    copy.discarded = list(totals.discarded)
    return copy


def _stamps(taken: Taken, rows: Iterable[int]) -> tuple[int, int]:
    if isinstance(rows, range) and len(rows) == taken.count:
        return taken.timestamps()
    earliest, latest = NEVER, -NEVER
    for row in rows:
        stamp = taken.message(row).timestamp_ms
        earliest, latest = min(earliest, stamp), max(latest, stamp)
    return earliest, latest
