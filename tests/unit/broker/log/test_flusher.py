"""aiokq.broker.log.flusher and durability: waits for syncs, and logs after a power cut."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno

import pytest

from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import Fault, MemoryFiles
from tests.sim.harness.simulation import Simulation
from tests.sim.harness.simulation import run as simulate
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets


class SlowDisk:
    """An executor whose work takes a while, as a sync does, and has its effect at the end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stands_still = False
        self.waiting: list[asyncio.Future[None]] = []

    async def run(self, function, *arguments):
        if self.stands_still:
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]
        await asyncio.sleep(self.seconds)
        return function(*arguments)

    async def run_sized(self, size, threshold, function, *arguments):
        return function(*arguments)

    def close(self) -> None:
        pass


class SyncCounter:
    """Counts syncs of `.log` files."""

    def __init__(self, files: MemoryFiles) -> None:
        self.syncs = 0
        self._seen = files._take_fault
        files._take_fault = self._take_fault  # type: ignore[method-assign]

    def _take_fault(self, operation: str, path: str):
        if operation == "sync" and path.endswith(".log") and "metadata" not in path:
            self.syncs += 1
        return self._seen(operation, path)


def slow(broker: Broker, seconds: float = 0.05) -> SlowDisk:
    disk = SlowDisk(seconds)
    broker.node.environment = dataclasses.replace(broker.node.environment, offload=disk)
    return disk


async def produced(broker: Broker, count: int, **options: object) -> list[int]:
    answers = await asyncio.gather(*(broker.produce("t", batch(), **options) for _ in range(count)))
    assert {answer.error_code for answer in answers} == {0}
    return [answer.base_offset for answer in answers]


async def test_nothing_is_synced_by_default():
    """As in Kafka; a sync per append would make appends a hundred times slower."""
    async with Broker() as broker:
        await broker.create("t")
        counter = SyncCounter(broker.files)
        assert await produced(broker, 20) == list(range(20))
        assert counter.syncs == 0
        assert broker.node.topics.partition("t", 0).log.recovery_point == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_flush_messages_1_an_answer_comes_after_the_sync_and_survives_a_power_cut(acks):
    """This is the purpose of the setting. The first batch also needs synced directory names."""
    broker = Broker()
    await broker.node.open()
    await broker.create("t", flush_messages=1)
    assert (await broker.produce("t", batch(2), acks=acks)).base_offset == 0
    assert broker.node.topics.partition("t", 0).log.recovery_point == 2
    broker.files.power_cut()
    async with Broker(broker.files) as again:
        await settled(again)
        assert offsets((await again.fetch_one("t", 0, 0)).records) == [0, 1]
    await end(broker)


async def end(broker: Broker) -> None:
    """End the tasks of a node whose files were cut off."""
    with contextlib.suppress(KafkaStorage):
        await broker.node.close()


async def settled(broker: Broker) -> None:
    for _ in range(100):
        if broker.node.topics.partition("t", 0).is_online:
            return
        await asyncio.sleep(0)


async def test_producers_that_wait_together_share_one_sync():
    """Appends that arrive during a sync share the next one (group commit)."""
    broker = Broker()
    slow(broker)
    async with broker:
        await broker.create("t", flush_messages=1)
        counter = SyncCounter(broker.files)
        assert await produced(broker, 50) == list(range(50))
        assert counter.syncs <= 2


async def test_readers_see_a_record_when_it_is_durable():
    """Otherwise a power cut could remove a record that a reader has acted on."""
    broker = Broker()
    slow(broker)
    async with broker:
        await broker.create("t", flush_messages=1)
        producing = asyncio.ensure_future(broker.produce("t", batch()))
        fetching = asyncio.ensure_future(broker.fetch_one("t", 0, 0, max_wait_ms=5000, min_bytes=1))
        for _ in range(5):
            await asyncio.sleep(0)
        log = broker.node.topics.partition("t", 0).log
        assert (log.log_end_offset, log.high_watermark) == (1, 0)
        assert not producing.done()
        assert offsets((await fetching).records) == [0]
        assert log.recovery_point == 1
        assert (await producing).error_code == 0


async def test_every_hundredth_message_waits_and_the_others_do_not():
    """With flush.messages=100 at most that many records are not durable."""
    async with Broker() as broker:
        await broker.create("t", flush_messages=100)
        counter = SyncCounter(broker.files)
        log = broker.node.topics.partition("t", 0).log
        for _ in range(250):
            await broker.produce("t", batch())
            assert log.log_end_offset - log.recovery_point < 100
        assert counter.syncs == 2


