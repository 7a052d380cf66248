"""Inputs of the gateway beside a bare loop: `python -m benchmarks.micro.gateway [--memory]`.

A C program sends messages at full speed, blocking: as datagrams, as a stream in large writes, and
as a stream with a write for each message. They are read by a C loop of `recvmmsg` (or of
`recv`) that throws them away, and by an Intake into a pool from which this process takes them. Both
run in turn; for each, the program prints messages a second, and the CPU time of the thread that
reads. The difference is what parsing, accounting and copying cost.

With `--memory`, it prints how much memory a pool really uses for each message beside its value
(the pool charges MESSAGE_OVERHEAD for it), and the memory of the process.
"""

from __future__ import annotations

import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiokq.fastpath.gateway import Intake, Pool

MESSAGES = 300_000
ROUNDS = 3
SOURCE = Path(__file__).with_name("gateway.c")


def message(topic: bytes, size: int) -> bytes:
    """Return a message whose value has `size` bytes."""
    body = struct.pack(">hhhh", 256, 0, 0, len(topic)) + topic
    body += struct.pack(">qii", 1_700_000_000_000, 0, size) + b"v" * size
    return struct.pack(">i", len(body) + 4) + body


def compiled(folder: str) -> str:
    program = f"{folder}/gateway"
    subprocess.run(["gcc", "-O2", "-w", str(SOURCE), "-o", program], check=True)
    return program


def bare(program: str, kind: str, path: str, data: bytes) -> tuple[float, float]:
    """Return messages a second, and CPU nanoseconds a message, of the bare loop."""
    reader = subprocess.Popen(
        [program, "read", kind, path, str(MESSAGES)], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    reader.stdout.readline()
    started = time.monotonic()
    subprocess.run([program, "send", kind, path, str(MESSAGES), data.hex()], check=True)
    cpu = int(reader.stdout.readline())
    passed = time.monotonic() - started
    reader.wait()
    return MESSAGES / passed, cpu / MESSAGES


def thread_cpu() -> float:
    """Return the CPU nanoseconds of the input's thread."""
    for task in os.listdir("/proc/self/task"):
        if Path(f"/proc/self/task/{task}/comm").read_text().strip() == "aiokq-gateway":
            return time.clock_gettime_ns((~int(task) << 3) | 6)  # Linux: the CPU clock of a thread
    raise RuntimeError("the compiled core is needed")


def intake(program: str, kind: str, path: str, data: bytes) -> tuple[float, float]:
    """Return messages a second, and CPU nanoseconds a message, of an Intake."""
    stream = kind != "datagram"
    pool = Pool(1 << 27)
    slot = pool.register(b"topic", batch_messages=10_000, batch_ms=5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        if stream:
            sock.listen()
        reader = Intake(
            pool, sock.fileno(), "unix_stream" if stream else "unix_datagram", when_full="block"
        )
        reader.start()
        time.sleep(0.01)
        started = time.monotonic()
        sender = subprocess.Popen([program, "send", kind, path, str(MESSAGES), data.hex()])
        taken = 0
        while taken < MESSAGES:
            time.sleep(0.002)
            pool.due()
            while (some := pool.take(slot)) is not None:
                taken += some.count
                pool.release(some.count, some.charge)
        passed = time.monotonic() - started
        cpu = thread_cpu()
        sender.wait()
        reader.stop()
    return MESSAGES / passed, cpu / MESSAGES


def compare() -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for kind in ("datagram", "stream", "writes"):
            for size in (100, 1024):
                data = message(b"topic", size)
                made: dict[str, list[tuple[float, float]]] = {"bare loop": [], "intake": []}
                for n in range(ROUNDS):
                    made["bare loop"].append(bare(program, kind, f"{folder}/b{n}", data))
                    made["intake"].append(intake(program, kind, f"{folder}/i{n}", data))
                    os.unlink(f"{folder}/b{n}")
                    os.unlink(f"{folder}/i{n}")
                for name, rounds in made.items():
                    rate = statistics.median(rate for rate, _ in rounds)
                    cpu = statistics.median(cpu for _, cpu in rounds)
                    print(
                        f"{kind:8} {size:5} B  {name:9}  {rate:9,.0f} messages/s"
                        f"  {cpu:6,.0f} ns of CPU a message"
                    )


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory(size: int, count: int, topics: int) -> None:
    """Print the memory that messages use which nobody takes."""
    names = [b"topic-%d" % n for n in range(topics)]
    pool = Pool(1 << 33)
    for name in names:
        pool.register(name, batch_ms=1_000_000)
    before = resident()
    block = b"".join(message(name, size) for name in names)
    for _ in range(count // topics):
        pool.feed(block)
    grown = resident() - before
    charged = pool.counts().used_bytes
    own = (grown - count * size) / count
    print(
        f"{count:9,} messages of {size:6,} B in {topics:5,} topics: {grown / 1e6:7.1f} MB,"
        f" {grown / charged:.3f} of the charge, {own:6.1f} B beside the value;"
        f" process {resident() / 1e6:.0f} MB"
    )


def main() -> None:
    if "--memory" in sys.argv:
        for size, count, topics in (
            (50, 1_000_000, 1),
            (100, 1_000_000, 1),
            (100, 1_000_000, 100),
            (1024, 200_000, 1),
            (60_000, 4_000, 1),
            (60_000, 4_000, 50),
            (50, 5_000, 5_000),
            (1024, 5_000, 5_000),
        ):
            code = (
                f"from benchmarks.micro import gateway; gateway.memory({size}, {count}, {topics})"
            )
            subprocess.run([sys.executable, "-c", code], check=True)
        return
    compare()


if __name__ == "__main__":
    main()
