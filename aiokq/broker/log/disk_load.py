"""``ColdRead``: the exception that a read of a log raises instead of waiting for the disk.

A caller that can wait (``cold_reads``) runs the loads of the exception, and repeats the read.

Tests: ``tests/unit/broker/log/test_cold_reads.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from aiokq.broker.log.file_names import LOG
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.frozen import frozen

__all__ = ["ColdRead", "DiskLoad", "LoadedSegment", "call_each"]

T = TypeVar("T")
R = TypeVar("R")


class LoadedSegment(Protocol):
    """A segment that stores loaded items for repeated reads."""

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with this suffix."""

    def loaded(self, what: Hashable, outcome: object) -> None:
        """Store the outcome of a ``DiskLoad`` for the repeated read."""

    def forget(self, what: Hashable) -> None:
        """Drop an outcome that no read needs any more."""


@frozen
class DiskLoad:
    """An item to load from the disk, such as an index or a batch header of a segment.

    Attributes:
        what: identifies the item within its segment.
        read: loads the item and waits for the disk; may be called in any thread.
    """

    segment: LoadedSegment
    what: Hashable
    read: Callable[[], object]

    @property
    def key(self) -> tuple[int, Hashable]:
        """A key that no other item of any segment has, as long as the segment object exists."""
        return id(self.segment), self.what

    def outcome(self) -> object:
        """Return the result of ``read``, or its error, to be passed to the segment's ``loaded``."""
        try:
            return self.read()
        except (OSError, CorruptRecord) as error:
            return error.with_traceback(None)  # the traceback's frames would keep files open


class ColdRead(KafkaStorage):
    """A read of a log needs data that is not in memory.

    A caller that can wait runs each of ``loads``, passes each outcome to ``loaded`` of the load's
    segment, and repeats the read. For any other caller this is an error that clients retry.
    """

    def __init__(self, loads: Sequence[DiskLoad]) -> None:
        super().__init__(f"{loads[0].segment.path(LOG)} has to be read from the disk first")
        self.loads = loads


def call_each(things: Iterable[T], look: Callable[[T], R]) -> list[R]:
    """Call ``look`` for each object; return the results.

    Raises:
        ColdRead: some calls raised ColdRead; the error contains the loads of all of them.
    """
    found: list[R] = []
    # Only the loads are stored, because the frames of the exceptions would keep files open.
    loads: list[DiskLoad] = []
    for thing in things:
        try:
            found.append(look(thing))
        except ColdRead as cold:
            loads += cold.loads
    if loads:
        raise ColdRead(loads)
    return found
