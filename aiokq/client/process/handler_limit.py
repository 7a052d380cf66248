"""HandlerLimit: limits the time that the handlers of a transaction may take."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from aiokq.client.process.options import HANDLER_SHARE
from aiokq.core.errors import RequestTimeout, TransactionAborted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aiokq.client.process.commits import Commits
    from aiokq.client.process.options import ProcessOptions
    from aiokq.client.process.results import Results

__all__ = ["HandlerLimit"]

logger = logging.getLogger("aiokq.client")

MAX_SUSPENSIONS: Final = 3
"""After a commit, suspensions up to this number only abort the transaction.

Further suspensions end `process()`, because a handler that holds the GIL for long looks like a
suspension.
"""


class HandlerLimit:
    """Cancels handlers when their transaction takes too long, or has to be aborted.

    Args:
        suspended: called with the length in seconds of a period that ends now; returns for how
            many seconds of this period the whole process was suspended.
    """

    def __init__(
        self,
        options: ProcessOptions,
        commits: Commits,
        results: Results,
        suspended: Callable[[float], float],
    ) -> None:
        self._options = options
        self._commits = commits
        self._results = results
        self._suspended = suspended
        self._timeout: asyncio.Timeout | None = None
        self._excused = (0, 0)
        """Number of commits at the last suspension, and number of suspensions, up to that one,
        without a commit between them."""

    def end(self) -> None:
        """Cancel the handlers, because the transaction has to be aborted."""
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    @contextlib.asynccontextmanager
    async def over(self) -> AsyncGenerator[None]:
        """Limit the time of a block that calls handlers; no limit with `at_least_once`.

        Raises:
            RequestTimeout: the handlers took longer than `HANDLER_SHARE` of the transaction
                timeout.
            TransactionAborted: the transaction has to be aborted, possibly because the process was
                suspended.
        """
        until = None
        if self._options.guarantee == "exactly_once":
            until = self._since + self._share
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self._timeout = limit
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._check_suspended()
            raise self._overdue() from error
        finally:
            self._timeout = None
        # A handler that blocks the loop is not cancelled, and may end long after the limit.
        if until is not None and asyncio.get_running_loop().time() >= until:
            self._check_suspended()
            raise self._overdue()

    @property
    def _since(self) -> float:
        """The loop's time at which the limit begins.

        Handlers may be called before the transaction has begun. The limit then begins together with
        the transaction.
        """
        return max(self._commits.opened_at, self._commits.begun_at)

    @property
    def _share(self) -> float:
        """The seconds that the handlers of a transaction may take."""
        return self._options.transaction_timeout_ms / 1000 * HANDLER_SHARE

    def _check_suspended(self) -> None:
        """Raise TransactionAborted if handlers are late only because the process was suspended.

        The transaction is then aborted, and its records are handled again. After `MAX_SUSPENSIONS`
        such transactions without a commit between them, the method returns, and the caller raises
        RequestTimeout.

        Raises:
            TransactionAborted: see above; or the transaction has to be aborted anyway.
            ProducerFenced: see `Commits.check`.
        """
        commits = self._commits
        commits.check()
        passed = asyncio.get_running_loop().time() - self._since
        suspended = self._suspended(passed)
        if passed - suspended >= self._share:
            return
        done, times = self._excused
        times = times + 1 if done == commits.commits else 1
        self._excused = (commits.commits, times)
        if times <= MAX_SUSPENSIONS:
            logger.warning("process was suspended during a transaction: seconds=%.1f", suspended)
            raise TransactionAborted("the process was suspended during the transaction")

    def _overdue(self) -> RequestTimeout:
        topic = self._results.waits_for
        doing = "the handlers of a transaction took"
        if topic is not None:
            doing = f"results for {topic!r} waited for room in the buffer, or for its metadata,"
        return RequestTimeout(
            f"{doing} longer than {HANDLER_SHARE:.0%} of transaction_timeout_ms="
            f"{self._options.transaction_timeout_ms}: raise it, or do less in the handler"
        )
