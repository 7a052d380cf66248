"""PartitionRotation: whose turn it is among the partitions that have something to hand over."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.consumer.positions import PartitionState

__all__ = ["PartitionRotation"]


class PartitionRotation:
    """Partitions in the order of their turns; each stands in it once (`state.listed`)."""

    def __init__(self) -> None:
        self._states: deque[PartitionState] = deque()

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states)

    def add(self, state: PartitionState, *, first: bool = False) -> None:
        """Stand at the end, or first; who stands in line already keeps the place."""
        if state.listed:
            return
        state.listed = True
        if first:
            self._states.appendleft(state)
        else:
            self._states.append(state)

    def next(self) -> PartitionState | None:
        """Whose turn it is; that one leaves the line. None if nobody has anything."""
        while self._states:
            state = self._states.popleft()
            state.listed = False
            if state.readable:
                return state
        return None

    def move_to_end(self, state: PartitionState) -> None:
        """It goes to the end, if it stands in line."""
        if state.listed:
            self._states.remove(state)
            self._states.append(state)

    def discard(self, state: PartitionState) -> None:
        """It has no more turns."""
        if state.listed:
            state.listed = False
            self._states.remove(state)
