"""`Cached`: keeps a report for some time, so that frequent reads cost little."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Cached"]

T = TypeVar("T")

SHARE: Final = 20
CHEAP_SECONDS: Final = 0.001


class Cached(Generic[T]):
    """Keeps the result of `make` for 20 times as long as its computation took.

    So a report takes at most about a twentieth of the loop's time, however often it is read. A
    result that was computed in less than a millisecond is not kept.
    """

    def __init__(
        self, make: Callable[[], T], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._make = make
        self._clock = clock
        self._value: T | None = None
        self._until = 0.0

    def get(self) -> T:
        began = self._clock()
        if self._value is not None and began < self._until:
            return self._value
        value = self._make()
        ended = self._clock()
        took = ended - began
        self._value = value if took >= CHEAP_SECONDS else None
        self._until = ended + SHARE * took
        return value
