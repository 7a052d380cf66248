"""`FairQueue` and `FairTurns`: groups take turns, so that no group makes the others wait.

Tests: ``tests/unit/core/test_fair_queue.py``.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["FairQueue", "FairTurns"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of groups, such as the questions of each user. Each group gives one item in turn.

    The items of a group are taken in the order in which they were added. However many items a group
    has, an item of another group waits for at most one of them for each item of its own group.
    """

    __slots__ = ("_groups", "_length")

    def __init__(self) -> None:
        # The next item is the first one of the first group.
        self._groups: OrderedDict[Hashable, OrderedDict[Hashable, T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items, group by group."""
        return (item for items in self._groups.values() for item in items.values())

    def add(self, group: Hashable, key: Hashable, item: T) -> None:
        """Add an item.

        Args:
            key: a key that no other item of the group has.
        """
        self._groups.setdefault(group, OrderedDict())[key] = item
        self._length += 1

    def take(self) -> T:
        """Remove and return the next item.

        Raises:
            KeyError: the queue is empty.
        """
        group, items = self._groups.popitem(last=False)
        _, item = items.popitem(last=False)
        if items:
            self._groups[group] = items
        self._length -= 1
        return item

    def remove(self, group: Hashable, key: Hashable) -> T | None:
        """Remove and return an item; return None if it is not in the queue."""
        items = self._groups.get(group)
        if items is None or key not in items:
            return None
        item = items.pop(key)
        self._removed(group, items)
        return item

    def make_room(self, group: Hashable) -> T | None:
        """Remove and return the last item of the longest group, to add one to `group` instead.

        Returns:
            The removed item; None if `group` would then be longer than that group.
        """
        if not self._groups:
            return None
        longest, items = max(self._groups.items(), key=lambda found: len(found[1]))
        if len(items) <= len(self._groups.get(group, ())) + 1:
            return None
        _, item = items.popitem()
        self._removed(longest, items)
        return item

    def _removed(self, group: Hashable, items: OrderedDict[Hashable, T]) -> None:
        self._length -= 1
        if not items:
            del self._groups[group]


class FairTurns:
    """A limit on work that is done at the same time. Who has to wait does so in a `FairQueue`.

    Args:
        most: maximum number of turns at the same time.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    async def begin(self, group: Hashable) -> None:
        """Wait for a turn. The caller has to call `end` after its work."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(group, id(turn), turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.remove(group, id(turn))
            if not turn.cancelled():  # the turn had begun already
                self.end()
            raise

    def end(self) -> None:
        """End a turn; the next one that waits begins."""
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():  # a cancelled one is removed later
                turn.set_result(None)
                return
        self._free += 1
