"""aiokq.broker.replica.commits: acknowledgements, their waiters and their leadership."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.broker.replica.commits import ALL, LEADER
from aiokq.core.errors import (
    KafkaStorage,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimeout,
    UnknownTopicOrPartition,
)
from aiokq.core.offload import InlineOffload
from aiokq.records.header import iter_headers, set_base_offset
from tests.sim.harness.simulation import run
from tests.unit.broker.harness import NOW_MS, Broker
from tests.unit.broker.log.samples import batch
from tests.unit.broker.replica.test_partition import NeverFlushes, append, partition


async def test_acks_all_waits_for_the_replicas_and_acks_1_does_not() -> None:
    at = partition(replicas=(0, 1))
    end = append(at).last_offset + 1
    assert (at.commits_late(ALL), at.commits_late(LEADER)) == (True, False)
    await at.commits.acknowledged(end, LEADER, at.leader_epoch)
    waiting = asyncio.ensure_future(at.commits.acknowledged(end, ALL, at.leader_epoch))
    await asyncio.sleep(0)
    assert not waiting.done()
    at.replica_fetched(1, end)
    await waiting


async def test_too_few_replicas_after_the_append_are_told() -> None:
    """The records may be on the leader only: NOT_ENOUGH_REPLICAS_AFTER_APPEND is retriable."""
    at = partition(replicas=(0, 1), min_insync_replicas=2)
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.commits.acknowledged(end, ALL, at.leader_epoch))
    await asyncio.sleep(0)
    at.replica_fetched(1, end)
    at.change_isr((0,))
    with pytest.raises(NotEnoughReplicasAfterAppend, match="in-sync replicas: 1, needed: 2"):
        await waiting


def test_records_that_are_committed_at_the_deadline_are_acknowledged() -> None:
    """Both events may fall into one iteration of the loop; a producer would send them again."""

    async def main(world) -> None:
        loop = asyncio.get_running_loop()
        at = partition(replicas=(0, 1))
        end = append(at).last_offset + 1
        deadline = loop.time() + 30
        loop.call_at(deadline, at.replica_fetched, 1, end)  # scheduled before the deadline's timer
        await at.commits.acknowledged(end, ALL, at.leader_epoch, deadline)

    run(1, main)


def test_acks_all_waits_for_the_replicas_until_its_deadline() -> None:
    """The records stay: a later fetch of the replica commits them."""

    async def main(world) -> float:
        at = partition(replicas=(0, 1))
        end = append(at).last_offset + 1
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout, match="orders-0 is committed up to offset 0, not 1"):
            await at.commits.acknowledged(end, ALL, at.leader_epoch, began + 30)
        assert not at.commits._waiters
        await at.commits.acknowledged(end, LEADER, at.leader_epoch, began)
        at.replica_fetched(1, end)
        await at.commits.acknowledged(
            end, ALL, at.leader_epoch, began
        )  # committed: a deadline in the past has no effect
        return asyncio.get_running_loop().time() - began

    assert run(1, main).value == 30


def test_the_deadline_is_not_for_the_leaders_own_flush() -> None:
    """As in Kafka, where an append flushes before it returns."""

    async def main(world) -> None:
        at = partition(replicas=(0,), flush_messages=1)
        at.log.durability.attach(NeverFlushes())
        end = append(at).last_offset + 1
        loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(
            at.commits.acknowledged(end, ALL, at.leader_epoch, loop.time() + 1)
        )
        await asyncio.sleep(60)
        assert not waiting.done()
        at.log.durability.flushed(at.log, end)
        at.log.notify_replica()
        await waiting

    run(1, main)


async def test_a_cancelled_waiter_is_forgotten_and_others_wait_on() -> None:
    at = partition(replicas=(0, 1))
    end = append(at).last_offset + 1
    first, second = (
        asyncio.ensure_future(at.commits.committed(end, at.leader_epoch)) for _ in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert len(at.commits._waiters) == 1
    at.replica_fetched(1, end)
    await second


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_waiter_is_told_that_the_partition_went_offline(acks) -> None:
    async with Broker() as broker:
        await broker.create("t", flush_messages=1)
        at = broker.node.topics.partition("t", 0)
        at.log.durability.attach(NeverFlushes())
        end = append(at).last_offset + 1
        waiting = asyncio.ensure_future(at.commits.acknowledged(end, acks, at.leader_epoch))
        await asyncio.sleep(0)
        assert not waiting.done()
        log = at.log
        at.take_offline(KafkaStorage("its directory failed"))
        with pytest.raises(KafkaStorage, match="its directory failed"):
            await waiting
        log.retire()
        with pytest.raises(KafkaStorage, match="its directory failed"):
            await at.commits.committed(end, at.leader_epoch)


@pytest.mark.parametrize("acks", [ALL, LEADER])
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_waiter_is_told_whether_its_partition_was_deleted_or_moved(acks, deleted) -> None:
    """As in Kafka: only for a topic that still exists can another node be the leader."""
    at = partition(flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.commits.acknowledged(end, acks, at.leader_epoch))
    await asyncio.sleep(0)
    log = at.log
    if deleted:
        at.delete()
    else:
        at.leave(1, at.leader_epoch + 1)
    log.retire()
    error = UnknownTopicOrPartition if deleted else NotLeaderOrFollower
    with pytest.raises(error):
        await waiting
    with pytest.raises(error):
        await at.commits.committed(end, at.leader_epoch)
    with pytest.raises(error):
        append(at)


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_batch_that_was_synced_before_its_topic_is_deleted_is_acknowledged(acks) -> None:
    at = partition(flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.commits.acknowledged(end, acks, at.leader_epoch))
    await asyncio.sleep(0)
    log = at.log
    log.durability.flushed(log, end)
    log.notify_replica()
    at.delete()  # before the waiter runs
    log.retire()
    await waiting


def follow_and_lead_again(at, epoch: int) -> None:
    """Let another node lead the partition for one epoch, then this node in `epoch`."""
    log = at.local_log
    at.follow(log, 1, epoch - 1)
    at.bring_online(log, 0, epoch)


async def rewritten(at, epoch: int) -> None:
    """Let another leader replace the last record, and this node lead and commit its records."""
    log = at.local_log
    at.follow(log, 1, epoch - 1)
    await log.truncate_to(log.log_end_offset - 1, InlineOffload(), now_ms=NOW_MS)
    data = bytearray(batch(b"x", b"y"))
    set_base_offset(data, log.log_end_offset, epoch - 1)
    await at.append_as_follower(
        memoryview(bytes(data)),
        list(iter_headers(data)),
        leader_epoch=epoch - 1,
        offload=InlineOffload(),
        now_ms=NOW_MS,
    )
    at.bring_online(log, 0, epoch)
    at.change_isr((0,))


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_records_of_an_earlier_leadership_are_not_acknowledged(acks) -> None:
    """A producer got success for records that another leader had replaced.

    The wait began after the node was elected again, when other records had the offsets and were
    committed.
    """
    at = partition(replicas=(0, 1))
    end = append(at).last_offset + 1
    epoch = at.leader_epoch
    await rewritten(at, epoch + 2)
    assert at.high_watermark > end
    with pytest.raises(NotLeaderOrFollower, match=f"leader epoch {epoch} of orders-0 has ended"):
        await at.commits.acknowledged(end, acks, epoch)
    with pytest.raises(NotLeaderOrFollower, match=f"leader epoch {epoch} of orders-0 has ended"):
        await at.commits.committed(end, epoch)
    await at.commits.acknowledged(end, acks, at.leader_epoch)


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_wait_ends_with_the_leadership_even_if_the_node_leads_again_before_it_wakes(
    acks,
) -> None:
    """A waiter runs one turn of the loop after it was woken."""
    at = partition(replicas=(0, 1), flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.commits.acknowledged(end, acks, at.leader_epoch))
    await asyncio.sleep(0)
    follow_and_lead_again(at, at.leader_epoch + 2)
    at.change_isr((0,))
    at.log.durability.flushed(at.log, end)
    at.log.notify_replica()
    assert at.high_watermark == end
    with pytest.raises(NotLeaderOrFollower, match="has ended"):
        await waiting


def test_a_producer_is_told_7_when_its_timeout_ends() -> None:
    """The request's timeout applies once to all its partitions; the records stay appended."""

    async def main(world) -> float:
        async with Broker() as broker:
            await broker.create("t")
            at = broker.node.topics.partition("t", 0)
            at.replicas = (0, 7)
            at.change_isr((0, 7))
            loop = asyncio.get_running_loop()
            began = loop.time()
            response = await broker.produce("t", batch(b"a", b"b"), timeout_ms=1500)
            passed = loop.time() - began
            assert (response.error_code, response.base_offset) == (7, -1)
            assert (at.log.log_end_offset, at.high_watermark) == (2, 0)
            assert broker.node.counters.errors["REQUEST_TIMED_OUT"] == 1
            again = await broker.produce("t", batch(b"c"), timeout_ms=0)
            assert again.error_code == 7
            await broker.fetch_one("t", 0, 3, replica_id=7)
            assert at.high_watermark == 3
            return passed

    assert run(1, main).value == 1.5


