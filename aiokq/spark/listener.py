"""AiokqProgressListener: lag and rates of streaming queries as Prometheus metrics.

Python sources have no metrics of their own in Spark, so the metrics are made from the progress
events of the queries. The listener works for both sources that report Kafka offsets: aiokq's and
Spark's own connector.
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
"""Maximum number of names of ended queries whose counters are kept."""


@dataclass
class _Counted:
    """Counters of all runs of a query name."""

    rows: int = 0
    batches: int = 0


@dataclass
class _Query:
    """Latest progress of a running query."""

    batch: int = -1
    input_rate: float = 0.0
    processed_rate: float = 0.0
    durations: dict[str, float] = field(default_factory=dict)
    offsets: PartitionOffsets = field(default_factory=dict)
    lags: PartitionOffsets = field(default_factory=dict)


class AiokqProgressListener(StreamingQueryListener):
    """Exporter of the progress of streaming queries as Prometheus metrics.

    Example: ``spark.streams.addListener(AiokqProgressListener())``. All metrics begin with
    ``aiokq_spark_``; the label ``query`` is the query's name, or its id if it has no name:

    - ``lag_records`` (query, topic, partition): records from the end of the last batch to the end
      of the partition when that batch was planned;
    - ``offset`` (query, topic, partition): offset of the next record to read;
    - ``input_rows_total``, ``batches_total`` (query): rows and batches of all observed runs;
      batches without rows are not counted;
    - ``batch_id`` (query): number of the last batch;
    - ``input_rows_per_second``, ``processed_rows_per_second`` (query): rates of the last batch;
    - ``batch_duration_seconds`` (query, phase): duration of each phase of the last batch; phases
      have Spark's names, such as triggerExecution, addBatch, latestOffset;
    - ``queries_active``: running queries;
    - ``queries_terminated_total`` (outcome): ended queries; the outcome is stopped or failed.

    When a query ends, all of its metrics except the two counters are removed. The counters are kept
    for the last 100 names that ended. Another query of the same name continues the counters. The
    listener is one collector in the registry; ``close()`` unregisters the collector.

    Args:
        registry: registry of the metrics; default: prometheus_client's own registry.

    Raises:
        ConfigError: the registry already has metrics of these names, usually from another listener.
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
                "all queries of a session; otherwise pass another CollectorRegistry()"
            ) from error

    def close(self) -> None:
        """Unregister the metrics. A second call does nothing."""
        try:
            self._registry.unregister(self._collector)
        except KeyError:
            logger.debug("the progress listener was closed before")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Record the start of a query; called by Spark."""
        self.started(str(event.runId), event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the progress of a query; called by Spark."""
        self.progressed(event.progress.json)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Set the rates to 0; called by Spark."""
        with self._lock:
            query = self._queries.get(str(event.runId))
            if query is not None:
                query.input_rate = query.processed_rate = 0.0

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record the end of a query; called by Spark."""
        self.terminated(str(event.runId), failed=event.exception is not None)

    def started(self, run: str, name: str) -> None:
        """Record the start of a query.

        Args:
            run: run id, which Spark makes for each start.
            name: value of the label ``query``.
        """
        with self._lock:
            self._names[run] = name
            self._queries[run] = _Query()
            self._counted.setdefault(name, _Counted())

    def progressed(self, text: str) -> None:
        """Record the progress of a query.

        Args:
            text: JSON of `StreamingQueryProgress.json`.
        """
        progress = json.loads(text)
        run = str(progress["runId"])
        with self._lock:
            # A listener that was added late has not seen the start of the query.
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
        """Record the end of a query."""
        with self._lock:
            name = self._names.pop(run, None)
            self._queries.pop(run, None)
            if name in self._counted:
                # Moved to the end, because the oldest entries are dropped from the front.
                self._counted[name] = self._counted.pop(name)
                ended = [name for name in self._counted if name not in self._names.values()]
                for name in ended[:-ENDED_KEPT]:
                    del self._counted[name]
            self._terminated["failed" if failed else "stopped"] += 1

    def lag(self, query: str) -> PartitionOffsets:
        """Return the lag of a query at its last batch, in records, by partition; {} if unknown.

        Args:
            query: name of the query, or its id if it has no name.
        """
        with self._lock:
            # If two runs have the same name, the later run is reported, as in the metrics.
            for run, name in reversed(self._names.items()):
                if name == query:
                    return dict(self._queries[run].lags)
        return {}

    def families(self) -> Iterator[Metric]:
        """Yield the current metrics; may be called in any thread."""
        gauges = {
            "batch_id": GaugeMetricFamily(
                "aiokq_spark_batch_id", "Number of the last batch.", labels=_QUERY
            ),
            "input": GaugeMetricFamily(
                "aiokq_spark_input_rows_per_second",
                "Rows that arrived per second, of the last batch.",
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
            "Duration of each phase of the last batch, in seconds.",
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
                "aiokq_spark_queries_active", "Running queries.", value=len(self._queries)
            )
            # Two runs with the same name have the same label values; the later run is reported.
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
    """Gives the metrics of a listener to a Prometheus registry."""

    def __init__(self, listener: AiokqProgressListener) -> None:
        self._listener = listener

    def describe(self) -> Iterator[Metric]:
        """Describe the metrics, so that the registry refuses a second listener."""
        return self._listener.families()

    def collect(self) -> Iterator[Metric]:
        return self._listener.families()


def _number(value: float | str | None) -> float:
    """Return a rate; 0 for unknown rates, which Spark leaves out or writes as NaN or Infinity."""
    number = float(value or 0.0)
    return number if 0.0 <= number < float("inf") else 0.0


def _offsets(offset: object) -> PartitionOffsets:
    """Return the offsets of a source that keeps Kafka offsets; empty for other sources."""
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
