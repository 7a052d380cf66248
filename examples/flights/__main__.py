"""The main job: 336,776 real flights through Kafka, none of them lost or duplicated.

Three producers publish the flights as JSON, keyed by tail number, and await the acknowledgement
of each record. At the same time a consumer group reads them and keeps delay statistics per carrier
and route. The group begins with two members; a third one joins after a quarter of the flights, and
one is killed after half of them, without a chance to commit or to leave the group. The others
continue from its committed offsets.

The Spark part follows: `aiokq spark load` loads the flights to Parquet; a PySpark job computes
delays per route and hour from the files, and per airport and day from the topic as a stream; both
write to compacted topics, which are read back and plotted. `make run` uses the embedded broker
(a process of its own), and `make run BOOTSTRAP=host:port` any Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.table import Table

import aiokq

from .broker_process import broker_process
from .crew import Crew, Ledger, Member
from .data import Flight, fetch, read_flights
from .delays import Delay, Statistics
from .member import SESSION_TIMEOUT_MS
from .plot import draw
from .spark_job import SparkJob
from .spark_report import report as report_spark
from .spark_session import why_absent

PRODUCERS = 3
MEMBERS = 2
PARTITIONS = 6
# Number of acknowledgements that a producer waits for at any time; more would only use memory.
WINDOW = 10_000
CATCH_UP_SECONDS = 60


@dataclass(slots=True)
class Bar:
    """One line of the progress display, advanced once per 1,000 records to save CPU time."""

    progress: Progress
    task: TaskID
    pending: int = 0

    def step(self) -> None:
        self.pending += 1
        if self.pending == 1_000:
            self.flush()

    def flush(self) -> None:
        self.progress.advance(self.task, self.pending)
        self.pending = 0


async def publish(producer: aiokq.Producer, topic: str, flights: Sequence[Flight], bar: Bar) -> int:
    """Send the flights in order, await each acknowledgement, and return the number of flights."""
    waiting: deque[aiokq.Delivery] = deque()
    acknowledged = 0

    async def acknowledge() -> None:
        nonlocal acknowledged
        metadata = await waiting.popleft()
        assert metadata.offset >= 0
        acknowledged += 1
        bar.step()

    for flight in flights:
        if len(waiting) == WINDOW:
            await acknowledge()
        delivery = await producer.enqueue(topic, flight.value, key=flight.tail_number)
        waiting.append(delivery)
    while waiting:
        await acknowledge()
    bar.flush()
    return acknowledged


class Milestones:
    """Counts the records of all members, and wakes tasks that wait for a number of records."""

    def __init__(self) -> None:
        self.count = 0
        self._awaited: list[tuple[int, asyncio.Event]] = []

    def add(self, records: int) -> None:
        self.count += records
        for number, event in self._awaited:
            if self.count >= number:
                event.set()

    async def reached(self, number: int) -> None:
        event = asyncio.Event()
        self._awaited.append((number, event))
        self.add(0)
        await event.wait()


async def publish_all(
    cluster: aiokq.Cluster, topic: str, shares: list[list[Flight]], bars: list[Bar]
) -> int:
    """Run all producers at once, and return the number of acknowledged records."""
    producers = [cluster.producer() for _ in shares]
    for producer in producers:
        await producer.start()
    async with asyncio.TaskGroup() as publishers:
        publishing = [
            publishers.create_task(publish(producer, topic, share, bar))
            for producer, share, bar in zip(producers, shares, bars, strict=True)
        ]
    for producer in producers:
        await producer.close()
    return sum(task.result() for task in publishing)


async def create_topic(cluster: aiokq.Cluster, topic: str) -> list[aiokq.TopicPartition]:
    """Create the topic, and return its partitions."""
    async with cluster.admin() as admin:
        if topic not in await admin.list_topics():
            await admin.create_topics(aiokq.NewTopic(topic, PARTITIONS), raise_errors=True)
        described = (await admin.describe_topics([topic], raise_errors=True))[topic]
    return [aiokq.TopicPartition(topic, p.partition) for p in described.partitions]


async def ends(
    admin: aiokq.Admin, partitions: list[aiokq.TopicPartition]
) -> dict[aiokq.TopicPartition, int]:
    """Return the log end offsets."""
    found = await admin.list_offsets(dict.fromkeys(partitions, "latest"), raise_errors=True)
    return {tp: listed.offset for tp, listed in found.items()}


async def caught_up(admin: aiokq.Admin, group: str, last: dict[aiokq.TopicPartition, int]) -> None:
    """Wait until the group has no lag: the records of the killed member are then committed too."""
    while True:
        offsets = (await admin.list_group_offsets(group, raise_errors=True))[group].offsets
        committed = {tp: offset.offset for tp, offset in offsets.items() if offset is not None}
        if all(committed.get(tp) == end for tp, end in last.items()):
            return
        await asyncio.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Outcome:
    first: dict[int, int]
    acknowledged: int
    in_log: int
    committed: int
    ledger: Ledger
    produce_seconds: float
    total_seconds: float


async def stream(crew: Crew, flights: int, milestones: Milestones, progress: Progress) -> None:
    """Start and kill members while records arrive; end when all records have arrived."""
    await milestones.reached(flights // 4)
    progress.console.print("A third member joins.")
    await crew.start()
    await milestones.reached(flights // 2)
    victim = crew.members[1]
    crew.kill(victim)
    progress.console.print(
        f"{victim.name.capitalize()} is killed; its session ends in "
        f"{SESSION_TIMEOUT_MS / 1000:.0f} s, and the others take over."
    )
    await milestones.reached(flights)


async def run(bootstrap: str, topic: str, flights: list[Flight], progress: Progress) -> Outcome:
    shares = [flights[index::PRODUCERS] for index in range(PRODUCERS)]
    produce_bars = [
        Bar(progress, progress.add_task(f"producer {index + 1}", total=len(share)))
        for index, share in enumerate(shares)
    ]
    group = f"{topic}-{time.time_ns()}"
    async with aiokq.Cluster(bootstrap) as cluster, cluster.admin() as admin:
        partitions = await create_topic(cluster, topic)
        first = await ends(admin, partitions)
        # The group begins behind the records that earlier runs left in the topic.
        await admin.alter_group_offsets(group, first, raise_errors=True)
        ledger = Ledger(
            Statistics(len(flights)), {tp.partition: offset for tp, offset in first.items()}
        )
        milestones = Milestones()
        bars: dict[str, TaskID] = {}

        def told(member: Member, records: int) -> None:
            if member.name not in bars:
                bars[member.name] = progress.add_task(member.name, total=None)
            progress.advance(bars[member.name], records)
            milestones.add(records)

        crew = Crew(bootstrap, topic, group, ledger, told)
        try:
            for _ in range(MEMBERS):
                await crew.start()
            await crew.assigned(len(partitions))
            started = time.perf_counter()
            streaming = asyncio.create_task(stream(crew, len(flights), milestones, progress))
            acknowledged = await publish_all(cluster, topic, shares, produce_bars)
            produced = time.perf_counter()
            last = await ends(admin, partitions)
            # Lost records would never arrive; the report shows their number.
            with suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await streaming
                    await crew.assigned(len(partitions))  # without the killed member
                    await caught_up(admin, group, last)
            finished = time.perf_counter()
        finally:
            await crew.stop()
        committed = await admin.list_group_offsets(group, raise_errors=True)
    return Outcome(
        first={tp.partition: offset for tp, offset in first.items()},
        acknowledged=acknowledged,
        in_log=sum(last[tp] - first[tp] for tp in partitions),
        committed=sum(
            offset.offset - first[tp]
            for tp, offset in committed[group].offsets.items()
            if offset is not None
        ),
        ledger=ledger,
        produce_seconds=produced - started,
        total_seconds=finished - started,
    )


def delay_table(title: str, name: str, delays: dict[str, Delay], limit: int) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(name)
    for column in ("flights", "mean delay (min)", "worst (min)"):
        table.add_column(column, justify="right")
    by_size = sorted(delays.items(), key=lambda item: -item[1].flights)
    for label, delay in by_size[:limit]:
        row = (label, f"{delay.flights:,}", f"{delay.mean_minutes:.1f}", f"{delay.worst_minutes:,}")
        table.add_row(*row)
    return table


def report(console: Console, flights: list[Flight], outcome: Outcome) -> bool:
    """Print the tables; return whether every flight arrived exactly once."""
    ledger = outcome.ledger
    statistics = ledger.statistics
    console.print(delay_table("Arrival delays per carrier", "carrier", statistics.by_carrier, 16))
    console.print(delay_table("The ten busiest routes", "route", statistics.by_route, 10))
    keyless = sum(flight.tail_number is None for flight in flights)
    published = len(flights)
    proof = Table(title="Counts", title_justify="left", show_header=False)
    proof.add_column("what")
    proof.add_column("count", justify="right")
    for label, count in (
        ("flights in the file", published),
        ("acknowledged", outcome.acknowledged),
        ("records in the log", outcome.in_log),
        ("consumed", statistics.records),
        ("redelivered after the kill", ledger.redelivered),
        ("committed by the group", outcome.committed),
        ("without tail number, file / consumed", f"{keyless:,} / {statistics.keyless:,}"),
        ("lost", statistics.missing),
        ("doubled", statistics.doubled + ledger.doubled),
    ):
        proof.add_row(label, count if isinstance(count, str) else f"{count:,}")
    console.print(proof)
    megabytes = statistics.value_bytes / 1e6
    console.print(
        f"Produced and acknowledged {published:,} records ({megabytes:.1f} MB) in "
        f"{outcome.produce_seconds:.2f} s ({published / outcome.produce_seconds:,.0f} records/s, "
        f"{megabytes / outcome.produce_seconds:.1f} MB/s), streamed back and parsed by "
        f"{outcome.total_seconds:.2f} s."
    )
    exact = (
        outcome.acknowledged == outcome.in_log == statistics.records == published
        and outcome.committed == published
        and not (statistics.missing or statistics.doubled or ledger.doubled)
        and keyless == statistics.keyless
    )
    console.print(
        "[bold green]None lost, none doubled; what the killed member had not committed came "
        "again, and was told apart.[/]"
        if exact
        else "[bold red]The counts differ.[/]"
    )
    return exact


def analyse(
    console: Console, bootstrap: str, topic: str, outcome: Outcome, directory: Path
) -> bool:
    """Run the Spark part; return whether its counts are right, or True without Spark."""
    reason = why_absent()
    if reason is not None:
        console.print(f"[bold yellow]The part with Spark is left out: {reason}.[/]", soft_wrap=True)
        return True
    job = SparkJob(console, bootstrap, topic, outcome.first, outcome.acknowledged, directory)
    findings = job.run()
    by_route = outcome.ledger.statistics.by_route
    exact = report_spark(console, findings, outcome.acknowledged, by_route)
    picture = directory / "delays.svg"
    draw(findings.routes_topic, findings.days_topic, picture)
    console.print(f"The picture of it: {picture}", highlight=False)
    return exact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", help="a Kafka; default: an embedded broker")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--cache", type=Path, default=Path(".cache/flights"))
    parser.add_argument("--limit", type=int, help="publish only the first rows")
    parser.add_argument("--without-spark", action="store_true", help="end behind the streaming")
    parser.add_argument("--output", type=Path, help="of the Spark part; default: CACHE/spark")
    parser.add_argument("--svg", type=Path, help="save what is printed as a picture")
    options = parser.parse_args()
    console = Console(record=options.svg is not None, width=100 if options.svg else None)

    source = fetch(options.cache)
    with console.status("Reading the flights ..."):
        flights = list(read_flights(source, options.limit))
        # In order of time: in the file October follows January.
        flights.sort(key=lambda flight: flight.departure)
    with ExitStack() as stack:
        bootstrap = options.bootstrap_servers
        if bootstrap is None:
            bootstrap = stack.enter_context(broker_process())
            console.print(f"Embedded broker on {bootstrap}.")
        progress = stack.enter_context(
            Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                Elapsed(),
                console=console,
                refresh_per_second=4,
            )
        )
        outcome = uvloop.run(run(bootstrap, options.topic, flights, progress))
        progress.stop()
        exact = report(console, flights, outcome)
        if exact and not options.without_spark:
            output = options.output or options.cache / "spark"
            exact = analyse(console, bootstrap, options.topic, outcome, output)
    if options.svg:
        console.save_svg(str(options.svg), title="make run")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
