"""Compaction compared with Apache Kafka's own cleaner on copies of the same log.

The results must be the same, batch by batch, with one intended difference: aiokq keeps the last
batch of each cleaned segment, without records, where Kafka keeps that of the last segment only.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from aiokq.broker.log.config import LogConfig
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType
from aiokq.records.header import BatchHeader, iter_headers, verify_crc
from aiokq.records.legacy import Message, decode_message_set, encode_message_set
from aiokq.records.record import RawRecord, iter_records
from tests.fault.test_compaction import TP as CROWD
from tests.fault.test_compaction import Crowd
from tests.peers.apache_kafka import ROOT, java_command, run_tool, why_absent
from tests.unit.broker.log.cleaning import CleanedLog, SteppedClock, compacted
from tests.unit.broker.log.samples import TP

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.build_independent,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

JAVA_CLEANER = ROOT / "tests" / "peers" / "JavaCleaner.java"
MAP_BYTES = 4_000_000


class Batch(NamedTuple):
    """A batch without the fields that may differ: length, checksum and base timestamp."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    horizon_ms: int | None
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[RawRecord, ...]


def batches(directory: Path) -> Iterator[Batch]:
    """All batches of a partition's directory."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for header, part in _split(data):
            assert verify_crc(part, header, crc32c)
            legacy = header.magic < 2
            records: Sequence[RawRecord] = (
                [RawRecord(*m[:4]) for m in decode_message_set(part)]
                if legacy
                else [r._replace(headers=tuple(r.headers)) for r in iter_records(part, header)]
            )
            yield Batch(
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                header.magic,
                header.attributes,
                header.base_timestamp_ms if header.attributes & 0x40 and not legacy else None,
                header.max_timestamp_ms,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                tuple(records),
            )


def _split(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    position = 0
    for header in iter_headers(data):
        yield header, data[position : position + header.size]
        position += header.size
    assert position == len(data)


def apache_cleans(directory: Path, first_dirty: int, now_ms: int, **settings: object) -> str:
    """Run Apache Kafka's cleaner once."""
    done = subprocess.run(
        java_command(
            str(JAVA_CLEANER),
            str(directory),
            str(first_dirty),
            str(now_ms),
            str(MAP_BYTES),
            *(f"{name}={value}" for name, value in settings.items()),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Pair:
    """A growing log; aiokq's cleaner cleans it, and Kafka's cleans a copy."""

    def __init__(self, path: Path, config: LogConfig) -> None:
        self.path = path
        self.config = config
        self.clock = SteppedClock()
        self.clock.now_ms = int(time.time() * 1000)
        self.ours = self._open(path / "ours")

    def _open(self, path: Path) -> CleanedLog:
        return CleanedLog(OsFiles(), self.config, clock=self.clock, path=str(path))

    async def clean(self, first_dirty: int) -> tuple[list[Batch], list[Batch]]:
        """Clean all but the newest segment with both cleaners; return aiokq's and Kafka's log."""
        self.ours.directory.close()
        theirs = self.path / f"theirs-{time.monotonic_ns()}" / "orders-0"
        shutil.copytree(self.path / "ours" / "orders-0", theirs)
        apache_cleans(
            theirs,
            first_dirty,
            self.clock.now_ms,
            **{
                "segment.bytes": self.config.segment_bytes,
                "index.interval.bytes": self.config.index_interval_bytes,
                "delete.retention.ms": self.config.delete_retention_ms,
                "max.message.bytes": 2_000_000,
            },
        )
        self.ours = self._open(self.path / "ours")
        self.ours.directory.checkpoints.cleaned_offsets.note(TP, first_dirty)
        await self.ours.clean()
        self.ours.directory.purge()
        return list(batches(self.path / "ours" / "orders-0")), list(batches(theirs))

    def check(self, ours: list[Batch], theirs: list[Batch]) -> None:
        ends = {segment.base_offset - 1 for segment in self.ours.log.segments}
        kept = [
            batch
            for batch in ours
            if batch.records or batch in theirs or batch.last_offset not in ends
        ]
        assert kept == theirs
        assert len(ours) - len(kept) <= len(ends)


def mixed(pair: Pair, seed: int, turns: int = 120) -> None:
    """Append everything that a compacted topic can hold."""
    rng = random.Random(seed)
    log = pair.ours
    sequences: dict[int, int] = {}
    open_transactions: dict[int, None] = {}

    def pairs() -> list[tuple[bytes | None, bytes | None]]:
        return [
            (
                None if rng.random() < 0.02 else b"key-%d" % rng.randrange(40),
                None if rng.random() < 0.15 else rng.randbytes(rng.randrange(60)),
            )
            for _ in range(rng.randrange(1, 9))
        ]

    for _ in range(turns):
        what = rng.random()
        pair.clock.now_ms += rng.randrange(5)
        if what < 0.4:
            log.put(*pairs(), codec=rng.randrange(5))
        elif what < 0.7:
            producer = rng.randrange(4)
            content = pairs()
            log.put(
                *content,
                codec=rng.choice((0, 4)),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences.get(producer, 0),
            )
            sequences[producer] = sequences.get(producer, 0) + len(content)
        elif what < 0.85:
            producer = 100 + rng.randrange(4)
            content = pairs()
            log.transact(producer, sequences.get(producer, 0), *content)
            sequences[producer] = sequences.get(producer, 0) + len(content)
            open_transactions[producer] = None
        elif open_transactions:
            producer = rng.choice(list(open_transactions))
            del open_transactions[producer]
            log.end(producer, rng.choice((ControlType.ABORT, ControlType.COMMIT)))
        if rng.random() < 0.15:
            log.roll()
    for producer in open_transactions:
        log.end(producer, ControlType.ABORT)
    log.roll()
    log.put((b"newest", b"1"))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.torture) for seed in range(2, 30))]
)
async def test_both_cleaners_leave_the_same(seed: int, tmp_path: Path) -> None:
    """Keys, tombstones, transactions, producers and codecs, cleaned in three runs, days apart."""
    pair = Pair(tmp_path, compacted(segment_bytes=1_048_576, index_interval_bytes=512))
    mixed(pair, seed)
    ours, theirs = await pair.clean(0)
    pair.check(ours, theirs)
    cleaned = pair.ours.log.segments[-1].base_offset
    mixed(pair, seed + 100)
    pair.check(*await pair.clean(cleaned))
    pair.clock.now_ms += pair.config.delete_retention_ms + 1
    pair.ours.put((b"later", b"1"))
    cleaned = pair.ours.log.segments[-1].base_offset
    pair.ours.roll()
    ours, theirs = await pair.clean(cleaned)
    pair.check(ours, theirs)
    over = [b for b in ours if b.horizon_ms is not None and b.horizon_ms <= pair.clock.now_ms]
    assert not [r for b in over for r in b.records if r.value is None]


