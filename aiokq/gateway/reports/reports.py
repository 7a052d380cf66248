"""`Reports`: owns the data and files of a gateway's reports, and updates them with outcomes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from aiokq import __version__
from aiokq.fastpath.gateway import REASONS
from aiokq.gateway.reports.cached import Cached
from aiokq.gateway.reports.counters import ClientCounts, CounterSource, counter_values
from aiokq.gateway.reports.debug_files import DebugFiles
from aiokq.gateway.reports.discard_log import DiscardLog
from aiokq.gateway.reports.discards import discard_document, discard_lines
from aiokq.gateway.reports.log_file import LogFile
from aiokq.gateway.reports.metadata_times import MetadataTimes
from aiokq.gateway.reports.problems import problems
from aiokq.gateway.reports.queues import Queues, queues
from aiokq.gateway.reports.scribe import Scribe
from aiokq.gateway.reports.status import StatusBoard
from aiokq.gateway.reports.windows import DiscardWindows, UncleanDisconnects
from aiokq.gateway.texts import when

if TYPE_CHECKING:
    from aiokq.gateway.accounting import Snapshot
    from aiokq.gateway.engine import TopicState
    from aiokq.gateway.served import Problems, Served

__all__ = ["Reports"]

logger = logging.getLogger("aiokq.gateway")

POLL_SECONDS: Final = 1.0
LOG_SECONDS: Final = 30.0
"""Minimum seconds between two lines that the process logs about discards."""


class Reports:
    """The reports of a gateway. All methods are called on the loop.

    Attributes:
        http: number of HTTP requests by kind, for the counter report.
        bodies: the reports without parameters, by path.
        discard_bodies: the discard reports for requests without `earlier`, by path.
        log: the discard log; None if there is none.
        debug: the message debug files.
    """

    def __init__(self, gateway: Served) -> None:
        settings = gateway.settings
        self._gateway = gateway
        self._timer: asyncio.TimerHandle | None = None
        self.since = int(time.time())
        self.http: dict[str, int] = {}
        self.scribe = Scribe()
        self._displaced = _Displaced(gateway)
        self._metadata_failed = False
        self._metadata_failures = 0
        self._logged_at = -LOG_SECONDS
        self._logged = [0] * len(REASONS)
        self._displaced_logged_at = -LOG_SECONDS
        self.windows = DiscardWindows(
            gateway.accounting,
            gateway.pool,
            unclean=self._unclean,
            interval=settings.discards.report_interval_s,
            now=time.monotonic,
            started_at=self.since,
        )
        self.metadata_times = MetadataTimes(gateway.cluster, _now_ms)
        self._cluster, self._engine = gateway.cluster, gateway.engine
        self._earlier_client = ClientCounts()
        """Counts of the clients that a reload has replaced."""
        self._earlier_pauses = 0, 0
        self.debug = DebugFiles(
            settings.debug.directory,
            self.scribe,
            time_limit=settings.debug.time_limit_s,
            byte_limit=settings.debug.max_bytes,
            now=time.monotonic,
            now_ms=_now_ms,
        )
        self.debug.on_change = self._trace_all
        self.log: DiscardLog | None = None
        if settings.discards.log_path is not None:
            self.log = self._new_log(settings.discards.log_path)
        self.status = StatusBoard(
            gateway, since=self.since, queues=self.queues, windows=self.windows
        )
        self.bodies: dict[str, Cached[bytes]] = {
            path: Cached(make) for path, make in self._makers().items()
        }
        self.discard_bodies = {
            "/discards/json": Cached(self.discards),
            "/discards/plain": Cached(self.discards_text),
        }
        gateway.accounting.on_registered.append(self._trace)

    def start(self) -> None:
        """Begin to watch the windows and the metadata, on the running loop."""
        self._tick()

    def switched(self) -> None:
        """Use the gateway's new Cluster or engine; the counts of the old ones are kept."""
        cluster, engine = self._cluster, self._engine
        if cluster is not self._gateway.cluster:
            self._cluster = self._gateway.cluster
            self._earlier_client = self._earlier_client.plus(ClientCounts.of(cluster))
            self.metadata_times.use(self._cluster)
        if engine is not self._gateway.engine:
            self._engine = self._gateway.engine
            self._earlier_pauses = _sum(self._earlier_pauses, engine.pauses)

    async def close(self, seconds: float) -> None:
        """Write the queued lines of the log files, as `Scribe.close`. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
        await self.scribe.close(seconds)

    # ------------------------------------------------------------ reports

    def discards(self, *, earlier: int = 0) -> bytes:
        """Return `/discards/json`, with up to `earlier` reports before the last finished one."""
        return _json(self._discards(earlier))

    def discards_text(self, *, earlier: int = 0) -> bytes:
        """Return `/discards/plain`, with `earlier` as in `discards`."""
        windows = self.windows
        unfinished = windows.unfinished()
        finished = [*windows.finished]

        def lines() -> Iterator[str]:
            yield from self._head()
            yield f"report interval in seconds: {windows.interval}"
            yield ""
            yield "current (unfinished) reporting period:"
            yield from discard_lines(unfinished)
            if finished:
                yield ""
                yield "latest finished reporting period:"
                yield from discard_lines(finished[-1])
            for report in reversed(finished[max(0, len(finished) - 1 - earlier) : -1]):
                yield ""
                yield "earlier reporting period:"
                yield from discard_lines(report)

        return _text(lines())

    def measures(
        self, snapshot: Snapshot
    ) -> Iterator[tuple[str, list[tuple[tuple[str, ...], float]]]]:
        """Yield the metrics of queues, log and readiness: names with samples."""
        found = self.queues(snapshot)
        states = zip(("batch", "send_wait", "ack_wait"), found.totals(), strict=True)
        yield (
            "queued",
            [
                (("new",), found.new),
                *(((state,), count) for state, count in states),
                (("dead_letter",), found.dead_letter),
            ],
        )
        log = self.log
        yield "discard_log_lines", [((), 0 if log is None else log.file.written)]
        dropped = 0
        if log is not None:
            dropped = log.dropped + log.file.dropped + snapshot.core.refused_lost
        yield "discard_log_dropped", [((), dropped)]
        yield "ready", [((), float(not self.problems().reasons))]
        yield "reload_failed", [((), float(self._gateway.reload_error is not None))]

    def problems(self) -> Problems:
        """Return the reasons why no messages are accepted, and the warnings."""
        found = problems(self._gateway)
        if self.log is not None and self.log.file.error is not None:
            found.warnings.append(f"the discard log cannot be written: {self.log.file.error}")
        return found

    def queues(self, snapshot: Snapshot | None = None) -> Queues:
        """Return the numbers of messages without an outcome, by topic and state.

        Args:
            snapshot: the counts of this iteration of the loop; None to take new counts.
        """
        accounting = self._gateway.accounting
        if snapshot is None:
            core, waiting = accounting.in_pool()
        else:
            core, waiting = snapshot.core, snapshot.waiting
        letters = self._gateway.dead_letters
        found = queues(
            core,
            accounting.names,
            self._gateway.engine.held(),
            letters.held,
            letters.held_of,
        )
        return found._replace(new=found.new + waiting)

    def _makers(self) -> dict[str, Callable[[], bytes]]:
        """Return the functions that make the reports without parameters, by path."""
        return {
            "/server_info/plain": lambda: _text(self._head()),
            "/server_info/json": lambda: _json(self._envelope()),
            "/counters/plain": self._counters_text,
            "/counters/json": self._counters_json,
            "/queues/plain": self._queues_text,
            "/queues/json": self._queues_json,
            "/metadata_fetch_time/plain": self._metadata_text,
            "/metadata_fetch_time/json": self._metadata_json,
            "/accounting/json": lambda: _json(self._gateway.snapshot().document()),
        }

    def _envelope(self, now: int | None = None) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "version": __version__,
            "since": self.since,
            "now": int(time.time()) if now is None else now,
        }

    def _head(self) -> Iterator[str]:
        yield f"pid: {os.getpid()}"
        yield f"version: {__version__}"
        yield f"since: {when(self.since)}"
        yield f"now: {when(time.time())}"

    def _discards(self, earlier: int) -> dict[str, object]:
        windows = self.windows
        document = self._envelope()
        document["interval"] = windows.interval
        document["unfinished_report"] = discard_document(windows.unfinished())
        finished = [*windows.finished]
        if finished:
            document["finished_report"] = discard_document(finished[-1])
        if earlier:
            document["earlier_reports"] = [
                discard_document(report)
                for report in reversed(finished[max(0, len(finished) - 1 - earlier) : -1])
            ]
        return document

    def _counters_json(self) -> bytes:
        counters = [
            {"location": counter.location, "name": counter.name, "value": value}
            for counter, value in counter_values(self.counter_source())
        ]
        return _json({**self._envelope(), "counters": counters})

    def _counters_text(self) -> bytes:
        values = (
            f"{counter.location}.{counter.name}={value}"
            for counter, value in counter_values(self.counter_source())
        )
        return _text([*self._head(), "", *values])

    def _queues_json(self) -> bytes:
        envelope = json.dumps(self._envelope())
        return f"{envelope[:-1]}, {self.queues().json()}}}\n".encode()

    def _queues_text(self) -> bytes:
        return _text([*self._head(), "", *self.queues().lines()])

    def _metadata_json(self) -> bytes:
        times = self.metadata_times
        times.poll()
        document = self._envelope(now=_now_ms())
        document["last_updated"] = times.last_updated
        document["last_modified"] = times.last_modified
        return _json(document)

    def _metadata_text(self) -> bytes:
        times = self.metadata_times
        times.poll()
        *head, _ = self._head()
        return _text(
            [
                *head,
                f"now (milliseconds since epoch): {_when_ms(_now_ms())}",
                "metadata last updated at (milliseconds since epoch): "
                f"{_when_ms(times.last_updated)}",
                "metadata last modified at (milliseconds since epoch): "
                f"{_when_ms(times.last_modified)}",
            ]
        )

    def counter_source(self) -> CounterSource:
        """Return the counts from which the counter report is computed."""
        gateway = self._gateway
        self.metadata_times.poll()
        return CounterSource(
            gateway.accounting.in_all(),
            self._earlier_client.plus(ClientCounts.of(self._cluster)),
            self._gateway.input_totals(),
            _sum(self._earlier_pauses, self._engine.pauses),
            self.http,
            self.windows.unread,
            self.metadata_times.changes,
            self._metadata_failures,
        )

    # ------------------------------------------------------------ parts

    def _new_log(self, path: str) -> DiscardLog:
        settings = self._gateway.settings.discards
        file = LogFile(
            path,
            max_file_bytes=settings.log_max_file_bytes,
            max_archive_bytes=settings.log_max_archive_bytes,
            now_ms=_now_ms,
        )
        log = DiscardLog(
            file, self.scribe, max_prefix_bytes=settings.log_max_prefix_bytes, now_ms=_now_ms
        )
        accounting = self._gateway.accounting
        accounting.keeps_messages = True
        accounting.on_refused.append(log.refused)
        accounting.on_discard.append(log.discarded)
        accounting.on_duplicates.append(log.duplicates)
        return log

    def _tick(self) -> None:
        """Once a second: end windows, update the metadata times, and end expired debugging."""
        try:
            self.windows.advance()
            self.metadata_times.poll()
            self.debug.expire()
            failed = self._gateway.cluster.health().metadata_error is not None
            self._metadata_failures += failed and not self._metadata_failed
            self._metadata_failed = failed
            self._log_discards()
            self._log_displaced()
        finally:  # asyncio logs an error, such as a lack of memory, and the next tick follows
            delay = min(POLL_SECONDS, self.windows.until_next() + 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _log_discards(self) -> None:
        """Log how many messages were discarded since the last line, at most every 30 seconds."""
        now = time.monotonic()
        if not self._gateway.settings.discards.log_lines or now < self._logged_at + LOG_SECONDS:
            return
        discarded = self._gateway.accounting.in_all().discarded
        texts = [
            f"{name}={count - before}"
            for name, count, before in zip(REASONS, discarded, self._logged, strict=True)
            if count > before
        ]
        if texts:
            self._logged_at, self._logged = now, discarded
            logger.warning("messages were discarded: %s", " ".join(texts))

    def _log_displaced(self) -> None:
        """Log how many idle connections were closed for others, at most every 30 seconds."""
        now = time.monotonic()
        if now < self._displaced_logged_at + LOG_SECONDS:
            return
        for where, count in self._displaced.newly_displaced():
            self._displaced_logged_at = now
            logger.warning(
                "idle connections were closed because others waited for their places "
                "(max_connections): input=%s connections=%s",
                where,
                count,
            )

    def _trace_all(self) -> None:
        for topic in self._gateway.router.topics.values():
            self._trace(topic)

    def _trace(self, topic: TopicState) -> None:
        topic.trace = self.debug if self.debug.traces(topic.name) else None

    def _unclean(self) -> UncleanDisconnects:
        totals = self._gateway.input_totals()
        return UncleanDisconnects(
            totals["unix_stream"].unclean_disconnects, totals["tcp"].unclean_disconnects
        )


class _Displaced:
    """Counts the idle connections that inputs close because other connections wait."""

    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway
        self._displaced: dict[object, int] = {}

    def newly_displaced(self) -> list[tuple[str, int]]:
        """Return (input, number) per input that closed idle connections since the last call."""
        before = self._displaced
        self._displaced = {one.intake: one.counts().displaced for one in self._gateway.inputs}
        return [
            (one.where, more)
            for one in self._gateway.inputs
            if (more := self._displaced[one.intake] - before.get(one.intake, 0))
        ]


def _sum(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(", ", ": ")).encode() + b"\n"


def _text(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")


def _when_ms(milliseconds: int) -> str:
    return f"{milliseconds} {time.ctime(milliseconds // 1000)}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
