"""Three members of a group copy records while they and the broker are killed.

Members are programs with process(), and Java's TransactionalMessageCopier.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import aiokq
from aiokq.testing import Recorder
from tests.peers.apache_kafka import java_command, why_absent
from tests.peers.checked_topics import checked_copy

OURS, JAVA = "ours", "java"
PARTITIONS = 4
EXIT_SECONDS = 30


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Machines:
    """The processes of a broker and its copiers.

    Args:
        kinds: of each copier, `OURS` or `JAVA`.
    """

    def __init__(self, directory: Path, kinds: Sequence[str]) -> None:
        self.directory = directory
        self.kinds = kinds
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

    async def start_member(self, number: int) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "tests.fault.process_member", self.servers]
        if self.kinds[number] == JAVA:
            command = java_command(
                "org.apache.kafka.tools.TransactionalMessageCopier",
                *("--broker-list", self.servers, "--transactional-id", f"java-{number}"),
                *("--consumer-group", "copiers", "--input-topic", "in", "--input-partition", "-1"),
                *("--output-topic", "out", "--transaction-size", "200"),
                *("--transaction-timeout", "5000", "--group-mode", "--use-group-metadata"),
                "--enable-random-aborts",
            )
        return await asyncio.create_subprocess_exec(*command, stdout=self.log, stderr=self.log)

    async def restart_ended(self) -> None:
        """Start Java's copiers again, which end when they have copied all that was there."""
        while True:
            for number, member in enumerate(self.members):
                if self.kinds[number] == JAVA and member.returncode is not None:
                    self.members[number] = await self.start_member(number)
            await asyncio.sleep(1)

    async def kill(self, victim: int | None) -> None:
        """Kill a member, or the broker if there is none, and start it again."""
        if victim is None:
            self.broker.kill()
            await self.broker.wait()
            await self.start_broker()
            return
        member = self.members[victim]
        if member.returncode is None:
            member.kill()
        await member.wait()
        self.members[victim] = await self.start_member(victim)

    async def stop_members(self) -> None:
        """Let the members end."""
        for member in self.members:
            if member.returncode is None:
                member.send_signal(signal.SIGTERM)
        codes = [await member.wait() for member in self.members]
        # A JVM that was asked to end says so in its exit code.
        for kind, code in zip(self.kinds, codes, strict=True):
            assert code == 0 or (kind == JAVA and code in (1, 128 + signal.SIGTERM)), codes

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
    directory: Path, kinds: Sequence[str], records: int, kills: int, seconds: float, seed: int
) -> None:
    rng = random.Random(seed)
    machines = Machines(directory, kinds)
    await machines.start_broker()
    restarting: asyncio.Task[None] | None = None
    try:
        async with aiokq.Admin(machines.servers, bootstrap_timeout_ms=60_000) as admin:
            for topic in ("in", "out"):
                await admin.create_topics(topic, num_partitions=PARTITIONS, raise_errors=True)

        async def write(first: int, end: int, pause: float) -> None:
            async with aiokq.Producer(machines.servers) as producer:
                for start in range(first, end, 500):
                    await producer.send_many(
                        "in", [(b"%d" % n, b"%d" % n) for n in range(start, start + 500)]
                    )
                    await asyncio.sleep(pause)

        # Java's copier ends where it finds nothing more, so there is much at once for it.
        at_once = records // 2 if JAVA in kinds else 0
        await write(0, at_once, 0)
        machines.members = [await machines.start_member(n) for n in range(len(kinds))]
        restarting = asyncio.create_task(machines.restart_ended())
        pause = seconds * 500 / (records - at_once)
        writing = asyncio.create_task(write(at_once, records, pause))
        for number in range(kills):
            await asyncio.sleep(rng.uniform(0.5, 1.5) * seconds / kills)
            await machines.kill(None if number % 3 == 2 else rng.randrange(len(kinds)))
        await writing
        async with asyncio.timeout(60 + records / 1_000):
            while await committed(machines.servers) < records:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        restarting.cancel()
        async with asyncio.timeout(EXIT_SECONDS):
            await machines.stop_members()
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
        values = [f"{n}" for n in range(records)]
        await checked_copy(machines.servers, Recorder(), "in", "out", values, partitions=PARTITIONS)
    except BaseException as error:
        error.add_note((directory / "log").read_text()[-4_000:])
        raise
    finally:
        if restarting is not None:
            restarting.cancel()
        await machines.end()


def test_exactly_the_input_comes_out_although_members_and_the_broker_are_killed(
    tmp_path: Path,
) -> None:
    """20,000 records, six kills."""
    asyncio.run(copy_under_kills(tmp_path, [OURS] * 3, 20_000, 6, 9.0, seed=1))


@pytest.mark.torture
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_input_comes_out_of_the_copy_torture(seed: int, tmp_path: Path) -> None:
    """200,000 records, sixty kills."""
    asyncio.run(copy_under_kills(tmp_path, [OURS] * 3, 200_000, 60, 120.0, seed))


@pytest.mark.torture
@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.skipif(why_absent() is not None, reason=str(why_absent()))
@pytest.mark.parametrize("kinds", [[JAVA] * 3, [OURS, JAVA, JAVA]], ids=["java", "both"])
def test_exactly_the_input_comes_out_of_the_copy_torture_of_java(
    kinds: list[str], tmp_path: Path
) -> None:
    """200,000 records, twenty kills; the copiers of Kafka's own system tests, and both makes."""
    asyncio.run(copy_under_kills(tmp_path, kinds, 200_000, 20, 120.0, seed=1))
