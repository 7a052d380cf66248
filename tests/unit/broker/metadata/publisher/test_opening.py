"""A node that starts after a kill serves open logs while it recovers the others."""

from __future__ import annotations

import asyncio
import errno
import logging
import random

import pytest

from aiokq import wire
from aiokq.broker.log.cold_reads import AT_ONCE
from aiokq.broker.log.directories import LogDirectories
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.recovery import RecoveryProgress
from aiokq.broker.maintenance import jobs
from aiokq.broker.metadata.log.log_opening import METADATA_PARTITION
from aiokq.broker.metadata.publisher import opening
from aiokq.broker.node import BrokerNode
from aiokq.core.environment import Environment
from aiokq.core.offload import THREADS
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, LoopClock, NoNetwork, batch, offsets, until


async def turns() -> None:
    """Run the loop until nothing is ready any more."""
    for _ in range(50):
        await asyncio.sleep(0)


class SlowOffload:
    """An executor in which recoveries of the given logs wait for `let_go`."""

    def __init__(self, *slow: str) -> None:
        self.slow = set(slow)
        self.let_go = asyncio.Event()
        self.ends_late = False
        self.recovered: list[list[str]] = []

    async def run(self, fn, *args):
        if getattr(fn, "__name__", "") == "_recover_all":
            names = [str(attempt.partition.name) for attempt in args[0]]
            self.recovered.append(names)
            if self.slow.intersection(names):
                done = fn(*args) if self.ends_late else None
                await self.let_go.wait()
                if self.ends_late:
                    return done
        return fn(*args)

    async def run_sized(self, size, threshold, fn, *args):
        return fn(*args)

    def close(self) -> None:
        pass


class NoThreads(SlowOffload):
    """An executor that cannot start a thread for functions of the given name."""

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function
        self.refused = 0

    async def run(self, fn, *args):
        if getattr(fn, "__name__", "") == self.function:
            self.refused += 1
            raise RuntimeError("can't start new thread")
        return await super().run(fn, *args)


