"""Readers of a log with transactions, at both isolation levels, and of a marker just written.

`log` prints the records and the seconds of `PASSES` passes over a topic, `marker` the medians of
the times from the call and from the return of a commit until a waiting reader has the record,
`round-trips` those of a request without an effect and of an append.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

import uvloop

from benchmarks.contenders.measure import measured

PARTITION = 0
PASSES = 8
"""Measured passes of `log`. One pass takes 0.1 s, and one more comes before, unmeasured."""


async def aiokq_log(options: argparse.Namespace) -> None:
    import aiokq

    async with aiokq.Consumer(
        bootstrap_servers=options.bootstrap,
        isolation_level=options.isolation,
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([(options.topic, PARTITION)])

        async def read() -> None:
            consumer.seek((options.topic, PARTITION), 0)
            records = 0
            async for batch in consumer.batches():
                for record in batch:
                    records += 1
                    record.value  # noqa: B018 - it is made when it is asked for
                if records == options.records:
                    return

        await read()
        with measured(PASSES * options.offsets):
            for _ in range(PASSES):
                await read()


def confluent_log(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": options.isolation,
            "queued.max.messages.kbytes": 1_000_000,
            "queued.min.messages": 1_000_000,
        }
    )

    def read() -> None:
        consumer.assign([TopicPartition(options.topic, PARTITION, 0)])
        records = 0
        while records < options.records:
            # It waits for as many as it is asked for.
            for message in consumer.consume(min(1000, options.records - records), 5):
                records += 1
                message.value()

    read()
    with measured(PASSES * options.offsets):
        for _ in range(PASSES):
            read()
    consumer.close()


async def marker(options: argparse.Namespace) -> None:
    import aiokq

    from_call, from_return = [], []
    async with (
        aiokq.Producer(options.bootstrap, transactional_id=options.topic, linger_ms=0) as producer,
        aiokq.Consumer(
            bootstrap_servers=options.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        consumer.assign([(options.topic, PARTITION)])

        async def read() -> float:
            await consumer.getone()
            return time.perf_counter()

        for number in range(options.records):
            reading = asyncio.create_task(read())
            await producer.begin_transaction()
            await producer.send(options.topic, b"%d" % number, partition=PARTITION)
            await asyncio.sleep(0.01)  # the reader waits at the last stable offset
            called = time.perf_counter()
            await producer.commit_transaction()
            returned = time.perf_counter()
            arrived = await reading
            if number >= options.records // 5:
                from_call.append(arrived - called)
                from_return.append(arrived - returned)
    figures = {
        "from_call": statistics.median(from_call),
        "from_return": statistics.median(from_return),
    }
    print(json.dumps(figures))


async def round_trips(options: argparse.Namespace) -> None:
    import aiokq
    from aiokq import wire

    async def timed(count: int, call: Any) -> float:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await call()
            times.append(time.perf_counter() - began)
        return statistics.median(times[count // 5 :])

    async with aiokq.Cluster(options.bootstrap) as cluster:
        lookup = wire.FindCoordinatorRequest(key_type=1, coordinator_keys=["nobody"])
        node = next(iter(cluster.metadata.brokers))
        trip = await timed(options.records, lambda: cluster.request(lookup, node=node))
        async with cluster.producer(linger_ms=0, acks="all") as producer:
            appended = await timed(
                options.records,
                lambda: producer.send(options.topic, b"v" * 100, partition=PARTITION),
            )
    print(json.dumps({"round_trip": trip, "append": appended}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["log", "marker", "round-trips"])
    parser.add_argument("make", choices=["aiokq", "confluent"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, required=True, help="records, or repetitions")
    parser.add_argument("--offsets", type=int, default=1, help="offsets of the log")
    parser.add_argument("--isolation", default="read_committed")
    options = parser.parse_args()
    match options.what, options.make:
        case "log", "aiokq":
            uvloop.run(aiokq_log(options))
        case "log", "confluent":
            confluent_log(options)
        case "marker", _:
            uvloop.run(marker(options))
        case _:
            uvloop.run(round_trips(options))


if __name__ == "__main__":
    main()
