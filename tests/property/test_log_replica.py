"""The log of a replica compared with a list of batches: leader, follower, truncation, crashes.

The machine is the replica. It appends as leader and as follower, advances the high watermark,
truncates the log, and restarts it at another offset while reads, flushes, compaction, retention and
snapshots are in progress. The process may be killed before each file operation, and the power may
be cut.

The log must have exactly the batches of the list (if it is compacted, the newest record of each
key). Producer state, leader epochs, aborted transactions and timestamps must follow from the
batches. Records below the high watermark are never truncated. A truncation that a crash interrupts
leaves a log that ends between the truncation offset and its old end; after a completed truncation
none of the removed records ever comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import random
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.inspection.verifying import verify
from aiokq.broker.log import file_names
from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.broker.log.flusher import Flusher
from aiokq.broker.log.follower_append import UnexpectedAppendOffset
from aiokq.broker.log.log_snapshot import snapshot_log
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import ProducerState
from aiokq.broker.log.retention import KAFKA_POLICIES
from aiokq.broker.replica.partition import Partition
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Environment
from aiokq.core.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    KafkaStorage,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from aiokq.core.files import FileRange
from aiokq.core.offload import InlineOffload
from aiokq.core.supervisor import Supervisor
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker, read_marker
from aiokq.records.header import TRANSACTIONAL_MASK, BatchHeader, iter_headers, set_base_offset
from aiokq.records.record import RawRecord, encode_batch
from tests.sim.harness.files import ProgramFiles
from tests.unit.broker.log.cleaning import SteppedClock
from tests.unit.broker.log.samples import (
    NOW_MS,
    TP,
    ATopic,
    fetched,
    record_since,
    records,
    seen,
)
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles

R = TypeVar("R")

PATH = "/data"
DIRECTORY = f"{PATH}/{TP.topic}-{TP.partition}"
KEYS = [b"k%d" % number for number in range(5)]
PRODUCERS = [7, 8]
MEANWHILE = ["append", "follow", "read", "flush", "retain", "delete", "roll", "capture", "note"]


class Steps(InlineOffload):
    """An executor that runs only as many pieces of work as a test allows."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.left: int | None = None

    def allow(self, pieces: int | None) -> None:
        """Allow `pieces` pieces of work until the next call; None allows all."""
        self.left = pieces
        if pieces == 0:
            self.gate.clear()
        else:
            self.gate.set()

    async def run(self, fn, *args):  # type: ignore[no-untyped-def]
        await self.gate.wait()
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.gate.clear()
        return fn(*args)


@dataclass(frozen=True)
class Batch:
    """A batch as it is stored in the log."""

    data: bytes
    header: BatchHeader

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.next_offset

    @functools.cached_property
    def records(self) -> dict[int, RawRecord]:
        return {record.offset: record for record in records(self.data)}


def placed(data: bytes, offset: int, epoch: int) -> Batch:
    stored = bytearray(data)
    set_base_offset(stored, offset, epoch)
    [header] = iter_headers(stored)
    return Batch(bytes(stored), header)


