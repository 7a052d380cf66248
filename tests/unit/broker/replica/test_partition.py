"""aiokq.broker.replica.partition: the high watermark, acknowledgements and their waiters."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import aiokq.broker
from aiokq import wire
from aiokq.broker.log.follower_append import UnexpectedAppendOffset
from aiokq.broker.replica.partition import Partition
from aiokq.core.errors import (
    KafkaStorage,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimeout,
    UnknownTopicOrPartition,
)
from aiokq.core.offload import InlineOffload
from aiokq.records.header import iter_headers, set_base_offset
from tests.sim.harness.files import MemoryFiles
from tests.sim.harness.simulation import run
from tests.unit.broker.harness import NOW_MS, Broker
from tests.unit.broker.log.samples import ATopic, batch, open_partition, replica_of, values

ALL, LEADER = -1, 1


def partition(*, replicas: tuple[int, ...] = (0,), **settings: object):
    return replica_of(open_partition(MemoryFiles(), **settings), replicas=replicas)


def append(at, data=None):
    data = batch() if data is None else data
    return at.append(memoryview(data), list(iter_headers(data)), now_ms=NOW_MS)


def test_the_only_replica_commits_what_it_appends() -> None:
    """Listeners are called when the records are visible: a fetch woken too early reads nothing."""
    at = partition()
    heard = []
    at.high_watermark_listeners.append(lambda size: heard.append((size, at.high_watermark)))
    data = batch(b"a", b"b")
    append(at, data)
    append(at, data)
    assert heard == [(len(data), 2), (len(data), 4)]


def test_the_high_watermark_is_the_least_of_the_in_sync_replicas_ends() -> None:
    at = partition(replicas=(0, 1, 2))
    heard = []
    at.high_watermark_listeners.append(lambda size: heard.append((size, at.high_watermark)))
    data = batch(b"a", b"b")
    for _ in range(3):
        append(at, data)
    assert at.high_watermark == 0
    at.replica_fetched(1, 6)
    assert at.high_watermark == 0
    at.replica_fetched(2, 4)
    assert (at.high_watermark, heard) == (4, [(2 * len(data), 4)])
    at.replica_fetched(2, 2)  # it lost records; committed records stay committed
    assert at.high_watermark == 4
    at.change_isr((0, 1))
    assert (at.high_watermark, heard[-1]) == (6, (len(data), 6))
    at.change_isr((0,))
    append(at, data)
    assert at.high_watermark == 8


def test_a_fetch_of_a_node_that_has_no_replica_commits_nothing() -> None:
    at = partition(replicas=(0, 1))
    append(at)
    at.replica_fetched(2, 1)
    at.replica_fetched(0, 1)
    assert at.high_watermark == 0


def test_the_high_watermark_stands_while_too_few_replicas_are_in_sync() -> None:
    at = partition(replicas=(0, 1, 2), min_insync_replicas=2)
    at.change_isr((0,))
    append(at)
    assert (at.log.log_end_offset, at.high_watermark) == (1, 0)
    at.topic.configure(at.topic.config._replace(min_insync_replicas=1))
    at.configure(at.topic.config)
    assert at.high_watermark == 1


def test_a_leader_begins_at_the_checkpoint_and_commits_alone_only_if_it_is_alone() -> None:
    files = MemoryFiles()
    log = open_partition(files)
    replica = replica_of(log)
    for _ in range(5):
        append(replica)
    log.close()
    log = open_partition(files, high_watermark=3)
    assert log.high_watermark == 3
    assert replica_of(log, replicas=(0, 1)).high_watermark == 3
    assert replica_of(log).high_watermark == 5
    assert open_partition(files, high_watermark=99).high_watermark == 5
    assert open_partition(files, high_watermark=0, log_start_offset=2).high_watermark == 2


async def test_acks_all_waits_for_the_replicas_and_acks_1_does_not() -> None:
    at = partition(replicas=(0, 1))
    end = append(at).last_offset + 1
    assert (at.commits_late(ALL), at.commits_late(LEADER)) == (True, False)
    await at.acknowledged(end, LEADER, at.leader_epoch)
    waiting = asyncio.ensure_future(at.acknowledged(end, ALL, at.leader_epoch))
    await asyncio.sleep(0)
    assert not waiting.done()
    at.replica_fetched(1, end)
    await waiting


async def test_too_few_replicas_after_the_append_are_told() -> None:
    """The records may be on the leader only: NOT_ENOUGH_REPLICAS_AFTER_APPEND is retriable."""
    at = partition(replicas=(0, 1), min_insync_replicas=2)
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.acknowledged(end, ALL, at.leader_epoch))
    await asyncio.sleep(0)
    at.replica_fetched(1, end)
    at.change_isr((0,))
    with pytest.raises(NotEnoughReplicasAfterAppend, match="in-sync replicas: 1, needed: 2"):
        await waiting


def test_acks_all_waits_for_the_replicas_until_its_deadline() -> None:
    """The records stay: a later fetch of the replica commits them."""

    async def main(world) -> float:
        at = partition(replicas=(0, 1))
        end = append(at).last_offset + 1
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout, match="orders-0 is committed up to offset 0, not 1"):
            await at.acknowledged(end, ALL, at.leader_epoch, began + 30)
        assert not at._waiters
        await at.acknowledged(end, LEADER, at.leader_epoch, began)
        at.replica_fetched(1, end)
        await at.acknowledged(
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
        waiting = asyncio.ensure_future(at.acknowledged(end, ALL, at.leader_epoch, loop.time() + 1))
        await asyncio.sleep(60)
        assert not waiting.done()
        at.log.durability.flushed(at.log, end)
        at.log.notify_replica()
        await waiting

    run(1, main)


async def test_a_cancelled_waiter_is_forgotten_and_others_wait_on() -> None:
    at = partition(replicas=(0, 1))
    end = append(at).last_offset + 1
    first, second = (asyncio.ensure_future(at.committed(end, at.leader_epoch)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    assert len(at._waiters) == 1
    at.replica_fetched(1, end)
    await second


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_waiter_is_told_that_the_partition_went_offline(acks) -> None:
    async with Broker() as broker:
        await broker.create("t", flush_messages=1)
        at = broker.node.topics.partition("t", 0)
        at.log.durability.attach(NeverFlushes())
        end = append(at).last_offset + 1
        waiting = asyncio.ensure_future(at.acknowledged(end, acks, at.leader_epoch))
        await asyncio.sleep(0)
        assert not waiting.done()
        log = at.log
        at.take_offline(KafkaStorage("its directory failed"))
        with pytest.raises(KafkaStorage, match="its directory failed"):
            await waiting
        log.retire()
        with pytest.raises(KafkaStorage, match="its directory failed"):
            await at.committed(end, at.leader_epoch)


@pytest.mark.parametrize("acks", [ALL, LEADER])
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_waiter_is_told_whether_its_partition_was_deleted_or_moved(acks, deleted) -> None:
    """As in Kafka: only for a topic that still exists can another node be the leader."""
    at = partition(flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.acknowledged(end, acks, at.leader_epoch))
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
        await at.committed(end, at.leader_epoch)
    with pytest.raises(error):
        append(at)


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_batch_that_was_synced_before_its_topic_is_deleted_is_acknowledged(acks) -> None:
    at = partition(flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.acknowledged(end, acks, at.leader_epoch))
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
        await at.acknowledged(end, acks, epoch)
    with pytest.raises(NotLeaderOrFollower, match=f"leader epoch {epoch} of orders-0 has ended"):
        await at.committed(end, epoch)
    await at.acknowledged(end, acks, at.leader_epoch)


@pytest.mark.parametrize("acks", [ALL, LEADER])
async def test_a_wait_ends_with_the_leadership_even_if_the_node_leads_again_before_it_wakes(
    acks,
) -> None:
    """A waiter runs one turn of the loop after it was woken."""
    at = partition(replicas=(0, 1), flush_messages=1)
    at.log.durability.attach(NeverFlushes())
    end = append(at).last_offset + 1
    waiting = asyncio.ensure_future(at.acknowledged(end, acks, at.leader_epoch))
    await asyncio.sleep(0)
    follow_and_lead_again(at, at.leader_epoch + 2)
    at.change_isr((0,))
    at.log.durability.flushed(at.log, end)
    at.log.notify_replica()
    assert at.high_watermark == end
    with pytest.raises(NotLeaderOrFollower, match="has ended"):
        await waiting


class NeverFlushes:
    def flush(self, log, before=None) -> None:
        pass

    def flush_within(self, log, seconds) -> None:
        pass


def test_what_the_flush_policy_asked_for_is_not_committed_before_it_is_synced() -> None:
    """Another replica has it, but the leader would lack it after a power cut."""
    at = partition(replicas=(0, 1), flush_messages=2)
    at.log.durability.attach(NeverFlushes())
    append(at)
    at.replica_fetched(1, 1)
    assert at.high_watermark == 1
    append(at)
    at.replica_fetched(1, 2)
    assert (at.log.flush_policy_end, at.high_watermark) == (1, 1)
    at.log.durability.flushed(at.log, 2)
    at.log.notify_replica()
    assert at.high_watermark == 2


async def test_a_followers_fetch_commits_over_the_wire() -> None:
    """acks=all and a consumer wait while a follower fetches records, and then the next offset."""
    async with Broker() as broker:
        await broker.create("t")
        at = broker.node.topics.partition("t", 0)
        at.replicas = (0, 7)
        at.change_isr((0, 7))
        producing = asyncio.ensure_future(broker.produce("t", batch(b"a", b"b")))
        consuming = asyncio.ensure_future(broker.fetch_one("t", 0, 0, max_wait_ms=60_000))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (at.log.log_end_offset, at.high_watermark) == (2, 0)
        assert not producing.done()
        assert not consuming.done()
        found = await broker.fetch_one("t", 0, 0, replica_id=7)
        assert len(found.records) > 0
        assert not producing.done()
        found = await broker.fetch_one("t", 0, 2, replica_id=7)
        assert (await producing).error_code == 0
        consumed = await consuming
        assert (consumed.high_watermark, len(consumed.records) > 0) == (2, True)


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


def test_a_partition_that_is_not_opened_has_no_high_watermark() -> None:
    at = partition()
    at.take_offline(NotLeaderOrFollower("it is being recovered"))
    with pytest.raises(NotLeaderOrFollower, match="being recovered"):
        at.high_watermark  # noqa: B018


@pytest.mark.parametrize(
    "change",
    [
        lambda at, log: at.bring_online(log, 0, 0),
        lambda at, log: at.follow(log, 1, 0),
        lambda at, log: at.leave(1, 0),
        lambda at, log: at.take_offline(NotLeaderOrFollower("whatever the error is")),
        lambda at, log: at.delete(),
    ],
    ids=["leader", "follower", "no replica", "offline", "deleted"],
)
def test_a_partition_is_recovering_until_its_log_is_opened_or_given_up(change) -> None:
    """Coordinators answer that a recovering partition is being loaded."""
    log = open_partition(MemoryFiles())
    at = Partition.unopened(ATopic("orders", log.config), 0, (0, 1))
    at.change_isr((0,))
    assert at.is_recovering
    change(at, log)
    assert not at.is_recovering
    error = KafkaStorage("its directory failed")
    assert not Partition.offline(at.topic, 0, (0,), error).is_recovering


def test_only_the_replica_advances_the_high_watermark() -> None:
    """The log sets it when it is opened, and where it changes its own end (ADR 9)."""
    package = Path(aiokq.broker.__file__).parent
    setting = re.compile(r"\b(self|log|_log)\.high_watermark\s*=[^=]")
    found = {
        path.relative_to(package).as_posix(): len(setting.findall(path.read_text()))
        for path in package.rglob("*.py")
        if setting.search(path.read_text())
    }
    assert found == {
        "replica/partition.py": 2,
        "log/log_reading.py": 1,
        "log/partition_log.py": 2,
    }


def test_only_the_leader_deletes_records_up_to_the_high_watermark() -> None:
    """The checks of DeleteRecords in Kafka's order; -1 is the high watermark."""
    at = partition(replicas=(0, 1))
    for _ in range(4):
        append(at)
    at.replica_fetched(1, 3)
    assert at.delete_records(1) == 1
    for beyond in (-2, 4):
        with pytest.raises(OffsetOutOfRange):
            at.delete_records(beyond)
    assert at.delete_records(-1) == at.log.log_start_offset == 3
    at.topic.configure(at.topic.config._replace(cleanup_policy=("compact",)))
    for offset in (-1, 99):
        with pytest.raises(PolicyViolation, match="orders does not include delete"):
            at.delete_records(offset)
    at.follow(at.log, 1, 7)
    with pytest.raises(NotLeaderOrFollower):
        at.delete_records(-1)


