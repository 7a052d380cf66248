"""TimeLimit: a timeout for which the caller chooses the error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from aiokq.core.errors import KafkaError

__all__ = ["TimeLimit"]


class TimeLimit:
    """An `asyncio.timeout` that raises an error of the caller's choice.

    Args:
        seconds: how long the block may take.
        overdue: called with the limit; returns the error to raise when the limit is reached.
    """

    def __init__(self, seconds: float, overdue: Callable[[float], KafkaError]) -> None:
        self._seconds = seconds
        self._overdue = overdue
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as ended:
            overdue = self._overdue(self._seconds)
            raise overdue from (overdue.__cause__ or ended)
