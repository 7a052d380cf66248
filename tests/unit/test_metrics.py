"""Metrics as Prometheus sees them; tests/interop has the tests of the HTTP endpoint."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from aiokq import metrics
from aiokq.core.counters import METRICS, BrokerCounters, ClientCounters
from aiokq.core.errors import ConfigError


@dataclass
class Owner:
    counters: ClientCounters | BrokerCounters


def scrape(*owners: Owner) -> dict[str, str]:
    registry = CollectorRegistry()
    chosen = {}
    for owner in owners:
        kind = "cluster" if isinstance(owner.counters, ClientCounters) else "broker"
        chosen[kind] = owner
    metrics.register(registry, **chosen)
    lines = generate_latest(registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_values_are_exported_with_their_owner_as_label():
    """The label distinguishes two clients in one process."""
    counters = ClientCounters("orders")
    counters.records_sent += 3
    counters.errors["NOT_LEADER_OR_FOLLOWER"] += 1
    counters.fetch_lag.add_source(lambda: {("orders", "0"): 9})
    found = scrape(Owner(counters))
    assert found['aiokq_client_records_sent_total{client="orders"}'] == "3.0"
    assert (
        found['aiokq_client_errors_total{client="orders",error="NOT_LEADER_OR_FOLLOWER"}'] == "1.0"
    )
    lag = 'aiokq_client_fetch_lag{client="orders",partition="0",topic="orders"}'
    assert found[lag] == "9.0"
    assert not any(name.startswith("aiokq_broker") for name in found)


def test_histograms_are_cumulative():
    """Prometheus does not add buckets up itself."""
    counters = BrokerCounters("0")
    for seconds in (0.0001, 0.02, 100.0):
        counters.request_seconds["Fetch"].observe(seconds)
    found = scrape(Owner(counters))
    labels = 'api="Fetch",broker="0"'
    name = "aiokq_broker_request_seconds"
    assert found[f'{name}_bucket{{{labels},le="0.0005"}}'] == "1.0"
    assert found[f'{name}_bucket{{{labels},le="0.025"}}'] == "2.0"
    assert found[f'{name}_bucket{{{labels},le="+Inf"}}'] == "3.0"
    assert found[f"{name}_count{{{labels}}}"] == "3.0"
    assert float(found[f"{name}_sum{{{labels}}}"]) == pytest.approx(100.0201)


def test_without_arguments_everything_alive_is_exported_and_equal_names_added_up():
    """An application may need only one line, before it creates its clients."""
    registry = CollectorRegistry()
    metrics.register(registry)
    mine = [ClientCounters("twice-in-test-metrics") for _ in range(2)]
    for counters in mine:
        counters.records_sent += 2
        counters.queue_seconds.observe(0.1)
    text = generate_latest(registry).decode()
    assert 'aiokq_client_records_sent_total{client="twice-in-test-metrics"} 4.0' in text
    assert 'aiokq_client_queue_seconds_count{client="twice-in-test-metrics"} 2.0' in text


def test_registering_twice_is_harmless_and_counts_once():
    """A web application that reloads registers again."""
    registry = CollectorRegistry()
    collector = metrics.register(registry)
    assert metrics.register(registry) is collector
    counters = ClientCounters("registered-twice")
    counters.records_sent += 3
    text = generate_latest(registry).decode()
    assert text.count('aiokq_client_records_sent_total{client="registered-twice"} 3.0') == 1
    registry.unregister(collector)
    assert metrics.register(registry) is not collector


def test_a_further_client_joins_the_collector_of_the_registry():
    """Parts of an application may register their clusters before it registers everything."""
    registry = CollectorRegistry()
    first, second, other = (ClientCounters(f"joined-{n}") for n in range(3))
    collector = metrics.register(registry, cluster=Owner(first))
    for _ in range(2):
        assert metrics.register(registry, cluster=Owner(second)) is collector
    text = generate_latest(registry).decode()
    assert 'client="joined-0"' in text
    assert 'client="joined-1"' in text
    assert 'client="joined-2"' not in text
    metrics.register(registry)
    assert 'client="joined-2"' in generate_latest(registry).decode()
    assert other.name == "joined-2"


def test_a_registration_that_was_taken_back_does_not_linger():
    """After unregister() and a registration of one cluster, only that cluster is exported."""
    registry = CollectorRegistry()
    registry.unregister(metrics.register(registry))
    mine, other = ClientCounters("taken-back-0"), ClientCounters("taken-back-1")
    metrics.register(registry, cluster=Owner(mine))
    text = generate_latest(registry).decode()
    assert 'client="taken-back-0"' in text
    assert f'client="{other.name}"' not in text


def test_names_that_somebody_else_registered_are_a_config_error():
    """prometheus_client's own error names a time series and no remedy."""
    registry = CollectorRegistry()
    registry.register(metrics.Collector())
    with pytest.raises(ConfigError, match="CollectorRegistry"):
        metrics.register(registry)


def test_every_metric_of_the_table_is_exported():
    """Documented metrics exist also before their first event."""
    names = {family.name for family in metrics.Collector().describe()}
    assert names == {metric.name.removesuffix("_total") for metric in METRICS}
