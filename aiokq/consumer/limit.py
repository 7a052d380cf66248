"""Owns the time limit of a call, whose end is a RequestTimeout that says what was waited for."""

from __future__ import annotations

import asyncio
from types import TracebackType

from aiokq.core.errors import RequestTimeout

__all__ = ["Limit"]


class Limit:
    """`asyncio.timeout`, with words.

    Args:
        seconds: the limit.
        what: is waited for.
    """

    def __init__(self, seconds: float, what: str) -> None:
        self._seconds = seconds
        self._what = what
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
            raise RequestTimeout(f"{self._what} was not known within {self._seconds:.3g} s") from (
                ended
            )
