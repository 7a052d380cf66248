"""One Spark session that reads and writes with two formats in turns; prints JSON lines.

The formats are aiokq's source and sink, and Spark's own Kafka connector. Both read the same topics.
CPU seconds are the sum of the driver, the JVM and all Python workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("aiokq", "kafka")
VALUE = b"0123456789" * 10
PATIENCE = 60.0
CHUNK = 10_000
WARM_UP = 3
PARTITIONS = (2, 16, 64)
PARTS = (0.005, 0.05, 0.5)
"""Fractions of the records that are also read, to show how the rate depends on the number."""


def session(cores: int, connector: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    jars = ",".join(str(jar) for jar in sorted(connector.glob("*.jar")))
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("aiokq benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def cpu_seconds() -> float:
    """Return the CPU time of all processes of this POSIX session, including ended processes."""
    sid, ticks = os.getsid(0), 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended just now
        if int(fields[3]) == sid:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


class Bench:
    """Measurements on one cluster."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.directory = tempfile.mkdtemp(prefix="aiokq-bench-spark-")

    def fill(self, topic: str, partitions: int, records: int) -> None:
        """Create a topic with records of 16-byte keys and 100-byte values, evenly spread.

        A topic that an earlier session has created is kept as it is.
        """

        async def work() -> None:
            async with aiokq.Cluster(self.bootstrap) as cluster:
                async with cluster.admin() as admin:
                    if topic in await admin.list_topics():
                        return
                await create(cluster, topic, partitions)
                async with cluster.producer(linger_ms=50) as producer:
                    for partition in range(partitions):
                        count = records // partitions
                        for at in range(0, count, CHUNK):
                            chunk = range(at, min(at + CHUNK, count))
                            await producer.send_many(
                                topic, [(b"%016d" % n, VALUE) for n in chunk], partition
                            )

        asyncio.run(work())

    def create(self, topic: str, partitions: int) -> None:
        async def work() -> None:
            async with aiokq.Cluster(self.bootstrap) as cluster:
                await create(cluster, topic, partitions)

        asyncio.run(work())

    def reader(self, format_: str, topic: str, **options: str) -> DataFrame:
        reader = self.spark.read.format(format_).option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(subscribe=topic, **options).load()

    def full(self, format_: str, topic: str, **options: str) -> float:
        """Return the seconds to read all columns and discard them."""
        return timed(to_noop, self.reader(format_, topic, **options))

    def pruned(self, format_: str, topic: str) -> float:
        """Return the seconds to read the values."""
        if format_ == "aiokq":
            return timed(to_noop, self.reader(format_, topic, columns="value"))
        return timed(to_noop, self.reader(format_, topic).select("value"))

    def written(self, format_: str, topic: str, rows: int) -> float:
        """Return the seconds to write rows that Spark generates, like those of `fill`."""
        frame = self.spark.range(rows).selectExpr(
            "lpad(cast(id as string), 16, '0') as key", f"'{VALUE.decode()}' as value"
        )
        writer = frame.write.format(format_).mode("append")
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap).option("topic", topic)
        return timed(writer.save)

    def micro_batches(self, format_: str, topic: str, batches: int) -> list[dict[str, int]]:
        """Return the milliseconds of each micro-batch of one record, by phase."""
        stream = self.spark.readStream.format(format_)
        stream = stream.option("kafka.bootstrap.servers", self.bootstrap)
        frame = stream.options(subscribe=topic, startingOffsets="latest").load()
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", tempfile.mkdtemp(dir=self.directory))
            .start()
        )

        def has_more(number: int) -> bool:
            return rows_of(query) > number

        async def work() -> None:
            async with aiokq.Producer(self.bootstrap) as producer:
                # The first batches start processes and compile code.
                for number in range(batches + WARM_UP):
                    await producer.send(topic, b"x")
                    await asyncio.to_thread(until, partial(has_more, number))

        try:
            while query.lastProgress is None:
                time.sleep(0.05)
            asyncio.run(work())
            done = [p for p in query.recentProgress if p["numInputRows"]]
        finally:
            query.stop()
        return [dict(progress["durationMs"]) for progress in done[WARM_UP:]]


