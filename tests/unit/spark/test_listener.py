"""Metrics of streaming queries, made from Spark's progress events."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")
from prometheus_client import CollectorRegistry, generate_latest

from aiokq import ConfigError, TopicPartition
from aiokq.spark.listener import AiokqProgressListener


def progress(batch: int = 4, rows: int = 30, **changed: Any) -> str:
    """Return the progress of a query with a Kafka source, as Spark 4.3 writes it."""
    source = {
        "description": "aiokq",
        "startOffset": {"orders": {"0": 10, "1": 5}},
        "endOffset": {"orders": {"0": 30, "1": 15}},
        "latestOffset": {"orders": {"0": 42, "1": 15}},
        "numInputRows": rows,
    }
    return json.dumps(
        {
            "id": "id-1",
            "runId": "run-1",
            "name": None,
            "batchId": batch,
            "numInputRows": rows,
            "inputRowsPerSecond": 12.5,
            "processedRowsPerSecond": 300.0,
            "durationMs": {"addBatch": 80, "triggerExecution": 150},
            "sources": [source],
            **changed,
        }
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(registry: CollectorRegistry) -> AiokqProgressListener:
    listener = AiokqProgressListener(registry)
    listener.started("run-1", "daily")
    return listener


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"aiokq_spark_{name}", labels)


def test_progress_becomes_metrics(registry: CollectorRegistry, listener: AiokqProgressListener):
    """A dashboard must show values, in the right unit."""
    listener.progressed(progress())
    at = {"query": "daily", "topic": "orders"}
    assert value(registry, "lag_records", **at, partition="0") == 12
    assert value(registry, "lag_records", **at, partition="1") == 0
    assert value(registry, "offset", **at, partition="0") == 30
    assert value(registry, "input_rows_total", query="daily") == 30
    assert value(registry, "batches_total", query="daily") == 1
    assert value(registry, "batch_id", query="daily") == 4
    assert value(registry, "input_rows_per_second", query="daily") == 12.5
    assert value(registry, "processed_rows_per_second", query="daily") == 300
    assert value(registry, "batch_duration_seconds", query="daily", phase="addBatch") == 0.08
    assert value(registry, "queries_active") == 1
    assert listener.lag("daily") == {
        TopicPartition("orders", 0): 12,
        TopicPartition("orders", 1): 0,
    }
    assert listener.lag("another") == {}


def test_rows_add_up_and_the_rest_is_of_the_last_batch(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """rate() needs counters that never decrease."""
    listener.progressed(progress(4, 30))
    listener.progressed(progress(5, 7))
    listener.progressed(progress(5, 0))
    assert value(registry, "input_rows_total", query="daily") == 37
    assert value(registry, "batches_total", query="daily") == 2
    assert value(registry, "batch_id", query="daily") == 5


def test_our_own_entries_and_other_sources_are_no_partitions(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """Other sources must neither show a lag nor break the listener."""
    ours = {
        "endOffset": {
            "orders": {"0": 3},
            "__aiokq_initial__.orders": {"0": 0},
            "__aiokq_topic_id__.orders": {"0": 1, "1": 2},
        },
        "latestOffset": {"orders": {"0": 5}},
    }
    text = json.dumps({"endOffset": {"orders": {"1": 7}}})
    others = [
        {"endOffset": 7, "latestOffset": None},
        {"endOffset": {"logOffset": 3}},
        {"endOffset": "no JSON"},
        {"endOffset": json.loads(text)["endOffset"], "latestOffset": '{"orders":{"1":9}}'},
    ]
    listener.progressed(progress(sources=[ours, *others]))
    text = generate_latest(registry).decode()
    assert "__aiokq" not in text
    assert listener.lag("daily") == {
        TopicPartition("orders", 0): 2,
        TopicPartition("orders", 1): 2,
    }


def test_rates_that_spark_cannot_tell_are_zero(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """The first batch has no rate, and NaN would spoil every sum."""
    listener.progressed(progress(inputRowsPerSecond="NaN", processedRowsPerSecond=float("inf")))
    assert value(registry, "input_rows_per_second", query="daily") == 0
    assert value(registry, "processed_rows_per_second", query="daily") == 0


def test_a_query_that_ended_leaves_its_counters_and_how(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """The counters of a finished job can still be scraped; its lag disappears."""
    listener.progressed(progress())
    listener.terminated("run-1", failed=True)
    listener.terminated("run-2", failed=False)
    of_query = [line for line in generate_latest(registry).decode().splitlines() if "daily" in line]
    assert of_query == [
        'aiokq_spark_input_rows_total{query="daily"} 30.0',
        'aiokq_spark_batches_total{query="daily"} 1.0',
    ]
    assert listener.lag("daily") == {}
    assert value(registry, "queries_active") == 0
    assert value(registry, "queries_terminated_total", outcome="failed") == 1
    assert value(registry, "queries_terminated_total", outcome="stopped") == 1


def test_another_run_of_a_query_counts_on(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """Regression: a new run with as many rows before the next scrape looked idle to rate()."""
    listener.progressed(progress())
    listener.terminated("run-1", failed=False)
    listener.started("run-2", "daily")
    assert value(registry, "input_rows_total", query="daily") == 30
    listener.progressed(progress(5, 12, runId="run-2"))
    assert value(registry, "input_rows_total", query="daily") == 42
    assert value(registry, "batches_total", query="daily") == 2
    assert value(registry, "batch_id", query="daily") == 5


def test_queries_without_a_name_do_not_pile_up(
    registry: CollectorRegistry, listener: AiokqProgressListener
):
    """Regression: each start without a checkpoint has a new id, and a service kept all of them."""
    for number in range(150):
        run = f"unnamed-{number}"
        listener.started(run, run)
        listener.terminated(run, failed=False)
    text = generate_latest(registry).decode()
    assert text.count('aiokq_spark_input_rows_total{query="unnamed') == 100
    assert 'query="unnamed-149"' in text
    assert 'input_rows_total{query="daily"}' in text


def test_the_lag_of_a_name_is_that_of_its_last_run(listener: AiokqProgressListener):
    """Regression: the metrics showed another run than `lag`."""
    listener.started("run-2", "daily")
    listener.progressed(progress())
    listener.progressed(progress(runId="run-2", sources=[]))
    assert listener.lag("daily") == {}


def test_a_listener_added_late_names_the_query_by_its_id(registry: CollectorRegistry):
    """Its progress must not be lost, though its start was not seen."""
    listener = AiokqProgressListener(registry)
    listener.progressed(progress())
    assert value(registry, "batch_id", query="id-1") == 4


def test_a_registry_takes_one_listener_at_a_time(registry: CollectorRegistry):
    """A second one is refused with a clear error, and a closed one does not block a new one."""
    listener = AiokqProgressListener(registry)
    with pytest.raises(ConfigError, match="already"):
        AiokqProgressListener(registry)
    listener.close()
    listener.close()
    AiokqProgressListener(registry)
