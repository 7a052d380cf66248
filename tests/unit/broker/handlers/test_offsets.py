"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

from __future__ import annotations

import errno

import pytest

from aiokq import wire
from tests.unit.broker.harness import NOW_MS, Broker, batch, until, watch_offload


async def list_offsets(broker, timestamp, *, version=7, topic="t", partition=0, **options):
    epoch = options.pop("current_leader_epoch", -1)
    asked = wire.ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
    )
    if version == 0:
        asked.max_num_offsets = options.pop("max_num_offsets", 1)
    request = wire.ListOffsetsRequest(
        replica_id=options.pop("replica_id", -1),
        topics=[wire.ListOffsetsTopic(name=topic, partitions=[asked])],
        **options,
    )
    response = await broker.ask(request, version)
    [answered] = response.topics
    [result] = answered.partitions
    return result


async def filled(broker):
    """Records 0..5; records 2n and 2n+1 are at NOW + n seconds and one millisecond later."""
    await broker.create("t")
    for second in range(3):
        await broker.produce("t", batch(2, timestamp_ms=NOW_MS + second * 1000))


def found(result):
    return result.error_code, result.timestamp, result.offset


@pytest.mark.parametrize("version", range(1, 12))
async def test_latest_and_earliest_in_every_version(version):
    """auto.offset.reset uses these."""
    async with Broker() as broker:
        await filled(broker)
        broker.node.topics.partition("t", 0).delete_records(2)
        assert found(await list_offsets(broker, -1, version=version)) == (0, -1, 6)
        assert found(await list_offsets(broker, -2, version=version)) == (0, -1, 2)


async def test_by_time_the_first_record_not_earlier():
    """offsetsForTimes; the result is (-1, -1) if all records are earlier."""
    async with Broker() as broker:
        await filled(broker)
        assert found(await list_offsets(broker, 0)) == (0, NOW_MS, 0)
        assert found(await list_offsets(broker, NOW_MS + 1)) == (0, NOW_MS + 1, 1)
        assert found(await list_offsets(broker, NOW_MS + 2)) == (0, NOW_MS + 1000, 2)
        assert found(await list_offsets(broker, NOW_MS + 2000)) == (0, NOW_MS + 2000, 4)
        assert found(await list_offsets(broker, NOW_MS + 9000)) == (0, -1, -1)


async def test_the_record_with_the_largest_timestamp():
    """Timestamp -3, from version 7 on; the record need not be the last."""
    async with Broker() as broker:
        await filled(broker)
        await broker.produce("t", batch(timestamp_ms=NOW_MS))
        assert found(await list_offsets(broker, -3)) == (0, NOW_MS + 2001, 5)
        await broker.create("empty")
        assert found(await list_offsets(broker, -3, topic="empty")) == (0, -1, -1)


async def test_sentinels_are_35_before_the_version_that_brought_them():
    """A guess by the broker would be the response to a different request."""
    async with Broker() as broker:
        await filled(broker)
        for timestamp, since in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
            before = await list_offsets(broker, timestamp, version=since - 1)
            assert before.error_code == 35
            assert (await list_offsets(broker, timestamp, version=since)).error_code == 0
        assert (await list_offsets(broker, -7, version=11)).error_code == 35


async def test_local_start_and_tiered_end():
    """Without tiered storage the local start is the log start, and there is no tiered end."""
    async with Broker() as broker:
        await filled(broker)
        assert found(await list_offsets(broker, -4, version=8)) == (0, -1, 0)
        assert found(await list_offsets(broker, -5, version=9)) == (0, -1, -1)
        assert found(await list_offsets(broker, -6, version=11)) == (0, -1, -1)


async def test_leader_epochs_come_along_and_fence():
    """From version 4 on."""
    async with Broker() as broker:
        await filled(broker)
        partition = broker.node.topics.partition("t", 0)
        assert (await list_offsets(broker, -1)).leader_epoch == 0
        assert (await list_offsets(broker, NOW_MS)).leader_epoch == 0
        partition.leader_epoch = 2
        assert (await list_offsets(broker, -1, current_leader_epoch=1)).error_code == 74
        assert (await list_offsets(broker, -1, current_leader_epoch=3)).error_code == 75


