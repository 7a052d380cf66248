"""The gateway: rate and CPU by input, memory, latency of senders under load, delivery latency."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import servers
from benchmarks.gateways import GatewayProcess, asked, compiled_load, gateway
from benchmarks.report import Section
from benchmarks.rounds import Contender, run_once
from tests.peers.mock_cluster import MockCluster, mock_cluster

Progress = Callable[[str], None]

REFERENCE_RATE: Final = 460_000
"""Records/s of confluent-kafka on the machine on which Dory was measured."""

RATE: Final = 20_000
"""Messages/s of the senders whose latency is measured."""
REPORTED: Final = 5_000
"""Topics in the queue report."""
REPORTS: Final = 100
"""Queue reports read per second."""
CROWD: Final = 5_000
"""Messages/s of 1 KB that are compressed meanwhile."""
RELOAD_SECONDS: Final = 0.5
WARM: Final = 5_000
MEMORY_MB: Final = 250
"""Limit of the process that holds a million messages of 100 bytes."""
POOL_MIB: Final = 256
"""Size of the pool for a million messages of 100 bytes."""
LATENCY_US: Final = 2_000
BLOCK: Final = 65_536
ACKNOWLEDGED: Final = "the gateway, acknowledged"


@dataclass(frozen=True, slots=True)
class Load:
    """An input under full load, with Dory's figures.

    Attributes:
        block: bytes of a call of send; 0 for a call per message.
        rate: messages/s that the gateway has to reach: Dory's, for streams times 4.
        cpu_us: Dory's CPU time per message in microseconds, which is the limit of the gateway.
    """

    label: str
    kind: str
    value_bytes: int
    block: int
    rate: int
    cpu_us: float


LOADS: Final = (
    Load("UNIX datagram", "datagram", 100, 0, 91_000, 8.4),
    Load("UNIX datagram", "datagram", 1024, 0, 43_000, 15.9),
    Load("UNIX stream", "stream", 100, 0, 4 * 102_000, 1.9),
    Load("UNIX stream, 64 KiB per send", "stream", 100, BLOCK, 4 * 102_000, 1.9),
    Load("UNIX stream", "stream", 1024, 0, 4 * 32_000, 7.5),
    Load("UNIX stream, 64 KiB per send", "stream", 1024, BLOCK, 4 * 32_000, 7.5),
    Load("TCP", "tcp", 100, 0, 4 * 102_000, 1.9),
    Load("TCP, 64 KiB per send", "tcp", 100, BLOCK, 4 * 102_000, 1.9),
    Load("TCP", "tcp", 1024, 0, 4 * 32_000, 7.5),
    Load("TCP, 64 KiB per send", "tcp", 1024, BLOCK, 4 * 32_000, 7.5),
)


INPUTS: Final = {"datagram": "UNIX datagram", "stream": "UNIX stream", "tcp": "TCP"}
"""The inputs whose memory and senders are measured."""


class Sender(NamedTuple):
    """A sender whose calls are measured.

    Attributes:
        mode: "block", or "try", which drops the message when the queue is full.
    """

    kind: str
    value_bytes: int
    mode: str


SENDERS: Final = (
    *(Sender(kind, value_bytes, "block") for kind in INPUTS for value_bytes in (100, 1024)),
    Sender("datagram", 100, "try"),
)


@dataclass(slots=True)
class Figures:
    """What the rounds of one load gave."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_us)

    @property
    def spread(self) -> str:
        """Half the difference of the extremes, divided by the median."""
        return f"{50 * (max(self.rates) - min(self.rates)) / self.rate:.0f} %"


