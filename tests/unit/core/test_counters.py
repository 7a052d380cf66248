"""Counters: the metric tables are complete, and counts are correct."""

from __future__ import annotations

import gc
import re
import weakref

import pytest

from aiokq.core.counters import (
    LATENCY_BUCKETS,
    LIVE,
    METRICS,
    TABLES,
    BrokerCounters,
    ClientCounters,
    Histogram,
)


def test_every_metric_has_its_documentation_and_a_name_in_prometheus_style():
    """The reference page is generated from this table."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"aiokq_(client|broker)_[a-z_]+", metric.name)
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") is (metric.kind == "counter")
        assert metric.unit
        if metric.unit in ("bytes", "seconds"):
            assert metric.unit in metric.name


@pytest.mark.parametrize("component", [ClientCounters, BrokerCounters])
def test_every_attribute_but_the_name_is_in_the_table(component):
    """A counter that is missing in the table would never be exported."""
    counters = component()
    listed = {metric.attribute for metric in TABLES[component]}
    own = {slot for slot in component.__slots__ if slot not in ("name", "__weakref__")}
    assert own == listed
    assert {metric.attribute for metric, _ in counters.samples()} == listed


def test_samples_have_the_current_values():
    """Samples are pulled, not pushed."""
    counters = ClientCounters("orders")
    counters.records_sent += 7
    counters.requests["Produce"] += 2
    counters.request_seconds["Produce"].observe(0.003)
    counters.connections.value += 1
    remove = counters.connections.add_source(lambda: 2)
    counters.fetch_lag.add_source(lambda: {("orders", "0"): 5})
    counters.fetch_lag.add_source(lambda: {("orders", "0"): 1, ("orders", "1"): 2})
    samples = {metric.attribute: list(found) for metric, found in counters.samples()}
    assert samples["records_sent"] == [((), 7)]
    assert samples["requests"] == [(("Produce",), 2)]
    ((labels, histogram),) = samples["request_seconds"]
    assert labels == ("Produce",)
    assert histogram.count == 1
    assert samples["connections"] == [((), 3)]
    assert samples["fetch_lag"] == [(("orders", "0"), 6), (("orders", "1"), 2)]
    remove()
    remove()
    assert counters.connections.read() == 1
    assert samples["errors"] == []


def test_a_misspelt_counter_is_an_error():
    """`counters.record_sent += 1` must not make a new attribute."""
    with pytest.raises(AttributeError):
        ClientCounters().record_sent = 1  # type: ignore[attr-defined]


def test_histograms_count_into_the_first_bucket_that_holds_the_value():
    """Upper bounds of Prometheus buckets are inclusive."""
    histogram = Histogram()
    for value in (0.0, LATENCY_BUCKETS[0], 0.02, 1e9):
        histogram.observe(value)
    assert histogram.counts[0] == 2
    assert histogram.counts[LATENCY_BUCKETS.index(0.025)] == 1
    assert histogram.counts[-1] == 1
    assert histogram.count == 4
    other = Histogram()
    other.merge(histogram)
    other.merge(histogram)
    assert other.count == 8
    assert other.sum == 2 * histogram.sum
    with pytest.raises(ValueError):
        other.merge(Histogram((1.0,)))


def test_the_counts_of_an_ended_client_are_moved_and_its_gauges_stay():
    """A sum of all clients does not decrease when one ends, and is not doubled."""
    first, second = ClientCounters("orders"), ClientCounters("orders")
    for counters in (first, second):
        counters.records_sent += 3
        counters.throttle_seconds += 0.5
        counters.records_received.value += 2
        counters.requests["Produce"] += 2
        counters.request_seconds["Produce"].observe(0.003)
        counters.queue_seconds.observe(0.003)
        counters.connections.value += 1
    ended = first.moved()
    assert second.moved(ended) is ended
    assert ended.name == "orders"
    found = {metric.attribute: list(samples) for metric, samples in ended.samples()}
    assert found["records_sent"] == [((), 6)]
    assert found["throttle_seconds"] == [((), 1.0)]
    assert found["records_received"] == [((), 4)]
    assert found["requests"] == [(("Produce",), 4)]
    assert found["connections"] == [((), 0)]
    assert ended.request_seconds["Produce"].count == ended.queue_seconds.count == 2
    for counters in (first, second):
        assert counters.connections.read() == 1
        found = {metric.attribute: list(samples) for metric, samples in counters.samples()}
        assert found["records_sent"] == found["records_received"] == [((), 0)]
        assert found["requests"] == found["request_seconds"] == []
        assert counters.queue_seconds.count == 0


def test_counters_are_found_while_they_live():
    """A process that creates many clusters must not keep all their counters."""
    counters = BrokerCounters("3")
    assert counters in LIVE
    reference = weakref.ref(counters)
    del counters
    gc.collect()
    assert reference() is None  # other tests may leave counters of their own
