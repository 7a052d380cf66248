"""HandlerLimit: limits the time that the handlers of a transaction may take."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiokq.client.process.options import HANDLER_SHARE
from aiokq.core.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from aiokq.client.process.commits import Commits
    from aiokq.client.process.options import ProcessOptions
    from aiokq.client.process.results import Results

__all__ = ["HandlerLimit"]


class HandlerLimit:
    """Cancels handlers when their transaction takes too long, or has to be aborted."""

    def __init__(self, options: ProcessOptions, commits: Commits, results: Results) -> None:
        self._options = options
        self._commits = commits
        self._results = results
        self._timeout: asyncio.Timeout | None = None

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
            TransactionAborted: the transaction has to be aborted.
        """
        until = None
        if self._options.guarantee == "exactly_once":
            share = self._options.transaction_timeout_ms / 1000 * HANDLER_SHARE
            until = self._commits.opened_at + share
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self._timeout = limit
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._commits.check()
            raise self._overdue() from error
        finally:
            self._timeout = None
        # A handler that blocks the loop is not cancelled, and may end long after the limit.
        if until is not None and asyncio.get_running_loop().time() >= until:
            self._commits.check()
            raise self._overdue()

    def _overdue(self) -> RequestTimeout:
        topic = self._results.waits_for
        doing = "the handlers of a transaction took"
        if topic is not None:
            doing = f"results for {topic!r} waited for room in the buffer, or for its metadata,"
        return RequestTimeout(
            f"{doing} longer than {HANDLER_SHARE:.0%} of transaction_timeout_ms="
            f"{self._options.transaction_timeout_ms}: raise it, or do less in the handler"
        )
