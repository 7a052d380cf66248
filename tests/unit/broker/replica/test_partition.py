"""aiokq.broker.replica.partition: leadership, the high watermark, DeleteRecords, followers."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import aiokq.broker
from aiokq.broker.log.follower_append import UnexpectedAppendOffset
from aiokq.broker.replica.partition import Partition
from aiokq.core.errors import (
    KafkaStorage,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
)
from aiokq.core.offload import InlineOffload
from aiokq.records.header import iter_headers, set_base_offset
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import NOW_MS, Broker
from tests.unit.broker.log.samples import ATopic, batch, open_partition, replica_of, values


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
    """The log sets it when it is opened, and where it changes its own end (ADR 9).

    The metadata log has no replica: as the only voter of its quorum it commits what it has synced.
    """
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
        "metadata/log/cluster_metadata_log.py": 1,
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
