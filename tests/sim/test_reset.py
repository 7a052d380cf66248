"""Clients that stay connected while an embedded cluster is reset, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import NoOffsetForPartition, OffsetOutOfRange, UnknownTopicOrPartition
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import run

ROUNDS = 5
MANY = 6
"""Records in the recreated topic: more than the reader had read from the old one."""


def test_producer_and_consumer_survive_resets() -> None:
    """A test suite keeps its clients with its broker, because new ones for each test are slow."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            servers = kafka.bootstrap_servers
            async with Producer(servers, _environment=world.environment()) as producer:
                ids = set()
                for number in range(ROUNDS):
                    await kafka.create_topic("orders")
                    ids.add(kafka.node.topics.get("orders").topic_id)
                    metadata = await producer.send("orders", b"%d" % number)
                    assert metadata.offset == 0
                    async with Consumer(
                        "orders",
                        bootstrap_servers=servers,
                        auto_offset_reset="earliest",
                        _environment=world.environment(),
                    ) as reader:
                        record = await asyncio.wait_for(anext(reader), 30)
                        assert (record.offset, record.value) == (0, b"%d" % number)
                    await kafka.reset()
                assert len(ids) == ROUNDS

    run(1, main, limit=3600.0)


def test_a_reader_starts_in_the_recreated_topic_by_its_reset_policy() -> None:
    """The recreated topic has the same name but is a different topic."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            servers = kafka.bootstrap_servers
            async with (
                Producer(servers, _environment=world.environment()) as producer,
                Consumer(
                    "orders",
                    bootstrap_servers=servers,
                    auto_offset_reset="earliest",
                    _environment=world.environment(),
                ) as reader,
            ):
                for number in range(ROUNDS):
                    if kafka.node.topics.get("orders") is None:
                        await kafka.create_topic("orders")
                    await producer.send("orders", b"a%d" % number)
                    await producer.send("orders", b"b%d" % number)
                    found = [await asyncio.wait_for(anext(reader), 120) for _ in range(2)]
                    assert [(r.offset, r.value) for r in found] == [
                        (0, b"a%d" % number),
                        (1, b"b%d" % number),
                    ]
                    await kafka.reset()

    run(1, main, limit=3600.0)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_topic_recreated_by_another_client_is_not_read_from_the_old_position(
    policy: str,
) -> None:
    """The old offset exists in the new topic too, but belongs to another record."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            servers = kafka.bootstrap_servers
            async with (
                Producer(servers, _environment=world.environment()) as producer,
                Admin(servers, _environment=world.environment()) as admin,
                Consumer(
                    bootstrap_servers=servers,
                    auto_offset_reset=policy,
                    _environment=world.environment(),
                ) as reader,
            ):
                await admin.create_topics("orders", raise_errors=True)
                for number in range(2):
                    await producer.send("orders", b"old%d" % number)
                reader.assign([("orders", 0)])
                reader.seek(("orders", 0), 0)
                for _ in range(2):
                    await asyncio.wait_for(anext(reader), 30)
                await admin.delete_topics("orders", raise_errors=True)
                await admin.create_topics("orders", raise_errors=True)
                for number in range(MANY):
                    await producer.send("orders", b"%d" % number)
                if policy == "none":
                    with pytest.raises((NoOffsetForPartition, OffsetOutOfRange)):
                        await asyncio.wait_for(anext(reader), 120)
                    return
                if policy == "latest":
                    await asyncio.sleep(30)
                    await producer.send("orders", b"%d" % MANY)
                first = await asyncio.wait_for(anext(reader), 120)
                assert first.value == b"%d" % first.offset  # a record of the new topic
                # "latest" is the log end offset at the time when the reader noticed the new topic
                assert first.offset in ((0,) if policy == "earliest" else (0, MANY))

    run(1, main, limit=3600.0)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_topic_recreated_much_later_is_not_read_from_the_old_position(by_hand: bool) -> None:
    """The reader had noticed the deletion, but took the new topic for the old one."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(
            environment=world.environment(), settings={"auto.create.topics.enable": "false"}
        ) as kafka:
            servers = kafka.bootstrap_servers
            async with (
                Producer(servers, _environment=world.environment()) as producer,
                Consumer(
                    bootstrap_servers=servers,
                    auto_offset_reset="earliest",
                    _environment=world.environment(),
                ) as reader,
            ):
                await kafka.create_topic("orders")
                for number in range(2):
                    await producer.send("orders", b"old%d" % number)
                if by_hand:
                    reader.assign([("orders", 0)])
                else:
                    reader.subscribe(["orders"])
                for _ in range(2):
                    await asyncio.wait_for(anext(reader), 30)
                await kafka.reset()
                with pytest.raises(UnknownTopicOrPartition if by_hand else TimeoutError):
                    await asyncio.wait_for(anext(reader), 600)
                await kafka.create_topic("orders")
                for number in range(MANY):
                    await producer.send("orders", b"%d" % number)
                first = await asyncio.wait_for(anext(reader), 600)
                assert (first.offset, first.value) == (0, b"0")

    run(1, main, limit=3600.0)