def rows_of(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the query does not read what was sent")
        time.sleep(0.05)


async def create(cluster: aiokq.Cluster, topic: str, partitions: int) -> None:
    async with cluster.admin() as admin:
        await admin.create_topics(topic, num_partitions=partitions, raise_errors=True)


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(function: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - started


def tell(what: str, format_: str, **figures: object) -> None:
    print(json.dumps({"what": what, "format": format_, **figures}), flush=True)


def in_turns(rounds: int, what: str, measure: Callable[[str, int], Mapping[str, object]]) -> None:
    """Measure each format once a round, in turns, after a round whose results are dropped."""
    for number in range(-1, rounds):
        for format_ in FORMATS if number % 2 else FORMATS[::-1]:
            before = cpu_seconds()
            figures = measure(format_, number)
            if number >= 0:
                tell(what, format_, cpu_seconds=cpu_seconds() - before, **figures)


def read(
    bench: Bench, topic: str, rows: int, options: Mapping[str, str], format_: str, _: int
) -> Mapping[str, object]:
    return {"rows": rows, "seconds": bench.full(format_, topic, **options)}


def prune(bench: Bench, rows: int, format_: str, _: int) -> Mapping[str, object]:
    return {"rows": rows, "seconds": bench.pruned(format_, "four")}


def write(bench: Bench, rows: int, format_: str, number: int) -> Mapping[str, object]:
    topic = f"written-{format_}-{number + 1}"
    bench.create(topic, 4)
    return {"rows": rows, "seconds": bench.written(format_, topic, rows)}


def full(bench: Bench, records: int, rounds: int) -> None:
    """Measure reads of all columns of all records."""
    in_turns(rounds, "full", partial(read, bench, "four", records, {}))


def rates(bench: Bench, records: int, rounds: int) -> None:
    """Measure reads of all columns, of values, and writes."""
    full(bench, records, rounds)
    in_turns(rounds, "pruned", partial(prune, bench, records))
    in_turns(rounds, "write", partial(write, bench, records))


def shapes(bench: Bench, records: int, rounds: int) -> None:
    """Measure reads of topics with more and more partitions, and of more and more records."""
    for partitions in PARTITIONS:
        topic, rows = f"partitions-{partitions}", records // 4 // partitions * partitions
        bench.fill(topic, partitions, rows)
        in_turns(rounds, f"{partitions} partitions", partial(read, bench, topic, rows, {}))
    for part in PARTS:
        each = int(records * part) // 4
        ending = {"endingOffsets": json.dumps({"four": {str(n): each for n in range(4)}})}
        in_turns(rounds, f"{4 * each:,} rows", partial(read, bench, "four", 4 * each, ending))


def micro(bench: Bench, rounds: int, batches: int) -> None:
    """Measure micro-batches of one record: milliseconds in all and by phase."""
    bench.create("micro", 2)
    for number in range(rounds):
        for format_ in FORMATS if number % 2 else FORMATS[::-1]:
            before = cpu_seconds()
            durations = bench.micro_batches(format_, "micro", batches)
            tell("micro", format_, cpu_seconds=cpu_seconds() - before, batches=durations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--connector", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=8)
    what = ("full", "rates", "shapes", "micro")
    parser.add_argument("--what", nargs="+", choices=what, default=what[1:])
    options = parser.parse_args()
    spark = session(options.cores, options.connector)
    bench = Bench(spark, options.bootstrap)
    try:
        bench.fill("four", 4, options.records)
        if "full" in options.what:
            full(bench, options.records, options.rounds)
        if "rates" in options.what:
            rates(bench, options.records, options.rounds)
        if "shapes" in options.what:
            shapes(bench, options.records, options.rounds)
        if "micro" in options.what:
            micro(bench, options.rounds, options.batches)
    finally:
        spark.stop()
        shutil.rmtree(bench.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
