"""`StatusBoard`: the figures of the status page, and its HTML.

The page requests the figures about once a second, or every ten seconds while it is hidden. Rates
are computed here, from two snapshots, so that all open pages share the work.

Tests: tests/unit/gateway/test_status.py, tests/interop/test_gateway_status_page.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq import __version__
from aiokq.fastpath.gateway import REASONS
from aiokq.gateway.reports.cached import Cached
from aiokq.gateway.texts import path_text, text_of, visible

if TYPE_CHECKING:
    from aiokq.gateway.accounting import Snapshot, Totals
    from aiokq.gateway.reports.queues import Queues
    from aiokq.gateway.reports.windows import DiscardWindows
    from aiokq.gateway.served import Served

__all__ = ["SORTS", "StatusBoard", "page"]

LEAST_SECONDS: Final = 0.9
"""Minimum seconds between two snapshots from which rates are computed."""

MOST_SECONDS: Final = 30.0
"""Longest time over which rates are computed.

If the page was not open, the previous snapshot may be older than this; then no rates are shown.
"""

MOST_ROWS: Final = 200

SORTS: Final = (
    "topic",
    "received",
    "rate",
    "acked",
    "discarded",
    "dead_lettered",
    "in_flight",
    "duplicates",
)
"""The columns by which the topics can be sorted."""


class TopicRow(NamedTuple):
    """The figures of one topic; `rate` is in messages received per second."""

    topic: str
    received: int
    rate: float
    acked: int
    discarded: int
    dead_lettered: int
    in_flight: int
    duplicates: int


class _Point(NamedTuple):
    at: float
    snapshot: Snapshot


class _Figures(NamedTuple):
    rates: dict[str, float] | None
    rows: list[TopicRow]
    snapshot: Snapshot
    queues: dict[str, int]


class StatusBoard:
    """Makes the document of `/status/json`."""

    def __init__(
        self,
        gateway: Served,
        *,
        since: int,
        queues: Callable[[Snapshot], Queues],
        windows: DiscardWindows,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateway = gateway
        self._since = since
        self._queues = queues
        self._windows = windows
        self._clock = clock
        self._newer: _Point | None = None
        self._older: _Point | None = None
        self._figures = Cached(self._make_figures, clock=clock)

    def document(
        self, *, sort: str = "rate", ascending: bool = False, query: str = "", limit: int = 50
    ) -> dict[str, object]:
        """Return the figures, with the first topics whose names contain `query`.

        Args:
            sort: one of SORTS.
            limit: largest number of topics; a limit above MOST_ROWS counts as MOST_ROWS.
        """
        figures = self._figures.get()
        rows = figures.rows
        if query:
            rows = [row for row in rows if query in row.topic]
        at = SORTS.index(sort)
        rows = sorted(rows, key=lambda row: row.topic)
        rows.sort(key=lambda row: row[at], reverse=not ascending)
        total = figures.snapshot.total
        return {
            "version": __version__,
            "now": time.time(),
            "since": self._since,
            "engine": self._gateway.settings.delivery.engine,
            "totals": _totals(total),
            "rates": figures.rates,
            "discarded": {
                name: count for name, count in zip(REASONS, total.discarded, strict=True) if count
            },
            "queues": figures.queues,
            "pool": self._pool(figures.snapshot),
            "inputs": self._inputs(),
            "kafka": self._kafka(),
            "problems": self._gateway.problems()._asdict(),
            "bad_topics": [visible(text_of(name)) for name in self._windows.bad_topics()],
            "topics_known": len(figures.rows),
            "topics_found": len(rows),
            "topics": [row._asdict() for row in rows[: min(limit, MOST_ROWS)]],
        }

    def _make_figures(self) -> _Figures:
        now = self._clock()
        snapshot = self._gateway.snapshot()
        if self._newer is None or now - self._newer.at >= LEAST_SECONDS:
            self._older, self._newer = self._newer, _Point(now, snapshot)
        before = self._older
        span = 0.0 if before is None else now - before.at
        if before is None or span > MOST_SECONDS:
            rows = [_row(name, totals, 0.0) for name, totals in snapshot.topics.items()]
            return _Figures(None, rows, snapshot, self._in_queues(snapshot))
        old = before.snapshot
        rows = []
        for name, totals in snapshot.topics.items():
            known = old.topics.get(name)
            received = totals.received - (0 if known is None else known.received)
            rows.append(_row(name, totals, received / span))
        rates = {
            "received": (snapshot.total.received - old.total.received) / span,
            "acked": (snapshot.total.acked - old.total.acked) / span,
            "discarded": (sum(snapshot.total.discarded) - sum(old.total.discarded)) / span,
        }
        return _Figures(rates, rows, snapshot, self._in_queues(snapshot))

    def _in_queues(self, snapshot: Snapshot) -> dict[str, int]:
        queues = self._queues(snapshot)
        batch, send_wait, ack_wait = queues.totals()
        return {
            "new": queues.new,
            "batch": batch,
            "send_wait": send_wait,
            "ack_wait": ack_wait,
            "dead_letter": queues.dead_letter,
        }

    def _pool(self, snapshot: Snapshot) -> dict[str, int]:
        return {
            "used_bytes": snapshot.core.used_bytes,
            "max_bytes": self._gateway.pool.max_bytes,
        }

    def _inputs(self) -> list[dict[str, object]]:
        rows = []
        for one in self._gateway.inputs:
            counts = one.sums()
            rows.append(
                {
                    "type": one.type,
                    "address": path_text(one.where),
                    "received": counts.received,
                    "received_bytes": counts.received_bytes,
                    "connections": counts.connections,
                    "max_connections": one.socket.settings.max_connections,
                    "running": counts.running,
                }
            )
        return rows

    def _kafka(self) -> dict[str, object]:
        health = self._gateway.cluster.health()
        return {
            "brokers_up": len(health.brokers_up),
            "brokers_down": len(health.brokers_down),
            "error": health.metadata_error,
        }


def page() -> str:
    """Return the HTML of the status page, with `{{nonce}}` where the response's nonce belongs."""
    return resources.files("aiokq.gateway.reports").joinpath("status.html").read_text("utf-8")


def _totals(total: Totals) -> dict[str, int]:
    return {
        "received": total.received,
        "acked": total.acked,
        "discarded": sum(total.discarded),
        "dead_lettered": total.dead_lettered,
        "in_flight": total.in_flight,
        "possible_duplicates": total.possible_duplicates,
        "replayed": total.replayed,
    }


def _row(name: str, totals: Totals, rate: float) -> TopicRow:
    return TopicRow(
        name,
        totals.received,
        rate,
        totals.acked,
        sum(totals.discarded),
        totals.dead_lettered,
        totals.in_flight,
        totals.possible_duplicates,
    )
