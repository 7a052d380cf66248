"""Transactions of one client: how many, how large, and how long a commit takes.

Prints one JSON object: records, seconds, cpu_seconds, commits, and commit_seconds (the median).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import time
from pathlib import Path

import uvloop

from benchmarks.contenders.measure import KEYS, cpu_seconds

JAVA = Path(__file__).parent / "JavaTransactions.java"
BATCH_BYTES = 131_072
CHUNK = 1_000


class Clock:
    """Times commits, and everything since its creation."""

    def __init__(self) -> None:
        gc.collect()
        self.commits: list[float] = []
        self._cpu = cpu_seconds()
        self._started = time.perf_counter()

    def report(self, records: int) -> None:
        seconds = time.perf_counter() - self._started
        figures = {
            "records": records,
            "seconds": seconds,
            "cpu_seconds": cpu_seconds() - self._cpu,
            "commits": len(self.commits),
            "commit_seconds": statistics.median(self.commits),
        }
        print(json.dumps(figures))


def keys() -> list[bytes]:
    return [b"key-%06d" % index for index in range(KEYS)]


async def aiokq_transactions(options: argparse.Namespace) -> None:
    import aiokq

    value, of_keys, topic, size = b"v" * options.value_bytes, keys(), options.topic, options.size
    chunks = [
        [(of_keys[(first + n) % KEYS], value) for n in range(min(CHUNK, size - first))]
        for first in range(0, size, CHUNK)
    ]
    async with aiokq.Producer(
        options.bootstrap,
        transactional_id=options.id,
        linger_ms=options.linger_ms,
        batch_size=BATCH_BYTES,
    ) as producer:

        async def fill() -> None:
            if options.shape == "send_many":
                for chunk in chunks:
                    await producer.send_many(topic, chunk)
                return
            for index in range(size):
                while True:
                    try:
                        producer.send_nowait(topic, value, of_keys[index % KEYS])
                        break
                    except aiokq.BufferFull:
                        await asyncio.sleep(0.001)
                if index & 1023 == 1023:
                    await asyncio.sleep(0)

        async def run(count: int, clock: Clock | None) -> None:
            for _ in range(count):
                await producer.begin_transaction()
                await fill()
                began = time.perf_counter()
                await producer.commit_transaction()
                if clock is not None:
                    clock.commits.append(time.perf_counter() - began)

        await run(options.warm, None)
        clock = Clock()
        await run(options.count, clock)
        clock.report(options.count * size)


def confluent_transactions(options: argparse.Namespace) -> None:
    from confluent_kafka import Producer

    value, of_keys, topic, size = b"v" * options.value_bytes, keys(), options.topic, options.size
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "transactional.id": options.id,
            "partitioner": "murmur2_random",
            "linger.ms": options.linger_ms,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)

    def run(count: int, clock: Clock | None) -> None:
        for _ in range(count):
            producer.begin_transaction()
            for index in range(size):
                while True:
                    try:
                        producer.produce(topic, value, of_keys[index % KEYS])
                        break
                    except BufferError:
                        producer.poll(0.01)
                if index & 1023 == 1023:
                    producer.poll(0)
            began = time.perf_counter()
            producer.commit_transaction(60)
            if clock is not None:
                clock.commits.append(time.perf_counter() - began)

    run(options.warm, None)
    clock = Clock()
    run(options.count, clock)
    clock.report(options.count * size)


def java_transactions(options: argparse.Namespace) -> None:
    """Java's code is compiled while it runs, so it gets a longer time to warm up."""
    from tests.peers.apache_kafka import java_command

    numbers = (options.size, options.count, max(options.warm, options.count // 2))
    words = [str(each) for each in (*numbers, options.linger_ms, options.value_bytes, BATCH_BYTES)]
    command = java_command(
        str(JAVA), options.bootstrap, options.topic, options.id, *words, heap="1G", optimised=True
    )
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        causes = [line for line in done.stderr.splitlines() if "Exception" in line]
        raise SystemExit(f"Java: {'; '.join(causes) or done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("make", choices=["aiokq", "confluent", "java"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--id", required=True, help="transactional id")
    parser.add_argument("--size", type=int, required=True, help="records a transaction")
    parser.add_argument("--count", type=int, required=True, help="transactions")
    parser.add_argument("--warm", type=int, default=5, help="transactions before")
    parser.add_argument("--linger-ms", type=int, required=True)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--shape", default="send_nowait", choices=["send_nowait", "send_many"])
    options = parser.parse_args()
    if options.make == "aiokq":
        uvloop.run(aiokq_transactions(options))
    elif options.make == "confluent":
        confluent_transactions(options)
    else:
        java_transactions(options)


if __name__ == "__main__":
    main()
