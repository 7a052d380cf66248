"""The bridge on Spark Connect, in a process of its own, which can have one kind of session only."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers.broker_process import BrokerProcess
from tests.spark.conftest import ROOT, why_absent
from tests.spark.topics import Topics

NEEDED = ("grpc", "grpc_status", "google.rpc", "pandas", "zstandard")

PROGRAM = """
import asyncio, json, os, sys, time

import aiokq
from aiokq.spark import bridge
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

servers, topic = sys.argv[1:]


def slow(number):
    time.sleep(60)
    return number


async def handle(frame, batch, cluster):
    rows = await bridge.collect(frame)
    async with cluster.producer() as producer:
        await producer.send(topic, b"%d %d %d" % (os.getpid(), batch, len(rows)))


async def main(spark):
    told = {"pid": os.getpid()}
    told["rows"] = [row.id for row in await bridge.collect(spark.range(3))]
    told["arrow"] = (await bridge.to_arrow(spark.range(3))).num_rows
    told["chunks"] = [len(chunk) async for chunk in bridge.chunks(spark.range(25), 10)]

    frame = spark.range(2).select(udf(slow, "long")("id"))
    waiting = asyncio.create_task(bridge.collect(frame))
    await asyncio.sleep(5)
    began = time.monotonic()
    waiting.cancel()
    try:
        await waiting
    except asyncio.CancelledError:
        told["cancelled"] = time.monotonic() - began

    here = bridge.foreach_batch(handle, loop=asyncio.get_running_loop())
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "3").load()
    try:
        await bridge.call(spark, rate.writeStream.foreachBatch, here)
    except Exception as error:
        # Spark's own words come first, as for all that cannot be pickled.
        told["refused"] = f"{error} {error.__context__}"

    handler = bridge.foreach_batch_with_client(handle, {"bootstrap.servers": servers})
    for left in (2, 1, 0):
        try:
            query = await bridge.call(spark, rate.writeStream.foreachBatch(handler).start)
            break
        except Exception as error:
            # Spark gives a handler's process 10 s to start, which a busy machine may exceed.
            if not left or "worker to connect back" not in str(error):
                raise
    async with aiokq.Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        async with asyncio.timeout(300):
            told["batches"] = [(await consumer.getone()).value.decode() for _ in range(2)]
    await bridge.call(spark, query.stop)
    told["ended"] = await bridge.await_termination(query, 300)
    return told


if __name__ == "__main__":
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    print("TOLD", json.dumps(asyncio.run(main(spark))))
    spark.stop()
"""


@pytest.mark.full
def test_the_bridges_work_on_spark_connect(
    broker: BrokerProcess, topics: Topics, topic: str, tmp_path: Path
):
    """The handler runs in a process of the server, which has neither the loop nor the client."""
    absent = why_absent() or next(
        (f"{name} is not installed" for name in NEEDED if not _is_there(name)), None
    )
    if absent is not None:
        pytest.skip(f"SPARK CONNECT IS NOT TESTED: {absent}")
    topics.create(topic)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, os.fspath(program), broker.bootstrap_servers, topic],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.fspath(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD ")]
    assert lines, done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(lines[0].removeprefix("TOLD "))
    assert told["rows"] == [0, 1, 2]
    assert told["arrow"] == 3
    assert sum(told["chunks"]) == 25
    assert told["chunks"][0] == 10
    assert told["cancelled"] < 10
    assert "leave `loop` out" in told["refused"]
    assert told["ended"]
    batches = [[int(number) for number in value.split()] for value in told["batches"]]
    assert [batch[1:] for batch in batches] == [[0, 3], [1, 3]]
    pids = {batch[0] for batch in batches}
    assert len(pids) == 1
    assert told["pid"] not in pids


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