async def test_a_producer_is_told_20_over_the_wire() -> None:
    async with Broker() as broker:
        await broker.create("t", min_insync_replicas=2)
        at = broker.node.topics.partition("t", 0)
        at.replicas = (0, 7)
        at.change_isr((0, 7))
        producing = asyncio.ensure_future(broker.produce("t", batch()))
        for _ in range(5):
            await asyncio.sleep(0)
        await broker.fetch_one("t", 0, 1, replica_id=7)
        at.change_isr((0,))
        assert (await producing).error_code == 20
        assert (await broker.produce("t", batch())).error_code == 19
        assert (await broker.produce("t", batch(), acks=1)).error_code == 0
        assert broker.node.counters.errors["NOT_ENOUGH_REPLICAS_AFTER_APPEND"] == 1


async def test_a_producer_gets_6_if_a_leader_changed_while_another_partition_committed() -> None:
    """The partitions of a request are awaited in turn, and the second one was lost meanwhile."""
    async with Broker() as broker:
        await broker.create("t", 2)
        first, second = broker.node.topics.get("t").partitions
        for at in (first, second):
            at.change_replicas((0, 7), (0, 7))
        epoch = second.leader_epoch
        request = wire.ProduceRequest(
            acks=ALL,
            timeout_ms=30_000,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[
                        wire.PartitionProduceData(index=index, records=batch()) for index in (0, 1)
                    ],
                )
            ],
        )
        producing = asyncio.ensure_future(broker.ask(request, 9))
        for _ in range(10):
            await asyncio.sleep(0)
        await rewritten(second, epoch + 2)
        assert second.high_watermark > 1
        await broker.fetch_one("t", 0, 1, replica_id=7)
        [topic] = (await producing).responses
        assert [(one.error_code, one.base_offset) for one in topic.partition_responses] == [
            (0, 0),
            (6, -1),
        ]
