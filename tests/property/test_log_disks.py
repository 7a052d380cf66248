"""Logs on disks that fail in all ways, compared with a model: guaranteed records stay.

There are two directories and four topics with different settings, with the node's own flushers and
cleaner. Disks cut writes short, report errors, sync slowly, and lose unsynced data in a power cut.
Processes are killed at any time, also during a recovery or a compaction.

After a kill, all acknowledged records must exist. After a power cut, a topic with cleanup policy
delete has a prefix of its records with at least all flushed ones, which with ``flush.messages=1``
are all acknowledged ones. In a compacted topic no key has an older value than the newest flushed
one.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import itertools
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directories import LogDirectories
from aiokq.broker.log.flusher import Flusher
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.retention import KAFKA_POLICIES
from aiokq.broker.replica.partition import Partition
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Environment
from aiokq.core.errors import KafkaStorage
from aiokq.core.offload import InlineOffload
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch
from tests.sim.harness.files import ProgramFiles
from tests.unit.broker.log.cleaning import SteppedClock
from tests.unit.broker.log.samples import NOW_MS, fetched, records, replica_of, seen
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles

R = TypeVar("R")

PATHS = ("/a", "/b")
BASE = LogConfig(
    segment_bytes=400,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    retention_bytes=1500,
)
TOPICS = {
    TopicPartition("deleted", 0): BASE,
    TopicPartition("flushed", 0): BASE._replace(flush_messages=1),
    TopicPartition("compacted", 0): BASE._replace(cleanup_policy=("compact",)),
    TopicPartition("both", 0): BASE._replace(
        cleanup_policy=("compact", "delete"), flush_messages=3, segment_bytes=700
    ),
}
FAULTY = ("pwritev", "sync", "sync_dir", "rename", "remove", "open", "truncate", "write_atomic")
KEYS = st.sampled_from([b"k%d" % n for n in range(6)])
PARTITIONS = st.sampled_from(sorted(TOPICS))
Content = tuple[bytes, bytes]


class SlowOffload(InlineOffload):
    """An executor whose work may have to wait, as on a disk that syncs slowly."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, fn, *args):  # type: ignore[no-untyped-def]
        await self.gate.wait()
        return await super().run(fn, *args)


@dataclass
class Story:
    """The expected state of one log.

    Attributes:
        acknowledged: key and value by offset, including records that were deleted since.
        pending: appended batches that are not acknowledged, each with the end offset that the high
            watermark must reach.
        unsure: records of failed writes and of a crashed process; they may exist or not.
        start: the log start offset.
        noted: the log start offset in the checkpoint.
    """

    acknowledged: dict[int, Content] = field(default_factory=dict)
    pending: list[tuple[int, dict[int, Content]]] = field(default_factory=list)
    unsure: dict[int, Content] = field(default_factory=dict)
    start: int = 0
    noted: int = 0

    def acknowledge(self, high_watermark: int) -> None:
        while self.pending and self.pending[0][0] <= high_watermark:
            self.acknowledged |= self.pending.pop(0)[1]

    def give_up(self) -> None:
        """Make all pending batches unsure, because their process has ended."""
        for _, batch in self.pending:
            self.unsure |= batch
        self.pending.clear()


