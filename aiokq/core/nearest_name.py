"""`nearest_name`, which suggests a known name for a misspelt one.

Tests: tests/unit/core/test_nearest_name.py.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest_name"]

_SEPARATORS = str.maketrans("", "", "._- ")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name with the smallest edit distance to `name`, if that distance is small.

    Case and separators (`.`, `_`, `-`, space) are ignored. The distance may be 1 for names of 3 to
    5 letters, 2 for names of 6 to 11 letters, and 3 for longer names. The distance is the number of
    edits: an edit inserts, deletes or replaces a letter, or swaps two neighbouring letters.

    Returns:
        The name as spelt in `known`, the first of several at the same distance; None if no name is
        near.
    """
    wanted = _letters(name)
    allowed = _allowed(len(wanted))
    best: str | None = None
    for candidate in known:
        letters = _letters(candidate)
        limit = min(allowed, _allowed(len(letters)))
        if abs(len(letters) - len(wanted)) > limit:
            continue
        distance = _distance(*_without_common_ends(wanted, letters), limit)
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


def _without_common_ends(a: str, b: str) -> tuple[str, str]:
    """Return both names without common prefix and suffix, which do not affect the distance."""
    shorter = min(len(a), len(b))
    start = _alike(a, b, shorter)
    a, b = a[start:], b[start:]
    end = _alike(a[::-1], b[::-1], shorter - start)
    return a[: len(a) - end], b[: len(b) - end]


def _alike(a: str, b: str, most: int) -> int:
    """Return the length of the common prefix, by bisection, because slices are compared in C."""
    least = 0
    while least < most:
        middle = (least + most + 1) // 2
        if a[least:middle] == b[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _distance(a: str, b: str, limit: int) -> int:
    """Return the optimal string alignment distance.

    If the distance is above `limit`, any number above `limit` is returned. Cells of the matrix that
    are further than `limit` from its diagonal are not computed, because they exceed `limit`.
    """
    far = limit + 1
    above: list[int] = []
    row: list[int] = [*range(min(len(b), limit) + 1), *[far] * (len(b) - limit)]
    for i, letter in enumerate(a, 1):
        two_above, above, row = above, row, [far] * (len(b) + 1)
        row[0] = i
        for j in range(max(1, i - limit), min(len(b), i + limit) + 1):
            other = b[j - 1]
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                cost = min(cost, two_above[j - 2] + 1)
            row[j] = cost
        if min(row) > limit and min(above) > limit:
            return far
    return row[-1]
