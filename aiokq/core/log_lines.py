"""Log lines that cannot interrupt their caller, and limits on the number of similar lines.

A user's log handler may raise. Its exception must not interrupt a change of state. A failure that
concerns many objects is logged as a few lines and the number of lines left out.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Final

from aiokq.core.user_errors import INTERRUPTS

__all__ = ["BURST", "EVERY", "LineLimit", "OneLine", "TextLimit", "log_line", "stderr_handler"]

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

EVERY: Final = 60.0
"""Seconds between two lines about a cause that lasts, and the period to which `BURST` applies."""

BURST: Final = 4
"""Maximum number of lines about one cause in `EVERY` seconds; further lines are left out.

The limit is needed because a cause may end and recur often. For example, a broker that shuts down
closes all connections and may accept new ones before it exits.
"""


TEXT_BURST: Final = 200
"""Number of lines of one text that a `TextLimit` permits at once."""

TEXTS_PER_SECOND: Final = 1.0
"""Number of lines of one text that a `TextLimit` permits per second on average."""


class OneLine(logging.Formatter):
    """Formats a message as one line, with escapes in place of control characters.

    Messages contain texts of clients, such as group ids. With a line break in such a text, a client
    could add lines of its own to the log, for example to the audit log. Tracebacks keep their
    lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        if text.isprintable():
            return text
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
        )


def stderr_handler() -> logging.Handler:
    """Return a handler that writes to standard error, with time, level and logger name."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(FORMAT))
    return handler


def log_line(
    logger: logging.Logger,
    level: int,
    text: str,
    *args: object,
    exc_info: BaseException | None = None,
    extra: Mapping[str, object] | None = None,
) -> None:
    """Log a line; pass exceptions of handlers to the running loop's exception handler.

    Without a running loop such an exception is printed to stderr, as logging does with failures of
    its own handlers (``logging.raiseExceptions``). KeyboardInterrupt and SystemExit are raised.

    Context: any thread.
    """
    try:
        logger.log(level, text, *args, exc_info=exc_info, extra=extra, stacklevel=2)
    except INTERRUPTS:
        raise
    except BaseException as error:  # noqa: BLE001  reported to the loop
        message = f"a handler of the logger {logger.name!r} failed"
        loop = asyncio._get_running_loop()
        if loop is not None:
            loop.call_exception_handler({"message": message, "exception": error})
        elif logging.raiseExceptions and sys.stderr is not None:
            print(message, file=sys.stderr)
            traceback.print_exception(error)


class TextLimit(logging.Filter):
    """Limits the log lines that clients cause, separately for each text.

    Lines have the same text if they differ only in their arguments, such as the name of a group.
    The number of lines left out is in the next line with the text. If the level of the logger is
    DEBUG, nothing is left out.

    Args:
        now: returns seconds on a monotonic clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._texts: dict[str, tuple[float, float, int]] = {}
        """For each text: lines that may be written, the time of this count, and lines left out."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.msg
        if not isinstance(text, str) or logging.getLogger(record.name).isEnabledFor(logging.DEBUG):
            return True
        now = self._now()
        room, at, left_out = self._texts.get(text, (TEXT_BURST, now, 0))
        room = min(TEXT_BURST, room + (now - at) * TEXTS_PER_SECOND)
        if room < 1:
            self._texts[text] = room, now, left_out + 1
            return False
        self._texts[text] = room - 1, now, 0
        if left_out and isinstance(record.args, tuple):
            record.msg = f"{text} left_out=%d"
            record.args = (*record.args, left_out)
        return True


class LineLimit:
    """A limit on the number of lines that differ only in a name, such as that of a topic.

    The first `BURST` lines within `EVERY` seconds are logged. Further lines are logged at DEBUG and
    counted. After `EVERY` seconds, or when the owner calls `end`, the count is logged.

    Context: the event loop.

    Args:
        logger: logger of the lines.
        level: level of the lines.
        others: text of the line that reports how many lines were left out; `%d` is the number.
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
        """Log a line; if the limit is reached, log it at DEBUG and count it."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self.end)
        if self._written < BURST:
            self._written += 1
            log_line(self._logger, self._level, text, *args)
        else:
            self._left_out += 1
            log_line(self._logger, logging.DEBUG, text, *args)

    def end(self) -> None:
        """Log the number of lines left out, and set the counts to zero."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        left_out, self._written, self._left_out = self._left_out, 0, 0
        if left_out:
            log_line(self._logger, self._level, self._others, left_out)
