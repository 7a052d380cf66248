"""Owns how a look at a log says that it has to wait for the disk, for which no loop should wait.

Loads nothing: who can leave the loop does that, as ``cold_reads``, and looks again.

Tests: ``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiokq.broker.log.file_names import LOG
from aiokq.core.errors import CorruptRecord, KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.log.segment_reading import ReadableSegment

__all__ = ["ColdRead", "DiskLoad", "call_each"]

T = TypeVar("T")
R = TypeVar("R")


class DiskLoad(NamedTuple):
    """Something of a segment that is on the disk.

    Attributes:
        what: tells it from the segment's others.
        read: gives it, and waits for the disk as long as that takes; for any thread.
    """

    segment: ReadableSegment
    what: Hashable
    read: Callable[[], object]

    @property
    def key(self) -> tuple[int, Hashable]:
        """The same of each load of the same thing, as long as the segment is there."""
        return id(self.segment), self.what

    def outcome(self) -> object:
        """What ``read`` gives, or why it gives nothing: for the segment's ``loaded``."""
        try:
            return self.read()
        except (OSError, CorruptRecord) as error:
            return error.with_traceback(None)  # whose frames would keep files open


class ColdRead(KafkaStorage):
    """A look at a log needs what may be on the disk only.

    Whoever can leave the loop gets the loads' outcomes off it, gives them to their segments, and
    looks again; for all others it is an error that clients retry.
    """

    def __init__(self, loads: Sequence[DiskLoad]) -> None:
        super().__init__(f"{loads[0].segment.path(LOG)} has to be read from the disk first")
        self.loads = loads


def call_each(things: Iterable[T], look: Callable[[T], R]) -> list[R]:
    """What a look at each gives.

    Raises:
        ColdRead: for all at once where some of them have to wait for the disk.
    """
    found: list[R] = []
    loads: list[DiskLoad] = []  # no exceptions: their frames keep files open
    for thing in things:
        try:
            found.append(look(thing))
        except ColdRead as cold:
            loads += cold.loads
    if loads:
        raise ColdRead(loads)
    return found
