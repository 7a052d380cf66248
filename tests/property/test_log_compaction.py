"""A compacted log compared with a dict: appends, transactions, cleaning, deletions, crashes."""

from __future__ import annotations

import asyncio
import random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aiokq.broker.inspection.verifying import verify
from aiokq.broker.log import file_names
from aiokq.fastpath import crc32c
from aiokq.fastpath.broker import OFFSET_MAP_ENTRY
from aiokq.records.control import ControlType
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.cleaning import CleanedLog, SteppedClock, compacted
from tests.unit.broker.log.samples import TP
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles

KEYS = st.sampled_from([b"k%d" % n for n in range(8)])
PAIRS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=6
)
RETENTION_MS = 1000
NO_IDS = ("/data/meta.properties",)
"""Files that only a node writes, and no node runs here."""


class CompactionMachine(RuleBasedStateMachine):
    """The last committed value of each key equals the dict's; offsets and order never change."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SteppedClock()
        self.files = MortalFiles(now_ms=self.clock.timestamp_ms)
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.deleted_at: dict[bytes, int] = {}
        self.start = 0
        self.keys = 1000
        self.log: CleanedLog

    @initialize(keys=st.sampled_from([8, 1000]), segment_bytes=st.sampled_from([400, 100_000]))
    def begin(self, keys: int, segment_bytes: int) -> None:
        self.keys = keys
        self.segment_bytes = segment_bytes
        self.reopen()

    def reopen(self) -> None:
        self.log = CleanedLog(
            self.files,
            compacted(segment_bytes=self.segment_bytes, delete_retention_ms=RETENTION_MS),
            clock=self.clock,
            log_cleaner_dedupe_buffer_size=max(1024, OFFSET_MAP_ENTRY * self.keys),
        )
        self.log.log.update_config(self.log.log.config)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.directory.close()

    # --- producers

    def note(self, offset: int, pairs: list[tuple[bytes, bytes | None]]) -> list[int]:
        for n, pair in enumerate(pairs):
            self.written[offset + n] = pair
        return list(range(offset, offset + len(pairs)))

    @rule(pairs=PAIRS, codec=st.sampled_from([0, 1, 2, 3, 4]), roll=st.booleans())
    def append(self, pairs: list[tuple[bytes, bytes | None]], codec: int, roll: bool) -> None:
        self.note(self.log.put(*pairs, codec=codec), pairs)
        if roll:
            self.log.roll()

    @rule(pairs=PAIRS, producer=st.integers(1, 3))
    def append_idempotent(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(pairs)
        offset = self.log.put(
            *pairs, producer_id=producer, producer_epoch=0, base_sequence=sequence
        )
        self.note(offset, pairs)

    @rule(pairs=PAIRS, producer=st.integers(11, 13))
    def append_in_transaction(self, pairs: list[tuple[bytes, bytes | None]], producer: int) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(pairs)
        offset = self.log.transact(producer, sequence, *pairs)
        self.open.setdefault(producer, []).extend(self.note(offset, pairs))

    @rule(commit=st.booleans(), roll=st.booleans(), data=st.data())
    def end_transaction(self, commit: bool, roll: bool, data: st.DataObject) -> None:
        if not self.open:
            return
        producer = data.draw(st.sampled_from(sorted(self.open)))
        offsets = self.open.pop(producer)
        if not commit:
            self.aborted.update(offsets)
        self.log.end(producer, ControlType.COMMIT if commit else ControlType.ABORT)
        if roll:
            self.log.roll()

    # --- the broker

    @rule(again=st.booleans(), passed_ms=st.sampled_from([0, 1, RETENTION_MS + 1]))
    def clean(self, again: bool, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms
        if again:
            self.log.directory.checkpoints.cleaned_offsets.note(TP, self.log.log.log_start_offset)
        done = asyncio.run(self.log.clean())
        cleaned = self.log.directory.checkpoints.cleaned_offsets.get(TP)
        if done is not None and self.keys == 1000 and cleaned is not None:
            keys = [key for offset, key, _ in self.visible() if offset < cleaned]
            assert len(keys) == len(set(keys)), "an older record of a key was left"

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(self.log.log.high_watermark * share)
        self.log.log.delete_records(offset)
        self.start = max(self.start, offset)

    @rule()
    def purge(self) -> None:
        self.log.directory.purge()

    @rule()
    def expire_producers(self) -> None:
        self.log.log.expire_producers(self.clock.now_ms + 1, 0)
        for producer in [one for one in self.sequences if one not in self.open]:
            del self.sequences[producer]

    # --- failures

    @rule()
    def restart(self) -> None:
        self.log.directory.close()
        report = verify(self.files, "/data", crc32c=crc32c, deep=True)
        found = [one for one in report.findings if one.path not in NO_IDS]
        assert not found, found
        self.reopen()

    @rule(ends_at=st.integers(0, 120), power=st.booleans(), seed=st.integers(0, 1000))
    def crash_while_cleaning(self, ends_at: int, power: bool, seed: int) -> None:
        """Flush the log first, so that losses can only come from the cleaner."""
        self.log.directory.write_log_starts()
        self.log.log.flush()
        for path in ("/data/orders-0", "/data", "/"):
            self.files.sync_dir(path)
        self.files.done, self.files.ends_at = 0, ends_at
        try:
            asyncio.run(self.log.clean())
        except Crash:
            pass
        self.files.ends_at = None
        if power:
            self.files.power_cut(random.Random(seed))
        else:
            self.files.crash()
        self.reopen()

    # --- invariants

    def visible(self) -> list[tuple[int, bytes, bytes | None]]:
        """Return the committed records as a reader sees them."""
        found = []
        end = self.log.log.last_stable_offset
        for offset, key, value in self.log.pairs:
            if self.start <= offset < end and offset in self.written:
                assert (key, value) == self.written[offset]
                if offset not in self.aborted:
                    found.append((offset, key, value))
        return found

    @invariant()
    def the_last_value_of_each_key_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        visible = self.visible()
        offsets = [offset for offset, _, _ in visible]
        assert offsets == sorted(set(offsets))
        end = self.log.log.last_stable_offset
        model: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(self.written.items()):
            if self.start <= offset < end and offset not in self.aborted:
                model[key] = (offset, value)
        last = {key: (offset, value) for offset, key, value in visible}
        for key, (offset, value) in model.items():
            if value is not None:
                assert last[key] == (offset, value)
            else:  # a tombstone may be gone, but then all older records are gone too
                assert key not in last or last[key] == (offset, None)
        assert set(last) <= set(model)

    @invariant()
    def sequences_are_known(self) -> None:
        if not hasattr(self, "log"):
            return
        for producer, sequence in self.sequences.items():
            entry = self.log.log.producers.get(producer)
            if entry is not None and entry.batches:
                assert entry.last_sequence == sequence - 1

    @invariant()
    def no_file_is_left_half_done(self) -> None:
        if hasattr(self, "log"):
            assert not [
                n for n in self.log.names if n.endswith((file_names.CLEANED, file_names.SWAP))
            ]


TestCompaction = CompactionMachine.TestCase


def test_the_machine_cleans_something() -> None:
    """The machine would prove nothing if its cleaner never found anything to clean."""
    machine = CompactionMachine()
    machine.files = MortalFiles(now_ms=machine.clock.timestamp_ms)
    assert isinstance(machine.files, MemoryFiles)
    machine.begin(1000, 100_000)
    for _ in range(3):
        machine.append([(b"k1", b"1"), (b"k2", None)], 0, True)
    machine.clean(False, 0)
    assert [offset for offset, _, _ in machine.visible()] == [4, 5]
    machine.the_last_value_of_each_key_is_there()
    machine.teardown()


def test_a_power_cut_after_a_clean_shutdown_damages_no_snapshot_of_a_roll() -> None:
    """Recovery would not read it, because the snapshot of the shutdown is newer."""
    for seed in range(20):
        machine = CompactionMachine()
        machine.begin(keys=8, segment_bytes=400)
        try:
            for _ in range(2):
                machine.append([(b"k0", None)], 0, True)
            machine.restart()
            machine.crash_while_cleaning(ends_at=0, power=True, seed=seed)
            machine.restart()
            machine.the_last_value_of_each_key_is_there()
        finally:
            machine.teardown()
