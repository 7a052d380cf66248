"""Time until a broker of many partitions is ready: `python -m benchmarks.log_startup`, JSON lines.

A broker is started on a data directory whose partitions have some records: once after a clean
shutdown, once after a kill with more records after its checkpoints. It is ready when each
partition's leader responds; memory and CPU time are read then. The broker is `aiokq broker`, or
with --apache Apache Kafka's.

`--against DIR` also measures the package in another directory (a checkout with its compiled core),
interleaved, and prints a table of the medians of both. Each package fills a data directory of its
own, because the newer may migrate what the older wrote. The JSON lines then go to stderr.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import aiokq
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire import CreatePartitionsRequest, CreateTopicsRequest, ProduceRequest
from aiokq.wire.create_partitions import CreatePartitionsTopic
from aiokq.wire.create_topics import CreatableTopic
from aiokq.wire.produce import PartitionProduceData, TopicProduceData
from benchmarks.raw_load import PRODUCE_VERSION, RawClient, end_offsets
from benchmarks.servers import compile_package, resident_bytes
from benchmarks.touched import touch
from benchmarks.watch import cpu_seconds
from tests.peers.apache_kafka import ApacheKafka

VALUE: Final = b"v" * 1000
RECORDS: Final = 10
"""Number of records appended to each partition before a clean shutdown, and again before a kill."""

REQUEST_PARTITIONS: Final = 1000
"""Partitions of one request, or topics of a request that creates them."""

CREATED_PARTITIONS: Final = 5000
"""Largest number of partitions of a topic that one request creates; Apache Kafka makes fewer than
10,000 records for a request.
"""

CREATION_MS: Final = 60_000

READY_SECONDS: Final = 600
"""Time after which a partition without a leader is an error."""

STOP_SECONDS: Final = 300
"""Time in which a broker must have stopped."""

PACKAGE: Final = Path(aiokq.__file__).resolve().parents[1]
"""Directory of the `aiokq` that this process imports."""

COLUMNS: Final = (
    ("accepts_seconds", "accepts, s", 1.0, 3),
    ("ready_seconds", "ready, s", 1.0, 3),
    ("cpu_seconds", "CPU, s", 1.0, 3),
    ("resident_bytes", "memory, MB", 1e6, 1),
)
"""Figures of a start: key, title, unit, decimals."""

Found: TypeAlias = dict[tuple[int, str], dict[Path, list[dict[str, float]]]]
"""Figures of starts, by number of topics and state, and by the package that was measured."""


class Startable(Protocol):
    """A broker on a directory that exists longer than the broker."""

    memory: int
    """Approximate memory of the start, in bytes."""

    bootstrap: str
    pid: int

    def start(self) -> None:
        """Start the broker, and return when it accepts connections."""
        ...

    def stop(self, number: int) -> None:
        """Send a signal, and return when the process has ended."""
        ...


class AiokqBroker:
    """`aiokq broker` as a process of its own.

    Args:
        package: directory from which the process imports `aiokq`.
    """

    memory = 64 << 20

    def __init__(self, directory: str, package: Path = PACKAGE) -> None:
        compile_package(package / "aiokq")
        self._directory = directory
        self._package = package
        self._process: subprocess.Popen[str]
        self.bootstrap = ""
        self.pid = 0

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "aiokq", "broker", "--port", "0", "--json"]
            + ["--profile", "kafka", "--data-dir", self._directory],
            cwd=self._package,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap = json.loads(self._process.stdout.readline())["bootstrap_servers"]
        self.pid = self._process.pid

    def stop(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()


class ApacheBroker:
    """Apache Kafka's broker, which is its own controller."""

    memory = 400 << 20

    def __init__(self, directory: str) -> None:
        self._cluster = ApacheKafka(Path(directory), optimised=True)
        self._cluster.format()
        self.bootstrap = self._cluster.bootstrap_servers
        self.pid = 0

    def start(self) -> None:
        self._cluster.start_node(1)
        self.pid = self._cluster.processes[1].pid

    def stop(self, number: int) -> None:
        self._cluster.stop_node(1, number, seconds=STOP_SECONDS)


