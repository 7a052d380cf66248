"""Checks a round: compares what the clients observed with what the broker has in the end.

No I/O: the input is a history and an aftermath, the output violations.
`tests/fault/test_misuse_checker.py` feeds it histories that break each invariant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.fault.misuse.history import GroupHistory, History, Partition, Sent, State

OUTCOME_SLACK = 10.0
"""Seconds after its limit within which a record's outcome may come, beside delays of the loop."""
MEMORY_SLACK = 256 * 1024 * 1024
"""Bytes by which a broker may be larger at the end of a round than at its start."""

AT_THE_END = 1e300
NEVER = float("inf")
"""The time of events that never happened: later than every other time."""

LOST = "acknowledged, and not in the log where it was said to be"
TWICE = "written twice by an idempotent producer"
PHANTOM = "in the log, though it was refused or its error said that it is not written"
REORDERED = "an idempotent producer's records out of order"
LATE = "no outcome in time"
UNSEEN = "committed, and not handed over and finished before"
BEYOND = "committed beyond the end of the log"
OTHER = "handed over another record than the log has"
UNREAD = "in the log, and never handed over to a group that read to the end"
DOWN = "the broker ended"
BROKER_LOG = "the broker's log"
GROWTH = "descriptors, tasks or memory grew"
DAMAGE = "the log on disk is damaged"


