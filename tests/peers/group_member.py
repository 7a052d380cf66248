"""One group member of any client as a separate program, so that tests can kill it.

    python -m tests.peers.group_member MAKE BOOTSTRAP TOPIC GROUP ASSIGNOR SESSION_MS

It prints JSON lines, as Kafka's VerifiableConsumer does: {"owned": [0, 2]} when its partitions
change, {"received": [17, 18]} for records, whose values are numbers. It commits what it received,
and leaves the group at SIGTERM. With the ASSIGNOR "uniform" or "server-range" it uses the consumer
protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

SERVER_ASSIGNORS = {"uniform": "uniform", "server-range": "range"}
"""Names of the consumer protocol's assignors here, and on the broker."""

HEARTBEAT_MS = 200


class Report:
    """Prints the member's partitions when they change, and the records that it received."""

    def __init__(self) -> None:
        self._owned: list[int] = []

    def __call__(self, owned: Iterable[int], received: Iterable[int]) -> None:
        now, numbers = sorted(owned), list(received)
        if now != self._owned:
            self._owned = now
            print(json.dumps({"owned": now}), flush=True)
        if numbers:
            print(json.dumps({"received": numbers}), flush=True)


class Leaving(Exception):
    """Raised at SIGTERM."""


def _leave(signal_number: int, frame: FrameType | None) -> None:
    raise Leaving


async def aiokq_member(
    servers: str, topic: str, group: str, assignor: str, session_ms: int, report: Report
) -> None:
    import aiokq

    remote = SERVER_ASSIGNORS.get(assignor)
    settings: dict[str, Any]
    if remote is not None:
        settings = {"group_protocol": "consumer", "group_remote_assignor": remote}
    else:
        settings = {
            "partition_assignment_strategy": [assignor],
            "session_timeout_ms": session_ms,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
    consumer = aiokq.Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        **settings,
    )
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with consumer:
            while True:
                chunks = await consumer.getmany(timeout=0.05)
                owned = (tp.partition for tp in consumer.assignment())
                report(owned, (int(r.value) for records in chunks.values() for r in records))


async def aiokafka_member(
    servers: str, topic: str, group: str, assignor: str, session_ms: int, report: Report
) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        partition_assignment_strategy=(assignors[assignor],),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        async with consumer:
            while True:
                chunks = await consumer.getmany(timeout_ms=50)
                owned = (tp.partition for tp in consumer.assignment())
                report(owned, (int(r.value) for records in chunks.values() for r in records))


def confluent_member(
    servers: str, topic: str, group: str, assignor: str, session_ms: int, report: Report
) -> None:
    from confluent_kafka import Consumer

    remote = SERVER_ASSIGNORS.get(assignor)
    settings: dict[str, Any]
    if remote is not None:
        settings = {"group.protocol": "consumer", "group.remote.assignor": remote}
    else:
        settings = {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
            **settings,
        }
    )
    consumer.subscribe([topic])
    signal.signal(signal.SIGTERM, _leave)
    try:
        while True:
            messages = consumer.consume(500, timeout=0.05)
            owned = (tp.partition for tp in consumer.assignment())
            report(owned, (int(m.value()) for m in messages if not m.error()))
    except Leaving:
        consumer.close()


def kafka_python_member(
    servers: str, topic: str, group: str, assignor: str, session_ms: int, report: Report
) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=100,
        partition_assignment_strategy=[assignors[assignor]],
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic])
    # Load the topic's metadata first. A leader that does not know the topic assigns nothing and
    # never corrects that. If it learns of it after assigning, it rejoins, and if the poll starting
    # the join ends before the response, it never reads the response (3.0.12).
    consumer.topics()
    signal.signal(signal.SIGTERM, _leave)
    try:
        while True:
            chunks = consumer.poll(timeout_ms=50)
            owned = (tp.partition for tp in consumer.assignment())
            report(owned, (int(r.value) for records in chunks.values() for r in records))
    except Leaving:
        consumer.close()


def main(make: str, servers: str, topic: str, group: str, assignor: str, session_ms: str) -> None:
    arguments = (servers, topic, group, assignor, int(session_ms), Report())
    match make:
        case "aiokq":
            asyncio.run(aiokq_member(*arguments))
        case "aiokafka":
            asyncio.run(aiokafka_member(*arguments))
        case "confluent-kafka":
            confluent_member(*arguments)
        case "kafka-python":
            kafka_python_member(*arguments)
        case _:
            raise SystemExit(f"no member of the make {make!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
