"""Shared by the tests on Apache Kafka: topics, and the content of its log directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aiokq
from aiokq.admin.topics import NewTopic
from aiokq.errors import BrokerError
from aiokq.records.header import BatchHeader, iter_headers
from tests.peers.apache_kafka import ApacheKafka

T = TypeVar("T")

BASE_TIME = time.time_ns() // 1_000_000 - 60_000
"""A time in milliseconds for records with explicit timestamps.

It is recent, because retention would delete records of years ago half a minute after a broker has
started.
"""


async def create_topic(
    apache: ApacheKafka,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    assignments: dict[int, Sequence[int]] | None = None,
    **configs: Any,
) -> None:
    """Create a topic and wait until the brokers know it; config names have `_` for `.`."""
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        new = NewTopic(
            topic,
            -1 if assignments else partitions,
            -1 if assignments else replication_factor,
            assignments=assignments,
            configs={name.replace("_", "."): value for name, value in configs.items()},
        )
        await admin.create_topics(new, raise_errors=True)
        await eventually(lambda: admin.describe_topics(topic, raise_errors=True))


async def led(servers: str, topic: str, partitions: int) -> None:
    """Wait until the brokers lead the partitions of a new topic, which metadata names before.

    For what a refused request would fail or bring into another order: `Cluster.produce`, and the
    gateway's engine `bruce`.
    """
    wanted: Any = {(topic, number): "latest" for number in range(partitions)}
    async with aiokq.Admin(servers) as admin:
        await eventually(lambda: admin.list_offsets(wanted, raise_errors=True))


def logged_batches(
    apache: ApacheKafka, topic: str, partition: int = 0, node: int = 1
) -> list[BatchHeader]:
    """Return the headers of all batches in a node's log of a partition."""
    directory = apache.directory / f"node-{node}" / f"{topic}-{partition}"
    return [
        header
        for path in sorted(directory.glob("*.log"))
        for header in iter_headers(path.read_bytes())
    ]


def value(number: int, size: int = 0) -> bytes:
    """A value that starts with its number, padded with text that compresses somewhat."""
    text = f"value {number} "
    return (text + f"{number * 7919:x}" * (size // 4))[: max(size, len(text))].encode()


async def eventually(check: Callable[[], Awaitable[T]], timeout: float = 15) -> T:
    """Return the result of `check` once it no longer fails.

    The controller responds when a change is decided; the brokers learn of it a moment later and
    describe the previous state until then.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await check()
        except (AssertionError, LookupError, BrokerError):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)
