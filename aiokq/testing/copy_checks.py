"""Checks of copiers: committed inputs have exactly one copy, and copies have committed inputs.

Each function takes the index of a history.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.history import Copy, Operation, Send
from aiokq.testing.history_index import HistoryIndex

__all__ = ["check_copies", "input_of"]


def check_copies(index: HistoryIndex) -> Iterator[Anomaly]:
    """Find input records with several copies or no copy, and copies without an input record."""
    for names in dict.fromkeys((copy.input, copy.output) for copy in index.copies):
        copy = Copy(*names)
        yield from _check_inputs(index, copy)
        yield from _check_outputs(index, copy)


def input_of(index: HistoryIndex, topic: str, value: str) -> Operation | None:
    """Return a poll or send that proves that `topic` has a committed record of `value`, or None."""
    for partition, offset in index.values[topic].get(value, ()) if topic in index.values else ():
        read = index.committed[topic, partition].reads.get(offset)
        if read is not None:
            return read[1]
    return next((send for send in _sends(index, topic, value) if index.was_committed(send)), None)


def _check_inputs(index: HistoryIndex, copy: Copy) -> Iterator[Anomaly]:
    finished = any(topic == copy.output for topic, _ in index.finals)
    for value in {**index.values.get(copy.input, {}), **index.attempts.get(copy.input, {})}:
        source = input_of(index, copy.input, value)
        if source is None:
            continue
        places = _visible_copies(index, copy.output, value)
        sends = _committed_copies(index, copy.output, value)
        if len(places) > 1:
            yield _copies(index, copy, value, places, "has copies", (source,))
        elif len(sends) > 1:
            at = ", ".join(f"{copy.output}-{p}@{o}" for p, o in sends)
            message = f"copies of {value!r} of {copy.input} were committed at {at}"
            yield Anomaly(AnomalyKind.COPY, message, (source, *sends.values()))
        elif not places and finished and not _was_copied(index, copy.output, value):
            message = f"{value!r} of {copy.input} has no copy in {copy.output}"
            yield Anomaly(AnomalyKind.COPY, message, (source,))


def _check_outputs(index: HistoryIndex, copy: Copy) -> Iterator[Anomaly]:
    whole = index.was_read_whole(copy.input)
    for value in index.values.get(copy.output, ()):
        sends = _sends(index, copy.input, value)
        void = bool(sends) and all(index.is_void(send) for send in sends)
        if not whole and not void:
            continue
        if input_of(index, copy.input, value) is not None:
            continue
        places = _visible_copies(index, copy.output, value)
        if places:
            why = "is aborted or failed, and has copies" if void else "was never there, and is"
            yield _copies(index, copy, value, places, why, sends)


def _copies(
    index: HistoryIndex,
    copy: Copy,
    value: str,
    places: list[tuple[int, int]],
    what: str,
    sources: tuple[Operation, ...] | list[Send],
) -> Anomaly:
    at = ", ".join(f"{copy.output}-{p}@{o}" for p, o in places)
    polls = (index.committed[copy.output, p].reads[o][1] for p, o in places)
    message = f"{value!r} of {copy.input} {what} at {at}"
    return Anomaly(AnomalyKind.COPY, message, (*sources, *polls))


def _visible_copies(index: HistoryIndex, topic: str, value: str) -> list[tuple[int, int]]:
    """Return the (partition, offset) pairs at which read_committed consumers read a value."""
    places = index.values[topic].get(value, ()) if topic in index.values else ()
    return [place for place in places if place[1] in index.committed[topic, place[0]].reads]


def _committed_copies(index: HistoryIndex, topic: str, value: str) -> dict[tuple[int, int], Send]:
    """Return the acknowledged and committed sends of a value, by partition and offset."""
    return {
        (send.partition, send.offset): send
        for send in _sends(index, topic, value)
        if send.partition is not None and send.offset is not None and index.was_committed(send)
    }


def _was_copied(index: HistoryIndex, topic: str, value: str) -> bool:
    """Return whether a copy was acknowledged and committed; `check_missing` reports lost copies."""
    return any(index.was_committed(send) for send in _sends(index, topic, value))


def _sends(index: HistoryIndex, topic: str, value: str) -> list[Send]:
    return index.attempts[topic].get(value, []) if topic in index.attempts else []
