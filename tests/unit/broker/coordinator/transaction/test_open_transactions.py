"""What happens to a partition, its topic or its log while a transaction is open in it."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.broker.coordinator.transaction.completion import LONGEST_RETRY_SECONDS
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.transaction.test_requests import (
    VERSIONS,
    hold_markers,
    initialized,
)
from tests.unit.broker.coordinator.transaction.test_time_and_restart import (
    loaded,
    opened,
    shard_of,
)
from tests.unit.broker.harness import until
from tests.unit.broker.transactional_client import read_committed, world


async def delete_topic(broker, name):
    response = await broker.ask(wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
    assert response.responses[0].error_code == 0


async def delete_records(broker, name, offset, partition=0):
    response = await broker.ask(
        wire.DeleteRecordsRequest(
            topics=[
                wire.DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        wire.DeleteRecordsPartition(partition_index=partition, offset=offset)
                    ],
                )
            ],
            timeout_ms=1000,
        ),
        2,
    )
    [result] = response.topics[0].partitions
    assert result.error_code == 0
    return result.low_watermark


def stable(broker, name="t", partition=0):
    """Return the last stable offset and the log end offset."""
    log = broker.node.topics.partition(name, partition).log
    return log.last_stable_offset, log.log_end_offset


@VERSIONS
async def test_a_deleted_topic_does_not_hold_up_the_end(version):
    """Its partitions need no marker; those of other topics get theirs."""
    async with world() as broker:
        await broker.create("t")
        await broker.create("gone")
        client = await initialized(broker, version=version)
        await client.wrote("gone")
        await client.wrote("t")
        await delete_topic(broker, "gone")
        assert await client.end() == 0
        assert (await client.describe()).transaction_state == "CompleteCommit"
        assert await read_committed(broker, "t") == ([0, 1], [])


@VERSIONS
async def test_a_topic_deleted_while_its_marker_is_missing_ends_the_wait(version):
    """The coordinator retries the marker until there is nothing to write it to."""
    async with world() as broker:
        await broker.create("t", 1, min_insync_replicas=2)
        client = await initialized(broker, version=version)
        await client.wrote("t")
        hold_markers(broker)
        assert await client.end() == 0
        assert (await client.describe()).transaction_state == "PrepareCommit"
        await delete_topic(broker, "t")
        await until(lambda: shard_of(broker).transactions["t"].state.is_idle)


@VERSIONS
async def test_a_topic_created_again_does_not_hang(version):
    """The marker goes to the new topic, where nothing is open; it does no harm there."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        await delete_topic(broker, "t")
        await broker.create("t")
        assert await client.end() == 0
        end = stable(broker)
        assert end[0] == end[1]
        client.sequences.clear()  # producers begin again in a new topic
        await client.wrote("t")
        assert await client.end() == 0
        end = stable(broker)
        assert end[0] == end[1]


