"""`Audit`: the log of denied operations, failed logins, and changes by administrators.

The changes are those of ACLs, users, quotas and the levels of loggers.

The loggers are ``aiokq.audit.denial``, ``aiokq.audit.login`` and ``aiokq.audit.change``. A line
names its fields, as in ``operation denied: principal=User:alice host=127.0.0.1 ...``. The attribute
``audit`` of the log record has the same fields as a dict, for handlers that write JSON.

A client must not be able to fill a disk with log lines, or to keep lines about other clients out of
the log. Therefore equal lines are logged once in `REPEAT_SECONDS`, and each client (a principal at
an address) has a limit of its own. Each logger writes at most `LINES_PER_SECOND` lines per second
on average, and `FIRST_LINES_PER_SECOND` more about clients without a line in the last
`QUIET_SECONDS`. Lines that are not written are counted by client. The logger of changes has none of
these limits: it logs every change, because only administrators can make changes. No record,
password or token is logged, and no value of a setting except the levels of loggers.

Source: Kafka's ``kafka.authorizer.logger``.
Tests: ``tests/unit/broker/security/test_audit.py``.
"""

from __future__ import annotations

import json
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.connection.strangers import network_of
from aiokq.core.log_lines import log_line
from aiokq.wire import API_NAMES

if TYPE_CHECKING:
    from aiokq.broker.permissions import Operation, ResourceType
    from aiokq.connection.request_context import RequestContext

__all__ = ["Audit"]

REPEAT_SECONDS: Final = 60.0
"""Minimum number of seconds between two equal lines."""

LINES_PER_SECOND: Final = 10.0
BURST: Final = 100.0
"""Number of lines that a logger may write at once, if it has been quiet."""

FIRST_LINES_PER_SECOND: Final = 5.0
FIRST_LINES_BURST: Final = 50.0
"""Number of lines about quiet clients that a logger may write at once, in addition to `BURST`."""

QUIET_SECONDS: Final = 10.0
"""Seconds without a line about a client after which the client counts as quiet.

The limit `FIRST_LINES_PER_SECOND` is for lines about clients that have been quiet.
"""

CLIENT_LINES_PER_SECOND: Final = 2.0
CLIENT_BURST: Final = 20.0
"""Number of lines about one client that a logger may write at once."""

MOST_CLIENTS: Final = 256
MOST_KEYS: Final = 64
"""Number of different lines of a client that are remembered, to recognize equal ones."""

MOST_SUMMARIES: Final = 10
"""Maximum number of clients that are named in a report about lines that were left out.

A report is written once in `REPEAT_SECONDS`.
"""

LONGEST_VALUE: Final = 256
"""Number of characters of a value that are logged. A client may choose long names."""

MOST_ITEMS: Final = 100
"""Number of changes of one request that get a line each.

Each further line lists up to this number of changes.
"""


class _Bucket:
    """A token bucket: the number of lines that may be written now."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, burst: float, rate: float, now: float) -> None:
        self._burst = self._left = burst
        self._rate = rate
        self._at = now

    def has(self, now: float) -> bool:
        """Return whether a line may be written."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        return self._left >= 1

    def take(self) -> None:
        """Count a line that is written."""
        self._left -= 1


_Client: TypeAlias = tuple[str, str]
"""A principal ("" before the login) and its address, or the /64 network of an IPv6 address."""


class _Share:
    """The limit and the counts of the lines about one client.

    Attributes:
        bucket: the limit of the lines.
        known: for each remembered line, the monotonic time at which it was written, and how often
            it has occurred since.
        left_out: number of lines that the limits kept out and that no line has reported yet.
            Repetitions of a known line do not count.
        written: monotonic time of the last line that was written, in seconds.
    """

    __slots__ = ("bucket", "known", "left_out", "written")

    def __init__(self, now: float) -> None:
        self.bucket = _Bucket(CLIENT_BURST, CLIENT_LINES_PER_SECOND, now)
        self.known: OrderedDict[object, tuple[float, int]] = OrderedDict()
        self.left_out = 0
        self.written = -QUIET_SECONDS


