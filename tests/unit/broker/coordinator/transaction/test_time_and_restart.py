"""Timeouts, expiry, restarts and the rotation of producer ids."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.broker.coordinator.transaction.transaction_metadata import LAST_EPOCH
from aiokq.broker.snapshot import take_snapshot
from aiokq.core.errors import ProducerFenced, TransactionalIdNotFound
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.transaction.test_requests import (
    VERSIONS,
    hold_markers,
    initialized,
)
from tests.unit.broker.harness import Broker, until
from tests.unit.broker.test_snapshot import At
from tests.unit.broker.transactional_client import TransactionalClient, read_committed, world

ONE_OF_EACH = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}


def timed(files=None, **settings):
    """Return a broker whose calendar follows the loop's virtual time."""
    broker = world(files, **settings)
    start = broker.clock.now_ms
    began = asyncio.get_running_loop().time()
    broker.clock.timestamp_ms = lambda: (
        start + round((asyncio.get_running_loop().time() - began) * 1000)
    )
    return broker


def shard_of(broker):
    [shard] = broker.node.transaction_coordinator.active_shards()
    return shard


@VERSIONS
def test_a_transaction_is_aborted_at_its_timeout(version):
    """Not before, and its producer is fenced by an epoch that nobody has."""

    async def main(world: Simulation) -> None:
        async with timed() as broker:
            await broker.create("t")
            client = TransactionalClient(broker, version=version)
            assert await client.initialize(timeout_ms=5000) == 0
            await asyncio.sleep(60)  # an id without a transaction has no timeout
            await client.wrote("t")
            await asyncio.sleep(4.9)
            await client.send("t")  # a batch does not extend it
            assert (await client.describe()).transaction_state == "Ongoing"
            await asyncio.sleep(0.2)
            described = await client.describe()
            assert described.transaction_state == "CompleteAbort"
            assert described.producer_epoch == client.epoch + 1
            assert await read_committed(broker, "t") == ([0, 1, 2], [(client.producer_id, 0)])
            assert (await client.send("t")).error_code == 47
            # From version 2 on, this could be a repeated end, whose outcome was the other one.
            assert await client.end() == (48 if version == 2 else ProducerFenced.code)
            # Java's producer goes on by InitProducerId with its id and epoch.
            assert await client.initialize(named=True) == 0
            assert client.epoch == described.producer_epoch

    run(1, main)


@VERSIONS
def test_an_end_in_time_stops_the_timeout(version):
    """The timeout of one transaction must not abort the next one."""

    async def main(world: Simulation) -> None:
        async with timed() as broker:
            await broker.create("t")
            client = TransactionalClient(broker, version=version)
            assert await client.initialize(timeout_ms=5000) == 0
            await client.wrote("t")
            await asyncio.sleep(4)
            assert await client.end() == 0
            await client.wrote("t")
            await asyncio.sleep(4)
            assert (await client.describe()).transaction_state == "Ongoing"
            assert await client.end() == 0

    run(1, main)


def test_an_idle_id_expires_and_an_open_transaction_never_does():
    """Afterwards the id is unknown, and a new producer gets another producer id."""

    async def main(world: Simulation) -> None:
        async with timed(
            transactional_id_expiration_ms=10_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
            transaction_max_timeout_ms=1_000_000,
        ) as broker:
            await broker.create("t")
            idle, open_one = (TransactionalClient(broker, name) for name in ("idle", "open"))
            for client in (idle, open_one):
                assert await client.initialize(timeout_ms=900_000) == 0
            await open_one.wrote("t")
            await asyncio.sleep(9)
            assert (await idle.describe()).error_code == 0
            await asyncio.sleep(2.5)
            assert (await idle.describe()).error_code == TransactionalIdNotFound.code
            assert (await open_one.describe()).transaction_state == "Ongoing"
            assert await open_one.end() == 0
            before = idle.producer_id
            assert await idle.initialize() == 0
            assert (idle.producer_id != before, idle.epoch) == (True, 0)
            assert len(shard_of(broker)) == 2

    run(1, main)


def test_many_ids_expire_in_parts_and_leave_nothing():
    """Each part is one write; the loop runs between them."""

    async def main(world: Simulation) -> None:
        async with timed(
            transactional_id_expiration_ms=10_000,
            transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
        ) as broker:
            for number in range(600):
                assert await TransactionalClient(broker, f"id-{number}").initialize() == 0
            shard = shard_of(broker)
            assert len(shard) == 600
            await asyncio.sleep(11.5)
            assert len(shard) == 0
            assert shard._ids == shard._previous_ids == {}
            assert shard._completions == {}
            partition = broker.node.topics.partition("__transaction_state", 0)
            assert partition.log.log_end_offset == 1200

    run(1, main)


