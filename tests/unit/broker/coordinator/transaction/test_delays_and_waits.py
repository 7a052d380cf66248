"""What comes late, who waits, and clocks that jump: scenarios 10, 31, 32 and 41 of transactions."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.broker.replica import marker_append
from aiokq.broker.replica.admission import admit_marker
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.transaction.test_requests import (
    VERSIONS,
    hold_markers,
    initialized,
)
from tests.unit.broker.coordinator.transaction.test_time_and_restart import timed
from tests.unit.broker.harness import batch, until
from tests.unit.broker.transactional_client import TransactionalClient, read_committed, world

HOUR_MS = 3_600_000


async def end_as(client, producer, committed):
    """Send an EndTxn that was delayed; return the error code. The client does not notice it."""
    late = TransactionalClient(client.broker, version=client.version)
    late.producer_id, late.epoch = producer
    return await late.end(committed)


async def test_a_delayed_end_of_version_2_ends_no_later_transaction():
    """Each transaction has an epoch of its own, so that a delayed request is told by its epoch."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        await client.wrote("t")
        first = client.producer
        assert await client.end() == 0
        await client.wrote("t")
        assert await end_as(client, first, True) == 90
        assert (await client.describe()).transaction_state == "Ongoing"
        assert await read_committed(broker, "t") == ([0, 1], [])
        assert await client.end(committed=False) == 0
        assert (await read_committed(broker, "t"))[1] == [(client.producer_id, 2)]


async def test_a_delayed_end_of_version_1_ends_a_later_transaction():
    """The hazard that Jepsen found in Kafka's protocol, which version 2 removes (KIP-890)."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=1)
        await client.wrote("t")
        first = client.producer
        assert await client.end() == 0
        await client.wrote("t")
        assert await end_as(client, first, True) == 0
        assert (await read_committed(broker, "t"))[0] == [0, 1, 2, 3]


async def test_a_delayed_batch_of_an_ended_transaction_is_refused_before_the_coordinator_is_asked():
    """A zombie hears INVALID_PRODUCER_EPOCH, not that the markers elsewhere are being written."""
    async with world() as broker:
        await broker.create("t", 2, min_insync_replicas=2)
        client = await initialized(broker)
        await client.wrote("t")
        await client.wrote("t", partition=1)
        late = TransactionalClient(broker)
        late.producer_id, late.epoch = client.producer
        hold_markers(broker, partition=1)
        assert await client.end() == 0
        assert (await client.describe()).transaction_state == "PrepareCommit"
        assert (await late.send("t", sequence=1)).error_code == 47


async def test_without_idempotence_a_repeated_batch_is_there_twice():
    """A lost reply; only the sequence numbers of a producer id tell a repetition."""
    async with world() as broker:
        await broker.create("t")
        once = batch(1)
        assert [(await broker.produce("t", once)).base_offset for _ in range(2)] == [0, 1]
        once = batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
        assert [(await broker.produce("t", once)).base_offset for _ in range(2)] == [2, 2]


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_a_marker_wakes_the_readers_that_wait_for_it(version, committed):
    """At once, not at the end of their wait: the last stable offset has moved, not the log end."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        readers = [
            asyncio.ensure_future(
                broker.fetch(
                    ("t", 0, 0), isolation_level=1, max_wait_ms=HOUR_MS, client=broker.client
                )
            )
            for _ in range(3)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(reader.done() for reader in readers)
        assert await client.end(committed) == 0
        for _ in range(5):
            await asyncio.sleep(0)
        assert all(reader.done() for reader in readers)
        [data] = (await readers[0]).responses[0].partitions
        assert data.records


@VERSIONS
async def test_a_marker_that_was_held_up_wakes_the_readers_too(version):
    """It is written by a task, when enough replicas are in sync again."""
    async with world() as broker:
        await broker.create("t", min_insync_replicas=2)
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        release = hold_markers(broker)
        assert await client.end() == 0
        reader = asyncio.ensure_future(
            broker.fetch(("t", 0, 0), isolation_level=1, max_wait_ms=HOUR_MS)
        )
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reader.done()
        release()
        await until(reader.done)
        assert (await reader).responses[0].partitions[0].records


@VERSIONS
def test_markers_of_a_partition_that_cannot_be_written_are_tried_once_a_second(
    version, monkeypatch
):
    """A partition that is away for an hour would cost ten attempts a second and transaction."""

    async def main(simulation: Simulation) -> None:
        async with timed() as broker:
            await broker.create("t", min_insync_replicas=2)
            client = await initialized(broker, version=version)
            await client.wrote("t")
            release = hold_markers(broker)
            attempts = []

            def counted(partition, leader_epoch):
                attempts.append(leader_epoch)
                admit_marker(partition, leader_epoch)

            monkeypatch.setattr(marker_append, "admit_marker", counted)
            assert await client.end() == 0
            await asyncio.sleep(60)
            assert 55 < len(attempts) < 70
            release()
            await asyncio.sleep(1.01)
            assert (await client.describe()).transaction_state == "CompleteCommit"

    run(1, main)


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
@VERSIONS
def test_a_clock_that_jumps_changes_no_timeout_of_a_transaction(version, jump_ms):
    """Timeouts run by the monotonic clock; records may have times before or after the jump."""

    async def main(simulation: Simulation) -> None:
        broker = timed()
        by_loop, jumped = broker.clock.timestamp_ms, 0
        broker.clock.timestamp_ms = lambda: by_loop() + jumped
        async with broker:
            await broker.create("t")
            client = TransactionalClient(broker, version=version)
            assert await client.initialize(timeout_ms=5000) == 0
            await client.wrote("t")
            await asyncio.sleep(1)
            jumped = jump_ms
            await asyncio.sleep(3.9)
            assert (await client.send("t")).error_code == 0
            assert (await client.describe()).transaction_state == "Ongoing"
            await asyncio.sleep(0.2)
            assert (await client.describe()).transaction_state == "CompleteAbort"
            # The id, used an hour in the future, has not expired.
            assert await client.initialize(timeout_ms=5000) == 0
            await client.wrote("t")
            assert await client.end() == 0

    run(1, main)
