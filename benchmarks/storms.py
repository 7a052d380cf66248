"""Plain clients of a broker beside storms of hostile ones.

    python -m benchmarks.storms [KIND ...] [--rounds 5]

The broker is a process of its own on one core, with a listener of each kind. Clients and storms are
on another core, where storms use only the time that clients leave, so that what plain clients lose
is what they lose in the broker. Rounds with and without the storm take turns.

- `handshakes`: TLS handshakes by 16 threads, as many as the broker takes.
- `stopped`: 1,000 connections that have stopped at a step of a request, of TLS or of a login.
- `drips`: 1,000 connections that send their logins byte by byte, together 20,000 bytes a second.
- `questions`: 1,000 connections that send requests which are answered with an error, all the time.
- `guesses`, `scram-guesses`: 1,000 logins a second with a wrong password.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from aiokq import Admin, wire
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from benchmarks.report import Section
from benchmarks.rounds import CLIENT_CORE, SERVER_CORE
from benchmarks.watch import cpu_seconds
from tests.peers.hostile_clients import SecuredBroker, request, secured_broker, storm

KINDS = ("handshakes", "stopped", "drips", "questions", "guesses", "scram-guesses")
RATES = {"handshakes": 0.0, "drips": 20_000.0}
"""Handshakes (0: as many as the broker takes) or bytes per second. The default of the other kinds
is 1,000 logins per second; `stopped` and `questions` do not use it.
"""

TOPIC = "storms"
VALUE_BYTES = 1_000
CLIENTS = 8
PIPELINED = 5
INTERVAL = 0.02
"""Seconds between two requests of a client whose latency is measured."""

SETTLE_SECONDS = 1.0
"""Seconds of a storm before the measurement.

Its connections begin then, and some of them send 200 requests each: work of half a second.
"""

COLUMNS = (
    "storm",
    "events/s",
    "requests/s",
    "of those without",
    "of those without, by CPU time",
    "p50 ms",
    "p99 ms",
    "p99 without",
    "x",
    "peak MB",
)


@dataclass(slots=True)
class Figures:
    """What plain clients measured; times are seconds.

    Attributes:
        rates: requests per second of clients that always have requests under way, by round.
        answers: requests that were answered while the rates were measured.
        cpu_seconds: CPU time of the broker meanwhile.
        waits: times from a request to its answer, of clients that send 50 requests a second.
        events: handshakes, logins or connections of the storm.
        seconds: duration of the storm.
    """

    rates: list[float] = field(default_factory=list)
    answers: int = 0
    cpu_seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    events: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """The median rate."""
        return statistics.median(self.rates)

    @property
    def per_cpu_second(self) -> float:
        """Requests per second of the broker's CPU time, which depends less on other processes."""
        return self.answers / self.cpu_seconds

    def percentile(self, percent: float) -> float:
        """Return the time within which `percent` of the requests were answered."""
        ordered = sorted(self.waits)
        return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


@dataclass(slots=True)
class Storm:
    """Figures with and without a storm, and the largest resident memory of the broker in bytes."""

    kind: str
    without: Figures
    within: Figures
    peak_bytes: int

    @property
    def kept(self) -> float:
        """The rate within the storm divided by the rate without it."""
        return self.within.rate / self.without.rate

    @property
    def kept_by_cpu(self) -> float:
        """The same for the requests per second of the broker's CPU time."""
        return self.within.per_cpu_second / self.without.per_cpu_second

    @property
    def slower(self) -> float:
        """The 99th percentile within the storm divided by that without it."""
        return self.within.percentile(99) / self.without.percentile(99)

    def row(self) -> list[str]:
        """Return the row of the table."""
        within, without = self.within, self.without
        return [
            self.kind,
            f"{within.events / within.seconds:,.0f}",
            f"{within.rate:,.0f}",
            f"{100 * self.kept:.0f} %",
            f"{100 * self.kept_by_cpu:.0f} %",
            f"{1000 * within.percentile(50):.2f}",
            f"{1000 * within.percentile(99):.2f}",
            f"{1000 * without.percentile(99):.2f}",
            f"{self.slower:.2f}",
            f"{self.peak_bytes / 1e6:.0f}",
        ]


def produce() -> bytes:
    """Return a Produce request of one record."""
    records = encode_batch(
        [RawRecord(0, int(time.time() * 1000), b"k", bytes(VALUE_BYTES))], crc32c=crc32c
    )
    partition = wire.PartitionProduceData(index=0, records=records)
    topic = wire.TopicProduceData(name=TOPIC, partition_data=[partition])
    return request(wire.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 9)