class Restarted(Broker):
    """A node after a kill, whose recoveries of the given partitions wait."""

    def __init__(
        self,
        files: MemoryFiles,
        *slow: str,
        offload: SlowOffload | None = None,
        **settings: object,
    ) -> None:
        super().__init__(files, **settings)
        self.offload = offload or SlowOffload(*slow)
        self.node = BrokerNode(
            self.node.settings,
            Environment(self.clock, random.Random(1), NoNetwork(), self.files, self.offload),
            data_dir="/data",
        )

    async def begin(self) -> asyncio.Task[None]:
        """Start without a socket, until each thread for recoveries is in use or none is needed."""
        await self.node._open()
        publisher = self.node.storage.publisher
        logs = publisher._opening
        recovery = asyncio.get_running_loop().create_task(publisher.recover())
        await turns()
        await until(lambda: not logs._waiting or len(logs._workers) == logs._threads)
        await turns()
        return recovery


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recover each log on its own, as large logs are, and begin with the next one soon."""
    monkeypatch.setattr(opening, "SMALL_LOGS", 0)
    monkeypatch.setattr(opening, "STALL_SECONDS", 0.001)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr("aiokq.core.background.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("aiokq.core.background.LONGEST_PAUSE", 0.001)


async def killed(**topics: int) -> MemoryFiles:
    """Return a disk after a kill, with these topics and ten records in each partition."""
    broker = Broker()
    await broker.node.open()
    for topic, partitions in topics.items():
        await broker.create(topic, partitions)
        for partition in range(partitions):
            await broker.produce(topic, batch(10), partition=partition)
    broker.files.crash()
    return broker.files


async def leaders(broker: Broker, topic: str) -> list[tuple[int, int, list[int]]]:
    response = await broker.ask(
        wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name=topic)]), 9
    )
    return [
        (found.error_code, found.leader_id, found.offline_replicas)
        for found in response.topics[0].partitions
    ]


async def test_other_partitions_are_served_while_one_recovers(one_by_one: None):
    """To recover a terabyte takes a quarter of an hour; other partitions must not wait for it."""
    files = await killed(big=1, small=1)
    broker = Restarted(files, "big-0")
    recovery = await broker.begin()
    await turns()
    assert await leaders(broker, "big") == [(5, -1, [])]
    assert await leaders(broker, "small") == [(0, 0, [])]
    assert (await broker.produce("small", batch(5))).base_offset == 10
    assert (await broker.produce("big", batch(5))).error_code == 6
    assert (await broker.fetch_one("big", 0, 0)).error_code == 6
    assert offsets((await broker.fetch_one("small", 0, 0)).records) == [*range(15)]
    assert not recovery.done()
    broker.offload.let_go.set()
    await recovery
    assert await leaders(broker, "big") == [(0, 0, [])]
    assert (await broker.produce("big", batch(5))).base_offset == 10
    assert broker.node.topics.partition("big", 0).leader_epoch == 1
    await broker.node.close()
    async with Broker(files) as again:
        assert again.node.topics.partition("big", 0).leader_epoch == 1  # clean shutdown


async def test_recoveries_leave_threads_to_others(one_by_one: None):
    """Recoveries must not take every thread of the executor.

    Regression: ten large logs took all threads, so no topic could be created and nothing flushed.
    """
    files = await killed(big=10)
    broker = Restarted(
        files, *(f"big-{one}" for one in range(10)), num_recovery_threads_per_data_dir=10
    )
    recovery = await broker.begin()
    assert len(broker.offload.recovered) == opening.MOST_THREADS
    assert opening.MOST_THREADS + AT_ONCE < THREADS
    broker.offload.let_go.set()
    await recovery
    assert len(broker.offload.recovered) == 10
    await broker.node.close()


async def test_small_logs_come_first(one_by_one: None):
    """Most partitions are online soon, whatever the names of the large logs are."""
    files = await killed(a=1, b=1, c=1)
    broker = Broker(files)
    await broker.node.open()
    for _ in range(20):
        await broker.produce("a", batch(10))
    files.crash()
    broker = Restarted(files, "a-0", num_recovery_threads_per_data_dir=1)
    recovery = await broker.begin()
    await turns()
    assert await leaders(broker, "c") == [(0, 0, [])]
    assert await leaders(broker, "a") == [(5, -1, [])]
    broker.offload.let_go.set()
    await recovery
    await broker.node.close()


async def test_small_logs_are_recovered_many_at_a_time():
    """Regression: handing single logs to threads and back took longer than recovering them."""
    files = await killed(t=70, gone=1)
    broker = Restarted(files, "t-0", num_recovery_threads_per_data_dir=1)
    recovery = await broker.begin()
    [first] = broker.offload.recovered
    assert len(first) == opening.RECOVERED_AT_ONCE
    deletion = asyncio.get_running_loop().create_task(
        broker.node.metadata.delete_topic(broker.node.topics.get("gone"))
    )
    broker.offload.let_go.set()
    await recovery
    await deletion
    assert [len(names) for names in broker.offload.recovered] in ([32, 32, 6], [32, 32, 7])
    for partition in range(70):
        data = await broker.fetch_one("t", partition, 0)
        assert offsets(data.records) == [*range(10)]
    await broker.node.close()
    assert files.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize(("cpu_seconds", "workers"), [(1.0, 1), (0.5, 1), (0.3, 2), (0.0, 4)])
async def test_workers_are_added_while_threads_wait_for_the_disk(
    cpu_seconds: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: two threads that competed for the interpreter's lock were slower than one."""
    files = await killed(t=10)
    monkeypatch.setattr(opening, "RECOVERED_AT_ONCE", 1)
    used = 0.0
    found: list[int] = []

    def recover(logs: opening.LogOpening, attempt: opening._Attempt) -> object:
        nonlocal used
        used += cpu_seconds
        found.append(len(logs._workers))
        return original(logs, attempt)

    original = opening.LogOpening._recover
    monkeypatch.setattr(opening.LogOpening, "_recover", recover)
    monkeypatch.setattr(LoopClock, "thread_time", lambda self: used)
    monkeypatch.setattr(LoopClock, "monotonic", lambda self: float(len(found)))  # 1 s for each log
    broker = Restarted(files, num_recovery_threads_per_data_dir=4)
    await (await broker.begin())
    assert len(found) == 10
    assert max(found) == workers
    await broker.node.close()


