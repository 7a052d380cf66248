"""Backoff: exponential delays with jitter between attempts.

Source: KIP-580 (exponential backoff), KIP-144 (reconnects).
"""

from __future__ import annotations

import random
from typing import Final

__all__ = ["JITTER", "Backoff"]

JITTER: Final = 0.2
"""Largest fraction by which jitter lengthens or shortens a delay (Kafka's value)."""


class Backoff:
    """Delays in seconds, with jitter: `initial`, doubled with each failure up to `maximum`.

    Args:
        initial: first delay, before jitter.
        maximum: longest delay, including jitter; raised to `initial` if it is smaller.
        random: source of the jitter.
    """

    __slots__ = ("_random", "failures", "initial", "maximum")

    def __init__(self, initial: float, maximum: float, random: random.Random) -> None:
        self.initial = initial
        self.maximum = max(initial, maximum)
        self.failures = 0
        self._random = random

    def next(self) -> float:
        """Count one more failure, and return the delay before the next attempt."""
        # The exponent is limited, so that the power cannot overflow.
        base = min(self.initial * 2.0 ** min(self.failures, 40), self.maximum)
        self.failures += 1
        return min(base * self._random.uniform(1 - JITTER, 1 + JITTER), self.maximum)

    def reset(self) -> None:
        """Start again with the initial delay, after a success."""
        self.failures = 0
