"""The main job: 336,776 real flights through a Kafka, each acknowledged, none lost or doubled.

Three producers publish the flights as JSON, keyed by tail number, and await the acknowledgement
of each record; at the same time two consumers stream them back and keep delay statistics per
carrier and route. `make run` runs it on the embedded broker (a process of its own), and
`make run BOOTSTRAP=host:port` on any Kafka.
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
from .data import Flight, fetch, read_flights
from .delays import Delay, Statistics

PRODUCERS = 3
CONSUMERS = 2
PARTITIONS = 6
# Acknowledgements a producer waits for at any time; more would only cost memory.
WINDOW = 10_000
CATCH_UP_SECONDS = 60


@dataclass(slots=True)
class Bar:
    """One line of the progress display, moved in steps that cost nothing per record."""

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
    """Sends the flights in order and awaits each one's acknowledgement. Returns their number."""
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


class Arrivals:
    """Counts the records of all consumers together, and tells when the last one is there."""

    def __init__(self, expected: int) -> None:
        self.missing = expected
        self.complete = asyncio.Event()

    def count(self) -> None:
        self.missing -= 1
        if self.missing == 0:
            self.complete.set()


async def consume(
    consumer: aiokq.Consumer, statistics: Statistics, arrivals: Arrivals, bar: Bar
) -> None:
    """Adds up what comes by, until cancelled."""
    async for record in consumer:
        assert record.value is not None
        statistics.add(record.key, record.value)
        arrivals.count()
        bar.step()


async def create_topic(cluster: aiokq.Cluster, topic: str) -> None:
    async with cluster.admin() as admin:
        if topic not in await admin.list_topics():
            await admin.create_topics(aiokq.NewTopic(topic, PARTITIONS), raise_errors=True)


@dataclass(frozen=True, slots=True)
class Outcome:
    acknowledged: int
    in_log: int
    statistics: Statistics
    produce_seconds: float
    total_seconds: float


async def run(bootstrap: str, topic: str, flights: list[Flight], progress: Progress) -> Outcome:
    statistics = [Statistics(len(flights)) for _ in range(CONSUMERS)]
    shares = [flights[index::PRODUCERS] for index in range(PRODUCERS)]
    produce_bars = [
        Bar(progress, progress.add_task(f"producer {index + 1}", total=len(share)))
        for index, share in enumerate(shares)
    ]
    consume_bars = [
        Bar(progress, progress.add_task(f"consumer {index + 1}", total=None))
        for index in range(CONSUMERS)
    ]
    async with aiokq.Cluster(bootstrap) as cluster:
        await create_topic(cluster, topic)
        consumers = [cluster.consumer(auto_offset_reset="latest") for _ in range(CONSUMERS)]
        for consumer in consumers:
            await consumer.start()
        while (numbers := consumers[0].partitions_for_topic(topic)) is None:
            await cluster.refresh(topic)
        partitions = [aiokq.TopicPartition(topic, number) for number in sorted(numbers)]
        first = await consumers[0].end_offsets(partitions)
        for index, consumer in enumerate(consumers):
            mine = partitions[index::CONSUMERS]
            consumer.assign(mine)
            for partition in mine:
                consumer.seek(partition, first[partition])
        arrivals = Arrivals(len(flights))
        started = time.perf_counter()
        async with asyncio.TaskGroup() as streams:
            streaming = [
                streams.create_task(consume(consumer, tally, arrivals, bar))
                for consumer, tally, bar in zip(consumers, statistics, consume_bars, strict=True)
            ]
            producers = [cluster.producer() for _ in range(PRODUCERS)]
            for producer in producers:
                await producer.start()
            async with asyncio.TaskGroup() as publishers:
                publishing = [
                    publishers.create_task(publish(producer, topic, share, bar))
                    for producer, share, bar in zip(producers, shares, produce_bars, strict=True)
                ]
            produced = time.perf_counter()
            for producer in producers:
                await producer.close()
            last = await consumers[0].end_offsets(partitions)
            # What is lost would be waited for in vain: the report then says how much it is.
            with suppress(TimeoutError):
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await arrivals.complete.wait()
            finished = time.perf_counter()
            for task in streaming:
                task.cancel()
        for bar in consume_bars:
            bar.flush()
        for consumer in consumers:
            await consumer.close()
    merged = statistics[0]
    for other in statistics[1:]:
        merged.merge(other)
    return Outcome(
        acknowledged=sum(task.result() for task in publishing),
        in_log=sum(last[partition] - first[partition] for partition in partitions),
        statistics=merged,
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
    """Prints the tables. True if every flight came through exactly once."""
    statistics = outcome.statistics
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
        ("without tail number, file / consumed", f"{keyless:,} / {statistics.keyless:,}"),
        ("lost", statistics.missing),
        ("doubled", statistics.doubled),
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
        and not statistics.missing
        and not statistics.doubled
        and keyless == statistics.keyless
    )
    console.print(
        "[bold green]None lost, none doubled.[/]" if exact else "[bold red]The counts differ.[/]"
    )
    return exact


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap-servers", help="a Kafka; default: an embedded broker")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--cache", type=Path, default=Path(".cache/flights"))
    parser.add_argument("--limit", type=int, help="publish only the first rows")
    parser.add_argument("--svg", type=Path, help="save what is printed as a picture")
    options = parser.parse_args()
    console = Console(record=options.svg is not None, width=100 if options.svg else None)

    source = fetch(options.cache)
    with console.status("Reading the flights ..."):
        flights = list(read_flights(source, options.limit))
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
    if options.svg:
        console.save_svg(str(options.svg), title="make run")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
