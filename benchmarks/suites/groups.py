"""Consumer groups: how fast members take over, share and commit, and the broker's cost per member.

Members of all clients use the embedded broker, side by side in one run.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.rounds import CLIENT_CORE, bind_to_core

PARTITIONS = 8
SESSION_SECONDS = 6.0
IDLE_MEMBERS = 200
MEMBERS: tuple[tuple[str, str, str], ...] = (
    ("aiokq, classic", "aiokq", "classic"),
    ("aiokq, consumer protocol", "aiokq", "consumer"),
    ("confluent-kafka, classic", "confluent", "classic"),
    ("confluent-kafka, consumer protocol", "confluent", "consumer"),
    ("aiokafka", "aiokafka", "classic"),
    ("kafka-python", "kafka-python", "classic"),
)
CROWDS = MEMBERS[:5]
COMMITTERS = (MEMBERS[0], MEMBERS[2], MEMBERS[4])
SETTINGS = (
    "--set", "group.initial.rebalance.delay.ms=0",
    "--set", "group.consumer.min.session.timeout.ms=1000",
    "--set", "group.consumer.session.timeout.ms=6000",
    "--set", "group.consumer.min.heartbeat.interval.ms=100",
    "--set", "group.consumer.heartbeat.interval.ms=1000",
)  # fmt: skip
"""The broker sets the timing of the consumer protocol; here it is that of the classic members."""


@dataclass
class Member:
    """A member process and its events."""

    process: subprocess.Popen[str]
    events: Queue[dict[str, Any]]

    def wait(self, event: str, *, after: float = 0.0, timeout: float = 60.0) -> dict[str, Any]:
        """Return the next event of a kind that happened after a time (monotonic seconds)."""
        end = time.monotonic() + timeout
        while True:
            try:
                found = self.events.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                raise TimeoutError(f"no {event} in {timeout} s") from None
            if found["event"] == event and found["at"] >= after:
                return found

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def member(make: str, protocol: str, bootstrap: str, group: str) -> Iterator[Member]:
    command = [sys.executable, "-m", "benchmarks.contenders.group_member", make]
    command += ["--bootstrap", bootstrap, "--topic", "bench", "--group", group]
    command += ["--protocol", protocol]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=bind_to_core(CLIENT_CORE),
    )
    events: Queue[dict[str, Any]] = Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            events.put(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    try:
        yield Member(process, events)
    finally:
        process.kill()
        process.wait()


@contextmanager
def trickle(bootstrap: str) -> Iterator[None]:
    """Write a record to each partition every 10 ms, so that its owner has something to read."""
    import aiokq

    stop = threading.Event()

    async def run() -> None:
        async with aiokq.Producer(bootstrap) as producer:
            while not stop.is_set():
                for partition in range(PARTITIONS):
                    await producer.enqueue("bench", b"x", partition=partition)
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def take_over(make: str, protocol: str, bootstrap: str, group: str) -> tuple[float, float]:
    """Return the seconds of the second member's first record, and of the takeover from it.

    The first is the time from the second member's start to its first record. The other is the time
    from its SIGKILL to the first member's next record after the rebalance; it includes the session
    timeout.
    """
    with member(make, protocol, bootstrap, group) as first:
        first.wait("record")
        with member(make, protocol, bootstrap, group) as second:
            started = second.wait("starting")["at"]
            joined = second.wait("record")["at"] - started
            time.sleep(3)
            second.kill()
            killed = time.monotonic()
        # Whatever the assignor, the first member now gets the partitions of the second.
        first.wait("assigned", after=killed)
        return joined, first.wait("record", after=killed)["at"] - killed


def _run(module: str, make: str, bootstrap: str, *arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", f"benchmarks.contenders.{module}", make]
    command += ["--bootstrap", bootstrap, *arguments]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=200, preexec_fn=bind_to_core(CLIENT_CORE)
    )
    if result.returncode:
        raise RuntimeError(result.stderr.strip().splitlines()[-1])
    measured: dict[str, float] = json.loads(result.stdout.strip().splitlines()[-1])
    return measured


def groups(rounds: int, progress: Callable[[str], None]) -> list[Section]:
    """Run all measurements on one broker."""
    with servers.embedded(*SETTINGS) as server:
        asyncio.run(_create_topics(server.bootstrap))
        return [
            _taking_over(server, rounds, progress),
            _crowds(server, rounds, progress),
            _commits(server, rounds, progress),
            _members(server, progress),
        ]


async def _create_topics(bootstrap: str) -> None:
    import aiokq

    async with aiokq.Admin(bootstrap) as admin:
        await admin.create_topics("bench", num_partitions=PARTITIONS, raise_errors=True)
        await admin.create_topics("wide", num_partitions=1000, raise_errors=True)


def _taking_over(server: servers.Server, rounds: int, progress: Callable[[str], None]) -> Section:
    section = Section(
        "groups-take-over",
        "Groups: a second member joins, and is killed",
        f"{PARTITIONS} partitions with 100 records/s each, session timeout "
        f"{SESSION_SECONDS:g} s, heartbeats every second, range (the broker's own assignor with "
        f"the consumer protocol). Median of {rounds} interleaved rounds. First record: from the "
        "second member's start to its first record. Takeover: from its SIGKILL to the first "
        "member's next record after the rebalance, the session timeout included.",
        ("member", "first record", "takeover", "beyond the session timeout"),
    )
    times: dict[str, list[tuple[float, float]]] = {label: [] for label, _, _ in MEMBERS}
    with trickle(server.bootstrap):
        for number in range(rounds):
            for label, make, protocol in MEMBERS:
                progress(f"round {number + 1} of {rounds}: {label}")
                group = f"take-over-{make}-{protocol}-{number}"
                times[label].append(take_over(make, protocol, server.bootstrap, group))
    for label, measured in times.items():
        joined, taken = (statistics.median(column) for column in zip(*measured, strict=True))
        section.rows.append(
            [
                label,
                f"{1000 * joined:,.0f} ms",
                f"{taken:.2f} s",
                f"{1000 * (taken - SESSION_SECONDS):,.0f} ms",
            ]
        )
    return section


def _crowds(server: servers.Server, rounds: int, progress: Callable[[str], None]) -> Section:
    section = Section(
        "groups-crowd",
        "Groups: 50 members share 1,000 partitions",
        "All members in one process, started together; seconds until each has 20. Sticky "
        f"assignors, aiokafka round robin. Median of {rounds} interleaved rounds.",
        ("members", "seconds", "broker CPU s"),
    )
    figures: dict[str, list[tuple[float, float]]] = {label: [] for label, _, _ in CROWDS}
    for number in range(rounds):
        for label, make, protocol in CROWDS:
            progress(f"round {number + 1} of {rounds}: 50 members, {label}")
            before = server.cpu_seconds
            group = f"crowd-{make}-{protocol}-{number}"
            arguments = ("--topic", "wide", "--group", group, "--protocol", protocol)
            seconds = _run("group_crowd", make, server.bootstrap, *arguments)["seconds"]
            figures[label].append((seconds, server.cpu_seconds - before))
    for label, measured in figures.items():
        seconds, cpu = (statistics.median(column) for column in zip(*measured, strict=True))
        section.rows.append([label, f"{seconds:.2f}", f"{cpu:.2f}"])
    return section


def _commits(server: servers.Server, rounds: int, progress: Callable[[str], None]) -> Section:
    section = Section(
        "groups-commits",
        "Groups: commits, each waited for",
        f"One member, one partition, one after another. Median of {rounds} interleaved rounds.",
        ("member", "commits/s"),
        unit="commits/s",
    )
    rates: dict[str, list[float]] = {label: [] for label, _, _ in COMMITTERS}
    for number in range(rounds):
        for label, make, _ in COMMITTERS:
            progress(f"round {number + 1} of {rounds}: commits, {label}")
            group = f"commits-{make}-{number}"
            measured = _run(
                "group_commits", make, server.bootstrap, "--topic", "bench", "--group", group
            )
            rates[label].append(measured["records"] / measured["seconds"])
    for label, measured_rates in rates.items():
        rate = statistics.median(measured_rates)
        section.rows.append([label, f"{rate:,.0f}"])
        section.bars.append((label, rate))
    return section


def _members(server: servers.Server, progress: Callable[[str], None]) -> Section:
    section = Section(
        "groups-members",
        "Groups: what a member costs the broker",
        f"{IDLE_MEMBERS} members in groups of ten, heartbeats every second, each with a connection "
        "for them and one for fetches; idle otherwise. Memory against the same broker before.",
        ("members", "memory a member", "broker CPU of one core"),
    )
    progress(f"{IDLE_MEMBERS} members")
    for protocol in ("classic", "consumer"):
        memory, load = asyncio.run(_idle_members(server, protocol))
        section.rows.append(
            [f"{IDLE_MEMBERS}, {protocol}", f"{memory / 1e3:,.1f} kB", f"{100 * load:.0f} %"]
        )
    return section


async def _idle_members(server: servers.Server, protocol: str) -> tuple[float, float]:
    """Return the broker's bytes per member, and the share of one core that all members cost it."""
    import aiokq

    settings: dict[str, Any] = {"group_protocol": protocol}
    if protocol == "classic":
        settings["heartbeat_interval_ms"] = 1000
    before = server.resident_bytes
    async with aiokq.Cluster(server.bootstrap) as cluster:
        members = [
            cluster.consumer("bench", group_id=f"idle-{protocol}-{n // 10}", **settings)
            for n in range(IDLE_MEMBERS)
        ]
        for start in range(0, len(members), 50):
            await asyncio.gather(*(m.start() for m in members[start : start + 50]))
        await asyncio.sleep(5)
        memory = (server.resident_bytes - before) / len(members)
        cpu, began = server.cpu_seconds, time.monotonic()
        await asyncio.sleep(10)
        load = (server.cpu_seconds - cpu) / (time.monotonic() - began)
        for start in range(0, len(members), 50):
            await asyncio.gather(*(m.close() for m in members[start : start + 50]))
    return memory, load