class ReplicaMachine(RuleBasedStateMachine):
    """Operations of a replica and its failures; see the module docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SteppedClock()
        self.files = MortalFiles(now_ms=self.clock.timestamp_ms)
        self.loop = asyncio.new_event_loop()
        self.batches: list[Batch] = []
        self.start = 0
        self.committed = 0
        self.epoch = 0
        self.count = itertools.count()
        self.sequences: dict[int, int] = {}
        self.open_transactions: set[int] = set()
        self.restarted = False
        self.reading: list[tuple[list[FileRange], bytes]] = []
        self.cold: list[tuple[DiskLoad, object]] = []
        self.log: PartitionLog | None = None
        self.supervisor: Supervisor | None = None

    def run(self, coro: Coroutine[object, None, R]) -> R:
        return self.loop.run_until_complete(coro)

    async def turns(self, number: int = 20) -> None:
        for _ in range(number):
            await asyncio.sleep(0)

    @initialize(
        segment=st.sampled_from([300, 700, 2000]),
        interval=st.sampled_from([0, 200, 4096]),
        flush=st.sampled_from([2**63 - 1, 1, 3]),
        compacted=st.booleans(),
        transactions=st.booleans(),
    )
    def begin(
        self, segment: int, interval: int, flush: int, compacted: bool, transactions: bool
    ) -> None:
        self.config = LogConfig(
            cleanup_policy=("compact",) if compacted else ("delete",),
            segment_bytes=segment,
            index_interval_bytes=interval,
            flush_messages=flush,
            retention_bytes=4 * segment,
            min_cleanable_dirty_ratio=0.0,
        )
        self.transactions = transactions and not compacted
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
        self.truncating, self.others = Steps(), Steps()
        self.directory = LogDirectory.open(
            files,  # type: ignore[arg-type]
            PATH,
            crc32c=crc32c,
            random=random.Random(1),
            now=self.clock.monotonic,
        )
        self.directory.begin()
        self.supervisor = Supervisor("replica")
        await self.supervisor.start()
        self.flusher = Flusher(
            files,  # type: ignore[arg-type]
            self.others,
            self.directory.disk,
            BackgroundWork(BrokerCounters(), self.clock.monotonic),
        )
        self.flusher.start(self.supervisor)
        self.directory.attach(self.flusher)
        self.cleaner = LogCleaner(
            Environment(self.clock, random.Random(2), None, files, self.others),  # type: ignore[arg-type]
            lambda: broker_settings({}),
            lambda: [self.directory],
            swapped=lambda: None,
            cold_reads=ColdReads(self.others),
            counters=BrokerCounters(),
        )
        self.log = self.directory.open_partition(TP, None, self.config, now_ms=NOW_MS)
        self.replica = Partition.unopened(ATopic(TP.topic, self.config), TP.partition, (0, 1))
        self.replica.follow(self.log, 1, 0)

    def leave(self) -> None:
        async def leave() -> None:
            if self.supervisor is not None:
                for offload in (self.truncating, self.others):
                    offload.allow(None)
                await self.supervisor.close()

        self.run(leave())
        self.supervisor = None
        self.log = None
        self.reading.clear()
        self.cold.clear()

    def reopened(self, least: int) -> None:
        """Open the log after a crash; check that it is a prefix that ends at `least` or later."""
        self.open()
        assert self.log is not None
        end = self.log.log_end_offset
        assert end >= least, f"cut at {end}, {least} was there"
        kept = [batch for batch in self.batches if batch.end <= end]
        assert not kept or kept[-1].end == end or self.config.compacted or end == self.start
        self.forget_behind(end)
        self.restarted = True
        assert self.log.high_watermark <= end
        self.log.high_watermark = min(max(self.committed, self.log.high_watermark), end)
        self.committed = self.log.high_watermark
        assert self.log.log_start_offset <= self.start or self.log.log_start_offset <= end
        self.start = self.log.log_start_offset

    def forget_behind(self, end: int) -> None:
        """Truncate the expected state; the producer state follows from the remaining batches."""
        self.batches = [batch for batch in self.batches if batch.end <= end]
        state = self.model_producers()
        self.sequences = {
            entry.producer_id: entry.last_sequence + 1 for entry in state if entry.batches
        }
        self.open_transactions = {
            entry.producer_id for entry in state if entry.transaction_first_offset is not None
        }

    @rule()
    def kill(self) -> None:
        end = self.end
        self.files.crash()
        self.leave()
        self.reopened(end)

    @rule(seed=st.integers(0, 2**16))
    def power_cut(self, seed: int) -> None:
        assert self.log is not None
        least = max(self.log.recovery_point, 0)
        self.files.power_cut(random.Random(seed))
        self.leave()
        self.reopened_after_power_cut(least)

    def reopened_after_power_cut(self, least: int) -> None:
        self.open()
        assert self.log is not None
        start = self.log.log_start_offset
        if start < self.start:  # a deletion was not synced
            self.start = start
        end = self.log.log_end_offset
        self.leave()
        self.files.crash()
        self.committed = min(self.committed, end)
        self.reopened(min(least, end) if end == start else least)

    @rule()
    def restart(self) -> None:
        """Shut down cleanly and check that `aiokq log verify` finds no problem."""
        assert self.log is not None
        end = self.end
        self.run(self.turns())
        supervisor, self.supervisor = self.supervisor, None
        assert supervisor is not None
        self.run(supervisor.close())
        self.directory.close()
        report = verify(self.files, DIRECTORY, crc32c=crc32c)
        found = [one for one in report.findings if file_names.CORRUPT not in one.path]
        assert not found, found
        self.files.crash()
        self.leave()
        self.reopened(end)
        assert self.end == end

    @property
    def end(self) -> int:
        assert self.log is not None
        return self.log.log_end_offset

    # --- appends

    def made(self, keys: list[int], size: int, producer: int | None) -> bytes:
        values = [b"%d" % next(self.count) + b"." * size for _ in keys]
        options: dict[str, int] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(keys)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            if self.transactions:
                options["attributes"] = TRANSACTIONAL_MASK
                self.open_transactions.add(producer)
        time = NOW_MS + next(self.count)
        return encode_batch(
            [
                RawRecord(n, time + n, KEYS[key], value)
                for n, (key, value) in enumerate(zip(keys, values, strict=True))
            ],
            crc32c=crc32c,
            **options,
        )

    BATCH = st.tuples(
        st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=4),
        st.integers(0, 60),
        st.one_of(st.none(), st.sampled_from(PRODUCERS)),
    )

    @rule(batch=BATCH, new_epoch=st.booleans())
    def append_as_leader(self, batch: tuple[list[int], int, int | None], new_epoch: bool) -> None:
        if new_epoch:
            self.epoch += 1
        before = dict(self.sequences), set(self.open_transactions)
        data = self.made(*batch)
        if len(data) > self.config.segment_bytes:
            self.sequences, self.open_transactions = before
            return
        expected = placed(data, self.end, self.epoch)

        async def append() -> None:
            assert self.log is not None
            result = self.log.append(
                memoryview(data),
                list(iter_headers(data)),
                leader_epoch=self.epoch,
                now_ms=self.clock.now_ms,
            )
            assert (result.base_offset, result.last_offset + 1) == (expected.base, expected.end)

        self.run(append())
        self.batches.append(expected)

    def leaders(self, made: list[tuple[bytes, int, int]]) -> list[Batch]:
        """Return batches of the leader, each after a gap in the offsets and some epochs later."""
        found = []
        offset = self.end
        for data, gap, epochs in made:
            offset += gap
            self.epoch += epochs
            found.append(placed(data, offset, self.epoch))
            offset = found[-1].end
        return found

    def follow(self, batches: list[Batch]) -> None:
        self.run(self.append_batches_of_leader(batches))
        self.batches += batches

    async def append_batches_of_leader(self, batches: list[Batch]) -> None:
        """Append batches that the leader sent, and learn of its election first.

        Until then the batches of a later leader are refused, and after that those of an earlier
        one.
        """
        assert self.log is not None
        end = self.end
        if self.replica.leader_epoch < self.epoch:
            with pytest.raises(UnknownLeaderEpoch):
                await self.append_from_leader(batches, self.epoch)
            self.replica.follow(self.log, 1, self.epoch)
        with pytest.raises(FencedLeaderEpoch):
            await self.append_from_leader(batches, self.epoch - 1)
        assert self.end == end
        end = await self.append_from_leader(batches, self.epoch)
        assert end == self.end == batches[-1].end

    async def append_from_leader(self, batches: list[Batch], leader_epoch: int) -> int:
        return await self.replica.append_as_follower(
            memoryview(b"".join(batch.data for batch in batches)),
            [batch.header for batch in batches],
            leader_epoch=leader_epoch,
            offload=self.truncating,
            now_ms=self.clock.now_ms,
        )

    @rule(
        batches=st.lists(
            st.tuples(BATCH, st.sampled_from([0, 0, 0, 1, 5]), st.sampled_from([0, 0, 1, 2])),
            min_size=1,
            max_size=5,
        )
    )
    def append_as_follower(
        self, batches: list[tuple[tuple[list[int], int, int | None], int, int]]
    ) -> None:
        self.follow(
            self.leaders([(self.made(*batch), gap, epochs) for batch, gap, epochs in batches])
        )

    @precondition(lambda self: self.open_transactions)
    @rule(commit=st.booleans(), data=st.data())
    def end_a_transaction(self, commit: bool, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(sorted(self.open_transactions)))
        self.open_transactions.discard(producer)
        marker = encode_marker(
            EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0),
            producer_id=producer,
            producer_epoch=0,
            timestamp_ms=self.clock.now_ms,
            crc32c=crc32c,
        )
        self.follow(self.leaders([(bytes(marker), 0, 0)]))

    @rule(what=st.sampled_from(["overlap", "crc", "old epoch", "new epoch"]))
    def the_leader_sends_what_cannot_be(self, what: str) -> None:
        """Check that an invalid response is refused as a whole, with the valid batch before."""
        assert self.log is not None
        data = encode_batch([RawRecord(0, NOW_MS, b"k0", b"never")], crc32c=crc32c)
        latest = max(self.log.epochs.latest_epoch, 0)
        good = placed(data, self.end, latest)
        bad = placed(
            data,
            good.end - (what == "overlap"),
            latest + {"old epoch": -1, "new epoch": 1}.get(what, 0),
        )
        damaged = bytearray(good.data + bad.data)
        if what == "crc":
            damaged[-1] ^= 1
        if what == "old epoch" and not latest:
            return
        with pytest.raises(CorruptRecord):
            self.log.append_as_follower(
                memoryview(damaged),
                [good.header, bad.header],
                leader_epoch=latest,
                now_ms=self.clock.now_ms,
            )

    # --- the high watermark, and truncation

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        assert self.log is not None
        ends = [self.committed, *(b.end for b in self.batches if b.end > self.committed)]
        self.committed = self.log.high_watermark = data.draw(st.sampled_from(ends))

    def cut(self, offset: int) -> int:
        """Return the log end offset after a truncation to `offset`."""
        held = [batch for batch in self.batches if batch.end > offset]
        if not held:
            return self.end
        before = [batch.end for batch in self.batches if batch.end <= offset]
        return max(before, default=0)

    def offset_to_cut_at(self, data: st.DataObject) -> int:
        return data.draw(st.integers(self.committed, self.end))

    async def _truncate(self, offset: int) -> None:
        assert self.log is not None
        end = await self.log.truncate_to(offset, self.truncating, now_ms=self.clock.now_ms)
        assert end == self.log.log_end_offset

    def truncated(self, offset: int) -> None:
        assert self.log is not None
        log = self.log
        end = log.log_end_offset
        assert self.committed <= log.high_watermark == min(self.committed, end) or (
            not [b for b in self.batches if end <= b.base < self.committed]
        )
        assert end <= max(offset, self.committed)
        self.start = min(self.start, end)  # the offset is in a gap, at which the log ends now
        lost = [batch for batch in self.batches if batch.end > end]
        assert all(batch.end > offset for batch in lost), "a batch before the cut is gone"
        self.forget_behind(end)
        self.committed = log.high_watermark
        self.assert_no_checkpoint_is_above(end)
        assert log.recovery_point <= end
        assert all(entry.start_offset <= end for entry in log.epochs.entries)
        self.epoch = max(self.epoch, log.epochs.latest_epoch)

    def assert_no_checkpoint_is_above(self, end: int) -> None:
        checkpoints = self.directory.checkpoints
        for checkpoint in (
            checkpoints.recovery_points,
            checkpoints.cleaned_offsets,
            checkpoints.log_starts,
            checkpoints.high_watermarks,
        ):
            assert (checkpoint.get(TP) or 0) <= end, checkpoint.path

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset):
            with pytest.raises(OffsetOutOfRange):
                self.run(self._truncate(offset))
            return
        self.run(self._truncate(offset))
        self.truncated(offset)

    def may_cut(self, offset: int) -> bool:
        """Return whether the batch that contains `offset` begins at or after the high watermark."""
        held = [batch for batch in self.batches if batch.base < offset < batch.end]
        return not any(batch.base < self.committed for batch in held)

    @precondition(lambda self: self.committed > 0)
    @rule(data=st.data())
    def truncate_below_the_high_watermark(self, data: st.DataObject) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.run(self._truncate(data.draw(st.integers(0, self.committed - 1))))

    @rule(
        data=st.data(),
        before=st.lists(st.sampled_from(MEANWHILE), max_size=3),
        between=st.lists(st.sampled_from(MEANWHILE), max_size=3),
    )
    def truncate_while_others_work(
        self, data: st.DataObject, before: list[str], between: list[str]
    ) -> None:
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset) or offset >= self.end:
            return
        end = self.end

        async def both() -> None:
            self.truncating.allow(0)
            task = asyncio.ensure_future(self._truncate(offset))
            await self.turns()
            for what in before:
                await self.meanwhile(what, end)
            self.truncating.allow(1)
            await self.turns()
            for what in between:
                await self.meanwhile(what, None)
            self.truncating.allow(None)
            await task
            await self.turns()

        self.run(both())
        self.truncated(offset)

    async def meanwhile(self, what: str, end: int | None) -> None:
        """Do an operation while the log is being truncated.

        Args:
            end: the log end offset that readers see; None if they see the new log.
        """
        assert self.log is not None
        log = self.log
        refused = pytest.raises(KafkaStorage, match="truncated")
        data = encode_batch([RawRecord(0, NOW_MS, b"k0", b"never")], crc32c=crc32c)
        headers = list(iter_headers(data))
        if what == "append":
            with refused:
                log.append(memoryview(data), headers, leader_epoch=self.epoch, now_ms=NOW_MS)
        elif what == "follow":
            with refused:
                log.append_as_follower(
                    memoryview(data), headers, leader_epoch=self.epoch, now_ms=NOW_MS
                )
        elif what == "read":
            if end is not None:
                assert log.log_end_offset == end
            self.check_reads()
        elif what == "flush":
            self.flusher.flush(log)
            await self.turns()
        elif what == "retain":
            with refused:
                seen(functools.partial(log.retain, KAFKA_POLICIES, NOW_MS))
        elif what == "delete":
            with refused:
                log.delete_records(self.committed)
        elif what == "roll":
            with refused:
                log.roll(NOW_MS)
        elif what == "note":
            self.checkpoint()
        elif what == "capture":
            assert not snapshot_log(log, self.files, crc32c, None).is_current

    @rule(data=st.data(), pieces=st.integers(0, 30), appends=st.booleans())
    def truncate_in_the_middle_of_a_compaction(
        self, data: st.DataObject, pieces: int, appends: bool
    ) -> None:
        if not self.config.compacted:
            return
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset):
            return

        async def both() -> None:
            self.others.allow(pieces)
            cleaning = asyncio.ensure_future(self.cleaner.clean_dirtiest())
            await self.turns(100)
            await self._truncate(offset)
            self.truncated(offset)
            if appends:
                self.append_other_records()
            self.others.allow(None)
            with contextlib.suppress(KafkaStorage):
                await cleaning
            await self.turns()

        self.run(both())
        cleaned = self.directory.checkpoints.cleaned_offsets.get(TP) or 0
        assert cleaned <= max(self.committed, self.start)

    @rule(data=st.data())
    def truncate_in_the_middle_of_a_flush(self, data: st.DataObject) -> None:
        """The flushed records are truncated; the records appended in their place are not synced."""
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset):
            return

        async def both() -> None:
            assert self.log is not None
            self.others.allow(0)
            self.flusher.flush(self.log)
            await self.turns()
            await self._truncate(offset)
            self.truncated(offset)
            cut = self.log.log_end_offset
            self.append_other_records()
            self.flusher.give_up()  # discard the flushes requested since then
            self.others.allow(1)
            await self.turns()
            self.others.allow(None)
            if self.config.flush_messages > 2**62 and offset < self.log.log_end_offset:
                assert self.log.recovery_point <= max(cut, self.log.segments[-1].base_offset)

        self.run(both())

    @rule(data=st.data())
    def truncate_in_the_middle_of_a_capture(self, data: st.DataObject) -> None:
        assert self.log is not None
        captured = snapshot_log(self.log, self.files, crc32c, None)
        assert captured.is_current
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset) or offset >= self.end:
            return
        self.run(self._truncate(offset))
        self.truncated(offset)
        assert not captured.is_current

    def append_other_records(self) -> None:
        """Append as many bytes as were truncated, with other content."""
        assert self.log is not None
        self.epoch += 1
        data = self.made([0, 1], 10, None)
        batch = placed(data, self.log.log_end_offset, self.epoch)
        self.log.append_as_follower(
            memoryview(batch.data), [batch.header], leader_epoch=self.epoch, now_ms=NOW_MS
        )
        self.batches.append(batch)

    # --- a new start at another offset

    @property
    def is_empty(self) -> bool:
        assert self.log is not None
        return self.log.log_start_offset == self.end

    def restarted_at(self, offset: int) -> None:
        """Check that the log is empty and ends at ``offset``, and forget the records."""
        assert self.log is not None
        log = self.log
        assert log.log_start_offset == log.log_end_offset == log.high_watermark == offset
        assert not list(log.producers), "producers of records that are gone"
        assert not log.epochs.entries, "leader epochs of records that are gone"
        assert log.recovery_point <= offset
        self.assert_no_checkpoint_is_above(offset)
        self.start = self.committed = offset
        self.forget_all()

    def forget_all(self) -> None:
        self.batches = []
        self.sequences = {}
        self.open_transactions = set()

    async def _start_at(self, offset: int) -> None:
        assert self.log is not None
        await self.log.start_at(offset, self.truncating, now_ms=self.clock.now_ms)

    @property
    def may_restart(self) -> bool:
        """Whether the log is empty or long; if short logs were restarted too, few would grow."""
        return self.is_empty or len(self.batches) >= 8

    def fill(self, data: st.DataObject) -> None:
        """Append enough batches for several small segments, and make some logs durable."""
        made = [self.made(*data.draw(self.BATCH)) for _ in range(data.draw(st.integers(0, 6)))]
        if made:
            self.follow(self.leaders([(batch, 0, 0) for batch in made]))
        if data.draw(st.booleans()):
            self.flush()
            self.checkpoint()

    def offset_to_start_at(self, data: st.DataObject) -> int:
        least = 0 if self.is_empty else self.committed
        return data.draw(st.integers(least, self.end + 10))

    @precondition(lambda self: self.may_restart)
    @rule(data=st.data())
    def start_at(self, data: st.DataObject) -> None:
        offset = self.offset_to_start_at(data)
        self.run(self._start_at(offset))
        self.restarted_at(offset)

    @precondition(lambda self: self.committed > 0 and not self.is_empty)
    @rule(data=st.data())
    def start_below_the_high_watermark(self, data: st.DataObject) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.run(self._start_at(data.draw(st.integers(0, self.committed - 1))))

    @precondition(lambda self: self.may_restart)
    @rule(
        data=st.data(),
        before=st.lists(st.sampled_from(MEANWHILE), max_size=3),
    )
    def start_at_while_others_work(self, data: st.DataObject, before: list[str]) -> None:
        """Appends are refused meanwhile, and readers see the empty log at once."""
        self.fill(data)
        offset = self.offset_to_start_at(data)

        async def both() -> None:
            self.truncating.allow(0)
            task = asyncio.ensure_future(self._start_at(offset))
            await self.turns()
            self.start = self.committed = offset
            self.forget_all()
            for what in before:
                await self.meanwhile(what, None)
            self.truncating.allow(None)
            await task
            await self.turns()

        self.run(both())
        self.restarted_at(offset)

    @precondition(lambda self: self.config.compacted and self.may_restart)
    @rule(data=st.data(), pieces=st.integers(0, 30), appends=st.booleans())
    def start_at_in_the_middle_of_a_compaction(
        self, data: st.DataObject, pieces: int, appends: bool
    ) -> None:
        self.fill(data)
        self.roll()
        offset = self.offset_to_start_at(data)

        async def both() -> None:
            self.others.allow(pieces)
            cleaning = asyncio.ensure_future(self.cleaner.clean_dirtiest())
            await self.turns(100)
            await self._start_at(offset)
            self.restarted_at(offset)
            if appends:
                self.append_other_records()
            self.others.allow(None)
            with contextlib.suppress(KafkaStorage):
                await cleaning
            await self.turns()

        self.run(both())
        assert (self.directory.checkpoints.cleaned_offsets.get(TP) or 0) <= offset

    @rule(
        before=st.integers(0, 3),
        after=st.integers(0, 3),
        more=st.booleans(),
    )
    def the_leader_sends_a_batch_that_begins_below_the_end(
        self, before: int, after: int, more: bool
    ) -> None:
        """A follower without records appends it if it holds its end; otherwise it refuses it."""
        end = self.end
        count = before + after
        if not before or not count or before > end:
            return
        empty = self.is_empty
        self.epoch += 1
        data = encode_batch(
            [RawRecord(n, NOW_MS + n, KEYS[0], b"%d" % next(self.count)) for n in range(count)],
            crc32c=crc32c,
        )
        batches = [placed(data, end - before, self.epoch)]
        if more:
            batches.append(placed(data, batches[-1].end, self.epoch))
        if not empty or batches[-1].end <= end:
            with pytest.raises(UnexpectedAppendOffset):
                self.run(self.append_batches_of_leader(batches))
            assert self.end == end
            return
        self.run(self.append_batches_of_leader(batches))
        assert self.log is not None
        assert self.log.log_start_offset == self.log.high_watermark == batches[0].base
        self.start = self.committed = batches[0].base
        self.forget_all()
        self.batches = batches

    # --- crashes

    @precondition(lambda self: self.may_restart)
    @rule(
        data=st.data(),
        ends_at=st.integers(0, 40),
        power=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def crash_while_it_starts_at_another_offset(
        self, data: st.DataObject, ends_at: int, power: bool, seed: int
    ) -> None:
        """A prefix of the old records is left, or an empty log."""
        self.fill(data)
        offset, old_end = self.offset_to_start_at(data), self.end
        self.files.done, self.files.ends_at = 0, ends_at
        died = False
        try:
            self.run(self._start_at(offset))
        except Crash:
            died = True
        self.files.ends_at = None
        if not died:
            self.restarted_at(offset)
        if power:
            self.files.power_cut(random.Random(seed))
        else:
            self.files.crash()
        self.leave()
        start, end = self.reopened_after_a_restart(old_end)
        if not died:
            assert start == end == offset

    def reopened_after_a_restart(self, old_end: int) -> tuple[int, int]:
        """Open a log whose restart at another offset may not be finished; return start and end.

        An empty log that ends where it ended before may be the old log, whose records were deleted
        before the restart. That log still has its producers.
        """
        self.open()
        assert self.log is not None
        start, end = self.log.log_start_offset, self.log.log_end_offset
        may_be_old = end == old_end and any(self.log.producers)
        self.leave()
        self.files.crash()
        if start == end and not may_be_old:
            self.forget_all()
        self.start, self.committed = min(self.start, start), min(self.committed, end)
        self.reopened(end)
        return start, end

    @precondition(lambda self: self.may_restart)
    @rule(
        data=st.data(),
        operation=st.sampled_from(["rename", "remove", "sync_dir", "open", "write_atomic"]),
        number=st.sampled_from([errno.EMFILE, errno.EIO]),
    )
    def the_disk_refuses_a_new_start(
        self, data: st.DataObject, operation: str, number: int
    ) -> None:
        """Without descriptors, the next call finishes it; after EIO, the log has to be reopened."""
        assert self.log is not None
        self.fill(data)
        log, offset, old_end = self.log, self.offset_to_start_at(data), self.end
        self.files.fail(operation, number)
        try:
            self.run(self._start_at(offset))
        except KafkaStorage:
            self.files.heal()
            if not log.failed:
                if log.is_truncating:
                    with pytest.raises(KafkaStorage, match="truncated"):
                        self.run(self.meanwhile_append())
                self.run(self._start_at(offset))
        self.run(self.turns())  # a flush that the restart has requested may fail, too
        self.files.heal()
        if log.failed:
            self.files.crash()
            self.leave()
            self.reopened_after_a_restart(old_end)
        else:
            self.restarted_at(offset)

    @rule(
        data=st.data(),
        ends_at=st.integers(0, 40),
        power=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def crash_while_it_is_truncated(
        self, data: st.DataObject, ends_at: int, power: bool, seed: int
    ) -> None:
        """Crash before one of the file operations in turn."""
        assert self.log is not None
        offset = self.offset_to_cut_at(data)
        if not self.may_cut(offset):
            return
        cut, point = self.cut(offset), self.log.recovery_point
        self.files.done, self.files.ends_at = 0, ends_at
        died = False
        try:
            self.run(self._truncate(offset))
        except Crash:
            died = True
        self.files.ends_at = None
        if not died:
            self.truncated(offset)
        if power:
            self.files.power_cut(random.Random(seed))
            self.leave()
            self.reopened_after_power_cut(min(point, cut))
        else:  # also if the truncation is complete, because the flusher may have crashed
            self.files.crash()
            self.leave()
            self.reopened(cut)

    @rule(
        data=st.data(),
        operation=st.sampled_from(["truncate", "rename", "sync_dir", "open", "write_atomic"]),
        number=st.sampled_from([errno.EMFILE, errno.EIO]),
    )
    def the_disk_refuses_a_truncation(
        self, data: st.DataObject, operation: str, number: int
    ) -> None:
        """After EMFILE the next call completes the truncation; otherwise the log is reopened."""
        assert self.log is not None
        log, offset = self.log, self.offset_to_cut_at(data)
        if not self.may_cut(offset) or offset >= self.end:
            return
        cut = self.cut(offset)
        self.files.fail(operation, number)
        try:
            self.run(self._truncate(offset))
        except KafkaStorage:
            self.files.heal()
            if not log.failed:
                if log.is_truncating:
                    with pytest.raises(KafkaStorage, match="truncated"):
                        self.run(self.meanwhile_append())
                self.run(self._truncate(max(offset, self.committed)))
        self.run(self.turns())  # a flush that the truncation has requested may fail, too
        self.files.heal()
        if log.failed:
            self.files.crash()
            self.leave()
            self.reopened(cut)
        else:
            self.truncated(offset)

    async def meanwhile_append(self) -> None:
        assert self.log is not None
        data = encode_batch([RawRecord(0, NOW_MS, b"k0", b"never")], crc32c=crc32c)
        self.log.append(
            memoryview(data), list(iter_headers(data)), leader_epoch=self.epoch, now_ms=NOW_MS
        )

    # --- what the node does

    @rule()
    def flush(self) -> None:
        async def ask() -> None:
            assert self.log is not None
            self.flusher.flush(self.log)
            await self.turns()
            assert self.log.recovery_point == self.log.log_end_offset

        self.run(ask())

    @rule()
    def roll(self) -> None:
        async def ask() -> None:
            assert self.log is not None
            self.log.roll(self.clock.now_ms)

        self.run(ask())

    @rule()
    def checkpoint(self) -> None:
        for note, checkpoint in (
            (self.directory.note_log_starts, self.directory.checkpoints.log_starts),
            (self.directory.note_recovery_points, self.directory.checkpoints.recovery_points),
            (self.directory.note_high_watermarks, self.directory.checkpoints.high_watermarks),
        ):
            note()
            self.directory.save(checkpoint)

    @rule()
    def clean(self) -> None:
        if self.config.compacted:
            self.run(self.cleaner.clean_dirtiest())

    @rule()
    def retain(self) -> None:
        async def look() -> None:
            assert self.log is not None
            seen(functools.partial(self.log.retain, KAFKA_POLICIES, self.clock.now_ms))
            assert self.log.log_start_offset <= max(self.committed, self.start)
            self.start = self.log.log_start_offset

        self.run(look())

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        assert self.log is not None
        if self.committed < self.start:
            return
        offset = data.draw(st.integers(self.start, self.committed))
        self.start = self.log.delete_records(offset)
        self.directory.write_log_starts()

    @rule()
    def purge(self) -> None:
        self.directory.purge()

    # --- reads

    @rule(data=st.data())
    def begin_to_read(self, data: st.DataObject) -> None:
        """Read committed records; their fragments must not change until they are sent."""
        assert self.log is not None
        log = self.log
        if log.high_watermark <= self.start:
            return
        offset = data.draw(st.integers(self.start, log.high_watermark - 1))
        read = seen(lambda: log.read(offset, 10_000))
        self.reading.append((read.fragments, b"".join(part.read() for part in read.fragments)))

    @rule()
    def end_to_read(self) -> None:
        for fragments, content in self.reading:
            assert b"".join(part.read() for part in fragments) == content
        self.reading.clear()

    @rule(data=st.data())
    def begin_to_look(self, data: st.DataObject) -> None:
        """Begin a cold read, which may complete when the log has changed."""
        assert self.log is not None
        if self.end == self.log.log_start_offset:
            return
        self.files.chill_all(DIRECTORY)
        offset = data.draw(st.integers(self.log.log_start_offset, self.end - 1))
        try:
            self.log.read(offset, 50, upper_bound=self.end)
            self.log.search_timestamp(NOW_MS + offset, self.log.log_start_offset)
        except ColdRead as cold:
            self.cold += [(load, load.outcome()) for load in cold.loads]

    @rule()
    def end_to_look(self) -> None:
        for load, outcome in self.cold:
            load.segment.loaded(load.what, outcome)
        self.cold.clear()

    # --- what must be

    def visible(self) -> Iterator[RawRecord]:
        end = self.end
        for batch in self.batches:
            if batch.end <= end:
                for offset, record in batch.records.items():
                    if offset >= self.start:
                        yield record

    def model_producers(self) -> ProducerState:
        state = ProducerState()
        for batch in self.batches:
            header = batch.header
            if not header.has_producer_id:
                continue
            if header.is_control:
                marker = read_marker(batch.data, header)
                assert marker is not None
                state.end_transaction(header, marker, NOW_MS)
            else:
                state.update(header, NOW_MS)
        return state

    def check_reads(self) -> None:
        assert self.log is not None
        log = self.log
        if log.log_start_offset == log.log_end_offset:
            return
        found = {
            record.offset: record
            for record in records(fetched(log, log.log_start_offset))
            if record.offset >= self.start
        }
        expected = {record.offset: record for record in self.visible()}
        if not self.config.compacted:
            assert found == expected
            return
        assert found.items() <= expected.items()
        newest = {record.key: offset for offset, record in sorted(expected.items())}
        assert {key: max(o for o, r in found.items() if r.key == key) for key in newest} == newest

    @invariant()
    def reads_give_the_list(self) -> None:
        if self.log is None or self.log.failed:
            return
        self.check_reads()

    @invariant()
    def everything_follows_from_the_records(self) -> None:
        if self.log is None or self.log.failed:
            return
        log = self.log
        assert self.start == log.log_start_offset
        assert log.high_watermark == self.committed
        model = {entry.producer_id: entry for entry in self.model_producers()}
        for entry in log.producers:
            known = model[entry.producer_id]
            # A snapshot stores the marker's timestamp for the last batch before a marker.
            kept = [batch[:3] for batch in entry.batches]
            assert kept == [batch[:3] for batch in known.batches][len(known.batches) - len(kept) :]
            began = known.transaction_first_offset
            if not self.restarted or began is None or began >= self.start:
                assert entry.transaction_first_offset == began
            # otherwise retention deleted the start of the transaction, which only a snapshot has
        # Compaction keeps a producer's last batch, but a truncation may remove it later.
        lost = self.config.compacted and self.restarted
        for entry in () if lost else model.values():
            if entry.batches and entry.batches[-1].last_offset >= self.start:
                assert log.producers.get(entry.producer_id) is not None
        # Epochs rebuilt from a compacted log lack those of which no record is left.
        there = {record.offset for record in records(fetched(log, log.log_start_offset))}
        for batch in self.batches:
            for offset in there.intersection(range(max(batch.base, self.start), batch.end)):
                assert log.epoch_for_offset(offset) == batch.header.leader_epoch
        self.check_transactions()
        times = {r.offset: r.timestamp_ms for r in self.visible()}
        if times and not self.config.compacted:
            middle = sorted(times.values())[len(times) // 2]
            found = record_since(log, middle)
            assert found is not None
            assert found[1] == min(o for o, time in times.items() if time >= middle)

    def check_transactions(self) -> None:
        assert self.log is not None
        log = self.log
        begun: dict[int, int] = {}
        aborted, undecided = set(), []
        for batch in self.batches:
            header = batch.header
            if header.is_control:
                first = begun.pop(header.producer_id, None)
                marker = read_marker(batch.data, header)
                assert marker is not None
                if first is not None:
                    if marker.type is ControlType.ABORT:
                        aborted.add((header.producer_id, first, header.last_offset))
                    if header.last_offset >= log.high_watermark:
                        undecided.append(first)
            elif header.is_transactional:
                begun.setdefault(header.producer_id, header.base_offset)
        found = {
            (one.producer_id, one.first_offset, one.last_offset)
            for one in log.aborted_transactions(self.start, self.end)
        }
        assert found == {one for one in aborted if one[2] >= self.start}
        stable = min([*begun.values(), *undecided, log.high_watermark])
        if self.restarted:  # a snapshot lacks decisions above the high watermark
            assert stable <= log.last_stable_offset <= log.high_watermark
        else:
            assert log.last_stable_offset == stable


TestReplica = ReplicaMachine.TestCase


class Drawn:
    """Values that a rule draws, in order; for `st.DataObject`."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def draw(self, strategy: object) -> int:
        return self.values.pop(0)