@VERSIONS
@pytest.mark.parametrize("clean", [True, False])
async def test_an_open_transaction_goes_on_after_a_restart(version, clean):
    """Its producer notices nothing but retries."""
    broker = await opened()
    await broker.create("t")
    client = await initialized(broker, version=version)
    await client.wrote("t")
    if clean:
        await broker.__aexit__()
    else:
        broker.files.crash()
    async with world(broker.files) as again:
        client.broker = again
        await loaded(again)
        assert (await client.send("t")).error_code == 0
        assert await client.end() == 0
        assert await read_committed(again, "t") == ([0, 1, 2], [])


async def opened(files=None, **settings) -> Broker:
    """Return an open broker that is not closed at the end, so that it may be killed."""
    broker = world(files, **settings)
    return await broker.__aenter__()


async def loaded(broker) -> None:
    """Wait until the transactional ids are loaded."""
    await until(broker.node.transaction_coordinator.active_shards)


@VERSIONS
async def test_a_prepared_transaction_is_completed_after_a_restart(version):
    """The successor of the coordinator writes all markers again."""
    async with world() as broker:
        await broker.create("t", 2, min_insync_replicas=2)
        client = await initialized(broker, version=version)
        await client.wrote("t")
        await client.wrote("t", partition=1)
        hold_markers(broker)  # of partition 0; partition 1 gets its marker
        assert await client.end() == 0
        assert await read_committed(broker, "t", 1) == ([0, 1], [])
        files = broker.files
    async with world(files) as again:
        client.broker = again
        await loaded(again)
        await until(lambda: shard_of(again).transactions["t"].state.is_idle)
        assert await read_committed(again, "t") == ([0, 1], [])
        # The marker of the other partition is repeated (KAFKA-19999).
        assert await read_committed(again, "t", 1) == ([0, 1, 2], [])
        # Its epoch is that of the new leadership.
        [one] = list(again.node.topics.partition("t", 0).log.producers)
        assert (
            one.coordinator_epoch
            == again.node.topics.partition("__transaction_state", 0).leader_epoch
        )
        await client.wrote("t")
        assert await client.end() == 0


async def test_the_coordinator_epoch_never_goes_back():
    """It is the leader epoch, which a kill raises and a clean stop keeps; markers have it."""
    files, epochs = None, []
    for clean in (True, False, True, False, True):
        broker = await opened(files)
        if files is None:
            await broker.create("t")
        else:
            await loaded(broker)
        files = broker.files
        client = await initialized(broker)
        await client.wrote("t")
        assert await client.end() == 0
        [entry] = list(broker.node.topics.partition("t", 0).log.producers)
        epochs.append(entry.coordinator_epoch)
        if clean:
            await broker.__aexit__()
        else:
            files.crash()
    first, second, third, fourth, fifth = epochs
    assert first == second < third == fourth < fifth


async def committed_epoch(broker):
    """Commit a transaction in `t`; return the coordinator epoch of its marker."""
    client = await initialized(broker)
    await client.wrote("t")
    assert await client.end() == 0
    entries = broker.node.topics.partition("t", 0).log.producers
    [epoch] = [one.coordinator_epoch for one in entries if one.producer_id == client.producer_id]
    return epoch


async def killed(broker):
    """Kill a broker; return the one that is started after it."""
    broker.files.crash()
    again = await opened(broker.files)
    await loaded(again)
    return again


async def test_the_coordinator_epoch_does_not_go_back_in_a_snapshot():
    """The copy has the leader epochs of the original; a kill of the copy raises them further."""
    broker = await opened()
    await broker.create("t")
    assert await committed_epoch(broker) == 0
    broker = await killed(await killed(broker))
    epochs = [await committed_epoch(broker)]
    assert epochs[0] > 0
    await take_snapshot(broker.node, "/copy")
    for clean in (False, True):
        copy = await At(broker.files, **ONE_OF_EACH).__aenter__()
        await loaded(copy)
        epochs.append(await committed_epoch(copy))
        if clean:
            await copy.__aexit__()
        else:
            copy.files.crash()
    assert epochs[0] == epochs[1] < epochs[2]


async def test_after_a_reset_no_partition_has_a_marker_of_a_larger_coordinator_epoch():
    """`__transaction_state` is created again, with epoch 0, and so is every topic with markers."""
    broker = await opened()
    await broker.create("t")
    assert await committed_epoch(broker) == 0
    broker = await killed(await killed(broker))
    assert await committed_epoch(broker) > 0
    await broker.node.reset()
    assert not list(broker.node.topics)
    await broker.create("t")
    first = await committed_epoch(broker)
    assert first == broker.node.topics.partition("__transaction_state", 0).leader_epoch
    assert await read_committed(broker, "t") == ([0, 1], [])
    broker = await killed(broker)
    assert await committed_epoch(broker) > first
    assert await read_committed(broker, "t") == ([0, 1, 2, 3], [])
    await broker.__aexit__()


async def exhaust(broker, client):
    """Give the producer its last epoch, as 32,766 transactions would."""
    shard = shard_of(broker)
    metadata = shard.transactions[client.transactional_id]._replace(producer_epoch=LAST_EPOCH)
    shard.transactions[client.transactional_id] = metadata
    client.epoch = LAST_EPOCH