def test_with_flush_ms_a_record_is_durable_within_that_time():
    """No request waits for it; Kafka also needs log.flush.scheduler.interval.ms."""

    async def main(world: Simulation) -> None:
        async with Broker() as broker:
            await broker.create("t", flush_ms=30)
            log = broker.node.topics.partition("t", 0).log
            await produced(broker, 3)
            assert (log.high_watermark, log.recovery_point) == (3, 0)
            await asyncio.sleep(0.1)
            assert log.recovery_point == 3

    simulate(1, main)


async def test_a_changed_setting_holds_for_the_next_append():
    """flush.messages is dynamic."""
    async with Broker() as broker:
        await broker.create("t")
        topic = broker.node.topics.get("t")
        log = topic.partitions[0].log
        await produced(broker, 3)
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {"flush.messages": "1"})
        await produced(broker, 1)
        assert log.recovery_point == 4
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {})
        await produced(broker, 1)
        assert log.recovery_point == 4
        assert log.high_watermark == 5


async def test_a_finished_segment_is_synced_in_the_background():
    """The recovery point then passes it, so that a recovery does not read it."""
    async with Broker() as broker:
        await broker.create("t", segment_bytes=1048576, max_message_bytes=2000000)
        log = broker.node.topics.partition("t", 0).log
        for _ in range(3):
            await broker.produce("t", batch(1, value=b"x" * 600_000))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(log.segments) == 3
        assert log.recovery_point == 2
        await broker.node.storage.save_recovery_points()
        point = broker.files.read_bytes("/data/recovery-point-offset-checkpoint")
        assert point == b"0\n1\nt 0 2\n"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_a_sync_that_fails_acknowledges_nothing_ever_again(number: int):
    """The kernel drops data that it could not write, so the next sync would succeed."""
    async with Broker() as broker:
        await broker.create("t", flush_messages=1)
        assert await produced(broker, 1) == [0]
        broker.files.fail("sync", number, matches=lambda path: "/t-0/" in path)
        answers = await asyncio.gather(*(broker.produce("t", batch()) for _ in range(5)))
        assert {answer.error_code for answer in answers} == {56}
        assert {answer.base_offset for answer in answers} == {-1}
        assert (await broker.produce("t", batch())).error_code == 56
        files = broker.files
    files.power_cut()
    async with Broker(files) as broker:
        await settled(broker)
        assert offsets((await broker.fetch_one("t", 0, 0)).records)[0] == 0


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_that_waits_for_a_sync_is_refused_when_its_topic_is_deleted(acks):
    """As Kafka answers: UNKNOWN_TOPIC_OR_PARTITION, because no node serves the partition."""
    broker = Broker()
    disk = slow(broker, 0)
    async with broker:
        await broker.create("t", flush_messages=1)
        disk.stands_still = True
        producing = asyncio.ensure_future(broker.produce("t", batch(), acks=acks))
        for _ in range(20):
            await asyncio.sleep(0)
        disk.stands_still = False
        [sync] = disk.waiting
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        answer = await producing
        sync.set_result(None)  # the sync ends after the deletion
        assert (answer.error_code, answer.base_offset) == (3, -1)
        assert answer.error_message == "t-0 was deleted"


async def test_a_sync_that_takes_long_is_waited_for_by_those_who_asked_for_it_alone():
    """A slow fsync delays its topic, but no other topic on the same disk."""
    broker = Broker()
    disk = slow(broker, 0)
    async with broker:
        await broker.create("t", flush_messages=1)
        await broker.create("fast")
        disk.stands_still = True
        waiting = asyncio.ensure_future(broker.produce("t", batch()))
        for _ in range(20):
            await asyncio.sleep(0)
        disk.stands_still = False
        [sync] = disk.waiting
        for index in range(100):
            assert (await broker.produce("fast", batch())).base_offset == index
        assert not waiting.done()
        sync.set_result(None)
        assert (await waiting).error_code == 0


async def test_offsets_are_committed_durably_where_the_broker_flushes_every_message():
    """log.flush.interval.messages=1 applies to __consumer_offsets too, as a commit is a record."""
    from tests.unit.broker.coordinator.group.test_group_coordinator import GroupBroker

    async with GroupBroker(log_flush_interval_messages=1) as broker:
        await broker.create("t")
        await broker.find()
        assert await broker.commit(5) == 0
        partitions = broker.node.topics.get("__consumer_offsets").partitions
        logs = [one.log for one in partitions if one.log.log_end_offset]
        assert logs
        assert all(log.recovery_point == log.log_end_offset for log in logs)


