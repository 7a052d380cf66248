"""HistoryIndex: the operations of a history by partition, value, process and transaction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from operator import itemgetter
from typing import TypeAlias

from aiokq.testing.history import (
    Assign,
    Copy,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Seek,
    Send,
)

__all__ = ["Gap", "HistoryIndex", "PartitionIndex", "TransactionState"]

TopicPartition: TypeAlias = "tuple[str, int]"


class TransactionState(Enum):
    """The outcome of a transaction, as far as the history shows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Gap:
    """Offsets that a consumer passed over, between `after` and `before` (both excluded)."""

    __slots__ = ("after", "before", "partition", "poll", "previous")

    def __init__(
        self, partition: TopicPartition, after: int, before: int, poll: Poll, previous: Operation
    ) -> None:
        self.partition = partition
        self.after = after
        self.before = before
        self.poll = poll
        self.previous = previous


class _Run:
    """The offsets that a consumer read in a partition since its last assignment or seek."""

    __slots__ = ("first", "last", "poll")

    def __init__(self, offset: int, poll: Poll) -> None:
        self.first = offset
        self.last = offset
        self.poll = poll


class _Placed:
    """The attempts to send one value, by the partition and offset that were acknowledged."""

    __slots__ = ("anywhere", "at")

    def __init__(self, attempts: Sequence[Send]) -> None:
        self.at: dict[tuple[int | None, int], list[Send]] = defaultdict(list)
        self.anywhere = [send for send in attempts if send.offset is None]
        for send in attempts:
            if send.offset is not None:
                self.at[send.partition, send.offset].append(send)


class PartitionIndex:
    """The records that consumers read from a partition at one isolation level.

    Attributes:
        reads: for each offset, the value and the first poll that returned the offset.
        offsets: the offsets in `reads`, ascending; empty until `finish` is called.
    """

    __slots__ = ("_ends", "_ranges", "_starts", "offsets", "reads")

    def __init__(self) -> None:
        self.reads: dict[int, tuple[str, Poll]] = {}
        self.offsets: list[int] = []
        self._ranges: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def cover(self, first: int, last: int) -> None:
        """Add a range of offsets that a consumer read; `first` and `last` are included."""
        self._ranges.append((first, last))

    def finish(self) -> None:
        """Sort the offsets, and merge the ranges; called after the last record was added."""
        self.offsets = sorted(self.reads)
        for first, last in sorted(self._ranges):
            if self._ends and first <= self._ends[-1] + 1:
                self._ends[-1] = max(self._ends[-1], last)
            else:
                self._starts.append(first)
                self._ends.append(last)

    def covers(self, offset: int) -> bool:
        """Return whether an offset lies in a range that a consumer read."""
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset <= self._ends[place]

    def following(self, offset: int) -> Poll | None:
        """Return the poll of the lowest offset above `offset` that was read, or None."""
        place = bisect_right(self.offsets, offset)
        return self.reads[self.offsets[place]][1] if place < len(self.offsets) else None

    def between(self, after: int, before: int) -> Sequence[int]:
        """Return the offsets that were read between two offsets, both excluded."""
        start = bisect_right(self.offsets, after)
        return self.offsets[start : bisect_left(self.offsets, before, start)]


