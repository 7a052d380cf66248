"""Owns the time limit of a call, whose end is an error that says what was in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from aiokq.core.errors import KafkaError

__all__ = ["TimeLimit"]


class TimeLimit:
    """`asyncio.timeout`, with words.

    Args:
        seconds: the limit.
        overdue: gives the error to raise when it is reached, from the seconds.
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