class PlainClient:
    """A connection without TLS and login that sends the same request again and again."""

    def __init__(self, port: int, frame: bytes) -> None:
        self._port = port
        self._frame = frame
        self.answers = 0
        self.waits: list[float] = []

    async def hurry(self, until: float) -> None:
        """Keep several requests under way."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._frame * PIPELINED)
        while time.monotonic() < until:
            await self._answer(reader)
            self.answers += 1
            writer.write(self._frame)
        writer.close()

    async def walk(self, until: float) -> None:
        """Send a request at fixed times, and measure how long its answer takes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        due = time.monotonic()
        while due < until:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            began = time.perf_counter()
            writer.write(self._frame)
            await self._answer(reader)
            self.waits.append(time.perf_counter() - began)
            due += INTERVAL
        writer.close()

    @staticmethod
    async def _answer(reader: asyncio.StreamReader) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def measured(broker: SecuredBroker, seconds: float, figures: Figures) -> None:
    """Add what plain clients measure in some seconds, first their rate and then their latencies."""
    frame, port = produce(), broker.ports["OPEN"]
    clients = [PlainClient(port, frame) for _ in range(CLIENTS)]
    began, cpu = time.monotonic(), cpu_seconds(broker.pid)
    await asyncio.gather(*(one.hurry(began + seconds / 2) for one in clients))
    answers = sum(one.answers for one in clients)
    figures.rates.append(answers / (time.monotonic() - began))
    figures.answers += answers
    figures.cpu_seconds += cpu_seconds(broker.pid) - cpu
    until = time.monotonic() + seconds / 2
    await asyncio.gather(*(one.walk(until) for one in clients))
    figures.waits += [wait for one in clients for wait in one.waits]


def measure(
    kind: str,
    *,
    rounds: int = 5,
    seconds: float = 4.0,
    rate: float | None = None,
    arguments: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Storm:
    """Measure plain clients within a storm and without it, in turns.

    Args:
        kind: one of `KINDS`.
        seconds: duration of each half of a round.
        rate: handshakes, bytes or logins per second; None for the default of the kind.
        arguments: more arguments of the broker.
    """
    if rate is None:
        rate = RATES.get(kind, 1000.0)
    result = Storm(kind, Figures(), Figures(), 0)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="aiokq-storms-"))
        broker = stack.enter_context(secured_broker(Path(directory), *arguments))
        _bind(stack, broker)
        asyncio.run(_create_topic(broker))
        asyncio.run(measured(broker, 1.0, Figures()))  # warm up
        for number in range(rounds):
            progress(f"{kind}: round {number + 1} of {rounds}")
            asyncio.run(measured(broker, seconds, result.without))
            began = time.monotonic()
            with storm(kind, broker, rate=rate, yields=True) as counts:
                time.sleep(SETTLE_SECONDS)
                asyncio.run(measured(broker, seconds, result.within))
                result.within.seconds += time.monotonic() - began
            result.within.events += _events(kind, counts)
            time.sleep(0.5)
        result.peak_bytes = broker.peak_bytes
    return result


def sections(rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Measure all storms, for a suite."""
    section = Section(
        "storms",
        "Plain clients beside storms of hostile ones",
        f"Produce requests of {VALUE_BYTES:,} bytes on a listener without TLS: the rate of "
        f"{CLIENTS} clients with {PIPELINED} requests under way each, and the latency of {CLIENTS} "
        f"clients with {1 / INTERVAL:.0f} requests a second each. {rounds} rounds, with and "
        f"without the storm in turns; the first {SETTLE_SECONDS:g} s of a storm is not measured.",
        COLUMNS,
        unit="x the 99th percentile without the storm",
    )
    for kind in KINDS:
        found = measure(kind, rounds=rounds, progress=progress)
        section.rows.append(found.row())
        section.bars.append((kind, found.slower))
    return [section]


def _events(kind: str, counts: Counter[str]) -> int:
    events = {"stopped": "connections", "drips": "bytes", "questions": "answers"}
    return counts[events.get(kind, "handshakes" if kind == "handshakes" else "refused")]


async def _create_topic(broker: SecuredBroker) -> None:
    async with Admin(broker.address("OPEN")) as admin:
        await admin.create_topics(TOPIC, raise_errors=True)


def _bind(stack: ExitStack, broker: SecuredBroker) -> None:
    """Give broker and clients a core each, if there are two."""
    if not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2:
        return
    stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
    os.sched_setaffinity(0, {CLIENT_CORE})
    for task in os.listdir(f"/proc/{broker.pid}/task"):
        os.sched_setaffinity(int(task), {SERVER_CORE})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.storms", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rate", type=float, help="handshakes, bytes or logins a second")
    options = parser.parse_args()
    print(" | ".join(COLUMNS))
    for kind in options.kinds or KINDS:
        found = measure(kind, rounds=options.rounds, seconds=options.seconds, rate=options.rate)
        print(" | ".join(found.row()), flush=True)


if __name__ == "__main__":
    main()