class _Limit:
    """Decides which lines of a logger are written."""

    __slots__ = ("_clients", "_common", "_first", "_forgotten", "_summed_at")

    def __init__(self, now: float) -> None:
        self._common = _Bucket(BURST, LINES_PER_SECOND, now)
        self._first = _Bucket(FIRST_LINES_BURST, FIRST_LINES_PER_SECOND, now)
        self._clients: OrderedDict[_Client, _Share] = OrderedDict()
        self._forgotten = 0
        """Number of left out lines about clients that are no longer remembered."""
        self._summed_at = now

    def admit(self, client: _Client, key: object, now: float) -> tuple[int, int]:
        """Decide whether a line about a client is written.

        Returns:
            (0, 0) if the line must not be written now. Otherwise two numbers:

            - how often this line has occurred since it was last written, including this time.
              Occurrences that a limit kept out do not count.
            - how many lines about the client a limit has kept out since a line or a summary last
              reported this number. Earlier occurrences of this line count, too.
        """
        share = self._share(client, now)
        written, count = share.known.get(key, (now - REPEAT_SECONDS, 0))
        count += 1
        if now - written < REPEAT_SECONDS:
            share.known[key] = written, count
            return 0, 0
        is_first = now - share.written >= QUIET_SECONDS
        bucket = self._first if is_first and not self._common.has(now) else self._common
        if not bucket.has(now) or not share.bucket.has(now):
            share.left_out += 1
            return 0, 0
        bucket.take()
        share.bucket.take()
        share.written = now
        share.known[key] = now, 0
        share.known.move_to_end(key)
        if len(share.known) > MOST_KEYS:
            share.known.popitem(last=False)
        left_out, share.left_out = share.left_out, 0
        return count, left_out

    def summaries(self, now: float) -> list[dict[str, str | int]]:
        """Return and reset the numbers of lines that were left out.

        The result is empty if the last summaries were made less than `REPEAT_SECONDS` ago. At most
        `MOST_SUMMARIES` clients are named; the lines about all others are added up.
        """
        if now - self._summed_at < REPEAT_SECONDS:
            return []
        self._summed_at = now
        silent = [(share.left_out, client) for client, share in self._clients.items()]
        silent = sorted((each for each in silent if each[0]), reverse=True)
        found: list[dict[str, str | int]] = [
            {"principal": principal, "host": host, "left_out": count}
            for count, (principal, host) in silent[:MOST_SUMMARIES]
        ]
        others = self._forgotten + sum(count for count, _ in silent[MOST_SUMMARIES:])
        if others:
            found.append({"principal": "others", "host": "others", "left_out": others})
        for _, client in silent:
            self._clients[client].left_out = 0
        self._forgotten = 0
        return found

    def _share(self, client: _Client, now: float) -> _Share:
        share = self._clients.get(client)
        if share is None:
            share = self._clients[client] = _Share(now)
            if len(self._clients) > MOST_CLIENTS:
                _, oldest = self._clients.popitem(last=False)
                self._forgotten += oldest.left_out
        self._clients.move_to_end(client)
        return share


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
        """Log that an operation on a resource was denied to a client."""
        # Cut, because `_Limit` remembers it after the connection has ended.
        principal, host = _cut(str(connection.session.principal)), connection.peer_host
        self._write(
            self._denial,
            logging.INFO,
            "operation denied",
            (principal, _network(host)),
            principal=principal,
            host=host,
            listener=connection.listener,
            api=API_NAMES.get(api_key, str(api_key)),
            operation=operation.name,
            resource=f"{resource_type.name}:{_cut(name)}",
        )

    def login_failed(self, connection: RequestContext, mechanism: str, reason: str) -> None:
        """Log a failed authentication.

        Args:
            reason: the cause of the failure, without any part of the credentials.
        """
        self._write(
            self._login,
            logging.WARNING,
            "login failed",
            ("", _network(connection.peer_host)),
            host=connection.peer_host,
            listener=connection.listener,
            mechanism=mechanism,
            reason=reason,
        )

    def changed(self, connection: RequestContext, what: str, items: Iterable[str]) -> None:
        """Log changes of ACLs, users, quotas or levels of loggers, and who made them.

        Args:
            what: the kind of change, such as "ACL created".
            items: each change, as text without secrets.
        """
        rest = iter(items)
        fields = _of_change(connection)
        for item in islice(rest, MOST_ITEMS):
            self._log(self._change, logging.INFO, what, {**fields, "item": item})
        while more := list(islice(rest, MOST_ITEMS)):
            self.changed_also(connection, what, more)

    def changed_also(self, connection: RequestContext, what: str, items: Collection[str]) -> None:
        """Log further changes of a request in one line; see `changed`."""
        fields = _of_change(connection)
        some = [_cut(item) for item in items]
        self._log(self._change, logging.INFO, what, {**fields, "items": some})

    def _write(
        self,
        logger: logging.Logger,
        level: int,
        event: str,
        client: _Client,
        **fields: str | int | list[str],
    ) -> None:
        """Log a line if the limits of the logger and of the client allow it."""
        if not logger.isEnabledFor(level):
            return
        now = self._now()
        limit = self._limits.get(logger.name)
        if limit is None:
            limit = self._limits[logger.name] = _Limit(now)
        for summary in limit.summaries(now):
            self._log(logger, level, "lines left out", {**summary})
        times, left_out = limit.admit(client, (event, *fields.values()), now)
        if not times:
            return
        if times > 1:
            fields["times"] = times
        if left_out:
            fields["left_out"] = left_out
        self._log(logger, level, event, fields)

    @staticmethod
    def _log(
        logger: logging.Logger, level: int, event: str, fields: dict[str, str | int | list[str]]
    ) -> None:
        text = " ".join(f"{name}={_shown(value)}" for name, value in fields.items())
        log_line(logger, level, "%s: %s", event, text, extra={"audit": {"event": event, **fields}})


def _of_change(connection: RequestContext) -> dict[str, str | int | list[str]]:
    return {
        "principal": str(connection.session.principal),
        "host": connection.peer_host,
        "listener": connection.listener,
    }


def _network(host: str) -> str:
    network = network_of(host)
    if isinstance(network, str):
        return network
    return f"{socket.inet_ntop(socket.AF_INET6, network + bytes(8))}/64"


def _cut(value: str) -> str:
    return f"{value[:LONGEST_VALUE]}..." if len(value) > LONGEST_VALUE else value


def _shown(value: str | int | list[str]) -> str:
    """Return a value on one line; in quotes if it has spaces or unusual characters."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return json.dumps(value)
    if len(value) > LONGEST_VALUE + len("..."):
        value = _cut(value)
    if value and value.isascii() and value.isprintable() and " " not in value:
        return value
    return json.dumps(value)
