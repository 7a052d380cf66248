"""WarningBackoff: an outage of an hour must not fill the log with the same line."""

from __future__ import annotations

import logging
from itertools import pairwise

from aiokq.core.warning_backoff import WarningBackoff


def test_warnings_of_the_same_kind_become_rare() -> None:
    """Ten failures per second for ten minutes give about a dozen lines, the first at once."""
    now = 0.0
    repetitions = WarningBackoff(lambda: now)
    warned = []
    for tick in range(6_000):
        now = tick / 10
        level, times = repetitions.note("refused")
        assert times == tick + 1
        if level == logging.WARNING:
            warned.append(round(now))
    assert warned[:5] == [0, 1, 3, 7, 15]
    assert len(warned) < 20
    assert max(b - a for a, b in pairwise(warned)) <= 61


def test_a_new_kind_is_a_warning_at_once() -> None:
    """A changed reason is a warning, but alternating between known reasons is not."""
    repetitions = WarningBackoff(lambda: 5.0)
    kinds = ["refused", "timeout", "refused", "timeout"]
    levels = [repetitions.note(kind)[0] for kind in kinds]
    assert levels == [logging.WARNING, logging.WARNING, logging.DEBUG, logging.DEBUG]


def test_after_a_recovery_or_a_long_silence_a_failure_is_new() -> None:
    """Another outage is not a repetition of the previous one."""
    now = 0.0
    repetitions = WarningBackoff(lambda: now)
    repetitions.note("refused")
    assert repetitions.note("refused") == (logging.DEBUG, 2)
    repetitions.over()
    assert repetitions.note("refused") == (logging.WARNING, 1)
    now = 1000.0
    assert repetitions.note("refused") == (logging.WARNING, 1)
