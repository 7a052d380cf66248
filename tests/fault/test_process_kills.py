"""Three members of a group copy records with process() while they and the broker are killed."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest

import aiokq

MEMBERS = 3
PARTITIONS = 4
EXIT_SECONDS = 30


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Machines:
    """The processes of a broker and its copiers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.broker: asyncio.subprocess.Process
        self.members: list[asyncio.subprocess.Process] = []
        self.log = (directory / "log").open("ab")

    async def start_broker(self) -> None:
        self.broker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "aiokq", "broker", "--port", str(self.port),
            "--data-dir", str(self.directory / "data"), "--profile", "dev",
            "--set", "group.min.session.timeout.ms=1000",
            stdout=self.log, stderr=self.log,
        )  # fmt: skip

    async def start_member(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.fault.process_member", self.servers,
            stdout=self.log, stderr=self.log,
        )  # fmt: skip

    async def end(self) -> None:
        for process in (*self.members, self.broker):
            if process.returncode is None:
                process.kill()
            await process.wait()
        self.log.close()


async def committed(servers: str) -> int:
    async with aiokq.Consumer(bootstrap_servers=servers, group_id="copiers") as outside:
        offsets = [await outside.committed(("in", p)) for p in range(PARTITIONS)]
    return sum(offset or 0 for offset in offsets)


async def copy_under_kills(
    directory: Path, records: int, kills: int, seconds: float, seed: int
) -> None:
    rng = random.Random(seed)
    machines = Machines(directory)
    await machines.start_broker()
    try:
        async with aiokq.Admin(machines.servers, bootstrap_timeout_ms=60_000) as admin:
            for topic in ("in", "out"):
                await admin.create_topics(topic, num_partitions=PARTITIONS, raise_errors=True)
        machines.members = [await machines.start_member() for _ in range(MEMBERS)]

        async def write() -> None:
            async with aiokq.Producer(machines.servers) as producer:
                for first in range(0, records, 500):
                    await producer.send_many(
                        "in", [(b"%d" % n, b"%d" % n) for n in range(first, first + 500)]
                    )
                    await asyncio.sleep(seconds * 500 / records)

        writing = asyncio.create_task(write())
        for number in range(kills):
            await asyncio.sleep(rng.uniform(0.5, 1.5) * seconds / kills)
            if number % 3 == 2:
                machines.broker.kill()
                await machines.broker.wait()
                await machines.start_broker()
            else:
                victim = rng.randrange(MEMBERS)
                machines.members[victim].kill()
                await machines.members[victim].wait()
                machines.members[victim] = await machines.start_member()
        await writing
        async with asyncio.timeout(60 + records / 2_000):
            while await committed(machines.servers) < records:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        for member in machines.members:
            member.send_signal(signal.SIGTERM)
        async with asyncio.timeout(EXIT_SECONDS):
            assert [await member.wait() for member in machines.members] == [0] * MEMBERS
        found: Counter[int] = Counter()
        async with aiokq.Consumer(
            "out",
            bootstrap_servers=machines.servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as reader:
            while taken := await reader.getmany(timeout=7.0, max_records=50_000):
                found.update(int(record.value or b"") for got in taken.values() for record in got)
        assert {n: count for n, count in found.items() if count != 1} == {}
        assert sorted(found) == list(range(records))
    except BaseException as error:
        error.add_note((directory / "log").read_text()[-4_000:])
        raise
    finally:
        await machines.end()


def test_exactly_the_input_comes_out_although_members_and_the_broker_are_killed(
    tmp_path: Path,
) -> None:
    """20,000 records, six kills."""
    asyncio.run(copy_under_kills(tmp_path, 20_000, 6, 9.0, seed=1))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_input_comes_out_of_the_copy_torture(seed: int, tmp_path: Path) -> None:
    """200,000 records, sixty kills."""
    asyncio.run(copy_under_kills(tmp_path, 200_000, 60, 120.0, seed))
