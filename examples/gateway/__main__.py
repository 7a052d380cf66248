"""Four languages write to Kafka through one gateway: `python -m examples.gateway`.

Starts a broker and `aiokq gateway`, runs the programs `send.*` beside this file, reads the records
back and checks that each message arrived once, and in each partition in the order of its program.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiokq
from aiokq.gateway.client import get_include

HERE = Path(__file__).resolve().parent
COUNT = 200


class Program(NamedTuple):
    """A program that writes COUNT messages."""

    language: str
    key: bytes
    transport: str
    needs: str
    package: str


PROGRAMS = (
    Program("Python", b"python", "unix_datagram", sys.executable, ""),
    Program("C", b"c", "unix_datagram", "cc", "gcc"),
    Program("Shell", b"shell", "tcp", "bash", "bash"),
    Program("Node", b"node", "unix_stream", "node", "nodejs"),
)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="aiokq-") as directory:
        async with aiokq.EmbeddedCluster() as kafka:
            async with aiokq.Admin(kafka.bootstrap_servers) as admin:
                await admin.create_topics([aiokq.NewTopic("visits", 4)])
            async with gateway(kafka.bootstrap_servers, Path(directory)) as inputs:
                present = [program for program in PROGRAMS if is_present(program)]
                await asyncio.gather(*(send(one, inputs, Path(directory)) for one in present))
            # The gateway has ended, so everything that it received is in Kafka.
            received = await read(kafka.bootstrap_servers)
    for program in present:
        partitions = received.pop(program.key)
        for numbers in partitions.values():
            assert numbers == sorted(numbers), f"{program.language}: {numbers}"
        numbers = [number for each in partitions.values() for number in each]
        assert sorted(numbers) == list(range(COUNT)), f"{program.language}: {numbers}"
        print(f"{program.language:<6} {len(numbers)} records, over {program.transport}")
    assert not received
    print(f"all {COUNT * len(present)} records are in Kafka, each of them once")


@asynccontextmanager
async def gateway(bootstrap_servers: str, directory: Path) -> AsyncIterator[Mapping[str, str]]:
    """Run `aiokq gateway`; yields the address of each input."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiokq", "gateway", "--json"),
        *("--bootstrap-servers", bootstrap_servers, "--tcp", "0"),
        *("--unix-datagram", str(directory / "datagram")),
        *("--unix-stream", str(directory / "stream")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # remove this line to see what the gateway logs
    )
    assert process.stdout is not None
    try:
        line = await process.stdout.readline()
        if not line:
            raise SystemExit(f"the gateway did not start: exit code {await process.wait()}")
        ready = json.loads(line)
        yield {one["type"]: one["address"] for one in ready["inputs"]}
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_present(program: Program) -> bool:
    if shutil.which(program.needs) is not None:
        return True
    where = f"(Debian: apt install {program.package})"
    print(f"{program.language} is left out: {program.needs} is missing {where}")
    return False


async def send(program: Program, inputs: Mapping[str, str], directory: Path) -> None:
    address = inputs[program.transport].rpartition(":")[2]  # the path, or the port
    match program.language:
        case "Python":
            await run(sys.executable, str(HERE / "send.py"), address, str(COUNT))
        case "C":
            built = str(directory / "send")
            await run("cc", f"-I{get_include()}", "-o", built, str(HERE / "send.c"))
            await run(built, address, str(COUNT))
        case "Shell":
            await run("bash", str(HERE / "send.sh"), address, str(COUNT))
        case "Node":
            await run("node", str(HERE / "send.js"), address, str(COUNT))


async def run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command, env=dict(os.environ))
    if await process.wait() != 0:
        raise SystemExit(f"{' '.join(command)} has failed")


async def read(bootstrap_servers: str) -> dict[bytes, dict[int, list[int]]]:
    """Return the numbers in the values of all records, by the records' key and partition."""
    found: dict[bytes, dict[int, list[int]]] = {}
    async with aiokq.Consumer(
        "visits", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        left = sum(ends.values())
        async for record in consumer:
            assert record.key is not None
            assert record.value is not None
            numbers = found.setdefault(record.key, {}).setdefault(record.partition, [])
            numbers.append(json.loads(record.value)["n"])
            left -= 1
            if left == 0:
                break
    return found


if __name__ == "__main__":
    asyncio.run(main())
