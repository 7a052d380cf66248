"""The client's produce and consume paths beside confluent-kafka and aiokafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks import servers
from benchmarks.report import Section
from benchmarks.rounds import Contender, Result, run_rounds

Progress = Callable[[str], None]

COLUMNS = ("client", "records/s", "x confluent", "x aiokafka", "CPU ns/record", "+-")
MIB = 1024 * 1024
PURE = (("AIOKQ_PURE", "1"),)


def _rows(section: Section, results: Sequence[Result], confluent: str, aiokafka: str) -> None:
    rates = {result.label: result.rate for result in results}
    for result in results:
        if result.failure:
            section.rows.append([result.label, f"failed: {result.failure}", "", "", "", ""])
            continue
        section.rows.append(
            [
                result.label,
                f"{result.rate:,.0f}",
                f"{result.rate / rates[confluent]:.2f}",
                f"{result.rate / rates[aiokafka]:.2f}",
                f"{result.cpu_ns_per_record:,.0f}",
                f"{100 * result.spread:.0f} %",
            ]
        )
        section.bars.append((result.label, result.rate / 1e6))


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the values. The larger they are, the fewer records are in a round.

    Attributes:
        buffer_bytes: buffer limit for clients that have such a setting; default: the client's own.
    """

    value_bytes: int
    suffix: str = ""
    words: str = ""
    buffer_bytes: int | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        given: tuple[str, ...] = ("--value-bytes", str(self.value_bytes))
        if self.buffer_bytes is not None:
            given += ("--buffer-bytes", str(self.buffer_bytes))
        return given

    def records(self, of_100_bytes: int) -> int:
        """Return the number of records in a round, a multiple of 1,000.

        Args:
            of_100_bytes: the number of records in a round with 100-byte values.
        """
        share = {100: 1, 1_000: 4, 10_000: 25}[self.value_bytes]
        return max(1, of_100_bytes // share // 1_000) * 1_000


SMALL = Size(100)
LARGER = (
    Size(1_000, "-1kb", ", 1 KB records", 64 * MIB),
    Size(10_000, "-10kb", ", 10 KB records", 64 * MIB),
)
"""Sizes of most users' records."""


def produce(
    server: servers.Server,
    where: str,
    name: str,
    records: int,
    rounds: int,
    progress: Progress,
    *,
    value: Size = SMALL,
    settings: Sequence[bool] = (False, True),
) -> list[Section]:
    """Measure producers.

    Args:
        settings: False for equal settings of all clients, True for each client's own defaults.
    """
    sections = []
    for own_defaults in settings:
        common: tuple[str, ...] = ("--topic", f"produce-{own_defaults}{value.suffix}")
        common += value.arguments
        common += ("--defaults",) if own_defaults else ("--acks", "1")

        def size(count: int, common: tuple[str, ...] = common) -> tuple[str, ...]:
            return (*common, "--records", str(count))

        contenders = [
            Contender("confluent-kafka, callbacks", "produce_confluent", size(records)),
            Contender("aiokafka, futures", "produce_aiokafka", size(records // 4)),
            Contender(
                "aiokafka, 1,000 tasks send_and_wait",
                "produce_aiokafka",
                (*size(records // 4), "--shape", "tasks"),
            ),
        ]
        contenders += [
            Contender(f"aiokq, {label}", "produce_aiokq", (*size(count), "--shape", shape))
            for label, shape, count in (
                ("enqueue + await each", "enqueue", records),
                ("send_nowait", "send_nowait", records),
                ("send_many", "send_many", records),
                ("1,000 tasks await send()", "tasks", records // 2),
            )
        ]
        contenders += [
            Contender(
                "aiokq on asyncio's loop, enqueue + await each",
                "produce_aiokq",
                (*size(records), "--shape", "enqueue", "--loop", "asyncio"),
            ),
            Contender(
                "aiokq pure Python, enqueue + await each",
                "produce_aiokq",
                (*size(records // 4), "--shape", "enqueue"),
                PURE,
            ),
        ]
        conditions = (
            "Each client's own defaults."
            if own_defaults
            else "batch 128 KiB, linger 5 ms, acks=1, no idempotence on all sides; aiokq's 1,000 "
            "tasks with linger_when_awaited=False: 5 ms are then the most that they wait."
        )
        if value.buffer_bytes is not None:
            conditions += (
                f" {value.buffer_bytes // MIB} MiB of records in aiokq and confluent-kafka at "
                "most; aiokafka has no such limit."
            )
        section = Section(
            f"{name}-{'defaults' if own_defaults else 'equal'}{value.suffix}",
            f"Produce to {where}{value.words}" + (", own defaults" if own_defaults else ""),
            f"{value.value_bytes:,}-byte values, 10-byte keys, {records:,} records. {conditions} "
            f"Median of {rounds} interleaved rounds, client on one core, server on the other.",
            COLUMNS,
            unit="million records/s",
        )
        results = run_rounds(contenders, server.bootstrap, rounds, progress=progress)
        _rows(section, results, contenders[0].label, contenders[1].label)
        sections.append(section)
    return sections


def consume(
    server: servers.Server,
    where: str,
    name: str,
    records: int,
    rounds: int,
    progress: Progress,
    *,
    value: Size = SMALL,
) -> list[Section]:
    topic = f"consume{value.suffix}"
    progress(f"filling {topic}")
    subprocess.run(
        [sys.executable, "-m", "benchmarks.contenders.produce_confluent"]
        + ["--bootstrap", server.bootstrap, "--topic", topic, "--records", str(records)]
        + ["--value-bytes", str(value.value_bytes)],
        check=True,
        stdout=subprocess.DEVNULL,
    )

    def size(count: int) -> tuple[str, ...]:
        return ("--topic", topic, "--records", str(count))

    contenders = [
        Contender("confluent-kafka, consume(1000)", "consume_confluent", size(records)),
        Contender(
            "aiokafka, async for", "consume_aiokafka", (*size(records // 8), "--shape", "records")
        ),
        Contender(
            "aiokafka, getmany", "consume_aiokafka", (*size(records // 4), "--shape", "getmany")
        ),
        Contender("aiokq, async for", "consume_aiokq", (*size(records), "--shape", "records")),
        Contender("aiokq, batches", "consume_aiokq", (*size(records), "--shape", "batches")),
        Contender("aiokq, batches to Arrow", "consume_aiokq", (*size(records), "--shape", "arrow")),
        Contender(
            "aiokq on asyncio's loop, async for",
            "consume_aiokq",
            (*size(records), "--shape", "records", "--loop", "asyncio"),
        ),
        Contender(
            "aiokq pure Python, async for",
            "consume_aiokq",
            (*size(records // 4), "--shape", "records"),
            PURE,
        ),
    ]
    section = Section(
        f"{name}-consume{value.suffix}",
        f"Consume from {where}{value.words}",
        f"{value.value_bytes:,}-byte values, 10-byte keys, {records:,} records in 4 partitions, "
        "CRC checked, value touched; confluent-kafka with queues enlarged. "
        f"Median of {rounds} interleaved rounds.",
        COLUMNS,
        unit="million records/s",
    )
    results = run_rounds(contenders, server.bootstrap, rounds, progress=progress)
    _rows(section, results, contenders[0].label, contenders[1].label)
    return [section]


def against_mock(records: int, rounds: int, progress: Progress) -> list[Section]:
    # The mock cluster keeps about 170,000 such records per topic, so fewer are consumed from it.
    with servers.mock() as server:
        where = "librdkafka's mock cluster"
        sections = produce(server, where, "mock-produce", records, rounds, progress)
    with servers.mock() as server:
        return sections + consume(server, where, "mock", 140_000, rounds, progress)


def against_embedded(records: int, rounds: int, progress: Progress) -> list[Section]:
    with servers.embedded() as server:
        where = "aiokq's broker"
        sections = produce(server, where, "embedded-produce", records, rounds, progress)
        return sections + consume(server, where, "embedded", records, rounds, progress)


def by_size(records: int, rounds: int, progress: Progress) -> list[Section]:
    """Measure the same contenders with larger records, on aiokq's broker.

    Produced records are deleted meanwhile: gigabytes in the page cache would otherwise be written
    back during another contender's round.
    """
    where = "aiokq's broker"
    made: list[Section] = []
    for value in LARGER:
        count = value.records(records)
        few: tuple[str, ...] = ("log.segment.bytes=33554432", "log.retention.bytes=67108864")
        few += ("log.retention.check.interval.ms=2000", "log.segment.delete.delay.ms=0")
        options = [part for setting in few for part in ("--set", setting)]
        with servers.embedded(*options) as server:
            made += produce(
                server,
                where,
                "embedded-produce",
                count,
                rounds,
                progress,
                value=value,
                settings=[False],
            )
        with servers.embedded() as server:
            made += consume(server, where, "embedded", count, rounds, progress, value=value)
    return made
