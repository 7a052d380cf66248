"""`Audit`: the log of what clients were denied, of failed logins, and of changes to security.

There are three loggers: ``aiokq.audit.denial``, ``aiokq.audit.login`` and ``aiokq.audit.change``. A
line names its fields, as in ``operation denied: principal=User:alice host=127.0.0.1 ...``. The same
fields are in the attribute ``audit`` of the log record, as a dict, for handlers that write JSON.

A client must not be able to fill a disk with log lines: equal lines are logged once in
`REPEAT_SECONDS`, and each logger writes at most `LINES_PER_SECOND` on average. Lines left out are
counted in the next line. No record, password, token or value of a setting is logged.

Source: Kafka's ``kafka.authorizer.logger``.
Tests: ``tests/unit/broker/security/test_audit.py``.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from aiokq.core.log_lines import log_line
from aiokq.wire import API_NAMES

if TYPE_CHECKING:
    from aiokq.broker.permissions import Operation, ResourceType
    from aiokq.connection.request_context import RequestContext

__all__ = ["Audit"]

REPEAT_SECONDS: Final = 60.0
"""Seconds after a line before an equal line is logged again."""

LINES_PER_SECOND: Final = 10.0
BURST: Final = 100.0
"""Number of lines that a logger may write at once, if it has been quiet."""

MOST_KEYS: Final = 1024
"""Number of different lines that are remembered, to recognize equal ones."""

LONGEST_VALUE: Final = 256
"""Number of characters of a value that are logged. A client may choose long names."""

MOST_ITEMS: Final = 100
"""Number of changes of one request that are logged one by one."""


class _Limit:
    """Decides which lines of a logger are written."""

    __slots__ = ("_at", "_known", "_left", "left_out")

    def __init__(self) -> None:
        self._left = BURST
        self._at = 0.0
        self._known: OrderedDict[object, tuple[float, int]] = OrderedDict()
        self.left_out = 0
        """Lines left out since the last line, because there were too many different ones."""

    def times(self, key: object, now: float) -> int:
        """Return how often the line has occurred since it was written last; 0 to leave it out."""
        written, count = self._known.get(key, (-REPEAT_SECONDS, 0))
        count += 1
        if now - written < REPEAT_SECONDS:
            self._known[key] = written, count
            return 0
        self._left = min(BURST, self._left + (now - self._at) * LINES_PER_SECOND)
        self._at = now
        if self._left < 1:
            self.left_out += 1
            return 0
        self._left -= 1
        self._known[key] = now, 0
        self._known.move_to_end(key)
        if len(self._known) > MOST_KEYS:
            self._known.popitem(last=False)
        return count


class Audit:
    """The audit log of one node. Implements `gate.Audit`.

    Args:
        now: returns seconds on a monotonic clock.
    """

    __slots__ = ("_change", "_denial", "_limits", "_login", "_now")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._denial = logging.getLogger("aiokq.audit.denial")
        self._login = logging.getLogger("aiokq.audit.login")
        self._change = logging.getLogger("aiokq.audit.change")
        self._limits: dict[str, _Limit] = {}

    def denied(
        self,
        connection: RequestContext,
        api_key: int,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Log that a client named a resource on which it lacks a permission."""
        self._write(
            self._denial,
            logging.INFO,
            "operation denied",
            principal=str(connection.session.principal),
            host=connection.peer_host,
            listener=connection.listener,
            api=API_NAMES.get(api_key, str(api_key)),
            operation=operation.name,
            resource=f"{resource_type.name}:{name}",
        )

    def login_failed(self, connection: RequestContext, mechanism: str, reason: str) -> None:
        """Log a failed authentication.

        Args:
            reason: why, without any part of the credentials.
        """
        self._write(
            self._login,
            logging.WARNING,
            "login failed",
            host=connection.peer_host,
            listener=connection.listener,
            mechanism=mechanism,
            reason=reason,
        )

    def changed(self, connection: RequestContext, what: str, items: Iterable[str]) -> None:
        """Log changes of ACLs, users or quotas, and who made them.

        Args:
            what: the kind of change, such as "ACL created".
            items: each change, as text without secrets.
        """
        rest = iter(items)
        principal, host = str(connection.session.principal), connection.peer_host
        fields = {"principal": principal, "host": host, "listener": connection.listener}
        for item in islice(rest, MOST_ITEMS):
            self._log(self._change, logging.INFO, what, {**fields, "item": item})
        more = sum(1 for _ in rest)
        if more:
            self._log(self._change, logging.INFO, what, {**fields, "more": more})

    def _write(self, logger: logging.Logger, level: int, event: str, **fields: str | int) -> None:
        """Log a line if the limit of the logger allows it."""
        if not logger.isEnabledFor(level):
            return
        limit = self._limits.setdefault(logger.name, _Limit())
        times = limit.times((event, *fields.values()), self._now())
        if not times:
            return
        if times > 1:
            fields["times"] = times
        if limit.left_out:
            fields["left_out"], limit.left_out = limit.left_out, 0
        self._log(logger, level, event, fields)

    @staticmethod
    def _log(logger: logging.Logger, level: int, event: str, fields: dict[str, str | int]) -> None:
        text = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        log_line(logger, level, "%s: %s", event, text, extra={"audit": {"event": event, **fields}})


def _shown(value: str | int) -> str:
    """Return a value on one line; in quotes if it has spaces or unusual characters."""
    if isinstance(value, int):
        return str(value)
    if len(value) > LONGEST_VALUE:
        value = f"{value[:LONGEST_VALUE]}..."
    if value and value.isascii() and value.isprintable() and " " not in value:
        return value
    return json.dumps(value)
