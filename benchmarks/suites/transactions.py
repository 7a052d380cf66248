"""Transactions: rates, commit latency, process(), and readers of logs with transactions.

aiokq, confluent-kafka and Java's client, on the embedded broker and on Apache Kafka.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks import servers
from benchmarks.contenders.transaction_reader import PASSES
from benchmarks.report import Section
from benchmarks.rounds import Contender, run_once
from tests.peers.apache_kafka import why_absent

Progress = Callable[[str], None]

LARGE = 10_000
"""Records a transaction where records per second count."""
SMALL = 100
"""Records a transaction where commits per second count."""
LINGERS_MS = (0, 5)
FINISHED = 10_000
"""Transactions in the log that readers read; a 20th of them in short runs of the suite."""
OF_FINISHED = 10
"""Records of each of them."""
ABORTED_EVERY = 10
JAVA_ATTEMPTS = 5
"""Runs of Java's producer until one is not ended by a race of that producer; see `_measured`."""
REPETITIONS = 500
"""Commits and requests whose median time is taken."""

MAKES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("aiokq, send_nowait", ("aiokq", "--shape", "send_nowait")),
    ("aiokq, send_many", ("aiokq", "--shape", "send_many")),
    ("confluent-kafka", ("confluent",)),
    ("Java", ("java",)),
)

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker under test: its name in the tables, and how to start it."""

    name: str
    start: Callable[[], AbstractContextManager[servers.Server]]


def _brokers() -> Iterator[Broker]:
    yield Broker("aiokq", servers.embedded)
    if why_absent() is None:
        yield Broker("Apache Kafka", servers.apache)


def _median(figures: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in figures)


def _rate(figures: Sequence[dict[str, float]], name: str = "records") -> float:
    return statistics.median(each[name] / each["seconds"] for each in figures)


def _spread(figures: Sequence[dict[str, float]]) -> float:
    """Return half the difference of the extremes, divided by the median."""
    rates = [each["records"] / each["seconds"] for each in figures]
    return (max(rates) - min(rates)) / 2 / statistics.median(rates)


def _interleaved(
    server: servers.Server,
    contenders: Callable[[int], Sequence[Contender]],
    rounds: int,
    progress: Progress,
) -> dict[str, list[dict[str, float]]]:
    """Run every contender once a round, each round in another order; return what they print."""
    figures: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        listed = contenders(number)
        turn = number % len(listed)
        for contender in [*listed[turn:], *listed[:turn]]:
            progress(f"round {number + 1} of {rounds}: {contender.label}")
            measured = _measured(contender, server.bootstrap)
            figures.setdefault(contender.label, []).append(measured)
    return {each.label: figures[each.label] for each in contenders(0)}


def _measured(contender: Contender, bootstrap: str) -> dict[str, float]:
    """Run a contender; repeat a run that Java's producer ended because of a race of its own.

    Java's producer (4.2) asks whether batches are incomplete, and then takes the next transactional
    request. If the application begins, fills and commits a transaction between the two steps, the
    producer sends EndTxn before the records. The broker answers INVALID_TXN_STATE, as Kafka's own
    does, and the producer cannot be used any more.
    Source: Kafka ``Sender.maybeSendAndPollTransactionalRequest``.
    """
    for _ in range(JAVA_ATTEMPTS - 1):
        try:
            return run_once(contender, bootstrap, timeout=300)
        except RuntimeError as error:
            if contender.label != "Java" or "InvalidTxnStateException" not in str(error):
                raise
    return run_once(contender, bootstrap, timeout=300)


async def _create(server: servers.Server, topic: str, partitions: int) -> None:
    import aiokq

    async with aiokq.Admin(server.bootstrap) as admin:
        await admin.create_topics(topic, num_partitions=partitions, raise_errors=True)


def transactions(records: int, rounds: int, progress: Progress) -> list[Section]:
    """Run all measurements on one broker after the other.

    Args:
        records: records that a contender sends in a round, with large transactions; the other
            amounts are in proportion.
    """
    made: list[Section] = [*_sections(records, rounds)]
    for broker in _brokers():
        with broker.start() as server:
            for section, measure in zip(made, MEASUREMENTS, strict=True):
                measure(section, broker, server, records, rounds, progress)
    reason = why_absent()
    if reason is not None:
        for section in made:
            section.conditions += f" Apache Kafka was not measured: {reason}."
    return made


def _sections(records: int, rounds: int) -> Iterator[Section]:
    rates = ("client", "broker", "linger", "transaction")
    common = (
        "100-byte values, 10-byte keys, 4 partitions, batch 128 KiB, acks=all. Client on one core, "
        f"broker on the other; median of {rounds} interleaved rounds."
    )
    yield Section(
        "transactions-records",
        "Transactions of 10,000 records",
        common,
        (*rates, "records/s", "x confluent", "x Java", "CPU ns/record", "commit", "+-"),
        unit="million records/s",
    )
    yield Section(
        "transactions-commits",
        "Transactions of 100 records",
        common,
        (*rates, "commits/s", "x confluent", "x Java", "CPU us/commit", "commit", "+-"),
        unit="commits/s",
    )
    yield Section(
        "transactions-process",
        "Consume, transform, produce, exactly once",
        "process() beside a loop of confluent-kafka: both end a transaction by the same number of "
        f"records, or after 100 ms. {common}",
        (*rates, "records/s", "x confluent", "CPU ns/record", "+-"),
        unit="million records/s",
    )
    yield Section(
        "transactions-latency",
        "Latency of a commit",
        "Transactions of one record whose acknowledgement is not awaited before the commit; time "
        "of the commit. Round trip: a FindCoordinator request. Append: what one record with "
        f"acks=all takes beyond a round trip. {REPETITIONS} times each, median of {rounds} rounds.",
        (*rates, "commit", "round trip", "append", "two round trips and the append"),
    )
    yield Section(
        "transactions-reader",
        "Reading a log of finished transactions",
        f"{FINISHED:,} transactions of {OF_FINISHED} records in one partition, every "
        f"{ABORTED_EVERY}th aborted. Rates count all offsets of the log, those of aborted records "
        f"and markers too. {PASSES} passes each after one that is not counted, median of {rounds} "
        "interleaved rounds.",
        ("client", "broker", "read_uncommitted", "read_committed", "committed / uncommitted"),
        unit="million offsets/s",
    )
    yield Section(
        "transactions-marker",
        "A marker reaches a waiting reader",
        "A read_committed reader waits for the only record of a transaction; time from the call "
        f"and from the return of the commit until it has the record. {REPETITIONS} times, median "
        f"of {rounds} rounds.",
        ("client", "broker", "from the call", "from the return"),
    )


def _of_size(
    section: Section,
    broker: Broker,
    server: servers.Server,
    rounds: int,
    progress: Progress,
    size: int,
    count: int,
) -> None:
    """Measure the producers with transactions of one size."""
    commits = size == SMALL
    for linger in LINGERS_MS:
        topic = f"size-{size}-linger-{linger}"
        asyncio.run(_create(server, topic, 4))

        def contenders(number: int, topic: str = topic, linger: int = linger) -> list[Contender]:
            words: tuple[str, ...] = ("--topic", topic, "--size", str(size), "--count", str(count))
            words += ("--warm", str(max(2, count // 10)), "--linger-ms", str(linger))
            return [
                Contender(
                    label, "transactions", (*make, *words, "--id", f"{topic}-{make[0]}-{number}")
                )
                for label, make in MAKES
            ]

        found = _interleaved(server, contenders, rounds, progress)
        rate = {label: _rate(each) for label, each in found.items()}
        for label, each in found.items():
            share = size if commits else 1
            cpu = _median(each, "cpu_seconds") / _median(each, "records") * share
            section.rows.append(
                [
                    *(label, broker.name, f"{linger} ms", f"{size:,}"),
                    f"{rate[label] / share:,.0f}",
                    f"{rate[label] / rate['confluent-kafka']:.2f}",
                    f"{rate[label] / rate['Java']:.2f}",
                    f"{cpu * (1e6 if commits else 1e9):,.0f}",
                    f"{1000 * _median(each, 'commit_seconds'):.2f} ms",
                    f"{100 * _spread(each):.0f} %",
                ]
            )
            name = f"{label} on {broker.name}, linger {linger} ms"
            section.bars.append((name, rate[label] / (share if commits else 1e6)))


def _records(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    count = max(3, records // LARGE)
    _of_size(section, broker, server, rounds, progress, LARGE, count)


def _commits(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    count = max(50, records // SMALL // 5)
    _of_size(section, broker, server, rounds, progress, SMALL, count)


def _process(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    count = max(20_000, records // 5 // LARGE * LARGE)
    asyncio.run(_create(server, "process-in", 4))
    asyncio.run(_create(server, "process-out", 4))
    asyncio.run(_fill(server, "process-in", count))
    for size in (SMALL, LARGE):
        for linger in LINGERS_MS:

            def contenders(number: int, size: int = size, linger: int = linger) -> list[Contender]:
                words: tuple[str, ...] = ("--input", "process-in", "--output", "process-out")
                words += ("--records", str(count), "--size", str(size))
                words += ("--linger-ms", str(linger))
                return [
                    Contender(
                        label,
                        "transaction_copy",
                        (make, *words, "--group", f"{make}-{size}-{linger}-{number}"),
                    )
                    for label, make in (
                        ("aiokq, process()", "aiokq"),
                        ("confluent-kafka", "confluent"),
                    )
                ]

            found = _interleaved(server, contenders, rounds, progress)
            rate = {label: _rate(each) for label, each in found.items()}
            for label, each in found.items():
                cpu = _median(each, "cpu_seconds") / _median(each, "records")
                section.rows.append(
                    [
                        *(label, broker.name, f"{linger} ms", f"{size:,}"),
                        f"{rate[label]:,.0f}",
                        f"{rate[label] / rate['confluent-kafka']:.2f}",
                        f"{1e9 * cpu:,.0f}",
                        f"{100 * _spread(each):.0f} %",
                    ]
                )
                name = f"{label} on {broker.name}, {size:,} a transaction, linger {linger} ms"
                section.bars.append((name, rate[label] / 1e6))


async def _fill(server: servers.Server, topic: str, count: int) -> None:
    import aiokq

    keys = [b"key-%06d" % number for number in range(10_000)]
    async with aiokq.Producer(server.bootstrap) as producer:
        for first in range(0, count, 1_000):
            chunk = [(keys[(first + n) % 10_000], b"v" * 100) for n in range(1_000)]
            await producer.send_many(topic, chunk)


def _latency(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    asyncio.run(_create(server, "latency", 1))
    asyncio.run(_create(server, "trips", 1))

    def contenders(number: int) -> list[Contender]:
        words: tuple[str, ...] = ("--topic", "latency", "--size", "1", "--count", str(REPETITIONS))
        words += ("--warm", str(REPETITIONS // 5), "--linger-ms", "0")
        trips = ("round-trips", "aiokq", "--topic", "trips", "--records", str(REPETITIONS))
        return [
            *(
                Contender(label, "transactions", (*make, *words, "--id", f"{make[0]}-{number}"))
                for label, make in MAKES
                if "send_many" not in label
            ),
            Contender("round trips", "transaction_reader", trips),
        ]

    found = _interleaved(server, contenders, rounds, progress)
    trips = found.pop("round trips")
    trip = _median(trips, "round_trip")
    append = _median(trips, "append") - trip
    for label, each in found.items():
        times = (_median(each, "commit_seconds"), trip, append, 2 * trip + append)
        section.rows.append(
            [label, broker.name, "0 ms", "1", *(f"{1000 * time:.2f} ms" for time in times)]
        )


def _reader(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    topic = "finished"
    count = FINISHED if records >= 100_000 else FINISHED // 20
    progress(f"writing {count:,} transactions")
    asyncio.run(_create(server, topic, 1))
    asyncio.run(_finished(server, topic, count))
    offsets = count * (OF_FINISHED + 1)
    levels = {
        "read_uncommitted": count * OF_FINISHED,
        "read_committed": (count - count // ABORTED_EVERY) * OF_FINISHED,
    }

    def contenders(number: int) -> list[Contender]:
        return [
            Contender(
                f"{label}/{level}",
                "transaction_reader",
                (
                    *("log", make, "--topic", topic, "--isolation", level),
                    *("--records", str(amount), "--offsets", str(offsets)),
                ),
            )
            for label, make in (("aiokq, batches", "aiokq"), ("confluent-kafka", "confluent"))
            for level, amount in levels.items()
        ]

    found = _interleaved(server, contenders, rounds, progress)
    for label in dict.fromkeys(each.split("/")[0] for each in found):
        rates = [_rate(found[f"{label}/{level}"]) for level in levels]
        section.rows.append(
            [
                *(label, broker.name),
                *(f"{rate:,.0f}" for rate in rates),
                f"{rates[1] / rates[0]:.2f}",
            ]
        )
        for level, rate in zip(levels, rates, strict=True):
            section.bars.append((f"{label} on {broker.name}, {level}", rate / 1e6))


async def _finished(server: servers.Server, topic: str, count: int) -> None:
    import aiokq

    records = [(None, b"v" * 100)] * OF_FINISHED
    async with aiokq.Producer(server.bootstrap, transactional_id=topic) as producer:
        for number in range(count):
            await producer.begin_transaction()
            await producer.send_many(topic, records)
            if number % ABORTED_EVERY:
                await producer.commit_transaction()
            else:
                await producer.flush()  # so that the records are in the log
                await producer.abort_transaction()


def _marker(
    section: Section,
    broker: Broker,
    server: servers.Server,
    records: int,
    rounds: int,
    progress: Progress,
) -> None:
    def contenders(number: int) -> list[Contender]:
        topic = f"marker-{next(_numbers)}"
        asyncio.run(_create(server, topic, 1))
        words = ("marker", "aiokq", "--topic", topic, "--records", str(REPETITIONS))
        return [Contender("aiokq", "transaction_reader", words)]

    [each] = _interleaved(server, contenders, rounds, progress).values()
    times = (_median(each, "from_call"), _median(each, "from_return"))
    section.rows.append(["aiokq", broker.name, *(f"{1000 * time:.2f} ms" for time in times)])


MEASUREMENTS = (_records, _commits, _process, _latency, _reader, _marker)
