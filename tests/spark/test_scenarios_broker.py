"""Brokers that fail while a stream reads: briefly, for too long, or with a change of leader.

The checker of `aiokq.testing` compares what the tests sent with the rows of the sink.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import aiokq
from aiokq.testing import Recorder, Send
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.broker_process import BrokerProcess
from tests.peers.ports import free_ports
from tests.spark.checked import assert_read
from tests.spark.conftest import BROKERS
from tests.spark.logs import places
from tests.spark.streams import Stream, ended, wait_for
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900), pytest.mark.full]

AWAY_SECONDS = 5.0


class Switch(NamedTuple):
    """A broker that a test stops and starts."""

    topics: Topics
    stop: Callable[[], object]
    start: Callable[[], object]


@pytest.fixture(params=BROKERS)
def switch(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Switch]:
    if request.param == "apache":
        apache: ApacheKafka = request.getfixturevalue("apache")
        yield Switch(
            Topics(apache.bootstrap_servers),
            lambda: apache.stop_node(1),
            lambda: apache.start_node(1),
        )
        if not apache.processes:
            apache.start_node(1)
        return
    (port,) = free_ports(1)
    broker = BrokerProcess(
        tmp_path / "data", "--profile", "dev", "--set", "log.retention.ms=-1", port=port
    )
    broker.start()
    yield Switch(Topics(broker.bootstrap_servers), broker.stop, broker.start)
    with suppress(ValueError):
        broker.stop()


def test_a_broker_that_restarts_is_waited_for(
    spark: SparkSession, switch: Switch, topic: str, tmp_path: Path
) -> None:
    """Down for 5 s with batches still to be planned and read, and again while the stream is idle.

    Trap 4: an error of the source would end the query, without a retry.
    """
    topics = switch.topics
    topics.create(topic, 2)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.sent = topics.recorded_fill(topic, 60, 2)
    back = threading.Timer(AWAY_SECONDS, switch.start)

    def stop(number: int) -> None:
        if number == 2 and not back.ident:
            switch.stop()
            back.start()

    stream.before_sink = stop
    query = stream.writer(startingOffsets="earliest", maxOffsetsPerTrigger="20").start()
    try:
        wait_for(lambda: len(stream.rows()) == 120)
        back.join()
        switch.stop()
        time.sleep(AWAY_SECONDS)
        assert query.isActive
        switch.start()
        stream.sent += topics.recorded_fill(topic, 5, 2, first=60)
        wait_for(lambda: len(stream.rows()) == 130)
        assert query.exception() is None
    finally:
        query.stop()

    assert stream.rows() == places(topics, topic)
    assert_read(topics, topic, stream.sent, stream.rows())
    assert all(len(stream.runs(batch)) == 1 for batch in stream.batches())


def test_a_broker_that_stays_away_ends_the_query_which_can_be_resumed(
    spark: SparkSession, switch: Switch, topic: str, tmp_path: Path
) -> None:
    """Waiting forever would look like an idle stream. The error names the broker."""
    topics = switch.topics
    topics.create(topic, 2)
    stream = Stream(spark, topics, topic, tmp_path / "query")
    stream.sent = topics.recorded_fill(topic, 10, 2)
    impatient = {
        "fetchOffset.numRetries": "1",
        "kafka.default.api.timeout.ms": "2000",
        "kafka.bootstrap.timeout.ms": "2000",
    }
    query = stream.writer(startingOffsets="earliest", **impatient).start()
    try:
        wait_for(lambda: len(stream.rows()) == 20)
        switch.stop()
        told = ended(query)
    finally:
        query.stop()
    assert topics.bootstrap_servers in told, told

    # A new query does not start either while the broker is down.
    told = stream.fails(**impatient)
    assert topics.bootstrap_servers in told, told
    assert "kafka.bootstrap.servers" in told, told
    switch.start()
    stream.sent += topics.recorded_fill(topic, 5, 2, first=10)
    stream.available_now()
    assert stream.rows() == places(topics, topic)
    assert_read(topics, topic, stream.sent, stream.rows())


# -- Three nodes


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[ApacheKafka]:
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # A dead node must be noticed within 3 s.
    properties = {
        "broker_session_timeout_ms": "3000",
        "broker_heartbeat_interval_ms": "500",
        "leader_imbalance_check_interval_seconds": "3600",
    }
    with apache_kafka(3, heap="384M", **properties) as running:
        yield running


@pytest.mark.kafka
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["moved", "killed"])
def test_partitions_whose_leader_changes_are_read_on(
    spark: SparkSession, three_nodes: ApacheKafka, topic: str, tmp_path: Path, how: int
) -> None:
    """After an election and after a kill, while records are written all the time."""
    topics = Topics(three_nodes.bootstrap_servers)
    node = 1 if how == signal.SIGTERM else 2
    writing = threading.Event()
    writing.set()
    recorder = Recorder()

    async def write(cluster: aiokq.Cluster) -> None:
        number = 0
        async with cluster.producer(linger_ms=5) as producer:
            recorded = recorder.producer(producer, "writer")
            while writing.is_set():
                for partition in range(3):
                    value = b"%d:%d" % (partition, number)
                    await recorded.enqueue(topic, value, partition=partition)
                await producer.flush()
                number += 1
                await asyncio.sleep(0.02)

    topics.create(topic, assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    writer = threading.Thread(target=topics.run, args=(write,))
    stream = Stream(spark, topics, topic, tmp_path / "query")
    query = stream.writer(startingOffsets="earliest").start()
    writer.start()

    def batches(more: int) -> None:
        """Wait until the query has run `more` further batches."""
        enough = stream.done() + more
        wait_for(lambda: stream.done() >= enough or not query.isActive)
        assert query.isActive, query.exception()

    try:
        batches(3)
        three_nodes.stop_node(node, how)
        batches(3)
        three_nodes.start_node(node)
        batches(3)
    finally:
        writing.clear()
        writer.join(120)
        if query.isActive:
            query.processAllAvailable()
        query.stop()

    assert query.exception() is None
    log = places(topics, topic)
    assert stream.rows() == log
    sent = [each for each in recorder.history if isinstance(each, Send)]
    assert_read(topics, topic, sent, stream.rows())
    assert len(log) == len({value for _, _, value in log})