async def test_unknown_partitions_are_3_and_doubled_ones_42():
    """UNKNOWN_TOPIC_OR_PARTITION and INVALID_REQUEST, for each partition alone."""
    async with Broker() as broker:
        await filled(broker)
        assert (await list_offsets(broker, -1, topic="absent")).error_code == 3
        assert (await list_offsets(broker, -1, partition=1)).error_code == 3
        twice = [wire.ListOffsetsPartition(partition_index=0, timestamp=-1) for _ in range(2)]
        request = wire.ListOffsetsRequest(
            replica_id=-1, topics=[wire.ListOffsetsTopic(name="t", partitions=twice)]
        )
        [topic] = (await broker.ask(request, 7)).topics
        assert [p.error_code for p in topic.partitions] == [42, 42]


async def test_version_0_lists_offsets_with_legacy():
    """Clients from before 2016 get offsets in descending order, as many as requested."""
    async with Broker(legacy=True) as broker:
        await filled(broker)
        result = await list_offsets(broker, -1, version=0, max_num_offsets=5)
        assert result.old_style_offsets == [6, 0]
        result = await list_offsets(broker, -1, version=0, max_num_offsets=1)
        assert result.old_style_offsets == [6]
        result = await list_offsets(broker, -2, version=0, max_num_offsets=5)
        assert result.old_style_offsets == [0]


# OffsetForLeaderEpoch