@dataclass(frozen=True)
class Violation:
    """One broken invariant."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


@dataclass
class Aftermath:
    """The state after the faults, with the broker healthy and the clients gone.

    Attributes:
        log: by partition and offset, the value of every record of the topics that were kept.
        ends: by partition, the offset after the last record or marker.
        committed: by group and partition, the committed offset.
        exits: unexpected exits of the broker.
        log_lines: ERROR lines and tracebacks in the broker's log that no fault explains.
        sockets: the broker's open sockets before the first client came and after the last had gone.
        memory: the broker's resident bytes at the same two times.
        client_sockets: open sockets of the clients' process at the same two times.
        tasks: names of asyncio tasks that outlived their clients.
        damage: errors that `aiokq log verify` reports.
    """

    log: Mapping[Partition, Mapping[int, bytes]] = field(default_factory=dict)
    ends: Mapping[Partition, int] = field(default_factory=dict)
    committed: Mapping[tuple[str, Partition], int] = field(default_factory=dict)
    exits: list[str] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)
    sockets: tuple[int, int] = (0, 0)
    memory: tuple[int, int] = (0, 0)
    client_sockets: tuple[int, int] = (0, 0)
    tasks: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


def check(history: History, after: Aftermath) -> list[Violation]:
    """Return every invariant that the round broke, with at most a few examples of each."""
    by_invariant: dict[str, list[Violation]] = defaultdict(list)
    for invariant, what in _all(history, after):
        by_invariant[invariant].append(Violation(invariant, what))
    found: list[Violation] = []
    for invariant, violations in by_invariant.items():
        found += violations[:5]
        if len(violations) > 5:
            found.append(Violation(invariant, f"... and {len(violations) - 5} more"))
    return found


def _all(history: History, after: Aftermath) -> Iterator[tuple[str, str]]:
    yield from history.complaints
    yield from _records(history, after)
    yield from _outcomes(history)
    yield from _order(history)
    yield from _groups(history, after)
    yield from ((DOWN, what) for what in after.exits)
    yield from ((BROKER_LOG, what) for what in after.log_lines)
    yield from ((DAMAGE, what) for what in after.damage)
    yield from _growth(after)


def _name(value: bytes) -> str:
    return repr(value[:60])


def _records(history: History, after: Aftermath) -> Iterator[tuple[str, str]]:
    found: dict[bytes, list[tuple[Partition, int]]] = defaultdict(list)
    for partition, records in after.log.items():
        for offset, value in records.items():
            found[value].append((partition, offset))
    topics = {topic for topic, _ in after.log}
    for sent in history.sent.values():
        if sent.topic not in topics:
            continue
        places = found.get(sent.value, [])
        if sent.state is State.ACKNOWLEDGED and sent.offset >= 0:
            place = ((sent.topic, sent.partition), sent.offset)
            if place not in places:
                at = after.log.get(place[0], {}).get(sent.offset)
                yield (
                    LOST,
                    f"{_name(sent.value)} acknowledged at {place}, is at {places}; there is "
                    f"{'nothing' if at is None else _name(at)}",
                )
        elif sent.state is State.ACKNOWLEDGED and sent.idempotent and not places:
            yield LOST, f"{_name(sent.value)} acknowledged without an offset is nowhere"
        if sent.idempotent and len(places) > 1:
            yield TWICE, f"{_name(sent.value)} is at {places}"
        never = sent.state is State.REFUSED or (
            sent.state is State.FAILED and sent.may_be_written is False
        )
        if places and never:
            yield PHANTOM, f"{_name(sent.value)} ({sent.state.name} {sent.error}) is at {places}"
    for value, places in found.items():
        if value not in history.sent:
            yield PHANTOM, f"{_name(value)}, which nobody sent, is at {places}"


def _outcomes(history: History) -> Iterator[tuple[str, str]]:
    for sent in history.sent.values():
        match sent.state:
            case State.ACCEPTED:
                yield LATE, f"{_name(sent.value)} to {sent.topic} was accepted and has no outcome"
            case State.OFFERED:
                yield LATE, f"the call that sends {_name(sent.value)} to {sent.topic} never ended"
            case State.ACKNOWLEDGED | State.FAILED:
                took = sent.outcome_at - sent.accepted_at
                delays = history.held_up(sent.accepted_at, sent.outcome_at)
                if took > sent.limit + OUTCOME_SLACK + delays:
                    yield (
                        LATE,
                        f"{_name(sent.value)} to {sent.topic}: {sent.state.name} after "
                        f"{took:.1f} s, its limit is {sent.limit:.1f} s (delays {delays:.1f} s)",
                    )


def _order(history: History) -> Iterator[tuple[str, str]]:
    last: dict[tuple[str, str, int], Sent] = {}
    for sent in history.sent.values():  # in the order of sending
        if sent.state is not State.ACKNOWLEDGED or sent.offset < 0:
            continue
        if not (sent.idempotent and sent.ordered):
            continue
        key = (sent.producer, sent.topic, sent.partition)
        before = last.get(key)
        if before is not None and before.offset >= sent.offset:
            yield (
                REORDERED,
                f"{_name(before.value)} at {before.offset}, then {_name(sent.value)} at "
                f"{sent.offset} of {sent.topic}-{sent.partition}",
            )
        last[key] = sent


def _groups(history: History, after: Aftermath) -> Iterator[tuple[str, str]]:
    for name, group in history.groups.items():
        for partition, handed in group.handed.items():
            records = after.log.get(partition)
            if records is None:
                continue
            for offset, value in handed.items():
                if records.get(offset) != value:
                    yield (
                        OTHER,
                        f"{name}: {partition} offset {offset} was {_name(value)}, the log has "
                        f"{_name(records.get(offset, b'nothing'))}",
                    )
    final = [
        (group, partition, offset, AT_THE_END)
        for (group, partition), offset in after.committed.items()
    ]
    seen = [(each.group, each.partition, each.offset, each.seen_at) for each in history.commits]
    slowest: dict[tuple[str, Partition], tuple[list[int], list[tuple[float, int]]]] = {}
    for name, partition, offset, at in _telling(seen + final):
        if name not in history.groups or partition not in after.log:
            continue
        if offset > after.ends.get(partition, 0):
            yield BEYOND, f"{name}: {partition} {offset}, the log ends at {after.ends[partition]}"
        if (name, partition) not in slowest:
            slowest[name, partition] = _slowest(history.groups[name], partition, after)
        offsets, worst = slowest[name, partition]
        below = bisect_left(offsets, offset)
        if below and worst[below - 1][0] > at:
            unseen = worst[below - 1][1]
            handed = unseen in history.groups[name].handed.get(partition, {})
            yield (
                UNSEEN,
                f"{name}: {partition} committed {offset}; {unseen} "
                f"{_name(after.log[partition][unseen])} was "
                f"{'handed over, not finished' if handed else 'never handed over'} by then",
            )


def _slowest(
    group: GroupHistory, partition: Partition, after: Aftermath
) -> tuple[list[int], list[tuple[float, int]]]:
    """The offsets of the log, and for each the record up to it that was finished last.

    Each such record is a pair of the time at which it was finished and its offset.
    """
    finished = group.finished.get(partition, {})
    offsets = sorted(after.log[partition])
    worst: list[tuple[float, int]] = []
    latest = (float("-inf"), -1)
    for offset in offsets:
        latest = max(latest, (finished.get(offset, NEVER), offset), key=lambda each: each[0])
        worst.append(latest)
    return offsets, worst


def _telling(
    seen: list[tuple[str, Partition, int, float]],
) -> Iterator[tuple[str, Partition, int, float]]:
    """The first sighting of each committed offset, which is the strictest one to check."""
    first: dict[tuple[str, Partition, int], float] = {}
    for group, partition, offset, at in seen:
        key = (group, partition, offset)
        first[key] = min(at, first.get(key, at))
    yield from ((*key, at) for key, at in first.items())


def unread(history: History, name: str, after: Aftermath, topics: set[str]) -> dict[Partition, int]:
    """The number of records of each partition's log that the group was not handed."""
    group = history.groups[name]
    missing: dict[Partition, int] = {}
    for partition, records in after.log.items():
        if partition[0] not in topics:
            continue
        handed = group.handed.get(partition, {})
        count = sum(offset not in handed for offset in records)
        if count:
            missing[partition] = count
    return missing


def _growth(after: Aftermath) -> Iterator[tuple[str, str]]:
    for what, (before, now) in (
        ("the broker's sockets", after.sockets),
        ("the clients' sockets", after.client_sockets),
    ):
        if now > before:
            yield GROWTH, f"{what}: {before} before, {now} after"
    before, now = after.memory
    if now > before + MEMORY_SLACK:
        yield GROWTH, f"the broker's memory: {before >> 20} MiB before, {now >> 20} MiB after"
    for name in after.tasks:
        yield GROWTH, f"a task outlived its client: {name}"
