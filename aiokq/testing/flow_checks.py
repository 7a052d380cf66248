"""Finds circles of reads and writes between transactions, and wrong committed offsets of groups.

Each function takes the index of a history and yields anomalies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.circles import circles
from aiokq.testing.history import (
    EndTransaction,
    Isolation,
    ObservedOffsets,
    Offsets,
    Operation,
    Outcome,
    Send,
)
from aiokq.testing.history_index import HistoryIndex, TransactionState

__all__ = ["check_circles", "check_group_offsets"]

Edges = dict[str, dict[str, tuple[Operation, ...]]]


def check_circles(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find transactions that depend on each other in a circle.

    A transaction depends on another if it read a record of the other transaction, or if it wrote
    directly after the other transaction in a log. A circle consists of dependencies of one kind or
    of both kinds.
    """
    reads = _read_edges(index, (Isolation.READ_COMMITTED,))
    writes = _write_edges(index)
    every = _read_edges(index, tuple(Isolation))
    both: Edges = defaultdict(dict)
    for edges in (writes, every):
        for source, targets in edges.items():
            both[source].update(targets)
    flows = {frozenset(circle) for circle in circles(reads)}
    yield from _named(AnomalyKind.CIRCULAR_FLOW, reads, flows)
    yield from _named(AnomalyKind.WRITE_CYCLE, writes, map(frozenset, circles(writes)))
    mixed = (
        members
        for members in map(frozenset, circles(both))
        if members not in flows
        and any(target in members for name in members for target in every.get(name, ()))
    )
    yield from _named(AnomalyKind.CIRCULAR_WRITE_FLOW, both, mixed)


def _named(
    kind: AnomalyKind, edges: Edges, found: Iterator[frozenset[str]] | set[frozenset[str]]
) -> Iterator[Anomaly]:
    for members in sorted(found, key=sorted):
        circle = _one_circle(edges, members)
        operations: dict[int, Operation] = {}
        for source, target in pairwise(circle):
            operations.update((id(each), each) for each in edges[source][target])
        yield Anomaly(kind, " -> ".join(circle), tuple(operations.values()))


def _one_circle(edges: Edges, members: frozenset[str]) -> list[str]:
    """Return the names of a circle: each transaction has an edge to the next one in the list.

    The first name is also the last.

    Args:
        members: a strongly connected component of the graph, in which the circle lies.
    """
    path = [min(members)]
    places = {path[0]: 0}
    while True:
        following = next(name for name in edges[path[-1]] if name in members)
        if following in places:
            return [*path[places[following] :], following]
        places[following] = len(path)
        path.append(following)


def _read_edges(index: HistoryIndex, levels: Sequence[Isolation]) -> Edges:
    edges: Edges = defaultdict(dict)
    for poll in index.transaction_polls:
        if poll.isolation not in levels or poll.txn is None:
            continue
        if index.state(poll.txn) is TransactionState.ABORTED:
            continue
        for topic, partition, offset, value in poll.records:
            if topic not in index.attempts:
                continue
            writers = index.writers(topic, value, partition, offset)
            if len(writers) != 1 or index.is_void(writers[0]):
                continue
            if (txn := writers[0].txn) is not None and txn != poll.txn:
                edges[txn].setdefault(poll.txn, (writers[0], poll))
    return edges


def _write_edges(index: HistoryIndex) -> Edges:
    edges: Edges = defaultdict(dict)
    for log in index.logs.values():
        before: Send | None = None
        last: str | None = None
        for _, send in log:
            txn = send.txn
            if txn is None or txn in index.aborted:
                continue
            if before is not None and last is not None and last != txn:
                edges[last].setdefault(txn, (before, send))
            before, last = send, txn
    return edges


def check_group_offsets(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find observed group offsets that were not committed, or that contradict recorded commits."""
    proposed: dict[tuple[str, str, int], dict[int, list[Offsets]]] = defaultdict(dict)
    settled: dict[tuple[str, str, int], list[tuple[float, int, Offsets]]] = defaultdict(list)
    for commit in index.offsets:
        done = _settled_at(index, commit)
        for topic, partition, offset in commit.offsets:
            key = (commit.group, topic, partition)
            proposed[key].setdefault(offset, []).append(commit)
            if done is not None:
                settled[key].append((done, offset, commit))
    for entries in settled.values():
        entries.sort(key=lambda entry: entry[0])
    times = {key: [entry[0] for entry in entries] for key, entries in settled.items()}
    for observed in index.observed:
        for topic, partition, offset in observed.offsets:
            key = (observed.group, topic, partition)
            place = f"group {observed.group} is at {topic}-{partition}@{offset}"
            commits = proposed[key].get(offset, ()) if key in proposed else ()
            if commits and all(_is_void(index, commit) for commit in commits):
                ends = _ends(index, commits[-1])
                yield Anomaly(
                    AnomalyKind.OFFSETS_APART,
                    f"{place}, which only aborted transactions or failed commits set",
                    (*commits, *ends, observed),
                )
                continue
            if not commits and offset >= 0:
                if observed.all_commits or key in proposed:
                    yield _unset(place, observed)
                continue
            number = bisect_left(times.get(key, ()), observed.start)
            if not number:
                continue
            _, newest, last = settled[key][number - 1]
            if newest != offset and all(_ended_before(index, each, last) for each in commits):
                yield Anomaly(
                    AnomalyKind.OFFSETS_APART,
                    f"{place}, and {newest} was committed before",
                    (last, *_ends(index, last), observed),
                )


def _unset(place: str, observed: ObservedOffsets) -> Anomaly:
    if observed.all_commits:
        message = f"{place}, which no commit set, although all commits are recorded"
        return Anomaly(AnomalyKind.OFFSETS_APART, message, (observed,))
    return Anomaly(AnomalyKind.UNSET_OFFSETS, f"{place}, which no recorded commit set", (observed,))


def _is_void(index: HistoryIndex, commit: Offsets) -> bool:
    return commit.outcome is Outcome.FAILED or (
        commit.txn is not None and index.state(commit.txn) is TransactionState.ABORTED
    )


def _ends(index: HistoryIndex, commit: Offsets) -> Sequence[EndTransaction]:
    return index.ends.get(commit.txn, ()) if commit.txn is not None else ()


def _settled_at(index: HistoryIndex, commit: Offsets) -> float | None:
    """Return the time at which a commit of offsets was known to have succeeded, or None."""
    if commit.outcome is not Outcome.OK:
        return None
    if commit.txn is None:
        return commit.end
    return next((e.end for e in _ends(index, commit) if e.commit and e.outcome is Outcome.OK), None)


def _ended_before(index: HistoryIndex, commit: Offsets, other: Offsets) -> bool:
    """Return True if `commit` failed, or if `commit` took effect before `other` was called."""
    if _is_void(index, commit):
        return True
    done = _settled_at(index, commit)
    return done is not None and done < other.start
