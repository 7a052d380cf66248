"""Exports the counters of clients and brokers to Prometheus.

Only this module, aiokq.spark and aiokq.gateway import prometheus_client. Values are read when
Prometheus scrapes them, so exporting costs nothing between scrapes. Tests:
tests/unit/test_metrics.py.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector as PrometheusCollector

from aiokq.core import forks
from aiokq.core.counters import (
    LIVE,
    METRICS,
    TABLES,
    BrokerCounters,
    ClientCounters,
    Counters,
    Histogram,
    Labels,
    Metric,
)
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from prometheus_client.metrics_core import Metric as Family


class HasClientCounters(Protocol):
    """A Cluster, which has the counters of all its clients."""

    @property
    def counters(self) -> ClientCounters: ...


class HasBrokerCounters(Protocol):
    """A broker whose counters can be exported."""

    @property
    def counters(self) -> BrokerCounters: ...


class Collector(PrometheusCollector):
    """A prometheus_client collector of aiokq's counters.

    Every sample has the label `client` (the client id) or `broker` (the node id). The values of
    clients with the same client id, and of brokers with the same node id, are added up.

    Args:
        counters: the counters to export; None for all counters that exist in this process at the
            time of a scrape.
    """

    def __init__(self, counters: Iterable[Counters] | None = None) -> None:
        self._counters = None if counters is None else tuple(counters)

    def widen(self, counters: Iterable[Counters] | None) -> None:
        """Add counters to the exported counters; None exports all counters of this process."""
        if counters is None or self._counters is None:
            self._counters = None
        else:
            self._counters = tuple(dict.fromkeys((*self._counters, *counters)))

    def describe(self) -> Iterator[Family]:
        """Yield the metrics without values, so that a registration does not call collect()."""
        for metric in METRICS:
            yield _family(metric)

    def collect(self) -> Iterator[Family]:
        """Yield the metrics with their current values. May be called in any thread."""
        sources = list(LIVE) if self._counters is None else self._counters
        totals: dict[Metric, dict[Labels, int | float | Histogram]] = {
            metric: {}
            for component, table in TABLES.items()
            if any(isinstance(source, component) for source in sources)
            for metric in table
        }
        for source in sources:
            for metric, samples in source.samples():
                total = totals[metric]
                for sample in samples:
                    labels = (source.name, *sample.labels)
                    total[labels] = _sum(total.get(labels), sample.value)
        for metric, total in totals.items():
            family = _family(metric)
            for labels in sorted(total):
                _add(family, labels, total[labels])
            yield family


class MetricsServer:
    """A running HTTP server for metrics, returned by `serve`."""

    def __init__(self, port: int, registry: CollectorRegistry, host: str) -> None:
        self._server, self._thread = start_http_server(port, host, registry)
        self._descriptor = forks.Descriptor(self._server.fileno())
        self._pid = os.getpid()
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop the server and its thread. May be called twice; does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def register(
    registry: CollectorRegistry | None = None,
    *,
    cluster: HasClientCounters | None = None,
    broker: HasBrokerCounters | None = None,
) -> Collector:
    """Add aiokq's metrics to a registry.

    May be called more than once. A later call for the same registry adds the given counters to the
    existing collector, and returns this collector.

    Args:
        registry: the registry; None for the default registry of prometheus_client.
        cluster: the Cluster whose counters are exported.
        broker: a broker whose counters are exported. If neither `cluster` nor `broker` is given,
            all counters of this process are exported.

    Returns:
        The collector, for `registry.unregister()`.

    Raises:
        ConfigError: another collector in the registry already has metrics of these names.
    """
    chosen: list[Counters] = []
    if cluster is not None:
        chosen.append(cluster.counters)
    if broker is not None:
        chosen.append(broker.counters)
    registry = REGISTRY if registry is None else registry
    with _registering:
        collector = Collector(chosen or None)
        try:
            registry.register(collector)
        except ValueError as error:
            there = _registered.get(registry)
            if there is None:
                raise ConfigError(
                    "another collector of the registry already has metrics of these names: "
                    f"{error}. Unregister that collector, or pass another CollectorRegistry()"
                ) from error
            there.widen(chosen or None)
            return there
        _registered[registry] = collector
    return collector


_registered: weakref.WeakKeyDictionary[CollectorRegistry, Collector] = weakref.WeakKeyDictionary()
"""The last collector that `register` added to each registry; the user may have removed it since."""
_registering = threading.Lock()


def serve(
    port: int, *, host: str = "127.0.0.1", registry: CollectorRegistry | None = None
) -> MetricsServer:
    """Serve metrics over HTTP from a thread.

    Args:
        port: TCP port; 0 for a free port, whose number is the `port` of the returned server.
        host: address to listen on.
        registry: the registry to serve; None for a new registry with all aiokq metrics of this
            process.

    Raises:
        OSError: the port cannot be opened.
    """
    if registry is None:
        registry = CollectorRegistry()
        register(registry)
    return MetricsServer(port, registry, host)


def _owner(metric: Metric) -> str:
    return "broker" if metric in TABLES[BrokerCounters] else "client"


def _family(metric: Metric) -> Family:
    labels = (_owner(metric), *metric.labels)
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.name, metric.help, labels=labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=labels)


def _sum(
    total: int | float | Histogram | None, value: int | float | Histogram
) -> int | float | Histogram:
    if isinstance(value, Histogram):
        merged = Histogram(value.bounds)
        if isinstance(total, Histogram):
            merged.merge(total)
        merged.merge(value)
        return merged
    if isinstance(total, int | float):
        return total + value
    return value


def _add(family: Family, labels: Labels, value: int | float | Histogram) -> None:
    if isinstance(value, Histogram):
        assert isinstance(family, HistogramMetricFamily)
        running = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
            running += count
            buckets.append((bound, running))
        family.add_metric(labels, buckets, value.sum)
    else:
        assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
        family.add_metric(labels, value)


__all__ = ["METRICS", "Collector", "Metric", "MetricsServer", "register", "serve"]
