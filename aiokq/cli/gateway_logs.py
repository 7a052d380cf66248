"""Logs of `aiokq gateway`: levels, and a limit on lines that repeat.

Local programs cause many log lines of a gateway, for example by unknown topics or by records that
Kafka refuses. The limit prevents these lines from filling the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["RepeatedLines", "gateway_logs"]

EVERY: Final = 60.0
"""Seconds for which the number of similar lines is limited."""

MOST: Final = 10
"""Largest number of similar lines in `EVERY` seconds."""


class RepeatedLines(logging.Filter):
    """Limits the number of similar lines in a period; similar lines have the same text template.

    The first similar line after the period contains the number of dropped lines.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        template = str(record.msg)
        began, count = self._seen.get(template, (record.created, 0))
        if record.created - began >= EVERY:
            if count > MOST:
                record.msg = f"{record.msg} (and {count - MOST} similar lines in the last minute)"
            began, count = record.created, 0
        if template not in self._seen and len(self._seen) >= 1000:
            self._seen.clear()
        self._seen[template] = began, count + 1
        return count < MOST


@contextmanager
def gateway_logs() -> Iterator[None]:
    """Log at least warnings of the client and changes of state of the gateway.

    With --verbose more may be logged. `RepeatedLines` limits the lines in any case.
    """
    logger, own = logging.getLogger("aiokq"), logging.getLogger("aiokq.gateway")
    before = logger.level, own.level
    limit = RepeatedLines()
    handlers = list(logger.handlers)
    for handler in handlers:
        handler.addFilter(limit)
    logger.setLevel(min(logger.level, logging.WARNING))
    own.setLevel(min(logger.level, logging.INFO))
    try:
        yield
    finally:
        logger.setLevel(before[0])
        own.setLevel(before[1])
        for handler in handlers:
            handler.removeFilter(limit)
