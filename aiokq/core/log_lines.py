"""Owns how a log line is written in the middle of a change, and how few of a kind are.

The handlers of the standard library report their own failures; handlers of users may raise, and
that must not break the change. Trouble that many things may have is a few lines and a number.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from typing import Final

from aiokq.core.user_errors import INTERRUPTS

__all__ = ["BURST", "EVERY", "LineLimit", "log_line"]

EVERY: Final = 60.0
"""Seconds between two lines about the same cause while it lasts."""

BURST: Final = 4
"""Lines about the same cause within `EVERY` seconds, however often it comes and goes. A broker that
is stopped closes its connections, may take new ones for a moment, and is gone then."""


def log_line(
    logger: logging.Logger,
    level: int,
    text: str,
    *args: object,
    exc_info: BaseException | None = None,
) -> None:
    """Log a line. What a handler raises goes to the running loop's exception handler.

    Without a running loop it is printed to stderr, as logging does with failures of its own
    handlers (``logging.raiseExceptions``).

    Context: any thread.
    """
    try:
        logger.log(level, text, *args, exc_info=exc_info, stacklevel=2)
    except INTERRUPTS:
        raise
    except BaseException as error:  # noqa: BLE001  told to the loop
        message = f"a handler of the logger {logger.name!r} failed"
        loop = asyncio._get_running_loop()
        if loop is not None:
            loop.call_exception_handler({"message": message, "exception": error})
        elif logging.raiseExceptions and sys.stderr is not None:
            print(message, file=sys.stderr)
            traceback.print_exception(error)


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
            log_line(self._logger, self._level, text, *args)
        else:
            self._left_out += 1
            log_line(self._logger, logging.DEBUG, text, *args)

    def end(self) -> None:
        """The minute is over, or the owner ends: tells how many were left out."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        left_out, self._written, self._left_out = self._left_out, 0, 0
        if left_out:
            log_line(self._logger, self._level, self._others, left_out)
