"""The Spark part of `make run`, on this session with a few flights; loads have their own tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

import aiokq
from examples.flights.delays import Delay
from examples.flights.lake import Loaded
from examples.flights.spark_job import SparkJob
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = 600


def flight(row: int) -> bytes:
    """Return one of two flights a day on three routes; every seventh is cancelled."""
    departure = datetime(2013, 1, 1, 5, tzinfo=UTC) + timedelta(hours=12 * row)
    document = {
        "row": row,
        "carrier": "UA",
        "origin": ("EWR", "JFK", "LGA")[row % 3],
        "dest": "LAX",
        "hour": departure.hour,
        "arr_delay": None if row % 7 == 0 else row % 50 - 10,
        "time_hour": departure.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps(document).encode()


@pytest.mark.timeout(900)
def test_batch_stream_and_topics_have_the_same_flights(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The topics also have records of an earlier run; the watermark drops most days."""
    topics.create(topic, 2)
    topics.send(topic, [b"of an earlier run"], 0)

    async def publish(cluster: aiokq.Cluster) -> None:
        async with cluster.producer() as producer:
            for row in range(FLIGHTS):
                await producer.enqueue(topic, flight(row), key=b"%d" % (row % 10))

    topics.run(publish)
    by_route: dict[str, Delay] = {}
    for row in range(FLIGHTS):
        document = json.loads(flight(row))
        route = f"{document['origin']} - {document['dest']}"
        by_route.setdefault(route, Delay()).add(document["arr_delay"])
    parquet = tmp_path / "parquet"
    (
        spark.read.format("aiokq")
        .option("kafka.bootstrap.servers", topics.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: {"0": 1, "1": 0}}))
        .load()
        .write.parquet(str(parquet))
    )
    loaded = Loaded(told=FLIGHTS, rows=FLIGHTS, distinct=FLIGHTS, files=1, size=1)
    for name in ("delays", "days"):
        topics.create(f"{topic}-{name}", 2, cleanup_policy="compact")
        topics.send(f"{topic}-{name}", [b'{"flights":1}'], 1)
    starts = {0: 1, 1: 0}
    servers = topics.bootstrap_servers
    job = SparkJob(Console(quiet=True), servers, topic, starts, FLIGHTS, tmp_path / "job")
    found = job.analyse(spark, parquet, loaded)
    wrong = [check for check in found.checks(FLIGHTS, by_route) if check[1] != check[2]]
    assert wrong == []
    assert found.streamed.batches >= 6
    assert found.streamed.forgotten > 0
    assert found.days_records >= len(found.days_topic) == FLIGHTS