async def test_a_stop_leaves_the_rest_of_what_is_recovered_together():
    """The stop waits for the current log only; the other logs stay unclean."""
    files = await killed(t=20)
    broker = Restarted(files, "t-0")
    recovery = await broker.begin()
    closing = asyncio.get_running_loop().create_task(broker.node.close())
    await turns()
    broker.offload.let_go.set()
    await asyncio.gather(closing, recovery)
    assert broker.node._storage is None
    assert not files.exists("/data/.kafka_cleanshutdown")
    async with Broker(files) as again:
        for partition in range(20):
            assert again.node.topics.partition("t", partition).log.log_end_offset == 10


async def test_a_stop_during_recovery_is_not_called_clean(one_by_one: None):
    """Otherwise the next start would trust logs that were not checked."""
    files = await killed(big=1, small=1)
    broker = Restarted(files, "big-0")
    recovery = await broker.begin()
    await broker.produce("small", batch(5))
    closing = asyncio.get_running_loop().create_task(broker.node.close())
    await turns()
    broker.offload.let_go.set()
    await asyncio.gather(closing, recovery)
    assert not files.exists("/data/.kafka_cleanshutdown")
    async with Broker(files) as again:
        assert again.node.topics.partition("big", 0).log.log_end_offset == 10
        assert again.node.topics.partition("small", 0).log.log_end_offset == 15


async def test_a_log_that_cannot_be_opened_keeps_no_file_open():
    """Its partition keeps the error, whose traceback must not keep a file open."""
    files = await killed(t=2)
    files.fail("pread", errno.EIO, matches=lambda path: "/t-1/" in path)
    async with Broker(files) as broker:
        error = broker.node.topics.partition("t", 1).unavailable
        assert "Input/output error" in str(error)
        assert error.__traceback__ is error.__cause__ is error.__context__ is None


async def test_a_topic_is_deleted_while_it_is_recovered():
    """Its directory is renamed only after the recovery has stopped writing to it."""
    files = await killed(big=2, small=1)
    broker = Restarted(files, "big-0", "big-1")
    recovery = await broker.begin()
    deletion = asyncio.get_running_loop().create_task(
        broker.node.metadata.delete_topic(broker.node.topics.get("big"))
    )
    await turns()
    assert not deletion.done()
    broker.offload.let_go.set()
    await deletion
    await recovery
    assert broker.node.topics.get("big") is None
    await broker.create("big")
    assert (await broker.produce("big", batch(1))).base_offset == 0
    await broker.node.close()
    assert files.exists("/data/.kafka_cleanshutdown")


async def test_a_topic_deleted_while_it_is_recovered_does_not_keep_the_node_from_closing(
    one_by_one: None,
):
    """Regression: the deletion waited for an attempt that the closing node had forgotten."""
    files = await killed(big=1, small=1)
    broker = Restarted(files, "big-0")
    recovery = await broker.begin()
    deletion = asyncio.get_running_loop().create_task(
        broker.node.metadata.delete_topic(broker.node.topics.get("big"))
    )
    await turns()
    closing = asyncio.get_running_loop().create_task(broker.node.close())
    await turns()
    assert not closing.done()
    broker.offload.let_go.set()
    await asyncio.gather(closing, deletion, recovery)
    assert files.listdir("/data/small-0")
    assert not files.exists("/data/big-0")


@pytest.mark.parametrize("iterations", range(12))
async def test_a_topic_is_deleted_in_any_iteration_around_the_start_of_its_recovery(
    iterations: int,
):
    """Regression: the attempt was in no list while its task was scheduled.

    The deletion did not wait for it; the recovery created the directory again and ended the broker.
    """
    files = await killed(big=1, small=1)
    broker = Restarted(files)
    await broker.node._open()
    loop = asyncio.get_running_loop()
    recovery = loop.create_task(broker.node.storage.publisher.recover())
    for _ in range(iterations):
        await asyncio.sleep(0)
    await broker.node.metadata.delete_topic(broker.node.topics.get("big"))
    await recovery
    assert await leaders(broker, "small") == [(0, 0, [])]
    assert not files.exists("/data/big-0")
    await broker.node.close()
    assert files.exists("/data/.kafka_cleanshutdown")


