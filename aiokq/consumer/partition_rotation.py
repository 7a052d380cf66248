"""PartitionRotation: the order in which partitions with buffered records are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.consumer.positions import PartitionState

__all__ = ["PartitionRotation"]


class PartitionRotation:
    """A FIFO queue of partitions, each at most once (`state.listed`)."""

    def __init__(self) -> None:
        self._states: deque[PartitionState] = deque()

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states)

    def add(self, state: PartitionState, *, first: bool = False) -> None:
        """Add a partition at the end, or at the front; a queued partition keeps its place."""
        if state.listed:
            return
        state.listed = True
        if first:
            self._states.appendleft(state)
        else:
            self._states.append(state)

    def next(self) -> PartitionState | None:
        """Remove and return the first readable partition; None if there is none.

        Unreadable partitions before that partition are removed, too.
        """
        while self._states:
            state = self._states.popleft()
            state.listed = False
            if state.readable:
                return state
        return None

    def move_to_end(self, state: PartitionState) -> None:
        """Move a partition to the end, if it is queued."""
        if state.listed:
            self._states.remove(state)
            self._states.append(state)

    def discard(self, state: PartitionState) -> None:
        """Remove a partition, if it is queued."""
        if state.listed:
            state.listed = False
            self._states.remove(state)
