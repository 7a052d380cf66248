"""Failures of background work: logging, counting, and the pause before the next attempt.

No caller waits for background work, so its failures would go unreported without this module. The
owner of the work runs it and waits before each retry. A bug in background work stops the broker
only if the environment variable `AIOKQ_FAIL_ON_BUGS` is 1, as in tests.

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
"""Environment variable that tests set to 1: a bug in background work then stops the broker."""

FIRST_PAUSE: Final = 1.0
"""Seconds between the first failure and the next attempt; doubled with each failure in a row."""

LONGEST_PAUSE: Final = 60.0
"""Maximum number of seconds between a failure and the next attempt."""

_EXPECTED: Final = (KafkaError, OSError, MemoryError, ImportError)
"""Failures that can happen without a bug; every other exception is a bug. An import raises
ImportError when no descriptor is left to open an extension module.
"""


class BackgroundWork:
    """Logs and counts the failures of one broker's background work. Context: the broker's loop.

    Args:
        counters: the broker's counters.
        now: returns seconds on a monotonic clock.
        fatal: called with an exception that is a bug, if the environment variable
            `AIOKQ_FAIL_ON_BUGS` is 1.
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
        """Return a new `BackgroundTask` for one piece of work, such as loading one partition.

        Args:
            name: kind of the work. It is a label of a metric, so there must be few different names.
        """
        return BackgroundTask(self, name)

    def _failed(self, task: str, error: BaseException) -> None:
        bug = not isinstance(error, _EXPECTED)
        self._counters.background_failures[task] += 1
        level, times = self._warnings.note((task, type(error)))
        logger.log(
            logging.ERROR if bug and level >= logging.WARNING else level,
            "background task failed, and is retried: task=%r error=%s times=%d",
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
    """One piece of background work, with its own backoff between attempts."""

    __slots__ = ("_name", "_pause", "_work")

    def __init__(self, work: BackgroundWork, name: str) -> None:
        self._work = work
        self._name = name
        self._pause = FIRST_PAUSE

    def failed(self, error: BaseException) -> float:
        """Report a failure and return the seconds to wait before the next attempt.

        Raises:
            BaseException: `error`, if it is a bug and the environment variable `AIOKQ_FAIL_ON_BUGS`
                is 1.
        """
        self._work._failed(self._name, error)
        pause = self._pause
        self._pause = min(2 * pause, LONGEST_PAUSE)
        return pause

    def succeeded(self) -> None:
        """Reset the pause, because the work has succeeded."""
        self._pause = FIRST_PAUSE
