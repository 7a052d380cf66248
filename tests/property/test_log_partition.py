"""PartitionLog compared with a list of batches: appends, reads, faults, crashes and restarts."""

from __future__ import annotations

import errno
import random

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from aiokq.broker.inspection.verifying import verify
from aiokq.broker.log import file_names
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import iter_headers
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    fetched,
    open_partition,
    record_since,
    records,
)


class Model:
    """One appended batch: its offsets, values and times."""

    def __init__(self, base: int, values: list[bytes], times: list[int], size: int) -> None:
        self.base = base
        self.values = values
        self.times = times
        self.size = size

    @property
    def end(self) -> int:
        return self.base + len(self.values)


class LogMachine(RuleBasedStateMachine):
    """Reads return exactly the batches that were acknowledged and not removed."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.batches: list[Model] = []
        self.start = 0
        self.end = 0
        self.sequence = 0
        self.last_sent: tuple[bytes, int] | None = None
        self.settings: dict[str, int] = {}
        self.log: PartitionLog

    @initialize(
        segment=st.sampled_from([300, 700, 2000, 10**6]),
        interval=st.sampled_from([0, 200, 4096]),
        index=st.sampled_from([40, 10**6]),
    )
    def begin(self, segment: int, interval: int, index: int) -> None:
        self.settings = {
            "segment_bytes": segment,
            "index_interval_bytes": interval,
            "segment_index_bytes": index,
        }
        self.log = open_partition(self.files, **self.settings)

    # --- writing

    @rule(
        values=st.lists(st.binary(max_size=40), min_size=1, max_size=4),
        time=st.integers(0, 200),
        codec=st.sampled_from([0, 0, 0, 1]),
        idempotent=st.booleans(),
    )
    def append(self, values: list[bytes], time: int, codec: int, idempotent: bool) -> None:
        data, times = self._batch(values, time, codec, idempotent)
        if len(data) > self.settings["segment_bytes"]:
            return
        result = append(self.log, data)
        assert (result.base_offset, result.duplicate) == (self.end, False)
        self._appended(data, values, times, idempotent)

    def _batch(
        self, values: list[bytes], time: int, codec: int, idempotent: bool
    ) -> tuple[bytes, list[int]]:
        options = (
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.sequence}
            if idempotent
            else {}
        )
        times = [NOW_MS + time + index for index in range(len(values))]
        return batch(*values, timestamp_ms=times[0], step_ms=1, codec=codec, **options), times

    def _appended(
        self, data: bytes, values: list[bytes], times: list[int], idempotent: bool
    ) -> None:
        if idempotent:
            self.sequence += len(values)
            self.last_sent = (data, self.end)
        self.batches.append(Model(self.end, values, times, len(data)))
        self.end += len(values)

    @precondition(lambda self: self.last_sent is not None)
    @rule()
    def retry(self) -> None:
        assert self.last_sent is not None
        data, base = self.last_sent
        result = append(self.log, data)
        assert (result.base_offset, result.duplicate) == (base, True)

    @rule(written=st.integers(0, 150), number=st.sampled_from([errno.ENOSPC, errno.EIO]))
    def append_fails(self, written: int, number: int) -> None:
        data = batch(b"never")
        if len(data) > self.settings["segment_bytes"]:
            return
        self.files.fail(
            "pwritev", number, written=written, matches=lambda path: path.endswith(".log")
        )
        try:
            append(self.log, data)
        except KafkaStorage:
            pass
        else:
            raise AssertionError("the disk refused and the append succeeded")
        self.files.heal()
        # The directory is offline, so the next operations happen in a new process.
        self.files.crash()
        self._open(clean=False)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    # --- removing

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.start = self.log.delete_records(data.draw(st.integers(self.start, self.end)))
        self.log.purge()

    def _cut(self, kept: list[Model]) -> None:
        if len(kept) < len(self.batches):
            # only the log knows the remaining sequences
            entry = self.log.producers.get(7)
            self.sequence = entry.last_sequence + 1 if entry else 0
            self.last_sent = None
        self.batches = kept

    # --- the end of the process

    @rule(point=st.booleans())
    def restart_clean(self, point: bool) -> None:
        self.log.close()
        self.files.crash()
        self._verify()
        self._open(clean=True)

    def _verify(self) -> None:
        """Check that `aiokq log verify` finds no problem after a clean shutdown."""
        marker = f"/data/{file_names.CLEAN_SHUTDOWN}"
        self.files.open(marker, create=True).close()
        report = verify(self.files, DIRECTORY, crc32c=crc32c)
        self.files.remove(marker)
        found = [one for one in report.findings if file_names.CORRUPT not in one.path]
        assert not found, found

    @rule()
    def kill(self) -> None:
        self.files.crash()
        self._open(clean=False)

    @rule(seed=st.integers(0, 2**16), checked=st.booleans(), closed=st.booleans())
    def power_cut(self, seed: int, checked: bool, closed: bool) -> None:
        """Cut the power after a flush, so that neither records nor producers may be lost.

        Args:
            checked: whether recovery checks the flushed records, as with an old checkpoint.
            closed: whether the log was closed, but the directory has no clean shutdown marker.
        """
        pending = self.log.begin_flush(None)
        if pending is not None:
            pending.sync(self.files)
            self.log.end_flush(pending)
        for directory in (DIRECTORY, "/data", "/"):
            self.files.sync_dir(directory)
        point = 0 if checked else self.log.recovery_point
        if closed:
            self.log.close()
        self.files.power_cut(random.Random(seed))
        self._open(clean=False, recovery_point=point)

    @rule(missing=st.sampled_from([file_names.INDEX, file_names.TIME_INDEX, file_names.SNAPSHOT]))
    def restart_without(self, missing: str) -> None:
        self.log.close()
        self.files.crash()
        for name in self.files.listdir(DIRECTORY):
            if name.endswith(missing):
                self.files.remove(f"{DIRECTORY}/{name}")
        self._open(clean=True)
        if missing == file_names.SNAPSHOT and self.last_sent and self.last_sent[1] < self.start:
            # Neither the batch nor its producer state is left, so a repetition cannot be
            # recognised.
            self.last_sent = None

    @precondition(lambda self: self.batches and self.batches[-1].base >= self.start)
    @rule(data=st.data())
    def torn_tail(self, data: st.DataObject) -> None:
        """Kill the process while it writes the last batch, which is therefore not acknowledged."""
        segment = self.log.segments[-1]
        if not segment.size or segment.base_offset > self.batches[-1].base:
            return
        lost = self.batches[-1]
        self.files.crash()
        file = self.files.open(segment.path(file_names.LOG))
        file.truncate(file.size() - data.draw(st.integers(1, lost.size)))
        self._open(clean=False)
        self._cut(self.batches[:-1])
        self.end = lost.base
        assert self.log.log_end_offset == self.end

    @precondition(lambda self: self.batches and self.batches[-1].base >= self.start)
    @rule(garbage=st.binary(min_size=1, max_size=200))
    def garbage_behind(self, garbage: bytes) -> None:
        path = self.log.segments[-1].path(file_names.LOG)
        self.files.crash()
        file = self.files.open(path)
        file.pwritev([garbage], file.size())
        self._open(clean=False)

    def _open(self, *, clean: bool, recovery_point: int = 0) -> None:
        self.log = open_partition(
            self.files,
            clean=clean,
            log_start_offset=self.start,
            recovery_point=recovery_point,
            **self.settings,
        )

    # --- reading

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data(), limit=st.integers(0, 800))
    def read(self, data: st.DataObject, limit: int) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        bound = data.draw(st.integers(offset, self.end))
        visible = [m for m in self.batches if m.end > offset and m.end <= bound]
        found = list(iter_headers(fetched(self.log, offset, limit, upper_bound=bound)))
        assert [h.base_offset for h in found] == [m.base for m in visible[: len(found)]]
        size = sum(header.size for header in found)
        assert size <= limit or len(found) == 1
        if len(found) < len(visible):
            assert size + visible[len(found)].size > limit
            assert found  # at least one batch

    @rule(time=st.integers(-1, 210))
    def find_time(self, time: int) -> None:
        expected = next(
            (
                (at, model.base + index)
                for model in self.batches
                for index, at in enumerate(model.times)
                if at >= NOW_MS + time and model.base + index >= self.start
            ),
            None,
        )
        found = record_since(self.log, NOW_MS + time)
        assert (found and found[:2]) == expected

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.log.high_watermark == self.end
        if self.start == self.end:
            return
        found = {r.offset: r.value for r in records(fetched(self.log, self.start))}
        expected = {
            model.base + index: value
            for model in self.batches
            if model.end > self.start
            for index, value in enumerate(model.values)
        }
        assert found == expected


TestPartitionLog = LogMachine.TestCase


def test_a_retry_is_recognised_after_a_crash_a_deletion_and_another_crash() -> None:
    """The recovery after the first crash writes the snapshots that it has removed again."""
    machine = LogMachine()
    machine.begin(segment=300, interval=0, index=40)
    for values, idempotent in (([b""], True), ([b""], False), ([b"", b""], False), ([b""], False)):
        machine.append(values, 0, 0, idempotent)
    machine.kill()
    machine.start = machine.log.delete_records(4)
    machine.log.purge()
    machine.kill()
    machine.retry()
    machine.everything_is_there()