class HistoryIndex:
    """The operations of a history, by partition, value, process and transaction.

    Attributes:
        attempts: for each topic, a map of value to the sends of the value.
        sends: for each process, its sends.
        ends: for each transaction, the commits and aborts that were called.
        committed: for each partition, the records that were read at read_committed.
        uncommitted: for each partition, the records that were read at read_uncommitted.
        logs: for each partition, the (offset, send) pairs of the records that were acknowledged
            with an offset, in the order of the offsets.
        values: for each topic, a map of value to the distinct (partition, offset) pairs at which
            the value was read.
        conflicts: (record, poll, earlier poll), where the earlier poll returned another value at
            the offset of the record.
        backward: (record, poll, earlier poll), where the consumer already had the offset of the
            record, or a higher offset. The earlier poll is the last that returned a record of the
            partition; it may be the same poll.
        gaps: the gaps within one assignment.
        rebalance_gaps: the gaps between two assignments of a consumer.
        aborted: the transactions that were certainly aborted.
        commit_called: for each transaction, the time at which its commit was first called.
    """

    def __init__(self, history: Iterable[Operation]) -> None:
        self.attempts: dict[str, dict[str, list[Send]]] = defaultdict(dict)
        self.sends: dict[str, list[Send]] = defaultdict(list)
        self.ends: dict[str, list[EndTransaction]] = defaultdict(list)
        self.committed: dict[TopicPartition, PartitionIndex] = defaultdict(PartitionIndex)
        self.uncommitted: dict[TopicPartition, PartitionIndex] = defaultdict(PartitionIndex)
        self.values: dict[str, dict[str, list[tuple[int, int]]]] = defaultdict(dict)
        self.conflicts: list[tuple[Polled, Poll, Poll]] = []
        self.backward: list[tuple[Polled, Poll, Poll]] = []
        self.gaps: list[Gap] = []
        self.rebalance_gaps: list[Gap] = []
        self.transaction_polls: list[Poll] = []
        self.polls: list[Poll] = []
        self.offsets: list[Offsets] = []
        self.observed: list[ObservedOffsets] = []
        self.stable: list[LastStable] = []
        self.copies: list[Copy] = []
        self.finals: dict[TopicPartition, Final] = {}
        self.operations = 0
        self._named: dict[str, set[int]] = {}
        self._conflicting: set[Polled] = set()
        self._placed: dict[tuple[str, str], _Placed] = {}
        self._begins: dict[tuple[str, TopicPartition], Seek] = {}
        self._runs: dict[tuple[str, Isolation], dict[TopicPartition, _Run]] = defaultdict(dict)
        self._before: dict[tuple[str, Isolation], dict[TopicPartition, _Run]] = defaultdict(dict)
        for operation in history:
            self.operations += 1
            self._add(operation)
        for (_, isolation), runs in self._runs.items():
            for partition, run in runs.items():
                self.read_at(isolation)[partition].cover(run.first, run.last)
        for index in (*self.committed.values(), *self.uncommitted.values()):
            index.finish()
        self._states = {txn: _state(ends) for txn, ends in self.ends.items()}
        self.logs = self._acknowledged()
        self.aborted: set[str | None] = {
            txn for txn, state in self._states.items() if state is TransactionState.ABORTED
        }
        self.commit_called = {
            txn: min(end.start for end in ends if end.commit)
            for txn, ends in self.ends.items()
            if any(end.commit for end in ends)
        }

    def read_at(self, isolation: Isolation) -> dict[TopicPartition, PartitionIndex]:
        """Return `committed` or `uncommitted`, depending on the isolation level."""
        return self.committed if isolation is Isolation.READ_COMMITTED else self.uncommitted

    def state(self, txn: str) -> TransactionState:
        """Return the outcome of a transaction."""
        return self._states.get(txn, TransactionState.UNKNOWN)

    def is_committed(self, txn: str) -> bool:
        """Return whether a transaction was certainly committed."""
        return self.state(txn) is TransactionState.COMMITTED

    def is_void(self, send: Send) -> bool:
        """Return whether a send failed or was aborted."""
        return send.outcome is Outcome.FAILED or send.txn in self.aborted

    def writers(self, topic: str, value: str, partition: int, offset: int) -> Sequence[Send]:
        """Return the sends of `value` that may have written the record at an offset."""
        attempts = self.attempts[topic].get(value, ())
        if len(attempts) < 2:
            return attempts
        placed = self._placed.get((topic, value))
        if placed is None:
            placed = self._placed[topic, value] = _Placed(attempts)
        return placed.at.get((partition, offset)) or placed.anywhere or attempts

    def was_committed(self, send: Send) -> bool:
        """Return whether a record was acknowledged and is certainly visible at read_committed."""
        return send.outcome is Outcome.OK and (send.txn is None or self.is_committed(send.txn))

    def all_sends(self) -> Iterator[Send]:
        """Yield every send."""
        for sends in self.sends.values():
            yield from sends

    def is_retained(self, partition: TopicPartition, offset: int) -> bool:
        """Return False if an offset is below the final log start offset, otherwise True."""
        final = self.finals.get(partition)
        return final is None or offset >= final.log_start_offset

    def was_read_whole(self, topic: str, partition: int | None = None) -> bool:
        """Return whether a partition was read from offset 0 to its end.

        If `partition` is None, return whether each partition of `topic` in the history was.
        """
        known = {partition} if partition is not None else self._partitions(topic)
        finals = [self.finals.get((topic, number)) for number in known]
        return bool(finals) and all(f is not None and f.log_start_offset == 0 for f in finals)

    def _partitions(self, topic: str) -> set[int]:
        """Return the partitions of a topic that the history names."""
        named = self._named.get(topic)
        if named is not None:
            return named
        places = (*self.committed, *self.uncommitted, *self.finals)
        known = {partition for name, partition in places if name == topic}
        for sends in self.attempts.get(topic, {}).values():
            known.update(send.partition for send in sends if send.partition is not None)
        self._named[topic] = known
        return known

    def _acknowledged(self) -> dict[TopicPartition, list[tuple[int, Send]]]:
        logs: dict[TopicPartition, list[tuple[int, Send]]] = defaultdict(list)
        for sends in self.sends.values():
            for send in sends:
                if send.outcome is not Outcome.OK:
                    continue
                if send.offset is not None and send.partition is not None:
                    logs[send.topic, send.partition].append((send.offset, send))
        for log in logs.values():
            log.sort(key=itemgetter(0))
        return logs

    def _add(self, operation: Operation) -> None:
        match operation:
            case Send():
                self.attempts[operation.topic].setdefault(operation.value, []).append(operation)
                self.sends[operation.process].append(operation)
            case Poll():
                self._add_poll(operation)
            case EndTransaction():
                self.ends[operation.txn].append(operation)
            case Assign():
                self._forget_begins(operation)
                for isolation in Isolation:
                    runs = self._runs[operation.process, isolation]
                    for partition in operation.partitions or list(runs):
                        if partition in runs:
                            before = self._before[operation.process, isolation]
                            before[partition] = runs[partition]
                            self._end_run(runs, partition, isolation)
            case Seek():
                partition = (operation.topic, operation.partition)
                self._begins[operation.process, partition] = operation
                for isolation in Isolation:
                    self._before[operation.process, isolation].pop(partition, None)
                    self._end_run(self._runs[operation.process, isolation], partition, isolation)
            case Offsets():
                self.offsets.append(operation)
            case ObservedOffsets():
                self.observed.append(operation)
            case LastStable():
                self.stable.append(operation)
            case Copy():
                self.copies.append(operation)
            case Final():
                self.finals[operation.topic, operation.partition] = operation

    def _forget_begins(self, assign: Assign) -> None:
        if not self._begins:
            return
        listed = assign.partitions or [
            p for process, p in self._begins if process == assign.process
        ]
        for partition in listed:
            self._begins.pop((assign.process, partition), None)

    def _end_run(
        self, runs: dict[TopicPartition, _Run], partition: TopicPartition, isolation: Isolation
    ) -> None:
        run = runs.pop(partition, None)
        if run is not None:
            self.read_at(isolation)[partition].cover(run.first, run.last)

    def _add_poll(self, poll: Poll) -> None:
        self.polls.append(poll)
        if poll.txn is not None:
            self.transaction_polls.append(poll)
        read = self.read_at(poll.isolation)
        others = self.uncommitted if read is self.committed else self.committed
        runs = self._runs[poll.process, poll.isolation]
        for record in poll.records:
            topic, number, offset, value = record
            partition = (topic, number)
            reads = read[partition].reads
            known = reads.get(offset)
            if known is None:
                reads[offset] = (value, poll)
                other = others[partition].reads.get(offset) if partition in others else None
                if other is None:
                    self.values[topic].setdefault(value, []).append((number, offset))
                elif other[0] != value:
                    self._add_conflict(record, poll, other)
            elif known[0] != value:
                self._add_conflict(record, poll, known)
            elif poll.end < known[1].end:
                reads[offset] = (value, poll)
            run = runs.get(partition)
            if run is None:
                self._begin_run(poll, partition, offset)
                continue
            if offset <= run.last:
                self.backward.append((record, poll, run.poll))
            elif offset > run.last + 1:
                self.gaps.append(Gap(partition, run.last, offset, poll, run.poll))
            run.last = max(run.last, offset)
            run.poll = poll

    def _add_conflict(self, record: Polled, poll: Poll, earlier: tuple[str, Poll]) -> None:
        self.conflicts.append((record, poll, earlier[1]))
        # `_conflicting` has those conflicting records that are in `values`. The record with the
        # earlier value is there already; the record with the new value is added once.
        self._conflicting.add(record._replace(value=earlier[0]))
        if record not in self._conflicting:
            self._conflicting.add(record)
            self.values[record.topic].setdefault(record.value, []).append(
                (record.partition, record.offset)
            )

    def _begin_run(self, poll: Poll, partition: TopicPartition, offset: int) -> None:
        before = self._before[poll.process, poll.isolation].pop(partition, None)
        if before is not None and offset > before.last + 1:
            self.rebalance_gaps.append(Gap(partition, before.last, offset, poll, before.poll))
        run = self._runs[poll.process, poll.isolation][partition] = _Run(offset, poll)
        begin = self._begins.pop((poll.process, partition), None) if self._begins else None
        if begin is not None and begin.offset is not None and begin.offset < offset:
            self.gaps.append(Gap(partition, begin.offset - 1, offset, poll, begin))
            run.first = begin.offset


def _state(ends: Sequence[EndTransaction]) -> TransactionState:
    """Return the outcome of a transaction from its commits and aborts.

    If commit was never called, the outcome is ABORTED, whether or not an abort succeeded.
    """
    for end in ends:
        if end.outcome is Outcome.OK:
            return TransactionState.COMMITTED if end.commit else TransactionState.ABORTED
        if end.commit and end.outcome is Outcome.FAILED:
            return TransactionState.ABORTED
    if any(end.commit for end in ends):
        return TransactionState.UNKNOWN
    return TransactionState.ABORTED