def test_a_replica_appends_batches_of_a_leader_elected_during_a_truncation() -> None:
    """The machine's epoch grew, but its replica was never told of the election."""
    machine = ReplicaMachine()
    machine.begin(segment=300, interval=0, flush=2**63 - 1, compacted=False, transactions=False)
    try:
        machine.truncate_in_the_middle_of_a_flush(Drawn(0))  # type: ignore[arg-type]
        machine.the_leader_sends_a_batch_that_begins_below_the_end(after=0, before=1, more=False)
        machine.append_as_follower(batches=[(([0], 0, None), 0, 1)])
        assert machine.replica.leader_epoch == machine.epoch == 3
        machine.reads_give_the_list()
        machine.everything_follows_from_the_records()
    finally:
        machine.teardown()


def test_an_empty_log_keeps_its_producers_if_its_restart_did_not_begin() -> None:
    """The machine took a log whose records were deleted for a restarted one."""
    found = [empty_log_after_a_crash(ends_at) for ends_at in range(20)]
    assert found[0] == (5, [7])
    assert {(end, tuple(known)) for end, known in found} == {(5, (7,)), (5, ()), (3, ())}


def empty_log_after_a_crash(ends_at: int) -> tuple[int, list[int]]:
    """Restart a log without records at offset 3; return its end and producers after the crash."""
    machine = ReplicaMachine()
    machine.begin(segment=300, interval=0, flush=2**63 - 1, compacted=False, transactions=False)
    try:
        machine.append_as_follower(batches=[(([0, 0], 0, 7), 0, 0), (([0, 0, 0], 0, None), 0, 0)])
        machine.commit(Drawn(5))  # type: ignore[arg-type]
        machine.delete_records(Drawn(5))  # type: ignore[arg-type]
        machine.crash_while_it_starts_at_another_offset(
            Drawn(0, False, 3),  # type: ignore[arg-type]
            ends_at=ends_at,
            power=False,
            seed=0,
        )
        machine.reads_give_the_list()
        machine.everything_follows_from_the_records()
        assert machine.log is not None
        return machine.end, [entry.producer_id for entry in machine.log.producers]
    finally:
        machine.teardown()