@pytest.mark.parametrize("iterations", range(12))
async def test_no_recovery_begins_after_a_stop(
    iterations: int, monkeypatch: pytest.MonkeyPatch, one_by_one: None
):
    """Regression: an attempt whose task was scheduled was not stopped.

    The node then waited for the recovery of a log of a terabyte before it closed.
    """
    files = await killed(t=3)
    broker = Restarted(files, num_recovery_threads_per_data_dir=1)
    await broker.node._open()
    loop = asyncio.get_running_loop()
    recovery = loop.create_task(broker.node.storage.publisher.recover())
    for _ in range(iterations):
        await asyncio.sleep(0)
    publisher = broker.node.storage.publisher
    unopened = {one for one in broker.node.topics.get("t").partitions if one.is_recovering}
    publisher.stop_recovery()
    assert {*publisher._opening.pending} == unopened
    loaded: list[str] = []
    monkeypatch.setattr(
        LogDirectories, "load_partition", lambda _, name, *a, **k: loaded.append(name)
    )
    await recovery
    assert loaded == []
    await broker.node.close()
    assert files.exists("/data/.kafka_cleanshutdown") == (not unopened)


async def test_a_recovery_without_a_thread_fails_the_start_and_leaves_the_logs_unclean():
    """Otherwise the node would run with partitions that never get a leader, and stop cleanly."""
    files = await killed(t=3)
    broker = Restarted(files, offload=NoThreads("_recover_all"))
    await broker.node._open()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await broker.node.storage.publisher.recover()
    assert len(broker.node.storage.publisher._opening.pending) == 3
    await broker.node.close()
    assert not files.exists("/data/.kafka_cleanshutdown")
    async with Broker(files) as again:
        for partition in range(3):
            assert again.node.topics.partition("t", partition).log.log_end_offset == 10


async def test_a_topic_is_deleted_after_no_thread_could_open_its_log_again(impatient: None):
    """Regression: the deletion waited forever for the attempt, and so did the closing node."""
    offload = NoThreads("_try_again")
    broker = Restarted(MemoryFiles(), offload=offload)
    await broker.node.open()
    fault = broker.files.fail("mkdirs", errno.EMFILE, matches=lambda path: "/t-0" in path)
    with pytest.raises(AssertionError, match="Too many open files"):
        await broker.create("t")
    assert fault.times == 0
    await until(lambda: offload.refused)
    deletion = asyncio.get_running_loop().create_task(
        broker.node.metadata.delete_topic(broker.node.topics.get("t"))
    )
    await turns()
    assert deletion.done()
    await broker.node.close()


async def test_no_log_is_opened_again_after_a_stop():
    """The attempt begins in the iteration after the pause, when the node may be closing."""
    broker = Restarted(MemoryFiles())
    await broker.node.open()
    broker.files.fail("mkdirs", errno.EMFILE, matches=lambda path: "/t-0" in path)
    with pytest.raises(AssertionError, match="Too many open files"):
        await broker.create("t")
    opening = broker.node.storage.publisher._opening
    partition = broker.node.topics.partition("t", 0)
    again = opening._open_again([partition])
    opening.stop()
    await again
    assert not partition.is_online
    assert not broker.files.exists("/data/t-0")
    await broker.node.close()


async def test_settings_that_change_during_recovery_count():
    """The log gets the new configs when its recovery is complete."""
    files = await killed(big=1)
    broker = Restarted(files, "big-0")
    recovery = await broker.begin()
    topic = broker.node.topics.get("big")
    await broker.node.metadata.alter_topic_configs(topic, lambda _: {"max.message.bytes": "100"})
    broker.offload.let_go.set()
    await recovery
    assert (await broker.produce("big", batch(50))).error_code == 10
    await broker.node.close()