async def test_a_cleaned_log_is_read_by_kafkas_dump_without_complaint(tmp_path: Path) -> None:
    """Kafka's tool checks every checksum, and every index entry against its batch."""
    pair = Pair(tmp_path, compacted(segment_bytes=1_048_576, index_interval_bytes=512))
    mixed(pair, 3, turns=400)
    await pair.ours.clean()
    pair.ours.directory.close()
    directory = tmp_path / "ours" / "orders-0"
    files = [*sorted(directory.glob("*.log")), *sorted(directory.glob("*index"))]
    assert (directory / "00000000000000000000.txnindex").stat().st_size
    done = run_tool(
        "kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files))
    )
    assert done.returncode == 0, done.stderr
    assert "isvalid: true" in done.stdout
    for complaint in ("isvalid: false", "ismatch", "Non-consecutive", "Found timestamp", "not "):
        assert complaint not in done.stdout.replace("does not", "")


@pytest.mark.parametrize("magic", [0, 1])
async def test_both_cleaners_leave_the_same_of_old_formats(magic: int, tmp_path: Path) -> None:
    """Kafka 4 still cleans what Kafka 0.8 wrote."""
    pair = Pair(tmp_path, compacted(segment_bytes=1_048_576))
    rng = random.Random(magic)
    offset = 0
    log = pair.ours.log
    for _ in range(4):
        for _ in range(10):
            messages = [
                Message(
                    offset + n,
                    pair.clock.now_ms if magic else -1,
                    b"k%d" % rng.randrange(12),
                    None if rng.random() < 0.2 else rng.randbytes(30),
                )
                for n in range(rng.randrange(1, 6))
            ]
            data = encode_message_set(messages, magic, rng.choice((0, 1, 2, 3)))
            segment = log.segments[-1]
            segment.write([data])
            for header, _part in _split(data):
                segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
            offset += len(messages)
        log.high_watermark = log.log_end_offset
        pair.ours.roll()
    ours, theirs = await pair.clean(0)
    pair.check(ours, theirs)


@pytest.mark.parametrize(
    "count",
    [20_000, pytest.param(1_000_000, marks=[pytest.mark.torture, pytest.mark.timeout(900)])],
)
async def test_both_cleaners_leave_the_same_of_a_crowded_log(count: int, tmp_path: Path) -> None:
    """Many runs during writes and reads, then one more run of each cleaner."""
    crowd = Crowd(tmp_path / "ours", count, seed=1)
    await crowd.run()
    cleaned = crowd.directory.checkpoints.cleaned_offsets.get(CROWD)
    assert cleaned is not None
    await crowd.write()
    model = crowd.model
    crowd.close()
    theirs = tmp_path / "theirs" / "crowd-0"
    shutil.copytree(tmp_path / "ours" / "crowd-0", theirs)
    apache_cleans(
        theirs,
        cleaned,
        int(time.time() * 1000),
        **{"segment.bytes": crowd.config.segment_bytes},
    )
    again = Crowd(tmp_path / "ours", count, seed=2)
    again.model = model
    statistics = await again.cleaner.clean_dirtiest()
    assert statistics is not None
    again.check(again.all_records())
    ends = {segment.base_offset - 1 for segment in again.log.segments}
    again.directory.purge()
    again.close()

    def left(directory: Path) -> list[Batch]:
        """Return the batches that must be equal, without the value of their delete horizon."""
        found = [batch._replace(horizon_ms=None) for batch in batches(directory)]
        return [batch for batch in found if batch.records or batch.last_offset not in ends]

    assert left(tmp_path / "ours" / "crowd-0") == left(theirs)
