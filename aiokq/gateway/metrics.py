"""The metrics of a gateway in Prometheus's text format; imported by a request for `/metrics`.

`METRICS` is the table of all metrics. Only topics that exist become labels, so that programs cannot
create labels by invented topics. Tests: tests/unit/gateway/test_metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from aiokq import metrics
from aiokq.fastpath.gateway import REASONS
from aiokq.gateway.texts import path_text

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from aiokq.gateway.accounting import Snapshot
    from aiokq.gateway.served import Served

__all__ = ["CONTENT_TYPE", "METRICS", "GatewayMetric", "exposition"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
PREFIX: Final = "aiokq_gateway_"


class GatewayMetric(NamedTuple):
    """One row of the table of metrics.

    Attributes:
        name: exported name without `aiokq_gateway_`, and without `_total` for counters.
        kind: `counter` or `gauge`.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    help: str

    @property
    def exported(self) -> str:
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


INPUT: Final = ("type", "input")

METRICS: Final = (
    GatewayMetric(
        "received",
        "counter",
        ("topic",),
        "messages",
        "Messages received. Those whose topic does not exist have the topic ''. While it is not "
        "known whether a topic exists, its messages are in `unassigned` instead.",
    ),
    GatewayMetric(
        "unassigned",
        "gauge",
        (),
        "messages",
        "Messages that `received` does not count yet: their topic is not known to exist yet, or "
        "they wait in the spool.",
    ),
    GatewayMetric("acked", "counter", ("topic",), "messages", "Messages that Kafka acknowledged."),
    GatewayMetric(
        "dead_lettered",
        "counter",
        ("topic",),
        "messages",
        "Messages that were written to the dead-letter topic.",
    ),
    GatewayMetric(
        "possible_duplicates",
        "counter",
        ("topic",),
        "messages",
        "Messages that may have been written twice.",
    ),
    GatewayMetric(
        "discarded", "counter", ("topic", "reason"), "messages", "Messages discarded, by reason."
    ),
    GatewayMetric("in_flight", "gauge", ("topic",), "messages", "Messages without outcome."),
    GatewayMetric(
        "queued",
        "gauge",
        ("state",),
        "messages",
        "Messages in flight by state: new, batch, send_wait, ack_wait, dead_letter.",
    ),
    GatewayMetric(
        "replayed",
        "counter",
        (),
        "messages",
        "Messages that were in the spool at the start of the gateway.",
    ),
    GatewayMetric("spool_bytes", "gauge", (), "bytes", "Size of the files of the spool."),
    GatewayMetric(
        "spool_waiting",
        "gauge",
        (),
        "messages",
        "Messages of the spool that are not in the pool yet.",
    ),
    GatewayMetric(
        "spool_failures",
        "counter",
        (),
        "failures",
        "Times that data of the spool could not be made durable.",
    ),
    GatewayMetric("pool_used_bytes", "gauge", (), "bytes", "Bytes of the pool in use."),
    GatewayMetric("pool_max_bytes", "gauge", (), "bytes", "Size of the pool."),
    GatewayMetric(
        "unknown_topics",
        "gauge",
        (),
        "topics",
        "Topics with messages that are not known to exist yet.",
    ),
    GatewayMetric("input_received", "counter", INPUT, "messages", "Messages received by an input."),
    GatewayMetric(
        "input_received_bytes",
        "counter",
        INPUT,
        "bytes",
        "Bytes of messages received by an input.",
    ),
    GatewayMetric("input_connections", "gauge", INPUT, "connections", "Open connections."),
    GatewayMetric(
        "input_refused_connections", "counter", INPUT, "connections", "Connections refused."
    ),
    GatewayMetric(
        "input_closed_connections",
        "counter",
        (*INPUT, "reason"),
        "connections",
        "Connections closed by the gateway: `idle`, `incomplete` (a message that did not end in "
        "time), `displaced` (idle, while others waited for a place).",
    ),
    GatewayMetric(
        "input_unclean_disconnects",
        "counter",
        INPUT,
        "connections",
        "Connections that ended inside of a message.",
    ),
    GatewayMetric(
        "input_blocked_seconds",
        "counter",
        INPUT,
        "seconds",
        "Time for which an input waited for room in the pool or the spool.",
    ),
    GatewayMetric(
        "unguarded_ends",
        "counter",
        (),
        "inputs",
        "TCP inputs that the system did not let refuse connections before they were closed. What "
        "programs wrote to connections of the last moment may be lost.",
    ),
    GatewayMetric("input_up", "gauge", INPUT, "", "1 if the input is read, else 0."),
    GatewayMetric("discard_log_lines", "counter", (), "lines", "Lines written to the discard log."),
    GatewayMetric(
        "discard_log_dropped",
        "counter",
        (),
        "lines",
        "Lines of the discard log that were dropped, because the disk was slow, full or read-only.",
    ),
    GatewayMetric("ready", "gauge", (), "", "1 if messages are accepted, else 0."),
    GatewayMetric(
        "reload_failed",
        "gauge",
        (),
        "",
        "1 if the last reload of the configuration was refused, else 0.",
    ),
)
"""All metrics of a gateway."""


