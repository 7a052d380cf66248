"""A Kafka Streams application with exactly_once_v2 on `aiokq broker`."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aiokq
from aiokq.testing import Recorder
from tests.interop.apache.support import eventually
from tests.interop.apache.test_transactions import set_level
from tests.peers.apache_kafka import STREAMS, java_command, why_streams_are_absent
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.checked_topics import checked_copy, create_topics, fill

REASON = why_streams_are_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(300),
]

PARTITIONS = 2
SOURCE = Path(__file__).parents[1] / "peers" / "JavaStreams.java"


@contextmanager
def streams(broker: BrokerProcess, name: str, state: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the application, from `NAME-in` to `NAME-out` and `NAME-totals`."""
    topics = [f"{name}-{end}" for end in ("in", "out", "totals")]
    process = subprocess.Popen(
        java_command(
            str(SOURCE), broker.bootstrap_servers, name, str(state), *topics, jars=STREAMS
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def wait_for_offsets(broker: BrokerProcess, group: str, topic: str, count: int) -> None:
    """Wait until a group has committed `count` records of a topic."""
    async with aiokq.Admin(broker.bootstrap_servers) as admin:

        async def committed() -> None:
            found = (await admin.list_group_offsets(group, raise_errors=True))[group].offsets
            assert sum(o.offset for tp, o in found.items() if tp.topic == topic) >= count

        await eventually(committed, timeout=60)


async def wait_for_totals(broker: BrokerProcess, topic: str, expected: Counter[str]) -> None:
    """Read the newest committed totals until they are as expected."""
    last: dict[str, int] = {}
    async with (
        asyncio.timeout(60),
        aiokq.Consumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        while last != expected:
            record = await consumer.getone()
            key, count = (record.key or b"").decode(), int(record.value or b"")
            assert last.get(key, 0) < count <= expected[key], "a record was counted twice"
            last[key] = count


async def run(broker: BrokerProcess, topic: str, state: Path, *, killed: bool) -> None:
    servers, recorder = broker.bootstrap_servers, Recorder()
    source, target, totals = (f"{topic}-{end}" for end in ("in", "out", "totals"))
    await create_topics(servers, source, target, totals, partitions=PARTITIONS)
    values = [f"{n % 7}-{n}" for n in range(2000)]
    await fill(servers, recorder, source, values[:1000], partitions=PARTITIONS)
    if killed:
        with streams(broker, topic, state):
            await wait_for_offsets(broker, topic, source, 300)
    filling = asyncio.create_task(
        fill(servers, recorder, source, values[1000:], partitions=PARTITIONS)
    )
    with streams(broker, topic, state) as process:
        await filling
        await wait_for_offsets(broker, topic, source, len(values))
        await wait_for_totals(broker, totals, Counter(value[0] for value in values))
        output, _ = await asyncio.to_thread(process.communicate, "", 60)
        assert process.returncode == 0
        assert output.split()[-1] == "NOT_RUNNING"
    await checked_copy(servers, recorder, source, target, values, partitions=PARTITIONS)


async def test_kafka_streams_processes_each_record_once(topic: str, tmp_path: Path) -> None:
    """Copies and counts agree with the input, and the checker condemns nothing."""
    with broker_process(tmp_path / "data", "--profile", "dev") as broker:
        await run(broker, topic, tmp_path / "state", killed=False)


@pytest.mark.full
@pytest.mark.parametrize("level", [0, 1, 2])
async def test_kafka_streams_that_is_killed_processes_each_record_once(
    topic: str, tmp_path: Path, level: int
) -> None:
    """SIGKILL within transactions; the next process restores its counts and goes on."""
    with broker_process(tmp_path / "data", "--profile", "dev") as broker:
        await set_level(broker, level)  # type: ignore[arg-type]
        await run(broker, topic, tmp_path / "state", killed=True)