def gateways(records: int, rounds: int, progress: Progress) -> list[Section]:
    """Run all measurements.

    Args:
        records: messages of 100 bytes in a round, and messages that are held; the other amounts
            are in proportion.
    """
    with tempfile.TemporaryDirectory(prefix="aiokq-bench-") as directory:
        program = compiled_load(Path(directory))
        return [
            _throughput(program, records, rounds, progress),
            _memory(program, records, progress),
            _senders(program, Path(directory), max(3.0, records / 80_000), rounds, progress),
            _delivery(max(100, records // 1_000), rounds, progress),
        ]


async def _create(bootstrap: str, *topics: str) -> None:
    import aiokq

    async with aiokq.Admin(bootstrap) as admin:
        await admin.create_topics(list(topics), num_partitions=4, raise_errors=True)


def _send(program: Path, *words: object) -> None:
    subprocess.run([str(program), *map(str, words)], check=True)


# ---------------------------------------------------------------- rate and CPU time


def _throughput(program: Path, records: int, rounds: int, progress: Progress) -> Section:
    few: tuple[str, ...] = ("log.segment.bytes=33554432", "log.retention.bytes=67108864")
    few += ("log.retention.check.interval.ms=2000", "log.segment.delete.delay.ms=0")
    options = [part for setting in few for part in ("--set", setting)]
    confluent, found = Figures(), [Figures() for _ in LOADS]
    reference = Contender("confluent-kafka", "produce_confluent", ("--records", str(records)))
    with servers.mock() as mock, servers.embedded(*options, bind=False) as server:
        asyncio.run(_create(server.bootstrap, "bench"))
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: confluent-kafka")
            measured = run_once(reference, mock.bootstrap, timeout=300)
            confluent.rates.append(measured["records"] / measured["seconds"])
            confluent.cpu_us.append(1e6 * measured["cpu_seconds"] / measured["records"])
            turns = [(number + n) % len(LOADS) for n in range(len(LOADS))]
            for load, figures in ((LOADS[turn], found[turn]) for turn in turns):
                progress(f"round {number + 1} of {rounds}: {load.label}, {load.value_bytes} B")
                count = records if load.value_bytes == 100 else records // 4
                _flood(program, server.bootstrap, load, count, figures)
    scale = confluent.rate / REFERENCE_RATE
    section = Section(
        "gateway-throughput",
        "The gateway: messages per second",
        f"{records:,} messages of 100 bytes, {records // 4:,} of 1 KB, from one program in C, a "
        "call of send per message if not said otherwise; from the first send until the last "
        "message is acknowledged by aiokq's broker (4 partitions, engine producer, default "
        "batching). CPU: the process of the gateway. Targets: those of Dory 3.2.6 (streams: 4 "
        "times its rate), scaled by confluent-kafka's "
        f"{REFERENCE_RATE:,} records/s on that machine and its rate to librdkafka's mock cluster "
        "in this run (100-byte values, 10-byte keys; on one core); CPU in brackets: not scaled. "
        f"Gateway, sender and broker share all cores. Median of {rounds} "
        "interleaved rounds.",
        ("input", "bytes", "messages/s", "target", "CPU us/message", "target CPU", "met", "+-"),
        unit="messages/s",
    )
    section.rows.append(
        [
            *("confluent-kafka to the mock cluster", "100", f"{confluent.rate:,.0f}"),
            *(f"({REFERENCE_RATE:,})", f"{confluent.cpu:.2f}", "", "", confluent.spread),
        ]
    )
    section.bars.append((section.rows[0][0], confluent.rate))
    for load, figures in zip(LOADS, found, strict=True):
        rate, cpu = load.rate * scale, load.cpu_us / scale
        met = [
            name
            for name, is_met in (("rate", figures.rate >= rate), ("CPU", figures.cpu <= cpu))
            if is_met
        ]
        section.rows.append(
            [
                *(load.label, f"{load.value_bytes:,}", f"{figures.rate:,.0f}", f"{rate:,.0f}"),
                *(
                    f"{figures.cpu:.2f}",
                    f"{cpu:.2f} ({load.cpu_us})",
                    " and ".join(met) or "no",
                    figures.spread,
                ),
            ]
        )
        section.bars.append((f"aiokq, {load.label}, {load.value_bytes:,} B", figures.rate))
    return section


def _flood(program: Path, bootstrap: str, load: Load, count: int, figures: Figures) -> None:
    with gateway(bootstrap) as running:
        words = ("flood", load.kind, running.addresses[load.kind], "bench")
        _send(program, *words, min(WARM, count), load.value_bytes, load.block)
        running.wait_for("acked", min(WARM, count))
        cpu, started = running.cpu_seconds, time.perf_counter()
        _send(program, *words, count, load.value_bytes, load.block)
        running.wait_for("acked", count + min(WARM, count))
        figures.rates.append(count / (time.perf_counter() - started))
        figures.cpu_us.append(1e6 * (running.cpu_seconds - cpu) / count)


# ---------------------------------------------------------------- memory


def _memory(program: Path, records: int, progress: Progress) -> Section:
    pool = -(-POOL_MIB * records // 1_000_000)
    pool_mb = pool * 2**20 / 1e6
    counts = {100: records, 1024: records // 5}
    section = Section(
        "gateway-memory",
        "The gateway: memory of held messages",
        f"Resident memory of the process while the broker is away and {counts[100]:,} messages of "
        f"100 bytes wait, or {counts[1024]:,} of 1 KB, which is about what a topic may have of a "
        f"pool of {pool_mb:.0f} MB. Limits: {MEMORY_MB} MB with a million messages of 100 bytes, "
        "and 1.25 x pool + 60 MB with any messages.",
        (
            *("input", "bytes", "messages", "before", "with them", "limit", "met"),
            "bytes beside each value",
        ),
    )
    options = f'[pool]\nmax_bytes = "{pool} MiB"\n[delivery]\nshutdown_max_delay_ms = 0'
    with mock_cluster() as mock:
        mock.create_topic("held", 4)
        for kind, value_bytes in itertools.product(INPUTS, counts):
            progress(f"memory of held messages: {INPUTS[kind]}, {value_bytes:,} B")
            count = counts[value_bytes]
            mock.set_up(1)
            with gateway(mock, options) as running:
                words = ("flood", kind, running.addresses[kind], "held")
                _send(program, *words, 100, value_bytes, 0)
                running.wait_for("acked", 100)
                mock.set_down(1)
                before = running.resident_bytes
                _send(program, *words, count, value_bytes, 0 if kind == "datagram" else BLOCK)
                running.wait_for("in_flight", count)
                held = running.resident_bytes
            limit = 1.25 * pool_mb + 60
            if value_bytes == 100 and records == 1_000_000:
                limit = MEMORY_MB
            section.rows.append(
                [
                    *(INPUTS[kind], f"{value_bytes:,}", f"{count:,}"),
                    *(f"{before / 1e6:.0f} MB", f"{held / 1e6:.0f} MB", f"{limit:.0f} MB"),
                    "yes" if held < 1e6 * limit else "no",
                    f"{(held - before) / count - value_bytes:.0f}",
                ]
            )
    return section


# ---------------------------------------------------------------- senders under load


def _senders(
    program: Path, directory: Path, seconds: float, rounds: int, progress: Progress
) -> Section:
    section = Section(
        "gateway-senders",
        "The gateway: what a sender waits for",
        f"A program in C sends {RATE:,} messages a second to the gateway, a call of send per "
        "message, either blocking or not; another one sends as many datagrams to a bare loop of "
        "recvmmsg at the same time. Meanwhile "
        f"the gateway makes zstd batches of them and of {CROWD:,} messages of 1 KB a second, its "
        f"queue report of {REPORTED:,} topics is read {REPORTS} times a second, its configuration "
        f"is reloaded every {RELOAD_SECONDS} s, and the broker (librdkafka's mock cluster) is gone "
        f"for the second third of {seconds:.1f} s. Duration of a call of send; median of {rounds} "
        f"rounds. Targets: 99.9 % of the blocking calls under {LATENCY_US / 1000:.0f} ms, and at "
        "most twice the EAGAIN of the bare loop.",
        (
            *("input", "bytes", "sender", "reader", "messages/s"),
            *("median", "99 %", "99.9 %", "longest", "EAGAIN", "met"),
        ),
    )
    found: dict[tuple[Sender, str], list[dict[str, float]]] = {}
    rates: list[float] = []
    progress(f"{REPORTED:,} topics")
    with _bare(program, directory / "bare") as bare, _with_topics(program) as (mock, running):
        for number in range(rounds):
            for sender in SENDERS:
                progress(
                    f"round {number + 1} of {rounds}: under load, {' '.join(map(str, sender))}"
                )
                readers, reports = _under_load(program, mock, running, bare, sender, seconds)
                rates.append(reports)
                for reader, each in readers.items():
                    found.setdefault((sender, reader), []).append(each)
    for (sender, reader), made in found.items():
        times = [statistics.median(one[n] for one in made) for n in ("median", "p99", "p999")]
        longest = max(one["most"] for one in made)
        share = _share(made)
        if reader != "gateway":
            met = ""
        elif sender.mode == "block":
            met = "yes" if times[2] < LATENCY_US else "no"
        else:
            met = "yes" if share <= 2 * _share(found[sender, "bare loop"]) else "no"
        section.rows.append(
            [
                *(INPUTS[sender.kind], f"{sender.value_bytes:,}"),
                *("blocking" if sender.mode == "block" else "not blocking", reader),
                f"{statistics.median(one['sent'] / one['seconds'] for one in made):,.0f}",
                *(f"{time:,.1f} us" for time in times),
                *(f"{longest / 1000:.1f} ms", f"{100 * share:.3f} %", met),
            ]
        )
    section.conditions += f" Reports read: {statistics.median(rates):.0f} a second."
    return section


def _share(figures: Sequence[dict[str, float]]) -> float:
    """Return the share of the calls that ended with EAGAIN."""
    eagain = sum(one["eagain"] for one in figures)
    return eagain / (eagain + sum(one["sent"] for one in figures))


@contextlib.contextmanager
def _bare(program: Path, path: Path) -> Iterator[Path]:
    """Run the bare loop."""
    process = subprocess.Popen([str(program), "read", str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield path
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def _with_topics(program: Path) -> Iterator[tuple[MockCluster, GatewayProcess]]:
    """Run a gateway with one message in each of the reported topics.

    These messages stay in their batches during the whole measurement.
    """
    options = '[pool]\nmax_bytes = "1 GiB"\n[compression]\ntype = "zstd"\n'
    options += "[delivery]\nautocreate = true\n"  # create_topic takes 20 ms per topic
    options += '[batching]\ntime_ms = 36_000_000\nbytes = "128 KiB"\n'
    options += "[topics.paced.batching]\ntime_ms = 10\n[topics.crowd.batching]\ntime_ms = 10\n"
    with mock_cluster() as mock, gateway(mock, options) as running:
        _send(program, "topics", "stream", running.addresses["stream"], "t", REPORTED, 100)
        _all_known(running)
        yield mock, running


def _under_load(
    program: Path,
    mock: MockCluster,
    running: GatewayProcess,
    bare: Path,
    sender: Sender,
    seconds: float,
) -> tuple[dict[str, dict[str, float]], float]:
    """Return what the sender to each reader printed, and the number of reports read per second."""
    pace = (str(int(seconds * RATE)), str(sender.value_bytes), str(RATE), sender.mode)
    commands = {
        "gateway": ("pace", sender.kind, running.addresses[sender.kind], "paced", *pace),
        "crowd": (
            *("pace", "stream", running.addresses["stream"], "crowd"),
            *(str(int(seconds * CROWD)), "1024", str(CROWD), "block"),
        ),
    }
    if sender.kind == "datagram":
        commands["bare loop"] = ("pace", "datagram", str(bare), "paced", *pace)
    ended = threading.Event()
    read: list[float] = []
    reader = threading.Thread(target=_read_reports, args=(running, ended, read))
    reader.start()
    processes = {
        name: subprocess.Popen([str(program), *words], stdout=subprocess.PIPE)
        for name, words in commands.items()
    }
    try:
        _disturb(running, mock, seconds)
        printed = {
            name: json.loads(process.communicate(timeout=10 * seconds + 60)[0])
            for name, process in processes.items()
        }
    finally:
        ended.set()
        reader.join()
        for process in processes.values():
            process.kill()
            process.wait()
    running.wait(lambda numbers: int(numbers["in_flight"]) <= REPORTED, timeout=300)
    del printed["crowd"]
    return printed, len(read) / read[-1]


def _all_known(running: GatewayProcess) -> None:
    """Wait until the queue report has all topics, so that Kafka has answered for each."""
    connection = running.connection()
    for _ in range(600):
        if len(asked(connection, "/queues/json")["sending"]) >= REPORTED:
            connection.close()
            return
        time.sleep(0.1)
    raise TimeoutError("the queue report does not have all topics")


def _read_reports(running: GatewayProcess, ended: threading.Event, read: list[float]) -> None:
    """Read the queue report; append the time of each, in seconds since the first was asked for."""
    connection = running.connection()
    started = time.monotonic()
    while not ended.is_set():
        connection.request("GET", "/queues/json")
        connection.getresponse().read()
        now = time.monotonic()
        read.append(now - started)
        ended.wait(max(0.0, started + len(read) / REPORTS - now))
    connection.close()


def _disturb(running: GatewayProcess, mock: MockCluster, seconds: float) -> None:
    """Reload the configuration, and take the broker away, while the senders send."""
    original = running.config.read_text()
    started = time.monotonic()
    away = False
    for number in range(int(seconds / RELOAD_SECONDS)):
        time.sleep(max(0.0, started + number * RELOAD_SECONDS - time.monotonic()))
        passed = time.monotonic() - started
        gone = seconds / 3 <= passed < 2 * seconds / 3
        if gone != away:
            (mock.set_down if gone else mock.set_up)(1)
            away = gone
        changed = original.replace("time_ms = 10\n", f"time_ms = {10 + number % 2}\n")
        running.config.write_text(changed)
        os.kill(running.pid, signal.SIGHUP)
    if away:
        mock.set_up(1)


# ---------------------------------------------------------------- delivery


def _delivery(count: int, rounds: int, progress: Progress) -> Section:
    section = Section(
        "gateway-delivery",
        "The gateway: delivery latency without batching",
        f"A message of 100 bytes every 5 ms, {count:,} of them, to aiokq's broker with batching "
        "off; from before the send until the broker has acknowledged it (a Gateway in the process "
        "of the sender), or until a waiting consumer has the record, which takes a second request "
        "to the broker (`aiokq gateway` in a process of its own). Beside them, a Producer with "
        f"linger 0 in the process of the consumer. Median of {rounds} rounds. Target: median until "
        f"the acknowledgement under {LATENCY_US / 1000:.0f} ms.",
        ("way", "median", "99 %", "longest", "met"),
    )
    found: dict[str, list[list[float]]] = {}
    with servers.embedded(bind=False) as server:
        asyncio.run(_create(server.bootstrap, "direct", "through"))
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: delivery")
            for way, run in (
                ("a Producer, acknowledged", _acknowledged_by_producer),
                (ACKNOWLEDGED, _acknowledged_by_gateway),
            ):
                times = asyncio.run(run(server.bootstrap, "direct", count))
                found.setdefault(way, []).append(times)
            times = asyncio.run(_arrivals(server.bootstrap, "direct", None, count))
            found.setdefault("a Producer, at the consumer", []).append(times)
            with gateway(server.bootstrap, '[batching]\nmode = "off"') as running:
                path = running.addresses["datagram"]
                times = asyncio.run(_arrivals(server.bootstrap, "through", path, count))
                found.setdefault("the gateway, at the consumer", []).append(times)
    for name, each in found.items():
        median, late = (
            statistics.median(sorted(one)[int(len(one) * share)] for one in each)
            for share in (0.5, 0.99)
        )
        met = ""
        if name == ACKNOWLEDGED:
            met = "yes" if 1e6 * median < LATENCY_US else "no"
        longest = max(map(max, each))
        section.rows.append([name, *(f"{1000 * t:.2f} ms" for t in (median, late, longest)), met])
    return section


async def _acknowledged_by_producer(bootstrap: str, topic: str, count: int) -> list[float]:
    """Send messages one after the other; return the seconds until each is acknowledged."""
    import aiokq

    times: list[float] = []
    async with aiokq.Producer(bootstrap, linger_ms=0) as producer:
        for number in range(-20, count):
            started = time.perf_counter()
            await producer.send(topic, b"v" * 100)
            if number >= 0:
                times.append(time.perf_counter() - started)
            await asyncio.sleep(0.005)
    return times


async def _acknowledged_by_gateway(bootstrap: str, topic: str, count: int) -> list[float]:
    """The same by the datagram socket of a Gateway in this process."""
    from aiokq.gateway import Gateway, GatewaySettings
    from aiokq.gateway.client import GatewayClient

    times: list[float] = []
    arrived = asyncio.Event()
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = f"{directory}/d"
        settings = GatewaySettings.of(
            GatewaySettings.checked({"batching": {"mode": "off"}}),
            bootstrap_servers=bootstrap,
            unix_datagram=path,
        )
        async with Gateway(settings) as running:
            acked = running.accounting.acked

            def noted(*given: Any) -> None:
                acked(*given)
                arrived.set()

            running.accounting.acked = noted  # type: ignore[method-assign, assignment]
            with GatewayClient(unix_datagram=path) as client:
                for number in range(-20, count):
                    arrived.clear()
                    started = time.perf_counter()
                    client.send(topic, b"v" * 100)
                    await arrived.wait()
                    if number >= 0:
                        times.append(time.perf_counter() - started)
                    await asyncio.sleep(0.005)
    return times


async def _arrivals(bootstrap: str, topic: str, path: str | None, count: int) -> list[float]:
    """Send messages one after the other; return after how many seconds a consumer has each.

    Args:
        path: datagram socket of a gateway; None for a Producer.
    """
    import aiokq
    from aiokq.gateway.client import GatewayClient

    times: list[float] = []
    async with (
        aiokq.Consumer(topic, bootstrap_servers=bootstrap) as consumer,
        aiokq.Producer(bootstrap, linger_ms=0) as producer,
    ):
        with contextlib.ExitStack() as stack:
            client = (
                None if path is None else stack.enter_context(GatewayClient(unix_datagram=path))
            )
            records = aiter(consumer)
            for number in range(-20, count):  # the first ones connect and are not counted
                started = time.perf_counter()
                if client is None:
                    await producer.send(topic, b"v" * 100)
                else:
                    client.send(topic, b"v" * 100)
                await anext(records)
                if number >= 0:
                    times.append(time.perf_counter() - started)
                await asyncio.sleep(0.005)
    return times
