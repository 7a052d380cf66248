"""What retention, compaction, a snapshot or a wrong file do to a transaction that is open."""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.broker.log.producer_snapshot import encode_snapshot
from aiokq.broker.log.producer_state import ProducerEntry
from aiokq.broker.maintenance import CleanerJobs
from aiokq.broker.snapshot import take_snapshot
from aiokq.fastpath import crc32c
from tests.unit.broker.coordinator.transaction.test_open_transactions import delete_records, stable
from tests.unit.broker.coordinator.transaction.test_requests import VERSIONS, initialized
from tests.unit.broker.coordinator.transaction.test_time_and_restart import loaded, opened
from tests.unit.broker.harness import batch, until
from tests.unit.broker.test_snapshot import At
from tests.unit.broker.transactional_client import read_committed, world


def log_of(broker):
    return broker.node.topics.partition("t", 0).log


async def recovered(broker):
    """Wait until the transactions are loaded, and compared where the last stop was not clean."""
    await loaded(broker)
    recovery = broker.node._transaction_recovery
    await until(lambda: not recovery._pending)


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_retention_past_the_begin_of_a_transaction(version, committed):
    """As after DeleteRecords, what is left of the transaction is committed or aborted."""
    async with world() as broker:
        await broker.create("t", retention_ms=1000)
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        log = log_of(broker)
        log.roll(broker.clock.now_ms)
        broker.clock.now_ms += 5000
        await client.send("t", 2, timestamp_ms=broker.clock.now_ms)
        assert log.retain(broker.node.retention_policies, broker.clock.now_ms) == 1
        assert stable(broker) == (2, 4)
        assert await client.end(committed) == 0
        assert stable(broker) == (5, 5)
        aborted = [] if committed else [(client.producer_id, 0)]
        assert await read_committed(broker, "t", offset=2) == ([2, 3, 4], aborted)


@VERSIONS
async def test_retention_of_the_whole_transaction(version):
    """Its marker is then the only record; a reader is not held up."""
    async with world() as broker:
        await broker.create("t", retention_ms=1000)
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        broker.clock.now_ms += 5000
        log = log_of(broker)
        assert log.retain(broker.node.retention_policies, broker.clock.now_ms) == 1
        assert stable(broker) == (2, 2)
        assert await client.end() == 0
        assert stable(broker) == (3, 3)
        assert await read_committed(broker, "t", offset=2) == ([2], [])
        assert await client.wrote("t") == 3
        assert await client.end() == 0
        assert stable(broker) == (5, 5)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_a_marker_whose_data_is_gone(version, committed, clean):
    """Readers pass it, and after a restart the log does not count as inside a transaction."""
    broker = await opened()
    await broker.create("t")
    client = await initialized(broker, version=version)
    await client.wrote("t", 2)
    assert await client.end(committed) == 0
    assert await delete_records(broker, "t", 2) == 2
    for _ in range(2):
        assert stable(broker) == (3, 3)
        assert (await read_committed(broker, "t", offset=2))[0] == [2]
        if clean:
            await broker.__aexit__()
        else:
            broker.files.crash()
        client.broker = broker = await opened(broker.files)
        await recovered(broker)
    assert await client.wrote("t") == 3
    assert await client.end() == 0
    assert stable(broker) == (5, 5)
    await broker.__aexit__()


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_compaction_while_a_transaction_is_open(version, committed):
    """Nothing from its first record on is cleaned; after its end, the newest values stay."""
    async with world(log_cleaner_delete_retention_ms=0, log_cleaner_min_cleanable_ratio=0) as b:
        await b.create("t", cleanup_policy="compact")
        for _ in range(3):
            await b.produce("t", batch(1, key=b"k", value=b"before"))
        log = log_of(b)
        log.roll(b.clock.now_ms)
        client = await initialized(b, version=version)
        if version < 2:
            assert await client.add("t") == 0
        assert (await client.send("t", key=b"k", value=b"inside")).error_code == 0
        await b.produce("t", batch(1, key=b"other", value=b"outside"))
        log.roll(b.clock.now_ms)
        await CleanerJobs(b.node)._clean()
        assert stable(b) == (3, 5)
        found, _ = await read_committed(b, "t")
        assert found == [2]
        assert b"inside" in bytes((await b.fetch_one("t", 0, 3)).records)
        assert await client.end(committed) == 0
        log.roll(b.clock.now_ms)
        for _ in range(2):
            await CleanerJobs(b.node)._clean()
            b.clock.now_ms += 1000
        data = bytes((await b.fetch_one("t", 0, 0, isolation_level=1)).records)
        assert (b"inside" in data) == committed
        assert (b"before" in data) != committed
        assert b"outside" in data
        before, after = stable(b)
        assert before == after


