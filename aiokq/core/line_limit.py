"""Owns what is logged of one trouble that many things may have: a few lines, and a number."""

from __future__ import annotations

import asyncio
import logging

from aiokq.core.outages import BURST, EVERY

__all__ = ["LineLimit"]


class LineLimit:
    """Lines that differ in one name, of which there may be thousands.

    The first four of a minute are written. The others are counted, and told in one line at the end
    of that minute, or of the owner.

    Context: loop.

    Args:
        logger: where the lines go.
        level: theirs.
        others: the text of the line that counts the others; `%d` stands for their number.
    """

    __slots__ = ("_left_out", "_level", "_logger", "_others", "_timer", "_written")

    def __init__(self, logger: logging.Logger, level: int, others: str) -> None:
        self._logger = logger
        self._level = level
        self._others = others
        self._written = 0
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def write(self, text: str, *args: object) -> None:
        """A line, or one more to count."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self.end)
        if self._written < BURST:
            self._written += 1
            self._logger.log(self._level, text, *args)
        else:
            self._left_out += 1
            self._logger.debug(text, *args)

    def end(self) -> None:
        """The minute is over, or the owner ends: tells how many were left out."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        left_out, self._written, self._left_out = self._left_out, 0, 0
        if left_out:
            self._logger.log(self._level, self._others, left_out)