# --- The follower's side


def placed(offset: int, *values: bytes) -> bytes:
    """Return a batch as it is in the leader's log."""
    stored = bytearray(batch(*values))
    set_base_offset(stored, offset, 0)
    return bytes(stored)


def follower_of(log):
    """The replica of a partition that another node leads."""
    at = replica_of(log, replicas=(1, 0))
    at.follow(log, 1, 0)
    return at


async def follow(at, *batches: bytes) -> int:
    data = b"".join(batches)
    return await at.append_as_follower(
        memoryview(data),
        list(iter_headers(data)),
        leader_epoch=0,
        offload=InlineOffload(),
        now_ms=NOW_MS,
    )


async def test_an_empty_follower_takes_a_batch_that_holds_its_start() -> None:
    """The leader's log starts inside a batch, after DeleteRecords; a batch is never divided."""
    files = MemoryFiles()
    at = follower_of(open_partition(files))
    await at.local_log.start_at(5, InlineOffload(), now_ms=NOW_MS)
    assert await follow(at, placed(3, b"a", b"b", b"c"), placed(6, b"d")) == 7
    assert (at.local_log.log_start_offset, at.local_log.high_watermark) == (3, 3)
    assert [offset for offset, _ in values(at.local_log, 3)] == [3, 4, 5, 6]
    files.crash()
    assert [offset for offset, _ in values(open_partition(files, clean=False), 3)] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(0, id="a batch that the log has"),
        pytest.param(1, id="a batch that begins inside the log and ends behind it"),
    ],
)
async def test_a_follower_with_records_refuses_a_batch_below_its_end(first: int) -> None:
    """Its log may differ from the leader's there: it has to truncate by leader epoch first."""
    at = follower_of(open_partition(MemoryFiles()))
    await follow(at, placed(0, b"a", b"b"))
    with pytest.raises(UnexpectedAppendOffset, match=f"base offset {first}, expected 2"):
        await follow(at, placed(first, b"x", b"y"), placed(first + 2, b"z"))
    assert values(at.local_log) == [(0, b"a"), (1, b"b")]


