"""One member of the group, a process of its own: `python -m examples.flights.member`.

It reads flights and reports each batch to its parent, as one JSON document per line. A batch is
finished when the next one is requested, which is after its report. Committed records have therefore
been reported, and a killed member loses none. SIGTERM makes the member leave the group.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

import uvloop

import aiokq

SESSION_TIMEOUT_MS = 6_000
"""Shorter than the default, so that the run does not wait long for the partitions of a killed
member. By default, Kafka's brokers accept no shorter time.
"""


teller = ThreadPoolExecutor(1)
"""Writes reports. A busy parent leaves the pipe full, and heartbeats must not wait for it."""


def tell(document: dict[str, object]) -> Future[None]:
    """Return a future that is done when the document is written; the order of calls is kept."""
    return teller.submit(_write, json.dumps(document, separators=(",", ":")) + "\n")


def _write(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def flights(batch: aiokq.RecordBatch[aiokq.Record]) -> list[list[object]]:
    """Return the fields of each record that the statistics need; see `crew.Report`."""
    rows: list[list[object]] = []
    for record in batch:
        assert record.value is not None
        flight = json.loads(record.value)
        route = f"{flight['origin']} - {flight['dest']}"
        rows.append(
            [
                record.offset,
                flight["row"],
                flight["carrier"],
                route,
                flight["arr_delay"],
                len(record.value),
                record.key is None,
            ]
        )
    return rows


def assigned(partitions: Collection[aiokq.TopicPartition]) -> None:
    tell({"assigned": len(partitions)})


def revoked(partitions: Collection[aiokq.TopicPartition]) -> None:
    tell({"revoked": len(partitions)})


async def run(bootstrap: str, topic: str, group: str) -> None:
    async with aiokq.Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=1_000,
        auto_commit_interval_ms=500,
        partition_assignment_strategy=("cooperative-sticky",),
        on_assigned=assigned,
        on_revoked=revoked,
    ) as consumer:
        closing: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(
            signal.SIGTERM, lambda: closing.append(loop.create_task(consumer.close()))
        )
        async for batch in consumer.batches():
            told = tell({"partition": batch.partition, "flights": flights(batch)})
            await asyncio.wrap_future(told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bootstrap_servers")
    parser.add_argument("topic")
    parser.add_argument("group")
    options = parser.parse_args()
    uvloop.run(run(options.bootstrap_servers, options.topic, options.group))
