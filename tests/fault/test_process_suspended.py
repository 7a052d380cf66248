"""A program with process() that is suspended as a whole (SIGSTOP), and one that blocks its loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter

import pytest

import aiokq

RECORDS = 300
"""They take the program three seconds."""


async def started(kafka: aiokq.EmbeddedCluster, *arguments: str) -> asyncio.subprocess.Process:
    """Start the program, with records to copy."""
    for topic in ("in", "out"):
        await kafka.create_topic(topic, partitions=1)
    async with aiokq.Producer(kafka.bootstrap_servers) as producer:
        await (await producer.send_many("in", [(None, b"%d" % n) for n in range(RECORDS)]))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fault.suspended_member", kafka.bootstrap_servers, *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def committed(kafka: aiokq.EmbeddedCluster) -> int:
    async with aiokq.Consumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id="copiers"
    ) as outside:
        return await outside.committed(("in", 0)) or 0


async def copies(kafka: aiokq.EmbeddedCluster) -> Counter[int]:
    """Return how often each value is in "out"."""
    found: Counter[int] = Counter()
    async with aiokq.Consumer(
        "out",
        bootstrap_servers=kafka.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    ) as reader:
        while taken := await reader.getmany(timeout=3.0, max_records=RECORDS):
            found.update(int(record.value or b"") for got in taken.values() for record in got)
    return found


@pytest.mark.parametrize("seconds", [1.8, 4.0], ids=["in time", "too late"])
async def test_a_suspended_program_aborts_and_goes_on(seconds: float) -> None:
    """Regression: the handlers were blamed, and the call ended with their error.

    In time, the transaction can still be aborted; too late, the broker has aborted it.
    """
    async with aiokq.EmbeddedCluster() as kafka:
        member = await started(kafka)
        try:
            async with asyncio.timeout(60):
                while not await committed(kafka) and member.returncode is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                member.send_signal(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                member.send_signal(signal.SIGCONT)
                while await committed(kafka) < RECORDS and member.returncode is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            if member.returncode is None:
                member.send_signal(signal.SIGTERM)
            async with asyncio.timeout(30):
                said, complaints = await member.communicate()
        finally:
            if member.returncode is None:
                member.kill()
                await member.wait()
        assert member.returncode == 0, complaints.decode()
        assert int(said.split(b"=")[1]) >= 1
        assert b"process was suspended" in complaints
        assert b"is blocked" not in complaints, "no line of the program is to blame"
        assert await copies(kafka) == dict.fromkeys(range(RECORDS), 1)


async def test_a_handler_that_blocks_the_loop_is_no_suspension() -> None:
    """Its thread gives the others the GIL, so that they see that the process goes on."""
    async with aiokq.EmbeddedCluster() as kafka:
        member = await started(kafka, "100")
        try:
            async with asyncio.timeout(60):
                _, complaints = await member.communicate()
        finally:
            if member.returncode is None:
                member.kill()
                await member.wait()
        assert member.returncode == 1
        assert b"do less in the handler" in complaints
        assert set(await copies(kafka)) < set(range(100))
