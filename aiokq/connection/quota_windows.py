"""`Rate` and `TokenBucket`: measure how much of a quota a client has used.

The arithmetic is that of Kafka, in whole milliseconds, so that throttle times are the same.

Source: Kafka ``Rate``, ``SampledStat``, ``TokenBucket``, ``QuotaUtils``; KIP-13, KIP-599.
Tests: ``tests/unit/connection/test_quota_windows.py``.
"""

from __future__ import annotations

import math
from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = ["DEFAULT_WINDOW", "MAX_THROTTLE_MS", "QuotaWindow", "Rate", "TokenBucket"]

MAX_THROTTLE_MS: Final = 2**31 - 1
"""The longest throttle time, because responses have it as an int32."""


class QuotaWindow(NamedTuple):
    """The window over which a rate is measured.

    Attributes:
        samples: number of samples in the window (`quota.window.num`).
        sample_ms: least duration of a sample (`quota.window.size.seconds`).
    """

    samples: int = 11
    sample_ms: int = 1000

    @property
    def full_ms(self) -> int:
        """The duration in ms of all samples but one. Rates are measured over at least this time."""
        return (self.samples - 1) * self.sample_ms


DEFAULT_WINDOW: Final = QuotaWindow()


class _Sample:
    """A sample of a `Rate`: the sum of the events of at least `sample_ms`."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.total = 0.0


class Rate:
    """A rate per second over a sliding window.

    A sample begins with the first event after the end of the previous sample. It is dropped when
    its last event is older than the window. While events are frequent, a rate is therefore measured
    over slightly more than the window.
    """

    __slots__ = ("_samples", "_window")

    def __init__(self, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._window = window
        self._samples: list[_Sample] = []  # oldest first

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`; a negative value undoes an earlier count."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.sample_ms:
            if len(samples) > self._window.samples:
                del samples[0]
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.total += value
        sample.last_ms = now_ms

    def excess_ms(self, limit: float, now_ms: int, *, more: float = 0.0) -> int:
        """Return the time in ms until the rate has fallen to `limit`: 0 to `MAX_THROTTLE_MS`.

        Args:
            limit: the permitted rate per second; above 0.
            more: added to what was counted, for this call only.
        """
        total, span_ms = self._measure(now_ms)
        rate = (total + more) / span_ms * 1000
        if rate <= limit:
            return 0
        return _whole_ms((rate - limit) / limit * span_ms)

    def left(self, limit: float, now_ms: int) -> float:
        """Return what can be counted before the rate exceeds `limit`; negative above `limit`."""
        total, span_ms = self._measure(now_ms)
        return limit * span_ms / 1000 - total

    def per_second(self, now_ms: int) -> float:
        """Return the rate per second."""
        total, span_ms = self._measure(now_ms)
        return total / span_ms * 1000

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Return the sum of the samples, and the duration in ms over which they were measured."""
        window, samples = self._window, self._samples
        expiry_ms = window.samples * window.sample_ms
        while samples and now_ms - samples[0].last_ms >= expiry_ms:
            del samples[0]
        if not samples:
            return 0.0, max(window.full_ms, 1)
        elapsed = now_ms - samples[0].start_ms
        lacking = window.samples - 1 - elapsed // window.sample_ms
        if lacking > 0:
            elapsed += lacking * window.sample_ms
        return sum([sample.total for sample in samples]), max(elapsed, 1)


class TokenBucket:
    """A bucket that is refilled continuously and may be overdrawn (KIP-599).

    The bucket is full at first. It holds as many tokens as are refilled during the whole window.
    """

    __slots__ = ("_last_ms", "_tokens", "_window")

    def __init__(self, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._window = window
        self._tokens: float | None = None  # None before the first use: the bucket is full
        self._last_ms = 0

    def take(self, tokens: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if that overdraws the bucket.

        Args:
            limit: number of tokens refilled per second.
        """
        self._tokens = self.left(limit, now_ms) - tokens

    def left(self, limit: float, now_ms: int) -> float:
        """Return the tokens in the bucket, which are negative if it is overdrawn."""
        window = self._window
        most = window.samples * window.sample_ms / 1000 * limit
        if self._tokens is None:
            self._tokens = most
        else:
            refilled = self._tokens + limit * (now_ms - self._last_ms) / 1000
            self._tokens = min(refilled, most)
        self._last_ms = now_ms
        return self._tokens

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """Return the time in ms until the bucket is no longer overdrawn; 0 if it is not overdrawn.

        The time is at most `MAX_THROTTLE_MS`.
        """
        left = self.left(limit, now_ms)
        return _whole_ms(-left / limit * 1000) if left < 0 else 0


def _whole_ms(ms: float) -> int:
    """Round a throttle time as Kafka does, and cap it: a tiny limit gives infinity."""
    return math.floor(min(ms, MAX_THROTTLE_MS) + 0.5)