@pytest.mark.parametrize("committed", [True, False])
async def test_the_last_epoch_of_a_producer_id_is_followed_by_another_id(committed):
    """A lost response is answered again; the marker has the epoch that no producer gets."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        await exhaust(broker, client)
        before = client.producer
        await client.wrote("t")
        assert await client.end(committed) == 0
        after = client.producer
        assert (after[0] != before[0], after[1]) == (True, 0)
        [entry] = list(broker.node.topics.partition("t", 0).log.producers)
        assert (entry.producer_id, entry.producer_epoch) == (before[0], LAST_EPOCH + 1)
        shard = shard_of(broker)
        assert shard.by_previous_producer(before[0]) == shard.by_producer(after[0])
        client.producer_id, client.epoch = before
        assert await client.end(committed) == 0
        assert client.producer == after
        await client.wrote("t")
        assert await client.end() == 0
        client.producer_id, client.epoch = before
        assert await client.end(committed) == 49  # two transactions later it is unknown
        assert list(shard._ids) == [after[0]]
        assert shard.by_previous_producer(before[0]) is None
        assert shard._previous_ids == {}


async def test_a_repeated_end_over_a_change_of_the_id_survives_a_restart():
    """The record names the producer id before the change (KIP-890)."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        await exhaust(broker, client)
        before = client.producer
        await client.wrote("t")
        assert await client.end() == 0
        after, files = client.producer, broker.files
    async with world(files) as again:
        client.broker = again
        await loaded(again)
        client.producer_id, client.epoch = before
        assert await client.end() == 0
        assert client.producer == after


@pytest.mark.parametrize("named", [True, False])
async def test_an_initialization_at_the_last_epoch_gives_another_id(named):
    async with world() as broker:
        client = await initialized(broker, version=0)
        await exhaust(broker, client)
        before = client.producer
        assert await client.initialize(named=named) == 0
        after = client.producer
        assert (after[0] != before[0], after[1]) == (True, 0)
        if named:  # the response was lost
            client.producer_id, client.epoch = before
            assert await client.initialize(named=True) == 0
            assert client.producer == after


@VERSIONS
async def test_a_transaction_of_the_last_epoch_that_is_fenced(version):
    """Its epoch fences it; the next producer gets another id."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await exhaust(broker, client)
        await client.wrote("t")
        new = await initialized(broker, version=version)
        assert (new.producer_id != client.producer_id, new.epoch) == (True, 0)
        assert await read_committed(broker, "t") == ([0, 1], [(client.producer_id, 0)])
        assert (await client.send("t")).error_code == 47


async def test_a_producer_id_that_cannot_be_reserved_decides_nothing():
    """The end is repeated later; the transaction is still open then."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        await exhaust(broker, client)
        await client.wrote("t")
        coordinator = broker.node.transaction_coordinator
        working = coordinator._next_producer_id

        async def failing():
            from aiokq.core.errors import KafkaStorage

            raise KafkaStorage("no room")

        coordinator._next_producer_id = failing
        assert await client.end() == 15
        assert (await client.describe()).transaction_state == "Ongoing"
        coordinator._next_producer_id = working
        assert await client.end() == 0


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_records_have_the_version_of_the_level(level):
    """Older brokers of a cluster at level 0 could not read tagged fields."""
    async with world() as broker:
        coordinator = broker.node.transaction_coordinator
        await broker.create("t")
        await set_level(broker, level)
        client = await initialized(broker, version=level)
        await client.wrote("t")
        assert await client.end() == 0
        values = values_of(broker)
        assert {int.from_bytes(value[:2], "big") for value in values} == {min(level, 1)}
        assert len(values) == 4  # Empty, Ongoing, PrepareCommit, CompleteCommit
        assert coordinator.describe("t").client_version == level // 2 * 2


async def set_level(broker, level):
    from aiokq import wire

    if level == 2:
        return
    response = await broker.ask(
        wire.UpdateFeaturesRequest(
            feature_updates=[
                wire.FeatureUpdateKey(
                    feature="transaction.version", max_version_level=level, upgrade_type=2
                )
            ]
        ),
        1,
    )
    assert response.error_code == 0, response.error_message


def values_of(broker):
    from aiokq.records.header import iter_headers
    from aiokq.records.record import iter_records

    log = broker.node.topics.partition("__transaction_state", 0).log
    data = b"".join(
        bytes(each.read()) for each in log.read(0, 10**6, upper_bound=log.log_end_offset).fragments
    )
    view, position, values = memoryview(data), 0, []
    for header in iter_headers(view):
        values += [bytes(record.value) for record in iter_records(view[position:], header)]
        position += header.size
    return values


async def test_the_topic_has_kafkas_forced_settings():
    """Compacted and uncompressed, without unclean elections; its replicas fit the nodes."""
    async with world(transaction_state_log_num_partitions=3, profile="kafka") as broker:
        await initialized(broker)
        topic = broker.node.topics.get("__transaction_state")
        assert (len(topic.partitions), topic.is_internal) == (3, True)
        assert topic.configs == {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
        }