async def test_a_close_waits_for_the_sync_that_runs():
    """The marker of a clean shutdown says that everything is synced."""
    broker = Broker()
    slow(broker)
    await broker.node.open()
    await broker.create("t", flush_messages=1)
    producing = asyncio.ensure_future(broker.produce("t", batch()))
    for _ in range(5):
        await asyncio.sleep(0)
    await asyncio.gather(producing, broker.node.close())
    files = broker.files
    files.power_cut()
    async with Broker(files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0]


async def test_a_failed_wait_names_the_directory():
    """The producer's user reads the cause."""
    async with Broker() as broker:
        await broker.create("t", flush_messages=1)
        broker.files.fail("sync", errno.EIO, matches=lambda path: "/t-0/" in path)
        partition = broker.node.topics.partition("t", 0)
        answer = await broker.produce("t", batch())
        assert "log directory /data is offline" in answer.error_message
        with pytest.raises(KafkaStorage, match="Input/output error"):
            await partition.commits.committed(1, partition.leader_epoch)


WITHOUT_A_DESCRIPTOR = [
    # a finished segment cannot be opened for its sync, after the newest one was handled
    ("open", lambda path: path.endswith(f"{0:020d}.log")),
    ("open", lambda path: path.endswith(f"{1:020d}.snapshot")),
    # the directory's sync comes before or after that of the records
    ("sync_dir", lambda path: path == "/data/t-0"),
    ("sync_dir", lambda path: path == "/data"),
]


@pytest.mark.parametrize(("operation", "matches"), WITHOUT_A_DESCRIPTOR)
def test_what_was_not_synced_for_want_of_a_descriptor_is_synced_later(operation, matches):
    """Without a descriptor a flush fails halfway, and the rest must be synced later.

    Regression: the next flush took it for synced and acknowledged it, or its producer hung.
    """

    async def main(world: Simulation) -> None:
        broker = Broker()
        await broker.node.open()
        await broker.create("t", flush_messages=1)
        log = broker.node.topics.partition("t", 0).log

        async def roll() -> None:
            log.roll(NOW_MS)
            faults.append(broker.files.fail(operation, errno.EMFILE, matches=matches))

        faults: list[Fault] = []
        answers = await asyncio.wait_for(
            asyncio.gather(broker.produce("t", batch()), roll(), broker.produce("t", batch())),
            60,
        )
        assert faults[0].times == 0
        assert [answers[0].error_code, answers[2].error_code] == [0, 0]
        assert (log.high_watermark, log.recovery_point) == (2, 2)
        broker.files.power_cut()
        async with Broker(broker.files) as again:
            await settled(again)
            for offset in range(2):
                data = await again.fetch_one("t", 0, offset, 1)
                assert offsets(data.records) == [offset]
        await end(broker)

    simulate(1, main)


def test_checkpoints_are_written_while_it_runs_and_only_when_they_change():
    """After a kill log starts, recovery points and high watermarks are at most a minute old."""

    async def main(world: Simulation) -> None:
        broker = Broker()
        async with broker:
            await broker.create("t", flush_messages=1)
            await broker.produce("t", batch(3))
            writes: list[str] = []
            write = broker.files.write_atomic

            def noted(path, data):
                writes.append(str(path))
                write(path, data)

            broker.files.write_atomic = noted  # type: ignore[method-assign]
            await asyncio.sleep(61)
            read = broker.files.read_bytes
            assert read("/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 3\n"
            assert read("/data/replication-offset-checkpoint") == b"0\n1\nt 0 3\n"
            assert len(writes) == 2
            broker.node.topics.partition("t", 0).delete_records(2)
            await asyncio.sleep(61)
            assert read("/data/log-start-offset-checkpoint") == b"0\n1\nt 0 2\n"
            await asyncio.sleep(600)
            assert len(writes) == 3

    simulate(1, main)


async def test_a_topic_that_is_deleted_while_it_is_synced_does_not_take_its_directory_offline():
    """The directory to be synced was renamed and deleted, which is no error of the disk."""
    broker = Broker()
    disk = slow(broker)
    async with broker:
        await broker.create("t", flush_messages=1)
        await broker.create("other", flush_messages=1)
        disk.stands_still = True
        producing = [
            asyncio.ensure_future(broker.produce(topic, batch())) for topic in ("t", "other")
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        disk.stands_still = False
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        for sync in disk.waiting:
            sync.set_result(None)
        deleted, kept = await asyncio.gather(*producing)
        assert deleted.error_code != 0
        assert kept.error_code == 0
        assert (await broker.produce("other", batch())).error_code == 0
        assert broker.node.topics.partition("other", 0).log.recovery_point == 2
