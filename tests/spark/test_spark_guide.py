"""The guide's examples run unchanged on a session and a broker; the listener with real events."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from aiokq import TopicPartition
from aiokq.spark import AiokqProgressListener
from tests.examples.test_guides import ADDRESS, BLOCK, GUIDES, run_python
from tests.peers.broker_process import BrokerProcess
from tests.spark.conftest import ROOT, why_absent
from tests.spark.streams import PATIENCE
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def test_the_guide_runs_as_it_stands(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Users who copy an example must get what the page says."""
    monkeypatch.chdir(tmp_path)
    text = (GUIDES / "spark.md").read_text()
    codes = [code for name, code in BLOCK.findall(text) if name == "py"]
    codes = [code.replace(ADDRESS, broker.bootstrap_servers) for code in codes]
    # Spark runs in a process of its own, which was started in another directory.
    codes = [code.replace('"checkpoints/', f'"{tmp_path}/checkpoints/') for code in codes]
    async with asyncio.timeout(PATIENCE):
        await run_python(codes, spark=spark)


def test_a_query_tells_its_lag(
    spark: SparkSession, broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
):
    """The listener must read the progress in the form in which Spark writes it."""
    topics.create(topic)
    topics.fill(topic, 30)
    registry = CollectorRegistry()
    listener = AiokqProgressListener(registry)
    spark.streams.addListener(listener)
    try:
        query = (
            spark.readStream.format("aiokq")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "10")
            .load()
            .writeStream.queryName("measured")
            .format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="60 seconds")
            .start()
        )
        try:
            until = time.monotonic() + PATIENCE
            while not listener.lag("measured") and time.monotonic() < until:
                time.sleep(0.1)
            assert listener.lag("measured") == {TopicPartition(topic, 0): 20}
            labels = {"query": "measured"}
            assert registry.get_sample_value("aiokq_spark_input_rows_total", labels) == 10
            assert registry.get_sample_value("aiokq_spark_queries_active") == 1
        finally:
            query.stop()
        until = time.monotonic() + PATIENCE
        while registry.get_sample_value("aiokq_spark_queries_active") and time.monotonic() < until:
            time.sleep(0.1)
        ended = "aiokq_spark_queries_terminated_total"
        assert registry.get_sample_value(ended, {"outcome": "stopped"}) == 1
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.full
def test_the_web_service_answers_while_spark_works() -> None:
    """Users must not copy an example that blocks its event loop."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"SPARK IS NOT TESTED: {reason}")
    result = subprocess.run(
        [sys.executable, "-m", "examples.spark.web_service"],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert '{"customer 0": 200, "customer 1": 200}' in result.stdout, result.stdout
    answered = re.search(r"(\d+) others were answered meanwhile", result.stdout)
    assert answered is not None
    assert int(answered[1]) > 10
