"""Point 39: how long pauses are when failures repeat."""

from __future__ import annotations

from random import Random

import pytest

from aiokq.gateway.bruce.pausing import PauseBackoff


class Fixed(Random):
    """Random numbers at one end of their range."""

    def __init__(self, share: float) -> None:
        super().__init__(1)
        self._share = share

    def uniform(self, a: float, b: float) -> float:
        return a + self._share * (b - a)


def delays(backoff: PauseBackoff, count: int, between: float = 0.0) -> list[float]:
    """Return the delays of failures that follow each pause after `between` seconds."""
    now, found = 50.0, []
    for _ in range(count):
        delay = backoff.next(now)
        found.append(delay)
        now += delay + between
    return found


@pytest.mark.parametrize(("share", "factor"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_point_39_delays_double_with_jitter_up_to_a_limit(share: float, factor: float) -> None:
    """The first delay is 0, then the base doubles four times, from half to one and a half of it."""
    backoff = PauseBackoff(5.0, 4, 0.0, Fixed(share))

    assert delays(backoff, 8) == [0] + [factor * base for base in (5, 10, 20, 40, 80, 80, 80)]


def test_point_39_no_delay_is_below_the_floor() -> None:
    """The floor holds for the first delay, too."""
    backoff = PauseBackoff(5.0, 4, 6.0, Fixed(0.0))

    assert delays(backoff, 5) == [6, 6, 6, 10, 20]


def test_point_39_time_since_the_last_pause_counts() -> None:
    """A failure 3 s after a pause waits 3 s less."""
    backoff = PauseBackoff(5.0, 2, 0.0, Fixed(0.5))

    assert delays(backoff, 4, between=3.0) == [0, 2, 7, 17]


def test_point_39_quiet_time_resets_the_delays() -> None:
    """5 s * 2**(4 + 2) = 320 s."""
    backoff = PauseBackoff(5.0, 4, 0.0, Fixed(0.5))
    assert delays(backoff, 3) == [0, 5, 10]  # the last pause ends at 65

    assert backoff.next(65.0 + 319.0) == 0  # the base is 20 s, of which 319 s have passed
    assert backoff.next(65.0 + 319.0) == 40
    ended = 65.0 + 319.0 + 40
    assert backoff.next(ended + 320.0) == 0
    assert backoff.next(ended + 320.0) == 5


def test_point_39_jitter_is_random() -> None:
    """Gateways that fail together do not come back together."""
    found = {PauseBackoff(5.0, 4, 0.0, Random(seed)).next(0.0) for seed in range(5)}
    assert found == {0}
    seconds = []
    for seed in range(50):
        backoff = PauseBackoff(5.0, 4, 0.0, Random(seed))
        seconds.append(delays(backoff, 2)[1])
    assert len(set(seconds)) == 50
    assert 2.5 <= min(seconds) < 3.0
    assert 7.0 < max(seconds) <= 7.5
