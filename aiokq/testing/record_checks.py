"""Checks for records that are lost, duplicated, at wrong offsets, or read but not committed.

Each function takes the index of a history and yields anomalies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.copy_checks import input_of
from aiokq.testing.history import Isolation, Operation, Outcome, Poll, Send
from aiokq.testing.history_index import HistoryIndex

__all__ = ["check_duplicates", "check_missing", "check_offsets_of_records", "check_visibility"]


def check_visibility(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find reads of values that were not sent, were aborted, or were not committed yet."""
    for isolation in Isolation:
        for (topic, partition), read in index.read_at(isolation).items():
            if topic not in index.attempts:
                continue
            for offset, (value, poll) in read.reads.items():
                writers = index.writers(topic, value, partition, offset)
                if len(writers) == 1 and _is_fine(index, isolation, writers[0], poll):
                    continue
                place = f"{topic}-{partition}@{offset}"
                if not writers:
                    yield Anomaly(AnomalyKind.UNSENT, f"{place}: nobody sent {value!r}", (poll,))
                    continue
                yield from _visible(index, isolation, place, writers[0], writers, poll)


def _is_fine(index: HistoryIndex, isolation: Isolation, send: Send, poll: Poll) -> bool:
    """Return True if a read is certainly correct, by a fast check."""
    if send.outcome is Outcome.FAILED:
        return False
    if isolation is Isolation.READ_UNCOMMITTED or send.txn is None:
        return True
    called = index.commit_called.get(send.txn)
    return send.txn not in index.aborted and (called is None or poll.end >= called)


def _visible(
    index: HistoryIndex,
    isolation: Isolation,
    place: str,
    send: Send,
    writers: Sequence[Send],
    poll: Poll,
) -> Iterator[Anomaly]:
    if all(writer.outcome is Outcome.FAILED for writer in writers):
        message = f"{place}: the send of {send.value!r} failed, and it was read"
        yield Anomaly(AnomalyKind.ABORTED_READ, message, (send, poll))
    if isolation is Isolation.READ_UNCOMMITTED or send.outcome is Outcome.FAILED:
        return
    if all(index.is_void(writer) for writer in writers):
        message = f"{place}: transaction {send.txn} was aborted, and {send.value!r} was read"
        yield Anomaly(
            AnomalyKind.ABORTED_READ, message, (send, *index.ends.get(send.txn or "", ()), poll)
        )
    elif len(writers) == 1 and send.txn is not None:
        called = index.commit_called.get(send.txn)
        if called is not None and poll.end < called:
            ends = [end for end in index.ends[send.txn] if end.commit]
            message = (
                f"{place}: {send.value!r} was read before the commit of transaction {send.txn} "
                "was called"
            )
            yield Anomaly(AnomalyKind.PRECOMMITTED_READ, message, (send, poll, *ends))


def check_duplicates(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find values with more offsets than sends; `check_copies` finds repeated copies."""
    inputs: dict[str, list[str]] = defaultdict(list)
    for copy in dict.fromkeys((copy.input, copy.output) for copy in index.copies):
        inputs[copy[1]].append(copy[0])
    for topic, values in index.values.items():
        copied = inputs.get(topic, ())
        for value, places in values.items():
            if len(places) < 2:
                continue
            attempts = index.attempts[topic].get(value, ()) if topic in index.attempts else ()
            if len(attempts) > 1 or copied:
                # Records read at read_uncommitted do not count, because they may have been aborted.
                places = [p for p in places if p[1] in index.committed[topic, p[0]].reads]
            sent = 1 if copied else sum(not index.is_void(attempt) for attempt in attempts)
            if len(places) <= max(sent, 1):
                continue
            if any(input_of(index, each, value) is not None for each in copied):
                continue
            polls = [_poll_of(index, topic, *place) for place in places]
            at = ", ".join(f"{topic}-{partition}@{offset}" for partition, offset in places)
            yield Anomaly(
                AnomalyKind.DUPLICATE,
                f"{value!r} is at {at}",
                (*attempts, *(poll for poll in polls if poll is not None)),
            )


def check_offsets_of_records(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find offsets that have two values, and values that were read only at wrong offsets.

    The right offset of a value is the offset in the acknowledgement of its send.
    """
    for record, poll, earlier in index.conflicts:
        yield Anomaly(
            AnomalyKind.INCONSISTENT_OFFSETS,
            f"{record.topic}-{record.partition}@{record.offset} has {record.value!r} and another "
            "value",
            (earlier, poll),
        )
    for (topic, partition), log in index.logs.items():
        before: Send | None = None
        reads = index.committed[topic, partition].reads
        for offset, send in log:
            if before is not None and before.offset == offset:
                place = f"{topic}-{partition}@{offset}"
                message = f"{place} was acknowledged for {before.value!r} and for {send.value!r}"
                yield Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, message, (before, send))
                continue
            before = send
            found = reads.get(offset)
            if found is None or found[0] != send.value:
                yield from _misplaced(index, send)


