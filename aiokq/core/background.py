"""Owns how failures of background work are reported: logged, counted, and given a time to retry.

Nobody waits for such work, so nobody else would report its failures. Its owner runs it and waits
for the next attempt. A bug in it does not end the broker, but ends it where tests run, which would
not notice it otherwise.

Tests: tests/unit/core/test_background.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import KafkaError
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from aiokq.core.counters import BrokerCounters

__all__ = ["FAIL_ON_BUGS", "BackgroundTask", "BackgroundWork"]

logger = logging.getLogger("aiokq.core")

FAIL_ON_BUGS: Final = "AIOKQ_FAIL_ON_BUGS"
"""The environment variable that tests set to 1, so that a bug in background work ends its owner."""

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds from a failure to the next attempt; doubled with each failure in a row."""

_EXPECTED: Final = (KafkaError, OSError, MemoryError, ImportError)
"""Failures that a sound program may meet; anything else is a bug. An import fails with ImportError
when there is no descriptor to open an extension module with."""


class BackgroundWork:
    """The background work of one broker. Used on its loop.

    Args:
        counters: of the broker.
        now: seconds on a monotonic clock.
        fatal: told of a bug where `FAIL_ON_BUGS` says so.
    """

    def __init__(
        self,
        counters: BrokerCounters,
        now: Callable[[], float],
        *,
        fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._counters = counters
        self._fatal = fatal
        self._fails_on_bugs = os.environ.get(FAIL_ON_BUGS) == "1"
        self._warnings = WarningBackoff(now)

    def task(self, name: str) -> BackgroundTask:
        """One piece of work that is tried again by itself, as the loading of one partition.

        Args:
            name: shared by all of its kind; a label of a metric, so there must be few.
        """
        return BackgroundTask(self, name)

    def _failed(self, task: str, error: Exception) -> None:
        bug = not isinstance(error, _EXPECTED)
        self._counters.background_failures[task] += 1
        level, times = self._warnings.note((task, type(error)))
        logger.log(
            logging.ERROR if bug and level >= logging.WARNING else level,
            "background task failed, it is tried again: task=%r error=%s times=%d",
            task,
            error.message if isinstance(error, KafkaError) else repr(error),
            times,
            exc_info=error if bug else None,
        )
        if bug and self._fails_on_bugs:
            if self._fatal is not None:
                self._fatal(error)
            raise error


class BackgroundTask:
    """One piece of background work, with its own pause: what fails beside it does not delay it."""

    __slots__ = ("_name", "_pause", "_work")

    def __init__(self, work: BackgroundWork, name: str) -> None:
        self._work = work
        self._name = name
        self._pause = FIRST_PAUSE

    def failed(self, error: Exception) -> float:
        """It failed: the seconds after which it should be tried again.

        Raises:
            Exception: `error`, if it is a bug and `FAIL_ON_BUGS` is set.
        """
        self._work._failed(self._name, error)
        pause = self._pause
        self._pause = min(2 * pause, LONGEST_PAUSE)
        return pause

    def succeeded(self) -> None:
        """It has succeeded: after its next failure the pauses begin anew."""
        self._pause = FIRST_PAUSE