class Startup:
    """The starts of one broker, one by one, so that brokers can take turns.

    Args:
        broker: a broker on an empty directory, which is kept between starts.
        records: number of records that are appended to each partition at a time.
    """

    def __init__(self, broker: Startable, records: int = RECORDS) -> None:
        self.broker = broker
        self._topics: dict[str, int] = {}
        self._records = records

    def fill(self, partitions: int, topics: int = 1) -> None:
        """Start the broker for the first time, fill partitions, and stop it cleanly.

        Args:
            partitions: in all, evenly divided among the topics.
        """
        self.broker.start()
        try:
            client = RawClient(self.broker.bootstrap)
            self._topics = {f"measured-{each}": partitions // topics for each in range(topics)}
            _create(client, self._topics)
            _append(client, self._topics, self._records)
        finally:
            self.broker.stop(signal.SIGTERM)

    def measure(self, *, then_kill: bool) -> dict[str, float]:
        """Measure one start; then stop the broker cleanly, or write more records and kill it.

        Without `fill` before, the start of an empty directory is measured.

        Returns:
            Seconds until it accepts connections and until it is ready; its resident bytes and CPU
            seconds when it was ready.
        """
        touch(self.broker.memory)
        began = time.perf_counter()
        self.broker.start()
        try:
            accepts = time.perf_counter() - began
            client = RawClient(self.broker.bootstrap)
            _wait_until_ready(client, self._topics)
            ready = time.perf_counter() - began
            resident = resident_bytes(self.broker.pid)
            spent = cpu_seconds(self.broker.pid)
            if then_kill:
                _append(client, self._topics, self._records)
        finally:
            self.broker.stop(signal.SIGKILL if then_kill else signal.SIGTERM)
        return {
            "accepts_seconds": accepts,
            "ready_seconds": ready,
            "resident_bytes": resident,
            "cpu_seconds": spent,
        }


def _create(client: RawClient, topics: Mapping[str, int]) -> None:
    """Create topics, and wait until their partitions have leaders."""
    new = [
        CreatableTopic(
            name=topic, num_partitions=min(count, CREATED_PARTITIONS), replication_factor=1
        )
        for topic, count in topics.items()
    ]
    for first in range(0, len(new), REQUEST_PARTITIONS):
        some = new[first : first + REQUEST_PARTITIONS]
        response = client.request(CreateTopicsRequest(topics=some, timeout_ms=CREATION_MS), 4)
        assert not any(each.error_code for each in response.topics), response
    for topic, count in topics.items():
        for made in range(CREATED_PARTITIONS, count, CREATED_PARTITIONS):
            grown = CreatePartitionsTopic(
                name=topic, count=min(made + CREATED_PARTITIONS, count), assignments=None
            )
            request = CreatePartitionsRequest(topics=[grown], timeout_ms=CREATION_MS)
            added = client.request(request, 2)
            assert not any(each.error_code for each in added.results), added
    _wait_until_ready(client, topics)


def _append(client: RawClient, topics: Mapping[str, int], count: int) -> None:
    """Append a batch of `count` records to each partition, with many partitions to a request."""
    record = RawRecord(0, int(time.time() * 1000), None, VALUE)
    records = [record._replace(offset=offset) for offset in range(count)]
    batch = encode_batch(records, crc32c=crc32c)
    for group in _grouped(topics):
        data = [
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=each, records=batch) for each in indexes
                ],
            )
            for topic, indexes in group.items()
        ]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data)
        response = client.request(request, PRODUCE_VERSION)
        answers = [each for topic in response.responses for each in topic.partition_responses]
        assert not any(answer.error_code for answer in answers), answers


def _wait_until_ready(client: RawClient, topics: Mapping[str, int]) -> None:
    """Wait until each partition's leader returns its end; metadata may name the leader earlier.

    The broker's CPU time is measured, so the wait polls one partition only, the last one without a
    leader. When this partition has a leader, all partitions that had none are queried again.
    """
    deadline = time.monotonic() + READY_SECONDS
    for group in _grouped(topics):
        wanted = group
        while wanted := _without_leader(client, wanted):
            topic = next(reversed(wanted))
            last = {topic: wanted[topic][-1:]}
            while _without_leader(client, last):
                assert time.monotonic() < deadline, f"{topic} has no leader"
                time.sleep(0.01)


def _without_leader(client: RawClient, wanted: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Return those of some partitions whose leader does not respond."""
    found: dict[str, list[int]] = {}
    for topic in end_offsets(client, wanted):
        for each in topic.partitions:
            if each.error_code:
                found.setdefault(topic.name, []).append(each.partition_index)
    return found


def _grouped(topics: Mapping[str, int]) -> Iterator[dict[str, list[int]]]:
    """Yield the partitions of topics by name, at most `REQUEST_PARTITIONS` at a time."""
    group: dict[str, list[int]] = {}
    size = 0
    for topic, count in topics.items():
        for index in range(count):
            group.setdefault(topic, []).append(index)
            size += 1
            if size == REQUEST_PARTITIONS:
                yield group
                group, size = {}, 0
    if group:
        yield group


def show(found: Found, before: Path, after: Path) -> None:
    """Print the medians of two packages by number of topics and state, and how they differ."""
    print(f"before: {before}\nafter:  {after}")
    for (topics, stopped), by_package in found.items():
        print(f"topics: {topics:,}, {stopped}")
        for name, title, unit, decimals in COLUMNS:
            old, new = (
                statistics.median(figures[name] for figures in by_package[package]) / unit
                for package in (before, after)
            )
            print(
                f"  {title:12}{old:10.{decimals}f}{new:10.{decimals}f} {new - old:+9.{decimals}f}"
                f" {new / old - 1:+8.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument(
        "--topics", type=int, nargs="+", default=[1], help="topics that share the partitions"
    )
    parser.add_argument("--records", type=int, default=RECORDS, help="appended to each at a time")
    parser.add_argument("--rounds", type=int, default=3)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--apache", action="store_true", help="Apache Kafka's broker instead")
    which.add_argument("--against", type=Path, help="a directory with another aiokq")
    options = parser.parse_args()
    packages = [PACKAGE] if options.against is None else [options.against.resolve(), PACKAGE]
    out = sys.stdout if options.against is None else sys.stderr
    found: Found = {}
    with ExitStack() as stack:
        filled = {}
        for topics in options.topics:
            for package in packages:
                path = stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokq-startup-"))
                broker = ApacheBroker(path) if options.apache else AiokqBroker(path, package)
                filled[topics, package] = Startup(broker, options.records)
                filled[topics, package].fill(options.partitions, topics)
        for number in range(options.rounds):
            turns = packages[:: -1 if number % 2 else 1]
            states = itertools.product(options.topics, (("clean", True), ("killed", False)), turns)
            for topics, (stopped, then_kill), package in states:
                figures = filled[topics, package].measure(then_kill=then_kill)
                state = {"package": str(package), "topics": topics, "stopped": stopped}
                print(json.dumps(state | figures), file=out, flush=True)
                found.setdefault((topics, stopped), {}).setdefault(package, []).append(figures)
    if options.against is not None:
        show(found, *packages)


if __name__ == "__main__":
    main()
