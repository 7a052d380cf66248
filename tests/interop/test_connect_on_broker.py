"""A Kafka Connect worker with exactly-once support for sources on `aiokq broker`."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.testing import Outcome, Recorder, Send
from tests.interop.apache.support import eventually
from tests.interop.apache.test_transactions import set_level
from tests.peers.apache_kafka import STREAMS, java_command, why_streams_are_absent
from tests.peers.broker_process import broker_process
from tests.peers.checked_topics import create_topics, judged
from tests.peers.ports import free_ports

REASON = why_streams_are_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.full,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(400),
]

LINES = 3000


class Worker:
    """The settings of a distributed worker, and its REST interface."""

    def __init__(self, servers: str, directory: Path) -> None:
        [self.port] = free_ports(1)
        self.output = directory / "worker.out"
        self.properties = directory / "worker.properties"
        settings = {
            "bootstrap.servers": servers,
            "group.id": "connect",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{
                f"{each}.storage.topic": f"connect-{each}"
                for each in ("offset", "config", "status")
            },
            **{
                f"{each}.storage.replication.factor": "1" for each in ("offset", "config", "status")
            },
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "listeners": f"http://127.0.0.1:{self.port}",
        }
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the worker; SIGKILL at the end."""
        with self.output.open("ab") as output:
            process = subprocess.Popen(
                java_command(
                    "org.apache.kafka.connect.cli.ConnectDistributed",
                    str(self.properties),
                    jars=STREAMS,
                ),
                stdout=output,
                stderr=output,
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def ask(self, path: str, document: object = None) -> Any:
        """Send a request to the worker once it answers; return its answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            None if document is None else json.dumps(document).encode(),
            {"Content-Type": "application/json"},
        )
        deadline = time.monotonic() + 90
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code not in (404, 409, 503) or time.monotonic() > deadline:
                        raise AssertionError(error.read().decode()) from error
            except OSError:
                if time.monotonic() > deadline:
                    raise AssertionError(self.output.read_text()[-4000:]) from None
            time.sleep(0.2)


async def append_lines(path: Path) -> None:
    """Append numbered lines until cancelled, as a program that logs.

    The connector keeps its last lines back until the file grows.
    """
    for first in itertools.count(0, 20):
        with path.open("a") as lines:
            lines.writelines(f"line {n}\n" for n in range(first, first + 20))
        await asyncio.sleep(0.02 if first < LINES else 0.2)


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_a_connect_worker_that_is_killed_writes_each_line_once(
    topic: str, tmp_path: Path, level: int
) -> None:
    """Records and source offsets are one transaction; the next worker fences the killed one."""
    path = tmp_path / "lines"
    path.touch()
    with broker_process(tmp_path / "data", "--profile", "dev") as broker:
        servers = broker.bootstrap_servers
        await set_level(broker, level)  # type: ignore[arg-type]
        await create_topics(servers, topic, partitions=1)
        worker = Worker(servers, tmp_path)

        async with aiokq.Admin(servers) as admin:

            async def wait_for_records(count: int) -> None:
                async def arrived() -> None:
                    ends = await admin.list_offsets(
                        {(topic, 0): "latest"}, isolation_level="read_committed"
                    )
                    assert ends[aiokq.TopicPartition(topic, 0)].offset >= count

                await eventually(arrived, timeout=90)

            with worker.running():
                connector = {
                    "connector.class": "FileStreamSource",
                    "tasks.max": "1",
                    "file": str(path),
                    "topic": topic,
                    "batch.size": "50",
                    "exactly.once.support": "required",
                    "transaction.boundary": "poll",
                }
                document = {"name": "lines", "config": connector}
                await asyncio.to_thread(worker.ask, "/connectors", document)
                writing = asyncio.create_task(append_lines(path))
                await wait_for_records(LINES // 4)
            with worker.running():
                # Each transaction has a marker, so the end of the log does not tell the last line.
                last = f"line {LINES}".encode()
                async with (
                    asyncio.timeout(90),
                    aiokq.Consumer(
                        topic,
                        bootstrap_servers=servers,
                        isolation_level="read_committed",
                        auto_offset_reset="earliest",
                    ) as consumer,
                ):
                    async for record in consumer:
                        if record.value == last:
                            break
                writing.cancel()
                state = await asyncio.to_thread(worker.ask, "/connectors/lines/status")
                assert [task["state"] for task in state["tasks"]] == ["RUNNING"]
        recorder = Recorder()
        values = path.read_text().splitlines()
        for value in values:
            recorder.add(Send("connect", topic, value, Outcome.UNKNOWN))
        report, found = await judged(servers, recorder, [topic], partitions=1)
        assert report.ok, report
        assert len(found[topic]) > LINES
        assert found[topic] == values[: len(found[topic])]
        assert any(batch.is_control for batch in broker.batches(topic))