async def lie(broker, entries):
    """Have the producer snapshot at the base of the active segment say something else.

    The segments before it are synced, so that recovery begins there, with this snapshot.
    """
    log = log_of(broker)
    await until(lambda: log.recovery_point >= log.segments[-1].base_offset)
    await broker.node.storage.save_recovery_points()
    path = f"{log.directory}/{log.segments[-1].base_offset:020d}.snapshot"
    assert broker.files.exists(path)
    broker.files.write_atomic(path, encode_snapshot(entries, crc32c))


@VERSIONS
async def test_a_snapshot_that_invents_an_open_transaction(version):
    """After a kill it is compared with the coordinator, which has ended it: a marker is written."""
    broker = await opened()
    await broker.create("t")
    client = await initialized(broker, version=version)
    await client.wrote("t", 2)
    producer = client.producer
    assert await client.end() == 0
    log_of(broker).roll(broker.clock.now_ms)
    await broker.produce("t", batch(1))
    entry = ProducerEntry(*producer)
    entry.transaction_first_offset = 0
    await lie(broker, [entry])
    broker.files.crash()
    client.broker = again = await opened(broker.files)
    await recovered(again)
    before, after = stable(again)
    assert before == after
    assert (await read_committed(again, "t"))[0][:4] == [0, 1, 2, 3]
    client.sequences.clear()
    await client.initialize()
    await client.wrote("t")
    assert await client.end() == 0
    before, after = stable(again)
    assert before == after
    await again.__aexit__()


@VERSIONS
async def test_a_snapshot_that_invents_a_transaction_of_nobody(version):
    """No coordinator knows its producer: it is aborted, as one that was lost altogether."""
    broker = await opened()
    await broker.create("t")
    await initialized(broker, version=version)
    await broker.produce("t", batch(2))
    log_of(broker).roll(broker.clock.now_ms)
    entry = ProducerEntry(4711, 3)
    entry.transaction_first_offset = 1
    await lie(broker, [entry])
    broker.files.crash()
    again = await opened(broker.files)
    await recovered(again)
    before, after = stable(again)
    assert before == after == 3
    await again.__aexit__()


@pytest.mark.parametrize("clean", [True, False])
@VERSIONS
async def test_a_snapshot_that_hides_an_open_transaction(version, clean):
    """The records after it show the transaction; a later end commits what belongs to it."""
    broker = await opened()
    await broker.create("t")
    client = await initialized(broker, version=version)
    await client.wrote("t", 2)
    log_of(broker).roll(broker.clock.now_ms)
    await client.send("t", 1)
    await lie(broker, [])
    if clean:
        await broker.__aexit__()
    else:
        broker.files.crash()
    client.broker = again = await opened(broker.files)
    await recovered(again)
    assert stable(again)[1] == 3
    assert stable(again)[0] == (0 if clean else 2)
    assert await client.end(committed=False) == 0
    before, after = stable(again)
    assert before == after
    assert (client.producer_id, 0 if clean else 2) in (await read_committed(again, "t"))[1]
    await again.__aexit__()


@VERSIONS
async def test_a_hanging_transaction_after_a_clean_stop_is_seen_and_ended(version):
    """Nothing is compared then, as in Kafka; DescribeProducers shows it, a marker ends it."""
    broker = await opened()
    await broker.create("t")
    await initialized(broker, version=version)
    await broker.produce("t", batch(2))
    log = log_of(broker)
    entry = ProducerEntry(4711, 3)
    entry.transaction_first_offset = 1
    log.producers.put(entry)
    await broker.__aexit__()
    again = await opened(broker.files)
    await loaded(again)
    assert stable(again) == (1, 2)
    described = await again.ask(
        wire.DescribeProducersRequest(
            topics=[wire.DescribeProducersTopicRequest(name="t", partition_indexes=[0])]
        ),
        0,
    )
    [partition] = described.topics[0].partitions
    [found] = partition.active_producers
    assert (found.producer_id, found.current_txn_start_offset) == (4711, 1)
    marker = wire.WritableTxnMarker(
        producer_id=4711,
        producer_epoch=3,
        transaction_result=False,
        coordinator_epoch=found.coordinator_epoch,
        topics=[wire.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    answer = await again.ask(wire.WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert stable(again) == (3, 3)
    await again.__aexit__()


@VERSIONS
async def test_a_snapshot_of_a_cluster_with_an_open_transaction(version):
    """The transaction goes on in both, the original and the copy, and ends differently."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        await take_snapshot(broker.node, "/copy")
        before = client.producer
        assert await client.end() == 0
        settings = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}
        async with At(broker.files, **settings) as copy:
            await loaded(copy)
            assert stable(copy) == (0, 2)
            client.broker, (client.producer_id, client.epoch) = copy, before
            assert (await client.send("t", sequence=2)).error_code == 0
            assert await client.end(committed=False) == 0
            assert await read_committed(copy, "t") == ([0, 1, 2, 3], [(before[0], 0)])
        assert await read_committed(broker, "t") == ([0, 1, 2], [])