async def test_an_empty_follower_refuses_batches_that_end_before_its_start() -> None:
    at = follower_of(open_partition(MemoryFiles()))
    await at.local_log.start_at(5, InlineOffload(), now_ms=NOW_MS)
    with pytest.raises(UnexpectedAppendOffset) as caught:
        await follow(at, placed(0, b"a", b"b"), placed(2, b"c"))
    assert (caught.value.first_offset, caught.value.last_offset) == (0, 2)
    assert at.local_log.log_end_offset == 5


async def test_a_follower_that_is_elected_while_its_log_restarts_takes_no_batch() -> None:
    """The batch is one of the leader before."""
    at = follower_of(open_partition(MemoryFiles()))
    log = at.local_log
    await log.start_at(5, InlineOffload(), now_ms=NOW_MS)

    class Electing(InlineOffload):
        async def run(self, fn, *args):  # type: ignore[no-untyped-def]
            found = fn(*args)
            if not at.is_online:
                at.bring_online(log, 0, 1)
            return found

    data = placed(3, b"a", b"b", b"c")
    with pytest.raises(NotLeaderOrFollower, match="led by this node"):
        await at.append_as_follower(
            memoryview(data),
            list(iter_headers(data)),
            leader_epoch=0,
            offload=Electing(),
            now_ms=NOW_MS,
        )
    assert values(log, log.log_start_offset) == []
