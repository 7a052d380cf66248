"""Consume, transform, produce, exactly once: `process()` beside a loop of confluent-kafka.

Transactions end by the same number of records and the same time. The input is read from its
beginning. Prints one JSON object: records, seconds, cpu_seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import uvloop

from benchmarks.contenders.measure import measured

INTERVAL_SECONDS = 0.1


async def aiokq_copy(options: argparse.Namespace) -> None:
    import aiokq

    stop, started = asyncio.Event(), asyncio.Event()
    done, target = 0, options.output

    def one(record: aiokq.Record) -> aiokq.Outgoing:
        nonlocal done
        done += 1
        if done == options.warm:
            started.set()
        elif done == options.records:
            stop.set()
        return aiokq.Outgoing(target, record.value, record.key)

    async with aiokq.Cluster(options.bootstrap) as cluster:
        copying = asyncio.create_task(
            cluster.process(
                options.input,
                one,
                group_id=options.group,
                max_records=options.size,
                commit_interval_ms=int(INTERVAL_SECONDS * 1000),
                stop=stop,
                consumer_settings={"auto_offset_reset": "earliest"},
                producer_settings={"linger_ms": options.linger_ms},
            )
        )
        await started.wait()
        with measured(options.records - done):
            await copying


def confluent_copy(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, Producer

    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.group,
            "partitioner": "murmur2_random",
            "linger.ms": options.linger_ms,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    consumer.subscribe([options.input])

    def transaction() -> int:
        producer.begin_transaction()
        count, end = 0, time.monotonic() + INTERVAL_SECONDS
        while count < options.size and (left := end - time.monotonic()) > 0:
            messages = consumer.consume(min(1000, options.size - count), left)
            for message in messages:
                assert message.error() is None, message.error()
                producer.produce(options.output, message.value(), message.key())
            count += len(messages)
            producer.poll(0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 60
        )
        producer.commit_transaction(60)
        return count

    done = 0
    while done < options.warm:
        done += transaction()
    with measured(options.records - done):
        while done < options.records:
            done += transaction()
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("make", choices=["aiokq", "confluent"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--records", type=int, required=True, help="in the input")
    parser.add_argument("--size", type=int, required=True, help="records a transaction at most")
    parser.add_argument("--warm", type=int, default=1000, help="records before")
    parser.add_argument("--linger-ms", type=int, required=True)
    options = parser.parse_args()
    if options.make == "aiokq":
        uvloop.run(aiokq_copy(options))
    else:
        confluent_copy(options)


if __name__ == "__main__":
    main()