def exposition(gateway: Served) -> bytes:
    """Return the metrics of the gateway and of its clients."""
    registry = CollectorRegistry()
    registry.register(_GatewayCollector(gateway))
    registry.register(metrics.Collector([one.counters for one in gateway.clients]))
    return generate_latest(registry)


Samples = Iterable[tuple[tuple[str, ...], float]]


class _GatewayCollector(Collector):
    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        samples = dict(self._samples())
        for row in METRICS:
            make = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            family = make(PREFIX + row.name, row.help, labels=row.labels)
            if row.name not in samples:  # a metric of a part that this gateway does not have
                continue
            for labels, value in samples[row.name]:
                family.add_metric(labels, value)
            yield family

    def _samples(self) -> Iterator[tuple[str, Samples]]:
        """Yield the name of each metric with its samples."""
        gateway = self._gateway
        snapshot = gateway.snapshot()
        for name in ("received", "acked", "dead_lettered", "possible_duplicates", "in_flight"):
            yield name, _by_topic(snapshot, name)
        yield "discarded", _discarded(snapshot)
        yield "unassigned", [((), snapshot.unassigned.received)]
        yield "replayed", [((), snapshot.total.replayed)]
        yield "pool_used_bytes", [((), snapshot.core.used_bytes)]
        yield "pool_max_bytes", [((), gateway.pool.max_bytes)]
        yield "unknown_topics", [((), snapshot.core.names)]
        yield from self._of_inputs()
        spool = gateway.spool
        if spool is not None:
            stored = spool.counts
            yield "spool_bytes", [((), stored.stored_bytes)]
            yield "spool_waiting", [((), snapshot.waiting)]
            yield "spool_failures", [((), stored.failures)]
        yield from gateway.measures(snapshot)

    def _of_inputs(self) -> Iterator[tuple[str, Samples]]:
        inputs = [((one.type, path_text(one.where)), one.sums()) for one in self._gateway.inputs]
        yield "input_received", [(place, counts.received) for place, counts in inputs]
        yield "input_received_bytes", [(place, counts.received_bytes) for place, counts in inputs]
        yield "input_connections", [(place, counts.connections) for place, counts in inputs]
        yield "input_refused_connections", [(place, counts.refused) for place, counts in inputs]
        yield (
            "input_closed_connections",
            [
                ((*place, reason), count)
                for place, counts in inputs
                for reason, count in (
                    ("idle", counts.idle_closed),
                    ("incomplete", counts.partial_closed),
                    ("displaced", counts.displaced),
                )
            ],
        )
        yield (
            "input_unclean_disconnects",
            [(place, counts.unclean_disconnects) for place, counts in inputs],
        )
        yield (
            "input_blocked_seconds",
            [(place, counts.blocked_ms / 1000) for place, counts in inputs],
        )
        yield "unguarded_ends", [((), self._gateway.unguarded_ends)]
        yield "input_up", [(place, float(counts.running)) for place, counts in inputs]


def _by_topic(snapshot: Snapshot, name: str) -> Samples:
    """Return a count by topic; messages whose topic does not exist are counted for the topic ''.

    A counter must not decrease. Therefore the counters for '' leave out messages that may be
    counted for another topic later.
    """
    rest = getattr(snapshot.total, name)
    if name != "in_flight":
        rest -= getattr(snapshot.unassigned, name)
    found: list[tuple[tuple[str, ...], float]] = []
    for topic, totals in snapshot.topics.items():
        value = getattr(totals, name)
        rest -= value
        found.append(((topic,), value))
    found.append((("",), max(0, rest)))
    return found


def _discarded(snapshot: Snapshot) -> Samples:
    unassigned = snapshot.unassigned.discarded
    rest = [
        count - later for count, later in zip(snapshot.total.discarded, unassigned, strict=True)
    ]
    found: list[tuple[tuple[str, ...], float]] = []
    for topic, totals in snapshot.topics.items():
        for index, count in enumerate(totals.discarded):
            if count:
                rest[index] -= count
                found.append(((topic, REASONS[index]), count))
    found.extend((("", reason), max(0, rest[index])) for index, reason in enumerate(REASONS))
    return found
