"""`Budgets`: a bounded table of each client's used quota; evicts the entry used least recently.

Tests: ``tests/unit/connection/test_budgets.py``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

__all__ = ["Budgets", "short_name"]

T = TypeVar("T")

EXPIRY_MS: Final = 3_600_000
"""Time after which a budget that is not used may be forgotten, as in Kafka."""

MOST: Final = 10_000
"""Maximum number of clients whose use is remembered; the least recently used one is dropped.

There is a maximum because a client may use a new client id in each request.
"""

LONG_NAME: Final = 128
"""Length in characters above which `short_name` shortens a name, to bound the memory."""


class Budgets(Generic[T]):
    """An object for each user, client id, listener or address, created at its first use.

    Args:
        create: creates the object of a budget, such as a `Rate`.
    """

    __slots__ = ("_budgets", "_create", "_most")

    def __init__(self, create: Callable[[], T], *, most: int = MOST) -> None:
        self._create = create
        self._most = most
        # The object and the time of its last use in ms, least recently used first.
        self._budgets: OrderedDict[tuple[Hashable, ...], tuple[T, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._budgets)

    def get(self, names: tuple[str | None, ...], now_ms: int) -> T:
        """Return the object of a budget; create it at its first use.

        The call may drop the budget that was used least recently.

        Args:
            names: the key, such as a user and a client id; None for a part that does not count.
        """
        budgets = self._budgets
        key = tuple([name if name is None else short_name(name) for name in names])
        found = budgets.get(key)
        if found is None:
            budget = self._create()
            if len(budgets) >= self._most:
                budgets.popitem(last=False)
        else:
            budget = found[0]
        budgets[key] = budget, now_ms
        budgets.move_to_end(key)
        oldest = next(iter(budgets))
        if now_ms - budgets[oldest][1] >= EXPIRY_MS:
            del budgets[oldest]
        return budget

    def clear(self) -> None:
        """Forget the used quota of all clients."""
        self._budgets.clear()


def short_name(name: str) -> Hashable:
    """Return a name as a key of a table: a long name becomes its beginning, length and hash."""
    return name if len(name) <= LONG_NAME else (name[:LONG_NAME], len(name), hash(name))
