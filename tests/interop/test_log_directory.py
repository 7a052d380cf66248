"""Apache Kafka's own classes read a log directory of aiokq and find the same in it."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.partition_metadata import read_partition_metadata
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK
from aiokq.records.legacy import Message, encode_message_set
from tests.peers.apache_kafka import java_command, run_tool, why_absent
from tests.unit.broker.log.samples import NOW_MS, TP, append, batch, config

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]

BATCHES = 400


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory: several segments, all codecs, three epochs, an idempotent producer."""
    path = tmp_path_factory.mktemp("log")
    source = random.Random(7)
    opened = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=source, now=time.monotonic
    )
    opened.begin()
    log = opened.open_partition(
        TP,
        random_id(source),
        config(segment_bytes=16_384, index_interval_bytes=512),
        now_ms=NOW_MS,
    )
    sequence = 0
    for index in range(BATCHES):
        data = batch(
            *[b"value %d" % index] * (1 + index % 5),
            timestamp_ms=NOW_MS + index * 7 - index % 3 * 20,
            step_ms=3,
            codec=index % 5,
            producer_id=77,
            producer_epoch=0,
            base_sequence=sequence,
        )
        append(log, data, leader_epoch=index // 150)
        sequence += 1 + index % 5
    assert len(log.segments) > 2
    opened.close()
    return path / "orders-0"


def dump(*arguments: str) -> str:
    done = run_tool("kafka.tools.DumpLogSegments", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def named(directory: Path, *suffixes: str) -> str:
    return ",".join(str(p) for p in sorted(directory.iterdir()) if p.suffix in suffixes)


def test_every_record_is_read_and_every_index_entry_fits(directory: Path) -> None:
    """With a wrong index entry Kafka's consumers would miss records without an error."""
    files = named(directory, ".log", ".index", ".timeindex")
    out = dump("--deep-iteration", "--print-data-log", "--files", files)
    assert "isvalid: false" not in out
    for complaint in ("Mismatches", "mismatch", "Found timestamp", "out of order", "consecutive"):
        assert complaint not in out
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", out, re.MULTILINE)]
    assert offsets == list(range(sum(1 + index % 5 for index in range(BATCHES))))
    codecs = set(re.findall(r"compresscodec: (\w+)", out))
    assert codecs == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert set(re.findall(r"partitionLeaderEpoch: (\d+)", out)) == {"0", "1", "2"}


def test_the_indexes_pass_the_sanity_check(directory: Path) -> None:
    """Kafka rebuilds an index that fails the check, which takes minutes for a large directory."""
    files = named(directory, ".index", ".timeindex")
    out = dump("--index-sanity-check", "--files", files)
    assert out.count("passed sanity check") == len(files.split(","))


def test_the_producer_snapshot_is_read(directory: Path) -> None:
    """Kafka takes the last entry of a producer, so the newest batch must come last."""
    newest = named(directory, ".snapshot").split(",")[-1]
    out = dump("--files", newest)
    entries = re.findall(r"producerId: 77 .* lastSequence: (\d+) ", out)
    assert len(entries) == 5
    assert entries == sorted(entries, key=int)
    assert int(entries[-1]) == sum(1 + index % 5 for index in range(BATCHES)) - 1


READER = Path(__file__).parent / "kafka" / "ReadLog.java"
SEGMENT_BYTES = 16_384
INTERVAL = 512


def opened(path: Path, **options: int) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=random.Random(1), now=time.monotonic
    )
    directory.begin()
    log = directory.open_partition(
        TP,
        None,
        config(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INTERVAL),
        now_ms=NOW_MS,
        **options,
    )
    return directory, log


@pytest.fixture(scope="module")
def transactions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory with transactions: committed, aborted over several segments, open."""
    path = tmp_path_factory.mktemp("transactions")
    source = random.Random(11)
    directory = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=source, now=time.monotonic
    )
    directory.begin()
    log = directory.open_partition(
        TP,
        random_id(source),
        config(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INTERVAL),
        now_ms=NOW_MS,
    )
    sequences = dict.fromkeys(range(100, 106), 0)
    begun: set[int] = set()
    for index in range(600):
        producer = source.choice(list(sequences))
        if producer in begun and source.random() < 0.2:
            kind = source.choice((ControlType.ABORT, ControlType.COMMIT))
            marker = EndTransactionMarker(kind, 3)
            data = encode_marker(
                marker,
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=NOW_MS + index,
                crc32c=crc32c,
            )
            append(log, data, leader_epoch=index // 200, origin=Origin.COORDINATOR)
            begun.remove(producer)
            continue
        count = source.randint(1, 9)
        data = batch(
            *[b"%0100d" % index] * count,
            timestamp_ms=NOW_MS + index,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequences[producer],
            attributes=TRANSACTIONAL_MASK,
        )
        append(log, data, leader_epoch=index // 200)
        sequences[producer] += count
        begun.add(producer)
    assert len(log.segments) > 5
    assert begun
    assert sum(len(segment.transactions) > 0 for segment in log.segments) > 3
    directory.close()
    return path


def read_by_kafka(path: Path, how: str) -> list[list[str]]:
    """Return what `ReadLog` prints for a partition's directory."""
    done = subprocess.run(
        java_command(
            *(str(READER), str(path / "orders-0"), how, str(max(SEGMENT_BYTES, 1_048_576))),
            *(str(INTERVAL), str(NOW_MS + 1000)),
        ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def read_by_us(log: PartitionLog) -> list[list[str]]:
    """Return the same facts as `read_by_kafka`, from aiokq's log."""
    lines: list[tuple[object, ...]] = [
        ("log", log.log_start_offset, log.log_end_offset, log.last_stable_offset)
    ]
    lines += [("segment", segment.base_offset, segment.size) for segment in log.segments]
    lines += [("epoch", *entry) for entry in log.epochs.entries]
    for entry in sorted(log.producers, key=lambda entry: entry.producer_id):
        last = entry.batches[-1] if entry.batches else None
        lines.append(
            (
                *("producer", entry.producer_id, entry.producer_epoch, entry.last_sequence),
                -1 if last is None else last.last_offset,
                entry.coordinator_epoch,
                -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
            )
        )
    lines += [("aborted", *found) for found in log.aborted_transactions(0, log.log_end_offset)]
    return [[str(value) for value in line] for line in lines]


def derived(path: Path) -> dict[str, bytes]:
    """Return the files derived from the log, except snapshots, which may differ in form."""
    suffixes = (".index", ".timeindex", ".txnindex")
    return {
        file.name: file.read_bytes()
        for file in sorted((path / "orders-0").iterdir())
        if file.suffix in suffixes and file.stat().st_size
    }


def test_the_transaction_index_is_read(transactions: Path) -> None:
    """A wrong index would deliver records of aborted transactions."""
    directory = transactions / "orders-0"
    out = dump("--files", named(directory, ".txnindex"))
    found = re.findall(
        r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) "
        r"lastStableOffset: (\d+)",
        out,
    )
    ours, log = opened(transactions)
    assert [tuple(map(int, entry)) for entry in found] == [
        entry for segment in log.segments for entry in segment.transactions.entries()
    ]
    assert found
    ours.close()


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_kafka_finds_in_a_log_what_we_find(transactions: Path, tmp_path: Path, how: str) -> None:
    """Offsets, epochs, producers, aborted transactions and checkpoint files are the same.

    After a recovery by Kafka each index has the same bytes as aiokq's.
    """
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(transactions, theirs)
    shutil.copytree(transactions, ours)
    before = derived(transactions)
    if how == "killed":
        for file in (theirs / "orders-0").iterdir():
            if file.suffix in (".txnindex", ".snapshot"):
                file.unlink()
        (ours / ".kafka_cleanshutdown").unlink()
        (ours / "recovery-point-offset-checkpoint").unlink()
    said = read_by_kafka(theirs, how)
    directory, log = opened(ours)
    kinds = ("log", "segment", "epoch", "producer", "aborted")
    assert [line for line in said if line[0] in kinds] == read_by_us(log)
    end = log.log_end_offset
    directory.close()
    assert derived(theirs) == before
    assert derived(ours) == before
    assert ["recovery-point-offset-checkpoint", "orders-0", str(end)] in said
    assert ["replication-offset-checkpoint", "orders-0", str(end)] in said
    assert ["clean", "true"] in [line[:2] for line in said]
    topic_id = read_partition_metadata(OsFiles(), str(ours / "orders-0"))
    assert topic_id is not None
    assert ["topic-id", format_uuid(topic_id)] in said
    if how == "clean":
        bases = {line[1] for line in said if line[0] == "segment"}
        snapshots = {line[1] for line in said if line[0] == "snapshot"}
        assert bases - {"0"} <= snapshots


def test_a_torn_log_is_cut_where_kafka_cuts_it(transactions: Path, tmp_path: Path) -> None:
    """Both recover the same prefix, so a directory can move between them after a kill."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for path in (theirs, ours):
        shutil.copytree(transactions, path)
        (path / ".kafka_cleanshutdown").unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
        log = sorted((path / "orders-0").glob("*.log"))[-1]
        log.write_bytes(log.read_bytes()[:-37])
    said = read_by_kafka(theirs, "killed")
    directory, log = opened(ours)
    kinds = ("log", "segment", "epoch", "producer", "aborted")
    assert [line for line in said if line[0] in kinds] == read_by_us(log)
    directory.close()
    assert derived(theirs) == derived(ours)


def test_a_log_of_old_formats_is_recovered_as_kafka_does(tmp_path: Path) -> None:
    """Message formats 0 and 1, compressed and not, followed by format 2."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    messages = [
        [Message(i, NOW_MS + i, b"k", b"v%d" % i) for i in range(first, first + 5)]
        for first in range(0, 300, 5)
    ]
    data = b"".join(
        encode_message_set(some, int(number >= 20), int(number % 3 == 0))
        for number, some in enumerate(messages)
    )
    for path in (theirs, ours):
        (path / "orders-0").mkdir(parents=True)
        (path / "orders-0" / f"{0:020d}.log").write_bytes(data)
    directory, log = opened(ours)
    append(log, batch(b"new", timestamp_ms=NOW_MS + 1000))
    assert log.log_end_offset == 301
    directory.close()
    (theirs / "orders-0" / f"{0:020d}.log").write_bytes(
        (ours / "orders-0" / f"{0:020d}.log").read_bytes()
    )
    said = read_by_kafka(theirs, "killed")
    directory, log = opened(ours)
    kinds = ("log", "segment", "epoch", "producer", "aborted")
    assert [line for line in said if line[0] in kinds] == read_by_us(log)
    directory.close()
    assert derived(theirs) == derived(ours)