@VERSIONS
async def test_partitions_added_meanwhile_may_join(version):
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        response = await broker.ask(
            wire.CreatePartitionsRequest(
                topics=[wire.CreatePartitionsTopic(name="t", count=2, assignments=None)],
                timeout_ms=1000,
            ),
            3,
        )
        assert response.results[0].error_code == 0
        await client.wrote("t", partition=1)
        assert await client.end() == 0
        assert await read_committed(broker, "t", 1) == ([0, 1], [])


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_records_deleted_past_the_begin_of_a_transaction(version, committed):
    """The transaction is open still, and ends; what is left of it is committed or aborted."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        await client.send("t", 2)
        assert await delete_records(broker, "t", 3) == 3
        assert stable(broker) == (3, 4)
        listed = await broker.ask(
            wire.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1,
                topics=[
                    wire.ListOffsetsTopic(
                        name="t",
                        partitions=[wire.ListOffsetsPartition(partition_index=0, timestamp=-1)],
                    )
                ],
            ),
            5,
        )
        assert listed.topics[0].partitions[0].offset == 3  # the end is not before the beginning
        assert await client.end(committed) == 0
        assert stable(broker) == (5, 5)
        aborted = [] if committed else [(client.producer_id, 0)]
        # A batch is read whole.
        assert await read_committed(broker, "t", offset=3) == ([2, 3, 4], aborted)


@VERSIONS
@pytest.mark.parametrize("clean", [True, False])
async def test_a_log_that_begins_inside_a_transaction(version, clean):
    """The batch that began it is deleted with its segment; only the producer snapshot has it."""
    broker = await opened()
    await broker.create("t", 1, segment_bytes=1_048_576)
    client = await initialized(broker, version=version)
    await client.wrote("t")
    for _ in range(3):
        result = await client.send("t", value=b"v" * 600_000)
        assert result.error_code == 0
    log = broker.node.topics.partition("t", 0).log
    assert len(log.segments) > 2
    assert await delete_records(broker, "t", log.segments[-1].base_offset) > 0
    start = log.log_start_offset
    files = broker.files
    if clean:
        await broker.__aexit__()
    else:
        files.crash()
    again = client.broker = await opened(files)
    await loaded(again)
    await until(lambda: not again.node._transaction_recovery._pending)
    assert stable(again)[0] <= start
    assert (await client.send("t")).error_code == 0
    assert await client.end(committed=False) == 0
    before, after = stable(again)
    assert before == after
    _, aborted = await read_committed(again, "t", offset=start)
    assert [producer_id for producer_id, _ in aborted] == [client.producer_id]
    await again.__aexit__()


@VERSIONS
async def test_an_open_transaction_keeps_its_producer(version):
    """Idle producers expire; one with an open transaction must not, or the marker ends nothing."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        producers = broker.node.topics.partition("t", 0).log.producers
        assert producers.expire(broker.clock.now_ms + 10**10, 1) == 0
        assert await client.end() == 0
        assert producers.expire(broker.clock.now_ms + 10**10, 1) == 1
        assert await read_committed(broker, "t") == ([0, 1], [])
        # Where its producer is forgotten, the next transaction begins as in a new partition.
        client.sequences.clear()
        await client.wrote("t")
        assert await client.end() == 0
        before, after = stable(broker)
        assert before == after


@VERSIONS
async def test_a_reset_of_the_cluster_ends_all_transactions(version):
    """`EmbeddedCluster.reset()` deletes the topics; ids are new, so nothing is taken up again."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        before = client.producer_id
        await broker.node.reset()
        await broker.create("t")
        assert (await client.describe()).error_code in (15, 16)
        again = await initialized(broker, version=version)
        assert again.producer_id != before
        await again.wrote("t")
        assert await again.end() == 0
        assert await read_committed(broker, "t") == ([0, 1], [])


@VERSIONS
async def test_a_coordinator_whose_disk_is_full_decides_nothing(version):
    """EndTxn fails with a retriable error; the end that is repeated later succeeds."""
    async with world(directories=["/data", "/other"]) as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        broker.files.fail(
            "pwritev", 28, matches=lambda path: "__transaction_state" in path, times=1
        )
        code = await client.end()
        assert code in (15, 16), code
        assert await read_committed(broker, "t") == ([], [])


@VERSIONS
def test_markers_of_before_a_reset_are_not_written_into_new_topics(version):
    """Regression: a recreated `__transaction_state` has the leader epoch of the one before.

    A completion that was waiting took the new coordinator for its own, as soon as the new log had
    as many records, and wrote the marker into the new topic of the same name.
    """

    async def main(simulation: Simulation) -> None:
        async with world() as broker:
            await broker.create("t", min_insync_replicas=2)
            client = await initialized(broker, version=version)
            await client.wrote("t")
            hold_markers(broker)
            assert await client.end() == 0
            assert (await client.describe()).transaction_state == "PrepareCommit"
            epoch = broker.node.topics.partition("__transaction_state", 0).leader_epoch
            await broker.node.reset()
            await broker.create("t")
            await broker.create("u")
            again = await initialized(broker, version=version)
            assert broker.node.topics.partition("__transaction_state", 0).leader_epoch == epoch
            for _ in range(3):
                await again.wrote("u")
                assert await again.end() == 0
            await asyncio.sleep(2 * LONGEST_RETRY_SECONDS)
            assert broker.node.topics.partition("t", 0).log.log_end_offset == 0

    run(1, main)