class DiskMachine(RuleBasedStateMachine):
    """Operations on logs and failures of their disks; see the module docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SteppedClock()
        self.files = MortalFiles(now_ms=self.clock.timestamp_ms)
        self.loop = asyncio.new_event_loop()
        self.stories = {partition: Story() for partition in TOPICS}
        self.flushed: dict[TopicPartition, int] = {}
        self.created: set[TopicPartition] = set()
        self.count = 0
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.replicas: dict[TopicPartition, Partition] = {}
        self.supervisor: Supervisor | None = None

    def run(self, coro: Coroutine[object, None, R]) -> R:
        return self.loop.run_until_complete(coro)

    @initialize()
    def begin(self) -> None:
        self.open()

    def teardown(self) -> None:
        self.files.crash()
        self.leave()
        self.loop.close()

    # --- lives of the process

    def open(self) -> None:
        self.run(self._open())

    async def _open(self) -> None:
        files = ProgramFiles(self.files)
        self.directories = LogDirectories.open(
            files,  # type: ignore[arg-type]
            PATHS,
            crc32c=crc32c,
            random=random.Random(1),
            now=self.clock.monotonic,
        )
        self.offload = SlowOffload()
        self.supervisor = Supervisor("disks")
        await self.supervisor.start()
        background = BackgroundWork(BrokerCounters(), self.clock.monotonic)
        self.flushers = {
            directory: Flusher(files, self.offload, directory.disk, background)  # type: ignore[arg-type]
            for directory in self.directories.all
        }
        for flusher in self.flushers.values():
            flusher.start(self.supervisor)
        self.directories.attach(self.flushers)
        self.cleaner = LogCleaner(
            Environment(self.clock, random.Random(2), None, files, self.offload),  # type: ignore[arg-type]
            lambda: broker_settings({}),
            lambda: self.directories.online,
            swapped=lambda: None,
            cold_reads=ColdReads(self.offload),
            counters=BrokerCounters(),
        )
        self.directories.find(lambda partition, topic_id: True)
        self.directories.begin()
        self.logs = {}
        for partition, config in TOPICS.items():
            log = self.directories.open_partition(
                partition,
                None,
                config,
                now_ms=NOW_MS,
                is_new=partition not in self.created,
            )
            self.logs[partition] = log
            self.replicas[partition] = replica_of(log)
            self.created.add(partition)

    def abandon(self, ends: Callable[[], None]) -> None:
        """End the process without a shutdown; from now on its tasks do not reach the disk."""
        self.note()
        self.flushed = {partition: log.recovery_point for partition, log in self.logs.items()}
        ends()
        self.files.heal()

        self.leave()
        for story in self.stories.values():
            story.give_up()

    def leave(self) -> None:
        """End the tasks of this life."""

        async def leave() -> None:
            if self.supervisor is not None:
                self.offload.gate.set()
                await self.supervisor.close()

        self.run(leave())
        self.supervisor = None

    def note(self) -> None:
        """Record what is acknowledged by now, and the log start offsets."""
        for partition, log in self.logs.items():
            story = self.stories[partition]
            story.acknowledge(log.high_watermark)
            assert log.log_start_offset >= story.start
            story.start = log.log_start_offset

    def settle(self) -> None:
        """Let the flushers run."""

        async def turns() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self.run(turns())
        self.note()

    @rule()
    def kill(self) -> None:
        self.abandon(self.files.crash)
        self.open()
        self.check_all()

    @rule(ends_at=st.integers(0, 60), power=st.booleans(), seed=st.integers(0, 2**16))
    def killed_twice(self, ends_at: int, power: bool, seed: int) -> None:
        """Kill the process a second time during recovery; with `power`, cut the power instead."""
        self.abandon(self.files.crash)
        self.files.done, self.files.ends_at = 0, ends_at
        try:
            self.run(self._open())
        except Crash:
            self.logs = {}
            self.leave()
        self.files.ends_at = None
        if self.logs:
            self.check_all()
            self.abandon(lambda: None)
        if power:
            self.cut_power(seed)
        else:
            self.files.crash()
            self.open()
            self.check_all()

    @rule(seed=st.integers(0, 2**16))
    def power_cut(self, seed: int) -> None:
        self.abandon(lambda: None)
        self.cut_power(seed)

    @rule(
        partition=PARTITIONS,
        sizes=st.lists(st.integers(0, 120), min_size=3, max_size=10),
        seed=st.integers(0, 2**16),
    )
    def power_cut_under_load(self, partition: TopicPartition, sizes: list[int], seed: int) -> None:
        """Fill several segments before the disk has synced the first one, then cut the power."""
        self.sync_slowly(True)
        for size in sizes:
            self.append(partition, [(b"k1", size), (b"k2", size)], None, errno.EIO)
        self.power_cut(seed)

    def cut_power(self, seed: int) -> None:
        self.files.power_cut(random.Random(seed))
        self.open()
        for partition, log in self.logs.items():
            self.check_after_power_cut(partition, log)

    @rule()
    def restart(self) -> None:
        """Shut down cleanly those directories that are online."""
        self.settle()
        self.leave()
        self.note()
        for directory in self.directories.all:
            try:
                directory.close()
            except KafkaStorage:
                pass  # the next start recovers
        self.files.crash()
        self.files.heal()
        for story in self.stories.values():
            story.give_up()
        self.open()
        self.check_all()

    # --- what clients do

    @rule(
        partition=PARTITIONS,
        batch=st.lists(st.tuples(KEYS, st.integers(0, 120)), min_size=1, max_size=4),
        written=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 200)),
        number=st.sampled_from([errno.ENOSPC, errno.EIO]),
    )
    def append(
        self,
        partition: TopicPartition,
        batch: list[tuple[bytes, int]],
        written: int | None,
        number: int,
    ) -> None:
        log, story = self.logs[partition], self.stories[partition]
        pairs: list[Content] = []
        for key, size in batch:
            self.count += 1
            pairs.append((key, b"%d" % self.count + b"." * size))
        data = encode_batch(
            [RawRecord(n, NOW_MS, key, value) for n, (key, value) in enumerate(pairs)],
            crc32c=crc32c,
        )
        if len(data) > log.config.segment_bytes:
            return
        if written is not None:
            self.files.fail("pwritev", number, written=written, matches=_is_log_of(log))
        content = {log.log_end_offset + n: pair for n, pair in enumerate(pairs)}

        async def send() -> None:  # on the loop, because it may request a flush
            result = self.replicas[partition].append(
                memoryview(data), list(iter_headers(data)), now_ms=NOW_MS
            )
            assert result.base_offset == min(content)
            story.pending.append((result.last_offset + 1, content))

        try:
            self.run(send())
        except KafkaStorage:
            if written is not None and written >= len(data):
                story.unsure |= content  # all of it was written although the disk reported an error
            assert log.log_end_offset == min(content)
        story.acknowledge(log.high_watermark)

    @rule(partition=PARTITIONS, share=st.floats(0, 1))
    def delete_records(self, partition: TopicPartition, share: float) -> None:
        log = self.logs[partition]
        if log.failed:
            return
        try:
            log.delete_records(int(log.high_watermark * share))
        except KafkaStorage:
            pass
        self.note()

    # --- what the node does

    @rule(partition=PARTITIONS)
    def flush(self, partition: TopicPartition) -> None:
        directory = self.directories.directory_of(partition)
        assert directory is not None

        async def ask() -> None:
            self.flushers[directory].flush(self.logs[partition])

        self.run(ask())
        self.settle()

    @rule()
    def turns(self) -> None:
        self.settle()

    @rule(slow=st.booleans())
    def sync_slowly(self, slow: bool) -> None:
        """Let syncs wait from now on, with their callers; appends do not wait."""

        async def turn() -> None:
            if slow:
                self.offload.gate.clear()
            else:
                self.offload.gate.set()

        self.run(turn())

    @rule()
    def retain(self) -> None:
        async def look() -> None:  # on the loop: an emptied log is rolled, which requests a flush
            for log in self.logs.values():
                try:
                    seen(functools.partial(log.retain, KAFKA_POLICIES, NOW_MS))
                except KafkaStorage:
                    continue

        self.run(look())
        self.note()

    @rule()
    def purge(self) -> None:
        for directory in self.directories.online:
            directory.purge()

    @rule()
    def checkpoint(self) -> None:
        for directory in self.directories.online:
            for note, checkpoint in (
                (directory.note_log_starts, directory.checkpoints.log_starts),
                (directory.note_recovery_points, directory.checkpoints.recovery_points),
                (directory.note_high_watermarks, directory.checkpoints.high_watermarks),
            ):
                note()
                try:
                    directory.save(checkpoint)
                except KafkaStorage:
                    break
                for partition in directory.logs:
                    if checkpoint is directory.checkpoints.log_starts:
                        self.stories[partition].noted = self.logs[partition].log_start_offset

    @rule(ends_at=st.one_of(st.none(), st.integers(0, 80)), again=st.booleans())
    def clean(self, ends_at: int | None, again: bool) -> None:
        """Run the cleaner once, until it is done or the process is killed."""
        if not self.offload.gate.is_set():
            return  # the cleaner would wait for the slow disk for ever
        for directory in self.directories.online:
            for partition in directory.logs:
                if again and TOPICS[partition].compacted:
                    directory.checkpoints.cleaned_offsets.note(
                        partition, self.logs[partition].log_start_offset
                    )
        self.files.done, self.files.ends_at = 0, ends_at
        died = False
        try:
            self.run(self.cleaner.clean_dirtiest())
        except KafkaStorage:
            pass
        except Crash:
            died = True
        self.files.ends_at = None
        self.note()
        if died:
            self.kill()

    @rule(
        operation=st.sampled_from(FAULTY),
        number=st.sampled_from([errno.EIO, errno.ENOSPC]),
        path=st.sampled_from(PATHS),
    )
    def fault(self, operation: str, number: int, path: str) -> None:
        """Let the next such operation in a directory fail."""
        self.files.fail(operation, number, matches=lambda name: name.startswith(path))

    # --- what must be

    def found(self, partition: TopicPartition) -> dict[int, Content]:
        log = self.logs[partition]
        content = records(fetched(log, log.log_start_offset, upper_bound=None))
        offsets = [record.offset for record in content]
        assert offsets == sorted(set(offsets))
        return {
            record.offset: (record.key or b"", record.value or b"")
            for record in content
            if record.offset >= log.log_start_offset
        }

    def check_all(self) -> None:
        """Check all logs after a kill or a clean shutdown."""
        for partition, log in self.logs.items():
            story, found = self.stories[partition], self.found(partition)
            known = story.acknowledged | story.unsure
            assert found.items() <= known.items()
            assert story.noted <= log.log_start_offset <= story.start
            self.check_is_there(partition, found, story.acknowledged)
            self.accept(partition, found)

    def check_after_power_cut(self, partition: TopicPartition, log: PartitionLog) -> None:
        story, found = self.stories[partition], self.found(partition)
        known = story.acknowledged | story.unsure
        assert found.items() <= known.items()
        assert story.noted <= log.log_start_offset <= story.start
        end = log.log_end_offset
        promised = self.flushed[partition]
        assert end >= promised or end == log.log_start_offset == story.noted
        if TOPICS[partition].flush_messages == 1:
            assert all(offset < end for offset in story.acknowledged)
        before = {o: c for o, c in story.acknowledged.items() if o < promised}
        self.check_is_there(partition, found, before)
        if not TOPICS[partition].compacted:
            prefix = {o: c for o, c in known.items() if log.log_start_offset <= o < end}
            assert found == prefix, "there is a hole"
        self.accept(partition, found)

    def check_is_there(
        self,
        partition: TopicPartition,
        found: dict[int, Content],
        expected: dict[int, Content],
    ) -> None:
        """Check that all expected records exist, or newer ones of their keys in a compacted log."""
        start = self.logs[partition].log_start_offset
        if not TOPICS[partition].compacted:
            missing = {o for o in expected if o >= start} - found.keys()
            assert not missing, f"{partition}: {sorted(missing)} are lost"
            return
        newest = {key: offset for offset, (key, _) in sorted(found.items())}
        for offset, (key, _) in expected.items():
            if offset >= start:
                assert newest.get(key, -1) >= offset, f"{partition}: {key!r}@{offset} is lost"

    def accept(self, partition: TopicPartition, found: dict[int, Content]) -> None:
        """Accept the records found as the new expected state, because readers may have read them.

        A power cut may bring deleted records back until a checkpoint has the new log start offset,
        because the removal of the files is not synced.
        """
        log, story = self.logs[partition], self.stories[partition]
        assert log.high_watermark == log.log_end_offset
        deleted = range(story.noted, log.log_start_offset)
        known = story.acknowledged | story.unsure
        story.acknowledged = {o: known[o] for o in deleted if o in known} | found
        story.unsure = {}
        story.start = log.log_start_offset
        self.flushed[partition] = log.recovery_point

    @invariant()
    def acknowledged_records_are_read(self) -> None:
        if not self.logs:
            return
        for partition, log in self.logs.items():
            if log.failed:
                continue  # the log returns KAFKA_STORAGE_ERROR (56) until it is reopened
            story = self.stories[partition]
            story.acknowledge(log.high_watermark)
            found = self.found(partition)
            assert found.items() <= story.acknowledged.items()
            self.check_is_there(partition, found, story.acknowledged)


def _is_log_of(log: PartitionLog) -> Callable[[str], bool]:
    return lambda path: path.startswith(log.directory + "/") and path.endswith(".log")


TestDisks = DiskMachine.TestCase


def test_deleted_records_that_a_power_cut_brings_back_are_complete() -> None:
    """Their files were removed, but neither a checkpoint nor a directory was synced.

    The seeds decide what the power cuts leave. In some runs the log is empty after the deletion,
    and in others its newest segment stays.
    """
    came_back = set()
    for seed, later_seed in itertools.product(range(12), range(6)):
        kept, left, found = deleted_before_a_power_cut(seed, later_seed)
        assert left == [offset for offset in kept if offset >= 4]
        assert found in (left, kept)
        if found != left:
            came_back.add((tuple(left), tuple(found)))
    assert came_back == {((), (0, 1, 2, 3)), ((4, 5), (0, 1, 2, 3, 4, 5))}


def deleted_before_a_power_cut(
    seed: int, later_seed: int
) -> tuple[list[int], list[int], list[int]]:
    """Return the offsets before the deletion, after it, and after a power cut."""
    machine = DiskMachine()
    partition = next(each for each in TOPICS if each.topic == "deleted")
    machine.begin()
    try:
        machine.power_cut_under_load(partition=partition, seed=seed, sizes=[0, 0, 77])
        kept = sorted(machine.found(partition))
        machine.delete_records(partition=partition, share=1.0)
        machine.purge()
        machine.kill()
        left = sorted(machine.found(partition))
        assert machine.logs[partition].log_start_offset == 4
        machine.fault(number=errno.EIO, operation="pwritev", path="/a")
        machine.killed_twice(ends_at=0, power=True, seed=later_seed)
        return kept, left, sorted(machine.found(partition))
    finally:
        machine.teardown()
