"""Time until a broker of many partitions is ready: `python -m benchmarks.log_startup`, JSON lines.

A broker is started on a data directory whose partitions have some records: once after a clean
shutdown, once after a kill with more records after its checkpoints. It is ready when each
partition's leader responds. The broker is `aiokq broker`, or with --apache Apache Kafka's.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire import ProduceRequest
from aiokq.wire.produce import PartitionProduceData, TopicProduceData
from benchmarks.raw_load import PRODUCE_VERSION, RawClient, create_topic, end_offsets
from benchmarks.servers import compile_installed, resident_bytes
from benchmarks.touched import touch
from tests.peers.apache_kafka import ApacheKafka

VALUE: Final = b"v" * 1000
RECORDS: Final = 10
"""Number of records appended to each partition before a clean shutdown, and again before a kill."""

REQUEST_PARTITIONS: Final = 1000
"""Partitions of one request."""


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
    """`aiokq broker` as a process of its own."""

    memory = 64 << 20

    def __init__(self, directory: str) -> None:
        compile_installed()
        self._directory = directory
        self._process: subprocess.Popen[str]
        self.bootstrap = ""
        self.pid = 0

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "aiokq", "broker", "--port", "0", "--json"]
            + ["--profile", "kafka", "--data-dir", self._directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap = json.loads(self._process.stdout.readline())["bootstrap_servers"]
        self.pid = self._process.pid

    def stop(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.wait(120)
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
        self._cluster.stop_node(1, number)


class Startup:
    """The starts of one broker, one by one, so that brokers can take turns.

    Args:
        directory: data directory, empty at first; it is kept between starts.
    """

    def __init__(self, kind: type[AiokqBroker | ApacheBroker], directory: str) -> None:
        self.broker: Startable = kind(directory)
        self._topics: dict[str, int] = {}

    def fill(self, partitions: int, topics: int = 1) -> None:
        """Start the broker for the first time, fill partitions, and stop it cleanly.

        Args:
            partitions: in all, evenly divided among the topics.
        """
        self.broker.start()
        try:
            client = RawClient(self.broker.bootstrap)
            self._topics = {f"measured-{each}": partitions // topics for each in range(topics)}
            for topic, count in self._topics.items():
                create_topic(client, topic, count)
            _append(client, self._topics)
        finally:
            self.broker.stop(signal.SIGTERM)

    def measure(self, *, then_kill: bool) -> dict[str, float]:
        """Measure one start; then stop the broker cleanly, or write more records and kill it.

        Without `fill` before, the start of an empty directory is measured.
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
            if then_kill:
                _append(client, self._topics)
        finally:
            self.broker.stop(signal.SIGKILL if then_kill else signal.SIGTERM)
        return {"accepts_seconds": accepts, "ready_seconds": ready, "resident_bytes": resident}


def _append(client: RawClient, topics: dict[str, int]) -> None:
    """Append a batch to each partition, with a thousand partitions to a request."""
    record = RawRecord(0, int(time.time() * 1000), None, VALUE)
    records = [record._replace(offset=offset) for offset in range(RECORDS)]
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


def _wait_until_ready(client: RawClient, topics: dict[str, int]) -> None:
    """Wait until each partition's leader returns its end; metadata may name the leader earlier."""
    for group in _grouped(topics):
        while any(each.error_code for each in end_offsets(client, group)):
            time.sleep(0.01)


def _grouped(topics: dict[str, int]) -> Iterator[dict[str, list[int]]]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--topics", type=int, default=1, help="topics that share the partitions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apache", action="store_true", help="Apache Kafka's broker instead")
    options = parser.parse_args()
    kind = ApacheBroker if options.apache else AiokqBroker
    with tempfile.TemporaryDirectory(prefix="aiokq-startup-") as directory:
        startup = Startup(kind, directory)
        startup.fill(options.partitions, options.topics)
        for _ in range(options.rounds):
            for stopped, then_kill in (("clean", True), ("killed", False)):
                print(json.dumps({"stopped": stopped} | startup.measure(then_kill=then_kill)))


if __name__ == "__main__":
    main()
