"""The metrics of a gateway in the text format of Prometheus; imported by a scrape of `/metrics`.

Only topics that exist become labels, so that a program that makes topics up creates no labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from aiokq import metrics
from aiokq.fastpath.gateway import REASONS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from aiokq.gateway.served import Served

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def exposition(gateway: Served) -> bytes:
    """Return the metrics of the gateway and of its client."""
    registry = CollectorRegistry()
    registry.register(_GatewayCollector(gateway))
    registry.register(metrics.Collector([gateway.cluster.counters]))
    return generate_latest(registry)


class _GatewayCollector(Collector):
    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        gateway = self._gateway
        snapshot = gateway.snapshot()
        counters = (
            ("received", "Messages received, by topic; topic '' for messages of no known topic."),
            ("acked", "Messages that Kafka acknowledged."),
            ("dead_lettered", "Messages that were written to the dead-letter topic."),
            ("possible_duplicates", "Messages that may have been written twice."),
        )
        for name, text in counters:
            family = CounterMetricFamily(f"aiokq_gateway_{name}", text, labels=("topic",))
            rest = getattr(snapshot.total, name)
            for topic, totals in snapshot.topics.items():
                value = getattr(totals, name)
                rest -= value
                family.add_metric((topic,), value)
            family.add_metric(("",), rest)
            yield family
        discarded = CounterMetricFamily(
            "aiokq_gateway_discarded", "Messages discarded, by reason.", labels=("topic", "reason")
        )
        for index, reason in enumerate(REASONS):
            rest = snapshot.total.discarded[index]
            for topic, totals in snapshot.topics.items():
                rest -= totals.discarded[index]
                if totals.discarded[index]:
                    discarded.add_metric((topic, reason), totals.discarded[index])
            discarded.add_metric(("", reason), rest)
        yield discarded
        in_flight = GaugeMetricFamily(
            "aiokq_gateway_in_flight", "Messages without an outcome yet.", labels=("topic",)
        )
        rest = snapshot.total.in_flight
        for topic, totals in snapshot.topics.items():
            rest -= totals.in_flight
            in_flight.add_metric((topic,), totals.in_flight)
        in_flight.add_metric(("",), rest)
        yield in_flight
        yield from self._pool()
        yield from self._inputs()

    def _pool(self) -> Iterator[Metric]:
        pool = self._gateway.pool
        used = GaugeMetricFamily("aiokq_gateway_pool_used_bytes", "Bytes of the pool in use.")
        used.add_metric((), pool.counts().used_bytes)
        yield used
        size = GaugeMetricFamily("aiokq_gateway_pool_max_bytes", "Size of the pool in bytes.")
        size.add_metric((), pool.max_bytes)
        yield size

    def _inputs(self) -> Iterator[Metric]:
        labels = ("type", "input")
        received = CounterMetricFamily(
            "aiokq_gateway_input_received", "Messages received by an input.", labels=labels
        )
        octets = CounterMetricFamily(
            "aiokq_gateway_input_received_bytes", "Bytes of these messages.", labels=labels
        )
        open_ = GaugeMetricFamily(
            "aiokq_gateway_input_connections", "Open connections of an input.", labels=labels
        )
        refused = CounterMetricFamily(
            "aiokq_gateway_input_refused_connections", "Connections refused.", labels=labels
        )
        for one in self._gateway.inputs:
            counts = one.counts()
            place = (one.type, one.where)
            received.add_metric(place, counts.received)
            octets.add_metric(place, counts.received_bytes)
            open_.add_metric(place, counts.connections)
            refused.add_metric(place, counts.refused)
        yield from (received, octets, open_, refused)