def _misplaced(index: HistoryIndex, send: Send) -> Iterator[Anomaly]:
    """Report `send` if another value was read at its acknowledged offset.

    If the value was sent only once, also report `send` if the value was read only at other offsets.
    """
    place = f"{send.topic}-{send.partition}@{send.offset}"
    if (found := _other_value(index, send)) is not None:
        message = f"{place} was acknowledged for {send.value!r} and has {found[0]!r}"
        yield Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, message, (send, found[1]))
    elif len(index.attempts[send.topic][send.value]) == 1:
        places = index.values[send.topic].get(send.value, ())
        if places and (send.partition, send.offset) not in places:
            shown = _poll_of(index, send.topic, *places[0])
            message = (
                f"{send.value!r} was acknowledged at {place} and read at "
                f"{send.topic}-{places[0][0]}@{places[0][1]}"
            )
            operations: tuple[Operation, ...] = (send,) if shown is None else (send, shown)
            yield Anomaly(AnomalyKind.INCONSISTENT_OFFSETS, message, operations)


def check_missing(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find lost writes, unseen writes and torn transactions."""
    torn: dict[str, list[Send]] = defaultdict(list)
    visible = _visible_transactions(index)
    for send in index.all_sends():
        if send.outcome is not Outcome.OK or _was_read(index, send):
            continue
        if send.txn is not None and send.txn not in visible and not index.is_committed(send.txn):
            continue
        kind = _fate(index, send)
        if kind is None:
            continue
        if send.txn in visible:
            torn[send.txn].append(send)
            continue
        at = f"{send.topic}-{send.partition}@{send.offset}"
        what = "consumers read past it" if kind is AnomalyKind.LOST_WRITE else "it was never read"
        ends = index.ends.get(send.txn, ()) if send.txn is not None else ()
        witnesses = _witnesses(index, send)
        yield Anomaly(
            kind, f"{send.value!r} was acknowledged at {at}; {what}", (send, *ends, *witnesses)
        )
    for txn, missing in torn.items():
        seen, poll = visible[txn]
        names = ", ".join(repr(send.value) for send in missing)
        yield Anomaly(
            AnomalyKind.TORN_TRANSACTION,
            f"transaction {txn}: {seen.value!r} was read, {names} was not",
            (*missing, *index.ends.get(txn, ()), seen, poll),
        )


def _was_read(index: HistoryIndex, send: Send) -> bool:
    """Return whether a record was read at its acknowledged offset."""
    if send.partition is None or send.offset is None:
        return False
    found = index.committed[send.topic, send.partition].reads.get(send.offset)
    return found is not None and found[0] == send.value


def _fate(index: HistoryIndex, send: Send) -> AnomalyKind | None:
    """Return the anomaly if a committed record is certainly missing, otherwise None.

    The anomaly is LOST_WRITE if a consumer read past the record. It is UNSEEN if the partition was
    read to its end, but no consumer read the record or a later record.
    """
    places = index.values[send.topic].get(send.value, ())
    if any(o in index.committed[send.topic, p].reads for p, o in places):
        return None
    if send.partition is None or send.offset is None:
        unseen = not places and index.was_read_whole(send.topic, send.partition)
        return AnomalyKind.UNSEEN if unseen else None
    partition = (send.topic, send.partition)
    if not index.is_retained(partition, send.offset) or _other_value(index, send) is not None:
        return None
    if index.committed[partition].covers(send.offset):
        return AnomalyKind.LOST_WRITE
    if places:
        return None
    if index.uncommitted[partition].covers(send.offset):
        return AnomalyKind.LOST_WRITE
    if partition not in index.finals:
        return None
    # The partition was read to its end. If a later record was read, its consumer has therefore
    # passed this record.
    passed = index.committed[partition].following(send.offset) is not None
    return AnomalyKind.LOST_WRITE if passed else AnomalyKind.UNSEEN


def _visible_transactions(index: HistoryIndex) -> dict[str, tuple[Send, Poll]]:
    """Return a record and its poll for each transaction that a read_committed consumer read."""
    visible: dict[str, tuple[Send, Poll]] = {}
    for (topic, partition), read in index.committed.items():
        if topic not in index.attempts:
            continue
        for offset, (value, poll) in read.reads.items():
            writers = index.writers(topic, value, partition, offset)
            if len(writers) != 1 or (txn := writers[0].txn) is None or txn in visible:
                continue
            if not index.is_void(writers[0]):
                visible[txn] = (writers[0], poll)
    return visible


def _other_value(index: HistoryIndex, send: Send) -> tuple[str, Poll] | None:
    """Return another value that was read at the offset of `send`, and its poll, or None."""
    if send.partition is None or send.offset is None:
        return None
    for isolation in Isolation:
        read = index.read_at(isolation).get((send.topic, send.partition))
        found = read.reads.get(send.offset) if read is not None else None
        if found is not None and found[0] != send.value:
            return found
    return None


def _poll_of(index: HistoryIndex, topic: str, partition: int, offset: int) -> Poll | None:
    for isolation in Isolation:
        read = index.read_at(isolation).get((topic, partition))
        if read is not None and offset in read.reads:
            return read.reads[offset][1]
    return None


def _witnesses(index: HistoryIndex, send: Send) -> Iterator[Operation]:
    """Yield the poll of the lowest offset read above that of `send`, or else the `Final`."""
    if send.partition is None or send.offset is None:
        return
    for isolation in Isolation:
        read = index.read_at(isolation).get((send.topic, send.partition))
        following = read.following(send.offset) if read is not None else None
        if following is not None:
            yield following
            return
    final = index.finals.get((send.topic, send.partition))
    if final is not None:
        yield final
