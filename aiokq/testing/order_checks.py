"""Checks of order: polls and sends that go back or skip, and reads past the last stable offset.

Each function takes the index of a history and yields anomalies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.history import Isolation, LastStable, Outcome, Poll, Send
from aiokq.testing.history_index import Gap, HistoryIndex

__all__ = ["check_last_stable", "check_polls", "check_rebalances", "check_send_order"]


def check_polls(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find polls that go back or skip records within one assignment."""
    for record, poll, before in index.backward:
        yield Anomaly(
            AnomalyKind.NONMONOTONIC_POLL,
            f"{poll.process} got {record.topic}-{record.partition}@{record.offset} again or after "
            "a higher offset",
            (before,) if before is poll else (before, poll),
        )
    for gap in index.gaps:
        skipped = _skipped(index, gap)
        if skipped:
            topic, partition = gap.partition
            readers = (poll for _, poll in skipped[:1])
            yield Anomaly(
                AnomalyKind.SKIPPING_POLL,
                f"{gap.poll.process} got {topic}-{partition}@{gap.before} after {gap.after}; "
                f"others read {', '.join(str(offset) for offset, _ in skipped[:10])} between",
                (gap.previous, gap.poll, *readers),
            )


def _skipped(index: HistoryIndex, gap: Gap) -> list[tuple[int, Poll]]:
    """Return the offsets in a gap that any consumer read, each with a poll that returned it."""
    isolation = gap.poll.isolation
    reads = [index.read_at(isolation)[gap.partition]]
    if isolation is Isolation.READ_UNCOMMITTED:
        reads.append(index.committed[gap.partition])
    return [
        (offset, read.reads[offset][1])
        for read in reads
        for offset in read.between(gap.after, gap.before)
        if index.is_retained(gap.partition, offset)
    ]


def check_rebalances(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find records that were skipped between two assignments, and that the group never read."""
    found = [(gap, skipped) for gap in index.rebalance_gaps if (skipped := _skipped(index, gap))]
    if not found:
        return
    wanted = {
        (gap.poll.group, *gap.partition, offset) for gap, skipped in found for offset, _ in skipped
    }
    read_by_group = {
        (poll.group, record.topic, record.partition, record.offset)
        for poll in index.polls
        if poll.group is not None
        for record in poll.records
    } & wanted
    for gap, skipped in found:
        rest = [
            (offset, poll)
            for offset, poll in skipped
            if (gap.poll.group, *gap.partition, offset) not in read_by_group
        ]
        if rest:
            topic, partition = gap.partition
            yield Anomaly(
                AnomalyKind.REBALANCE_SKIP,
                f"{gap.poll.process} got {topic}-{partition}@{gap.before} after {gap.after}, with "
                f"a new assignment between; it skipped {len(rest)} records",
                (gap.previous, gap.poll, rest[0][1]),
            )


def check_send_order(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find sends whose offsets decrease within a partition, and interleaved transactions."""
    for sends in index.sends.values():
        last: dict[tuple[str, int], Send] = {}
        for send in sorted(sends, key=lambda send: send.start):
            if send.outcome is not Outcome.OK or send.partition is None or send.offset is None:
                continue
            before = last.get((send.topic, send.partition))
            last[send.topic, send.partition] = send
            if before is not None and before.offset is not None and send.offset < before.offset:
                yield Anomaly(
                    AnomalyKind.NONMONOTONIC_SEND,
                    f"{send.process} sent {before.value!r}, then {send.value!r} to "
                    f"{send.topic}-{send.partition}: offsets {before.offset}, {send.offset}",
                    (before, send),
                )
    yield from _send_skips(index)


def _send_skips(index: HistoryIndex) -> Iterator[Anomaly]:
    for (topic, partition), log in index.logs.items():
        places: dict[str, int] = {}
        reported: set[str] = set()
        for place, (_, send) in enumerate(log):
            if send.txn is None:
                continue
            before = places.get(send.txn)
            places[send.txn] = place
            if before is not None and before + 1 < place and send.txn not in reported:
                reported.add(send.txn)
                yield Anomaly(
                    AnomalyKind.SEND_SKIP,
                    f"{topic}-{partition}: records of others are between those of transaction "
                    f"{send.txn}",
                    (log[before][1], log[before + 1][1], send),
                )


def check_last_stable(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find reads past the last stable offset, and hanging transactions at the end."""
    asked: dict[tuple[str, int], list[LastStable]] = defaultdict(list)
    for stable in index.stable:
        asked[stable.topic, stable.partition].append(stable)
    for (topic, partition), answers in asked.items():
        answers.sort(key=lambda answer: answer.start)
        starts = [answer.start for answer in answers]
        least = answers[:]  # least[i] is the answer with the lowest offset in answers[i:]
        for place in range(len(answers) - 2, -1, -1):
            least[place] = min(least[place], least[place + 1], key=lambda answer: answer.offset)
        reads = index.committed.get((topic, partition))
        for offset, (_, poll) in reads.reads.items() if reads is not None else ():
            place = bisect_right(starts, poll.end)
            if place < len(least) and offset >= least[place].offset:
                yield Anomaly(
                    AnomalyKind.PAST_LAST_STABLE,
                    f"{poll.process} got {topic}-{partition}@{offset}; later the last stable "
                    f"offset was {least[place].offset}",
                    (poll, least[place]),
                )
    for (topic, partition), final in index.finals.items():
        if final.last_stable_offset < final.end_offset:
            yield Anomaly(
                AnomalyKind.HANGING_TRANSACTION,
                f"{topic}-{partition}: the last stable offset is {final.last_stable_offset}, the "
                f"end {final.end_offset}",
                (final,),
            )
