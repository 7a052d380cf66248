"""AiokqProgressListener: lag and rates of streaming queries as Prometheus metrics.

A Python source has no metrics of its own in Spark, so they are made of the progress that each
query tells. Works for every source that keeps Kafka offsets: ours, and Spark's own connector.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from aiokq.errors import ConfigError
from aiokq.spark.offsets import PartitionOffsets, SourceOffset

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

__all__ = ["AiokqProgressListener"]

logger = logging.getLogger("aiokq.spark")

_QUERY: Final = ("query",)
_PARTITION: Final = ("query", "topic", "partition")
_PHASE: Final = ("query", "phase")


ENDED_KEPT: Final = 100
"""So many names of queries that have ended keep their counters."""


@dataclass
class _Counted:
    """Of all runs of a name: what is counted must not go before it was scraped."""

    rows: int = 0
    batches: int = 0


@dataclass
class _Query:
    """What is known of a query that runs; the latest progress counts."""

    batch: int = -1
    input_rate: float = 0.0
    processed_rate: float = 0.0
    durations: dict[str, float] = field(default_factory=dict)
    offsets: PartitionOffsets = field(default_factory=dict)
    lags: PartitionOffsets = field(default_factory=dict)


class AiokqProgressListener(StreamingQueryListener):
    """Makes Prometheus metrics of the progress of streaming queries.

    ``spark.streams.addListener(AiokqProgressListener())``. All metrics begin with ``aiokq_spark_``;
    the label ``query`` is the query's name, or its id where it has none:

    - ``lag_records`` (query, topic, partition): from where the last batch ended to the end of the
      partition when that batch was planned;
    - ``offset`` (query, topic, partition): of the next record to read;
    - ``input_rows_total``, ``batches_total`` (query): of all its runs that were listened to;
      batches that had rows;
    - ``batch_id`` (query): of the last batch;
    - ``input_rows_per_second``, ``processed_rows_per_second`` (query): of the last batch;
    - ``batch_duration_seconds`` (query, phase): of the last batch; phase in Spark's words, as
      triggerExecution, addBatch, latestOffset;
    - ``queries_active``: that run;
    - ``queries_terminated_total`` (outcome): stopped or failed.

    When a query ends, its two counters stay (of the last 100 names that ended), so that a job that
    ends by itself can be scraped after it; a run of the same name counts on. The rest goes: lag
    that nobody works on is not the query's. The listener is one collector in the registry:
    ``close()`` takes it out.

    Args:
        registry: prometheus_client's default one if not given.

    Raises:
        ConfigError: the registry has such a listener already.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = REGISTRY if registry is None else registry
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._queries: dict[str, _Query] = {}
        self._counted: dict[str, _Counted] = {}
        self._terminated = {"stopped": 0, "failed": 0}
        self._collector = _Collector(self)
        try:
            self._registry.register(self._collector)
        except ValueError as error:
            raise ConfigError(
                f"the registry has these metrics already: {error}. One listener is enough for "
                "all queries of a session; else give another CollectorRegistry()"
            ) from error

    def close(self) -> None:
        """Take the metrics out of the registry. Harmless twice."""
        try:
            self._registry.unregister(self._collector)
        except KeyError:
            logger.debug("the progress listener was closed before")

    # -- what Spark calls, in threads of its own

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Called by Spark."""
        self.started(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Called by Spark."""
        self.progressed(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Called by Spark: the rates of the last batch are not those of now."""
        with self._lock:
            query = self._queries.get(str(event.runId))
            if query is not None:
                query.input_rate = query.processed_rate = 0.0

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Called by Spark."""
        self.terminated(str(event.runId), failed=event.exception is not None)

    # -- the same, of plain values

    def started(self, run: str, name: str) -> None:
        """A query runs from now on.

        Args:
            run: its run id, which is another one after each start.
            name: the value of the label ``query``.
        """
        with self._lock:
            self._names[run] = name
            self._queries[run] = _Query()
            self._counted.setdefault(name, _Counted())

    def progressed(self, text: str) -> None:
        """A query told its progress.

        Args:
            text: JSON, as `StreamingQueryProgress.json` has it.
        """
        progress = json.loads(text)
        run = str(progress["runId"])
        with self._lock:
            # A listener that was added late has not seen the start.
            query = self._queries.setdefault(run, _Query())
            name = self._names.setdefault(run, progress.get("name") or str(progress["id"]))
            rows = int(progress.get("numInputRows") or 0)
            counted = self._counted.setdefault(name, _Counted())
            counted.rows += rows
            counted.batches += rows > 0
            query.batch = int(progress["batchId"])
            query.input_rate = _number(progress.get("inputRowsPerSecond"))
            query.processed_rate = _number(progress.get("processedRowsPerSecond"))
            durations: Mapping[str, int] = progress.get("durationMs") or {}
            query.durations = {phase: ms / 1000 for phase, ms in durations.items()}
            query.offsets, query.lags = {}, {}
            for source in progress.get("sources") or ():
                end = _offsets(source.get("endOffset"))
                query.offsets |= end
                for tp, latest in _offsets(source.get("latestOffset")).items():
                    query.lags[tp] = max(0, latest - end.get(tp, latest))

    def terminated(self, run: str, *, failed: bool) -> None:
        """A query has ended."""
        with self._lock:
            name = self._names.pop(run, None)
            self._queries.pop(run, None)
            if name in self._counted:
                # The newest at the end, where the oldest are forgotten.
                self._counted[name] = self._counted.pop(name)
                ended = [name for name in self._counted if name not in self._names.values()]
                for name in ended[:-ENDED_KEPT]:
                    del self._counted[name]
            self._terminated["failed" if failed else "stopped"] += 1

    def lag(self, query: str) -> PartitionOffsets:
        """Records that a query has not read yet, by partition; empty if it is not known.

        Args:
            query: its name, or its id where it has none.
        """
        with self._lock:
            # Of two runs of one name the later, as in the metrics.
            for run, name in reversed(self._names.items()):
                if name == query:
                    return dict(self._queries[run].lags)
        return {}

    def families(self) -> Iterator[Metric]:
        """The metrics as they are now. Context: any thread."""
        gauges = {
            "batch_id": GaugeMetricFamily(
                "aiokq_spark_batch_id", "Number of the last batch.", labels=_QUERY
            ),
            "input": GaugeMetricFamily(
                "aiokq_spark_input_rows_per_second",
                "Rows that came per second, of the last batch.",
                labels=_QUERY,
            ),
            "processed": GaugeMetricFamily(
                "aiokq_spark_processed_rows_per_second",
                "Rows processed per second, of the last batch.",
                labels=_QUERY,
            ),
        }
        rows = CounterMetricFamily(
            "aiokq_spark_input_rows", "Rows read by all runs of the query.", labels=_QUERY
        )
        batches = CounterMetricFamily(
            "aiokq_spark_batches", "Batches with rows of all runs of the query.", labels=_QUERY
        )
        durations = GaugeMetricFamily(
            "aiokq_spark_batch_duration_seconds",
            "Time of each phase of the last batch.",
            labels=_PHASE,
        )
        offsets = GaugeMetricFamily(
            "aiokq_spark_offset", "Offset of the next record to read.", labels=_PARTITION
        )
        lags = GaugeMetricFamily(
            "aiokq_spark_lag_records",
            "Records from the end of the last batch to the end of the partition.",
            labels=_PARTITION,
        )
        terminated = CounterMetricFamily(
            "aiokq_spark_queries_terminated", "Queries that have ended.", labels=("outcome",)
        )
        with self._lock:
            active = GaugeMetricFamily(
                "aiokq_spark_queries_active", "Queries that run.", value=len(self._queries)
            )
            # Two runs of one name are one to Prometheus: the later one.
            named = {self._names[run]: query for run, query in self._queries.items()}
            for name, query in sorted(named.items()):
                gauges["batch_id"].add_metric([name], query.batch)
                gauges["input"].add_metric([name], query.input_rate)
                gauges["processed"].add_metric([name], query.processed_rate)
                for phase, seconds in query.durations.items():
                    durations.add_metric([name, phase], seconds)
                for tp, offset in query.offsets.items():
                    offsets.add_metric([name, tp.topic, str(tp.partition)], offset)
                for tp, lag in query.lags.items():
                    lags.add_metric([name, tp.topic, str(tp.partition)], lag)
            for name, counted in sorted(self._counted.items()):
                rows.add_metric([name], counted.rows)
                batches.add_metric([name], counted.batches)
            for outcome, count in self._terminated.items():
                terminated.add_metric([outcome], count)
        yield from (lags, offsets, rows, batches, *gauges.values(), durations, active, terminated)


class _Collector(Collector):
    """Apart from the listener, whose base class is Spark's."""

    def __init__(self, listener: AiokqProgressListener) -> None:
        self._listener = listener

    def describe(self) -> Iterator[Metric]:
        """So that a second one is refused."""
        return self._listener.families()

    def collect(self) -> Iterator[Metric]:
        return self._listener.families()


def _number(value: float | str | None) -> float:
    """Spark leaves out rates that it cannot tell, or writes NaN and Infinity as text."""
    number = float(value or 0.0)
    return number if 0.0 <= number < float("inf") else 0.0


def _offsets(offset: object) -> PartitionOffsets:
    """The offsets of a source that keeps Kafka's; those of other sources are none."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    if not isinstance(offset, dict):
        return {}
    try:
        return SourceOffset.parse(offset).positions
    except ConfigError:
        return {}