async def epoch_end(broker, epoch, *, version=4, current=-1, topic="t", partition=0):
    asked = wire.OffsetForLeaderPartition(
        partition=partition, leader_epoch=epoch, current_leader_epoch=current
    )
    request = wire.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[wire.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    [answered] = (await broker.ask(request, version)).topics
    [result] = answered.partitions
    return result.error_code, result.leader_epoch, result.end_offset


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_epochs_end_where_the_next_begins(version):
    """KIP-101: a consumer detects a truncation with it."""
    async with Broker() as broker:
        await filled(broker)
        partition = broker.node.topics.partition("t", 0)
        partition.leader_epoch = 4
        await broker.produce("t", batch())
        assert await epoch_end(broker, 4, version=version) == (0, 4, 7)  # the log end
        assert await epoch_end(broker, 0, version=version) == (0, 0, 6)
        assert await epoch_end(broker, 3, version=version) == (0, 0, 6)  # the previous epoch
        assert await epoch_end(broker, 5, version=version) == (0, -1, -1)  # not known yet
        assert await epoch_end(broker, -1, version=version) == (0, -1, -1)


async def test_an_epoch_before_all_known_ones_ends_where_they_begin():
    """The log does not contain them any more."""
    async with Broker() as broker:
        await broker.create("t")
        broker.node.topics.partition("t", 0).leader_epoch = 3
        await broker.produce("t", batch(2))
        assert await epoch_end(broker, 1) == (0, 1, 0)


async def test_epoch_questions_are_fenced_and_refused_like_others():
    """FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH and UNKNOWN_TOPIC_OR_PARTITION."""
    async with Broker() as broker:
        await filled(broker)
        broker.node.topics.partition("t", 0).leader_epoch = 2
        assert (await epoch_end(broker, 0, current=1))[0] == 74
        assert (await epoch_end(broker, 0, current=3))[0] == 75
        assert (await epoch_end(broker, 0, topic="absent"))[0] == 3
        assert (await epoch_end(broker, 0, partition=5))[0] == 3


# DeleteRecords


async def delete_records(broker, offset, *, version=2, topic="t", partition=0):
    asked = wire.DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = wire.DeleteRecordsRequest(
        topics=[wire.DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=1000
    )
    [answered] = (await broker.ask(request, version)).topics
    [result] = answered.partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_deleted_records_are_gone_at_once(version):
    """-1 deletes all records."""
    async with Broker() as broker:
        await filled(broker)
        assert await delete_records(broker, 2, version=version) == (0, 2)
        assert (await broker.fetch_one("t", 0, 1)).error_code == 1
        assert await delete_records(broker, 1, version=version) == (0, 2)  # it never decreases
        assert await delete_records(broker, -1, version=version) == (0, 6)
        assert (await broker.fetch_one("t", 0, 6)).log_start_offset == 6


async def test_deleting_is_refused_above_the_end_and_where_nothing_may_be_deleted():
    """OFFSET_OUT_OF_RANGE above the high watermark or below zero.

    POLICY_VIOLATION on a compacted topic, INVALID_TOPIC_EXCEPTION on an internal one,
    UNKNOWN_TOPIC_OR_PARTITION for an unknown one.
    """
    async with Broker() as broker:
        await filled(broker)
        assert await delete_records(broker, 7) == (1, -1)
        assert await delete_records(broker, -2) == (1, -1)
        assert await delete_records(broker, 0, topic="absent") == (3, -1)
        await broker.create("c", cleanup_policy="compact")
        assert await delete_records(broker, 0, topic="c") == (44, -1)
        await broker.create("__consumer_offsets")
        assert await delete_records(broker, 0, topic="__consumer_offsets") == (17, -1)


@pytest.mark.parametrize("policy", ["", "compact,delete"])
async def test_records_may_be_deleted_where_compaction_does_not_forbid_it(policy: str):
    """An empty cleanup.policy keeps everything, but the user may delete (Kafka 4.2)."""
    async with Broker() as broker:
        await broker.create("e", cleanup_policy=policy)
        await broker.produce("e", batch(3))
        assert await delete_records(broker, 2, topic="e") == (0, 2)


async def test_deleted_records_stay_deleted_over_a_kill():
    """The log start is in its checkpoint before the response is sent."""
    broker = Broker()
    await broker.node.open()
    await filled(broker)
    await delete_records(broker, 3)
    files = broker.files
    files.crash()
    async with Broker(files) as broker:
        assert found(await list_offsets(broker, -2)) == (0, -1, 3)


async def test_a_deletion_that_is_not_written_down_is_not_acknowledged():
    """With a full disk the records would be back after a kill."""
    async with Broker() as broker:
        await filled(broker)
        broker.files.fail("pwritev", errno.ENOSPC, matches=lambda path: "log-start" in path)
        assert await delete_records(broker, 3) == (56, -1)
        assert await delete_records(broker, 3) == (0, 3)


async def test_segments_of_deleted_records_leave_the_disk():
    """Kafka Streams deletes what it has read to free space, and retention may not run for hours."""
    async with Broker(log_segment_delete_delay_ms=0) as broker:
        await broker.create("t", segment_bytes=1_048_576)
        for _ in range(3):
            await broker.produce("t", batch(1, value=bytes(600_000)))
        used = broker.files.used()
        assert await delete_records(broker, -1) == (0, 3)
        await until(lambda: broker.files.used() < used - 1_000_000)


async def test_a_search_by_time_leaves_the_loop():
    """Otherwise other clients would wait for it.

    It may read a segment of a gigabyte, and decompress a batch to a thousand times its size.
    """
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3, codec=4))
        moved = watch_offload(broker)
        assert (await list_offsets(broker, -1)).offset == 3
        assert moved == []
        assert (await list_offsets(broker, NOW_MS + 1)).offset == 1
        assert (await list_offsets(broker, -3)).offset == 2
        assert len(moved) == 2


async def test_a_search_that_the_disk_refuses_is_56(caplog):
    """The connection stays open, and one line is logged."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        broker.files.fail("pread", errno.EIO, times=None)
        for _ in range(5):
            assert (await list_offsets(broker, NOW_MS + 1)).error_code == 56
        assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


async def test_the_sync_of_a_deletion_leaves_the_loop():
    """A slow sync must not delay producers."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(5))
        moved = watch_offload(broker)
        assert await delete_records(broker, 3) == (0, 3)
        assert len(moved) == 1