async def test_no_job_sees_a_log_with_the_settings_it_had():
    """A recovery has ended in its thread, but the loop has not yet handled the result.

    Regression: retention then deleted records by the configs from the beginning of the recovery.
    """
    before = Broker()
    await before.node.open()
    await before.create("t", retention_ms=1)
    await before.produce("t", batch(10))
    before.files.crash()
    broker = Restarted(before.files, "t-0")
    broker.offload.ends_late = True
    recovery = await broker.begin()
    topic = broker.node.topics.get("t")
    await broker.node.metadata.alter_topic_configs(topic, lambda _: {"retention.ms": "-1"})
    broker.clock.now_ms += 1_000_000
    [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
    await retention.run()
    broker.offload.let_go.set()
    await recovery
    await retention.run()
    assert offsets((await broker.fetch_one("t", 0, 0)).records) == [*range(10)]
    await broker.node.close()


async def test_a_log_whose_disk_fails_while_it_is_recovered_is_offline():
    """Regression: the partition was online, and clients were sent to a log that rejects appends."""
    broker = Restarted(await killed(big=1), "big-0")
    broker.offload.ends_late = True
    recovery = await broker.begin()
    [directory] = broker.node.storage.directories.online
    failed = OSError(errno.EIO, "Input/output error")
    directory.disk.refused(None, "append failed", failed)
    broker.offload.let_go.set()
    await recovery
    assert await leaders(broker, "big") == [(5, -1, [0])]
    assert "offline" in str(broker.node.topics.partition("big", 0).unavailable)
    assert directory.logs == {}
    await broker.node.close()


async def test_a_log_is_the_loops_only_when_its_thread_is_done():
    """A log is registered with its directory only after its recovery thread has finished.

    Regression: retention truncated leader epochs on the loop while the thread wrote the same file.
    """
    files = await killed(big=1)
    broker = Restarted(files)
    begun: list[bool] = []
    assign = PartitionLog.assign_epoch

    def assign_epoch(log: PartitionLog, *epoch: int) -> None:
        if log.topic_partition == METADATA_PARTITION:
            return assign(log, *epoch)
        directory = broker.node.storage.directories.directory_of(log.topic_partition)
        begun.append(log.topic_partition in directory.logs)
        return assign(log, *epoch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PartitionLog, "assign_epoch", assign_epoch)
        await (await broker.begin())
    assert begun
    assert not any(begun)
    await broker.node.close()


async def test_groups_wait_for_their_log_and_then_are_there():
    """Clients retry on COORDINATOR_LOAD_IN_PROGRESS."""
    broker = Broker()
    await broker.node.open()
    found = wire.FindCoordinatorRequest(key="g", key_type=0)
    assert (await broker.ask(found, 3)).error_code == 0
    index = next(iter(broker.node.topics.get("__consumer_offsets").partitions)).index
    broker.files.crash()
    names = [
        f"__consumer_offsets-{partition.index}"
        for partition in broker.node.topics.get("__consumer_offsets").partitions
    ]
    again = Restarted(broker.files, *names)
    recovery = await again.begin()
    asked = wire.OffsetFetchRequest(
        group_id="g", topics=[wire.OffsetFetchRequestTopic(name="t", partition_indexes=[index])]
    )
    assert (await again.ask(asked, 5)).error_code == 14
    again.offload.let_go.set()
    await recovery
    await turns()
    assert (await again.ask(asked, 5)).error_code == 0
    await again.node.close()


async def test_progress_is_logged(caplog: pytest.LogCaptureFixture):
    """An operator who waits for a terabyte wants to see progress."""
    files = await killed(big=1)
    broker = Restarted(files, "big-0")
    recovery = await broker.begin()
    recovering = broker.node.storage.publisher._opening
    assert recovering is not None
    [attempt] = recovering._running
    with caplog.at_level(logging.INFO, "aiokq.broker"):
        recovering._began -= 6
        recovering._reported -= 6
        progress = RecoveryProgress(attempt.partition.name, 5, 9)
        recovering._report(attempt, progress)
        recovering._report(attempt, progress)
        broker.offload.let_go.set()
        await recovery
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in lines if line.startswith("still recovering")]) == 1
    assert any("partitions=0/1" in line for line in lines)
    assert any(line.startswith("logs recovered partitions=1") for line in lines)
    await broker.node.close()
