"""The known name that a misspelt one most likely means; owns what counts as a small slip.

Tests: tests/unit/core/test_nearest.py.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest"]

_SEPARATORS = str.maketrans("", "", "._- ")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name with the smallest edit distance to `name`, if that distance is small.

    Case and separators (`.`, `_`, `-`) do not count. Allowed are one edit in names of 3 to 5
    letters, two up to 11, three in longer ones; an edit inserts, deletes or replaces a letter, or
    swaps two neighbours. A suggestion further away than that is no help.

    Returns:
        The name as it stands in `known`, the first of those at the same distance; None if no
        name is near.
    """
    wanted = _letters(name)
    allowed = _allowed(len(wanted))
    best: str | None = None
    for candidate in known:
        letters = _letters(candidate)
        limit = min(allowed, _allowed(len(letters)))
        if abs(len(letters) - len(wanted)) > limit:
            continue
        distance = _distance(wanted, letters, limit)
        if distance <= limit:
            best, allowed = candidate, distance - 1
            if distance == 0:
                break
    return best


def _letters(name: str) -> str:
    return name.lower().translate(_SEPARATORS)


def _allowed(length: int) -> int:
    if length < 3:
        return 0
    if length < 6:
        return 1
    return 2 if length < 12 else 3


def _distance(a: str, b: str, limit: int) -> int:
    """The optimal string alignment distance; any number above `limit` if it is more than that."""
    two_above: list[int] = []
    above: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        two_above, above, row = above, row, [i]
        for j, other in enumerate(b, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, two_above[j - 2] + 1)
            row.append(cost)
        if min(row) > limit and min(above) > limit:
            return limit + 1
    return row[-1]
