"""A broker whose disk is full, broken or slow, as clients see it."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import aiokq
from aiokq.errors import KafkaError, KafkaStorage
from tests.peers.broker_process import BrokerProcess

PARTITIONS = 4
RUNNER = Path(__file__).with_name("broken_disk.py")
VALUE = b"x" * 1000


class BrokenDiskBroker:
    """A broker on one or two log directories whose disk operations fail on command."""

    def __init__(self, root: Path, *names: str) -> None:
        self.paths = [root / name for name in names]
        self.control = root / "faults"
        self.errors = root / "stderr"
        self.process: subprocess.Popen[str] | None = None
        self.bootstrap = ""

    def start(self) -> None:
        directories = [word for path in self.paths for word in ("--data-dir", str(path))]
        with self.errors.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(RUNNER), "--port", "0", "--json", *directories],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=os.environ | {"BROKEN_DISK": str(self.control), "PYTHONPATH": os.getcwd()},
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        self.bootstrap = json.loads(line)["bootstrap_servers"]

    def breaks(self, *faults: str) -> None:
        temporary = self.control.with_suffix(".new")
        temporary.write_text("".join(f"{fault}\n" for fault in faults))
        temporary.replace(self.control)

    def done(self) -> list[str]:
        """Return the operations that were held or counted so far."""
        path = self.control.with_name(f"{self.control.name}.done")
        return path.read_text().splitlines() if path.exists() else []

    def ended(self, seconds: float = 20) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.ended()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextmanager
def running(broker: BrokenDiskBroker) -> Iterator[BrokenDiskBroker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def run(main) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main

    asyncio.run(bounded())


async def send(producer: aiokq.Producer, number: int, partition: int) -> None:
    await producer.send("t", b"%d" % number + VALUE, partition=partition)


async def contents(bootstrap: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with aiokq.Consumer(
        "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets([("t", partition) for partition in found])
        left = sum(ends.values())
        async for record in consumer:
            assert record.value is not None
            found[record.partition].append(int(record.value[: -len(VALUE)]))
            left -= 1
            if not left:
                break
    return found


def is_offline(error: BaseException) -> bool:
    while error is not None:
        if isinstance(error, KafkaStorage):
            return True
        error = error.__cause__  # type: ignore[assignment]
    return False


async def break_one_of_two(broker: BrokenDiskBroker, *faults: str) -> dict[int, list[int]]:
    """Break the second of two directories; return what was acknowledged, by partition.

    Partitions in the second directory fail from then on, the others do not.
    """
    acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with aiokq.Admin(broker.bootstrap) as admin:
        await admin.create_topics([aiokq.NewTopic("t", PARTITIONS)], raise_errors=True)
        async with aiokq.Producer(
            broker.bootstrap, linger_ms=0, retries=0, enable_idempotence=False
        ) as producer:
            for number in range(100):
                await send(producer, number, number % PARTITIONS)
                acknowledged[number % PARTITIONS].append(number)
            broker.breaks(*faults)
            with pytest.raises(KafkaError) as caught:
                await send(producer, 100, 1)
            assert is_offline(caught.value)
            for number in range(101, 200):  # the other partitions are still served
                partition = 0 if number % 2 else 2
                await send(producer, number, partition)
                acknowledged[partition].append(number)
        [dirs] = (await admin.describe_log_dirs()).values()
        assert [directory.error is None for directory in dirs.log_dirs] == [True, False]
        assert Path(dirs.log_dirs[1].path) == broker.paths[1]
        topic = (await admin.describe_topics(["t"]))["t"]
        leaders = [partition.leader for partition in topic.partitions]
        assert [leader is None or leader < 0 for leader in leaders] == [False, True, False, True]
    return acknowledged


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_one_disk_that_fails_takes_its_partitions_offline_and_nothing_acknowledged_is_lost(
    tmp_path: Path, number: int, end: int
):
    """Its partitions report KAFKA_STORAGE_ERROR and have no leader until a restart."""
    broker = BrokenDiskBroker(tmp_path, "a", "b")
    acknowledged: dict[int, list[int]] = {}

    async def breaking() -> None:
        acknowledged.update(await break_one_of_two(broker, f"write {tmp_path}/b/ {number}"))

    async def checking() -> None:
        assert await contents(broker.bootstrap) == acknowledged

    with running(broker):
        run(breaking())
        assert broker.stop(end) == (0 if end == signal.SIGTERM else -signal.SIGKILL)
    assert "Traceback" not in broker.errors.read_text()
    broker.breaks()
    with running(broker):
        run(checking())


@pytest.mark.parametrize(
    ("fault", "what"), [("write {}/a/t-0 5", "append failed"), ("sync {}/a/__cluster 5", "sync")]
)
def test_a_broker_whose_metadata_disk_fails_ends_with_its_reason(
    tmp_path: Path, fault: str, what: str
):
    """The metadata log is in the first directory only; without it no change could be recorded."""
    broker = BrokenDiskBroker(tmp_path, "a", "b")

    async def breaking() -> None:
        async with aiokq.Admin(broker.bootstrap) as admin:
            await admin.create_topics([aiokq.NewTopic("t", PARTITIONS)], raise_errors=True)
            async with aiokq.Producer(
                broker.bootstrap, linger_ms=0, retries=0, enable_idempotence=False
            ) as producer:
                await send(producer, 0, 0)
                broker.breaks(fault.format(tmp_path))
                meets = (
                    send(producer, 1, 0)
                    if "t-0" in fault
                    else admin.create_topics([aiokq.NewTopic("u")], raise_errors=True)
                )
                with pytest.raises((KafkaError, TimeoutError)):  # Admin waits for the broker
                    await asyncio.wait_for(meets, 5)

    with running(broker):
        run(breaking())
        assert broker.ended() == 1
    said = broker.errors.read_text()
    last = said.strip().splitlines()[-1]
    assert last.startswith(
        f"aiokq broker: the metadata log has failed: log directory {tmp_path}/a is offline"
    )
    assert what in last
    assert "Input/output error" in last
    assert "Traceback" not in said
    broker.breaks()
    with running(broker):
        assert asyncio.run(contents(broker.bootstrap))[0] == [0]


def test_when_the_last_disk_fails_the_answer_is_56_and_the_exit_code_1(tmp_path: Path):
    """The broker exits instead of responding KAFKA_STORAGE_ERROR for ever.

    Its last line says which disk failed, why, and what to do.
    """
    broker = BrokenDiskBroker(tmp_path, "a")

    async def breaking() -> None:
        async with aiokq.Producer(
            broker.bootstrap, linger_ms=0, retries=0, enable_idempotence=False
        ) as producer:
            for number in range(10):
                await producer.send("t", b"%d" % number + VALUE)
            broker.breaks(f"write {tmp_path}/a/ {errno.ENOSPC}")
            with pytest.raises(KafkaError) as caught:
                await producer.send("t", b"10" + VALUE)
            assert is_offline(caught.value)

    async def checking() -> None:
        found = await contents_of_one(broker.bootstrap)
        assert found == list(range(10))

    with running(broker):
        run(breaking())
        assert broker.ended() == 1
    said = broker.errors.read_text()
    last = said.strip().splitlines()[-1]
    assert last.startswith(f"aiokq broker: log directory {tmp_path}/a is offline")
    assert "No space left on device" in last
    assert "free space" in last
    assert "Traceback" not in said
    broker.breaks()
    with running(broker):
        run(checking())


async def contents_of_one(bootstrap: str) -> list[int]:
    found = []
    async with aiokq.Consumer(
        "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        end = (await consumer.end_offsets([("t", 0)]))[aiokq.TopicPartition("t", 0)]
        async for record in consumer:
            assert record.value is not None
            found.append(int(record.value[: -len(VALUE)]))
            if len(found) == end:
                break
    return found


def test_a_failed_sync_is_not_acknowledged_and_takes_the_disk_offline(tmp_path: Path):
    """A second sync might succeed although data is lost, so the directory goes offline."""
    broker = BrokenDiskBroker(tmp_path, "a", "b")

    async def main() -> None:
        async with aiokq.Admin(broker.bootstrap) as admin:
            topic = aiokq.NewTopic("t", 2, configs={"flush.messages": "1"})
            await admin.create_topics([topic], raise_errors=True)
        async with aiokq.Producer(
            broker.bootstrap, linger_ms=0, retries=0, enable_idempotence=False
        ) as producer:
            await send(producer, 0, 1)
            broker.breaks(f"sync {tmp_path}/b/t-1 {errno.EIO}")
            for _ in range(2):
                with pytest.raises(KafkaError) as caught:
                    await send(producer, 1, 1)
                assert is_offline(caught.value)
                broker.breaks()
            await send(producer, 2, 0)

    with running(broker):
        run(main())


def test_a_slow_sync_costs_those_who_wait_for_it_latency_and_nobody_else_anything(tmp_path: Path):
    """The loop is never blocked; producers that wait together share one sync."""
    broker = BrokenDiskBroker(tmp_path, "a")

    async def main() -> None:
        async with aiokq.Admin(broker.bootstrap) as admin:
            await admin.create_topics(
                [
                    aiokq.NewTopic("slow", 1, configs={"flush.messages": "1"}),
                    aiokq.NewTopic("fast", 1),
                ],
                raise_errors=True,
            )
        producers = [
            aiokq.Producer(broker.bootstrap, linger_ms=0, enable_idempotence=False)
            for _ in range(9)
        ]
        for producer in producers:
            await producer.start()
        *several, other = producers
        [log] = (tmp_path / "a" / "slow-0").glob("*.log")
        await asyncio.gather(*(producer.send("slow", VALUE) for producer in several))
        await other.send("fast", VALUE)
        size = log.stat().st_size
        broker.breaks("sync /slow-0/ held")
        waiting = [asyncio.ensure_future(producer.send("slow", VALUE)) for producer in several]
        while not broker.done() or log.stat().st_size < 2 * size:
            await other.send("fast", VALUE)
        for _ in range(20):
            await other.send("fast", VALUE)
        assert not any(one.done() for one in waiting)
        broker.breaks("sync /slow-0/ counted")
        await asyncio.gather(*waiting)
        # records appended before the first sync began share it, all others share the second
        assert 1 <= len(broker.done()) <= 2
        for producer in producers:
            await producer.close()

    with running(broker):
        run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk of its own")
def test_a_disk_that_is_really_full_loses_nothing_acknowledged(tmp_path: Path):
    """On a file system of 8 MiB, where the kernel makes short writes."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "aiokq-test", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine mounts nothing")
    try:
        broker = BrokerProcess(small / "data")
        broker.start()
        acknowledged = 0

        async def fill() -> None:
            nonlocal acknowledged
            async with aiokq.Producer(
                broker.bootstrap_servers, linger_ms=0, retries=0, enable_idempotence=False
            ) as producer:
                try:
                    while True:
                        await producer.send("t", b"%d" % acknowledged + VALUE * 100)
                        acknowledged += 1
                except KafkaError as error:
                    assert is_offline(error)  # noqa: PT017 - the number of sends before the error is counted

        async def check() -> None:
            async with aiokq.Consumer(
                "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                for number in range(acknowledged):
                    record = await anext(aiter(consumer))
                    assert record.value is not None
                    assert record.value.startswith(b"%dx" % number)

        run(fill())
        assert broker.process is not None
        assert broker.process.wait(20) == 1
        broker.stop()
        assert acknowledged > 50
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        broker.start()
        run(check())
        assert broker.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
