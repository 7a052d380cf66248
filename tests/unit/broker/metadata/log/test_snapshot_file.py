"""Snapshots of the metadata log: Kafka's bytes, damage, and crashes while they are written."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.broker.log.batch_reading import walk_headers
from aiokq.broker.metadata.log.snapshot_file import (
    MAX_BATCH_BYTES,
    MAX_BATCH_RECORDS,
    SnapshotId,
    SnapshotReader,
    list_snapshots,
    remove_unfinished_snapshots,
    snapshot_path,
    write_snapshot,
)
from aiokq.core.errors import CorruptRecord, RecordTooLarge
from aiokq.core.files import Files, OsFiles
from aiokq.fastpath import crc32c
from aiokq.records.quorum_control import QuorumControlRecord, encode_quorum_control_batch
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.quorum_records import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles
from tests.unit.broker.metadata.quorum_samples import GOLDEN, NOW, values, voters


class Sample(NamedTuple):
    """A golden snapshot."""

    snapshot: SnapshotId
    values: list[bytes]
    voters: VotersRecord | None


SAMPLES = {
    "static": Sample(SnapshotId(77, 3), values("orders"), None),
    "dynamic": Sample(SnapshotId(1295, 2), values("orders", "größe"), voters()),
    "voters-only": Sample(SnapshotId(0, 0), [], voters()),
    "empty": Sample(SnapshotId(5, 1), [], None),
}


@pytest.fixture
def files() -> MemoryFiles:
    """A disk with the directory ``/m``."""
    made = MemoryFiles()
    made.mkdirs("/m")
    return made


def write(
    files: Files,
    path: str = "/m/file",
    content: Iterable[bytes] = (),
    *,
    epoch: int = 1,
    known: VotersRecord | None = None,
) -> int:
    return write_snapshot(
        files,
        path,
        content,
        epoch=epoch,
        timestamp_ms=NOW,
        last_contained_ms=NOW - 1000,
        crc32c=crc32c,
        voters=known,
    )


def read(files: Files, path: str = "/m/file", epoch: int = 1) -> list[bytes]:
    with SnapshotReader(files, path, epoch, crc32c) as snapshot:
        return list(snapshot)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_are_kafkas(files: MemoryFiles, name: str) -> None:
    """Kafka starts from these files, and its tools read them."""
    golden = (GOLDEN / f"{name}.checkpoint").read_bytes()
    sample = SAMPLES[name]
    path = snapshot_path("/m", sample.snapshot)
    size = write(files, path, sample.values, epoch=sample.snapshot.epoch, known=sample.voters)
    assert files.read_bytes(path) == golden
    assert size == len(golden)
    with SnapshotReader(files, path, sample.snapshot.epoch, crc32c) as snapshot:
        assert snapshot.last_contained_ms == NOW - 1000
        assert snapshot.kraft_version == (sample.voters is not None)
        assert snapshot.voters == sample.voters
        assert list(snapshot) == sample.values


def test_each_golden_file_is_compared() -> None:
    """A file without a sample would not be compared."""
    assert {path.stem for path in GOLDEN.glob("*.checkpoint")} == SAMPLES.keys()


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=40), st.booleans())
def test_what_is_written_is_read(content: list[bytes], dynamic: bool) -> None:
    """Also values that are no metadata records."""
    files = MemoryFiles()
    files.mkdirs("/m")
    write(files, content=iter(content), known=voters() if dynamic else None)
    assert read(files) == content


def batches(files: MemoryFiles) -> list[tuple[int, int, bool]]:
    """Return the number of records, the size, and whether it is a control batch, of each batch."""
    file = files.open("/m/file", writable=False)
    return [(h.count, h.size, h.is_control) for _, h in walk_headers(file, 0, file.size())]


def test_many_records_are_many_batches(files: MemoryFiles) -> None:
    """Kafka reads batches of at most 8 MiB."""
    content = [b"%d" % number for number in range(2 * MAX_BATCH_RECORDS + 1)]
    write(files, content=content)
    assert [n for n, _, control in batches(files) if not control] == [1024, 1024, 1]
    assert read(files) == content
    largest = MAX_BATCH_BYTES - 61 - 16
    content = [bytes(largest), bytes(largest // 2), bytes(largest // 2), b"x"]
    write(files, content=content)
    sizes = [(n, size) for n, size, control in batches(files) if not control]
    assert [n for n, _ in sizes] == [1, 1, 2]
    assert all(size <= MAX_BATCH_BYTES for _, size in sizes)
    assert read(files) == content


def test_a_value_that_fits_in_no_batch_is_refused(files: MemoryFiles) -> None:
    """Kafka could not start from such a snapshot."""
    with pytest.raises(RecordTooLarge, match="does not fit in a batch"):
        write(files, content=[bytes(MAX_BATCH_BYTES - 76)])
    assert files.listdir("/m") == []


def test_values_are_not_collected_before_they_are_written(files: MemoryFiles) -> None:
    """A snapshot may be larger than the memory that a broker has to spare."""
    seen: list[int] = []

    def content() -> Iterator[bytes]:
        for number in range(3000):
            if number % MAX_BATCH_RECORDS == 1:
                seen.append(files.stat_size("/m/file.part"))
            yield b"value"

    write(files, content=content())
    assert len(seen) == 3
    assert seen[0] < seen[1] < seen[2]


def test_nobody_may_write_to_a_snapshot(tmp_path: Path) -> None:
    """A snapshot is never changed; Kafka's have mode 0400, too, and are replaced all the same."""
    files = OsFiles()
    path = f"{tmp_path}/file"
    for content in ([b"a"], [b"b"]):
        write(files, path, content)
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o400
        assert read(files, path) == content
    memory = MemoryFiles()
    memory.mkdirs("/m")
    write(memory)
    with pytest.raises(PermissionError):
        memory.open("/m/file")


@pytest.mark.parametrize("name", SAMPLES)
def test_each_cut_and_flipped_byte_is_refused_with_the_position(
    files: MemoryFiles, name: str
) -> None:
    """A start with a part of the metadata could delete topics."""
    epoch = SAMPLES[name].snapshot.epoch
    data = (GOLDEN / f"{name}.checkpoint").read_bytes()
    for position in range(len(data)):
        flipped = data[:position] + bytes([data[position] ^ 0x11]) + data[position + 1 :]
        for damaged in (data[:position], flipped):
            files.write_atomic("/m/file", damaged)
            with pytest.raises(CorruptRecord, match=r"/m/file is corrupt at byte \d+: "):
                read(files, epoch=epoch)


def control(offset: int, *records: QuorumControlRecord) -> bytes:
    return encode_quorum_control_batch(
        records, base_offset=offset, leader_epoch=1, timestamp_ms=NOW, crc32c=crc32c
    )


def data_batch(*records: RawRecord) -> bytes:
    return encode_batch(records, crc32c=crc32c, leader_epoch=1)


HEADER = control(0, SnapshotHeaderRecord())
VALUE = RawRecord(1, NOW, None, b"x")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "not the header"),
        ([encode_batch([RawRecord(0, NOW, None, b"x")], crc32c=crc32c, leader_epoch=1)], "header"),
        ([control(0, SnapshotFooterRecord())], "not the header"),
        ([control(0, SnapshotHeaderRecord(), LeaderChangeMessage())], "a LeaderChangeMessage"),
        ([HEADER], "footer is missing"),
        ([HEADER, data_batch(VALUE)], "footer is missing"),
        ([HEADER, data_batch(VALUE._replace(offset=2))], "record 1 is missing"),
        ([HEADER, data_batch(VALUE, VALUE._replace(offset=3))], "wrong offsets"),
        ([HEADER, data_batch(VALUE._replace(value=None))], "record 1 has no value"),
        ([HEADER, control(1, SnapshotHeaderRecord())], "not the footer"),
        ([HEADER, control(1, SnapshotFooterRecord(), SnapshotFooterRecord())], "not the footer"),
        ([HEADER, control(1, SnapshotFooterRecord()), b"x"], "inside a batch"),
        (
            [HEADER, control(1, SnapshotFooterRecord()), data_batch(VALUE._replace(offset=2))],
            "follows the footer",
        ),
        (
            [encode_batch([RawRecord(0, 0, b"\0\0\0\x63", b"")], crc32c=crc32c, leader_epoch=1,
             attributes=0x20)],
            "type 99",
        ),
        (
            [HEADER, encode_batch([VALUE], crc32c=crc32c, leader_epoch=1, attributes=7)],
            "codec",
        ),
    ],
)  # fmt: skip
def test_batches_that_make_no_snapshot_are_refused(
    files: MemoryFiles, content: list[bytes], reason: str
) -> None:
    """Each batch is valid by itself."""
    files.write_atomic("/m/file", b"".join(content))
    with pytest.raises(CorruptRecord, match=f"/m/file is corrupt at byte .*{reason}"):
        read(files)


def test_the_epoch_must_be_that_of_the_name(files: MemoryFiles) -> None:
    """The checksum does not cover it, and it decides which log continues the snapshot."""
    write(files, epoch=7)
    assert read(files, epoch=7) == []
    with pytest.raises(CorruptRecord, match="epoch 7 instead of 8"):
        read(files, epoch=8)


def test_names_are_kafkas(files: MemoryFiles) -> None:
    """Other names are no snapshots, also those with numbers that no log has."""
    newest = SnapshotId(1295, 2)
    path = snapshot_path("/m", newest)
    assert path == "/m/00000000000000001295-0000000002.checkpoint"
    for one in (newest, SnapshotId(77, 3), SnapshotId(1295, 1)):
        write(files, snapshot_path("/m", one))
    for name in (
        f"{path}.part",
        f"{path}.deleted",
        "/m/bootstrap.checkpoint",
        "/m/99999999999999999999-0000000001.checkpoint",
        "/m/00000000000000000001-9999999999.checkpoint",
        "/m/00000000000000000001-000000000\u0661.checkpoint",
        "/m/00000000000000000001-0000000001.checkpoint\n",
    ):
        files.write_atomic(name, b"")
    assert list_snapshots(files, "/m") == [SnapshotId(77, 3), SnapshotId(1295, 1), newest]


def test_what_a_crash_left_is_removed(files: MemoryFiles) -> None:
    """Kafka's unfinished files have a random number in their names."""
    path = snapshot_path("/m", SnapshotId(5, 1))
    kept = [path, "/m/bootstrap.checkpoint.part", "/m/00000000000000000005.log.deleted"]
    removed = [
        f"{path}.part",
        f"{path}.deleted",
        "/m/00000000000000000005-0000000001-8127346.checkpoint.part",
    ]
    for name in kept + removed:
        files.write_atomic(name, b"")
    remove_unfinished_snapshots(files, "/m")
    assert files.listdir("/m") == sorted(name.removeprefix("/m/") for name in kept)


def test_a_file_that_is_there_already_is_replaced(files: MemoryFiles) -> None:
    """An unfinished file of a killed process may be read-only, and longer."""
    files.write_atomic("/m/file.part", bytes(10_000))
    files.chmod("/m/file.part", 0o400)
    write(files, content=[b"a"])
    assert files.listdir("/m") == ["file"]
    assert read(files) == [b"a"]


@pytest.mark.parametrize("operation", ["open", "pwritev", "sync", "chmod", "rename", "sync_dir"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_leaves_no_part_of_a_snapshot(
    files: MemoryFiles, operation: str, error: int
) -> None:
    """The next attempt, or the next start, must not find it."""
    write(files, content=[b"old"])
    written = files.read_bytes("/m/file")
    content = [b"%d" % number for number in range(2000)]
    for times in range(1, 5 if operation == "pwritev" else 2):
        passed = 0

        def matches(path: str, nth: int = times) -> bool:
            nonlocal passed
            passed += 1
            return passed == nth

        files.fail(operation, error, matches=matches, written=7)
        with pytest.raises(OSError):
            write(files, content=content)
        files.heal()
        assert files.listdir("/m") == ["file"]
        if operation != "sync_dir":
            assert files.read_bytes("/m/file") == written
    write(files, content=content)
    assert read(files) == content


def test_a_full_disk_stops_a_snapshot(files: MemoryFiles) -> None:
    """The old snapshot and the log are still there."""
    files.capacity = 1000
    write(files, content=[b"old"])
    with pytest.raises(OSError, match="No space left"):
        write(files, content=[bytes(100)] * 20)
    assert read(files) == [b"old"]
    assert files.listdir("/m") == ["file"]


def test_an_error_of_the_values_leaves_no_file(files: MemoryFiles) -> None:
    """Such as an image that cannot be encoded."""

    def content() -> Iterator[bytes]:
        yield b"x"
        raise ValueError("no record")

    with pytest.raises(ValueError, match="no record"):
        write(files, content=content())
    assert files.listdir("/m") == []


@pytest.mark.parametrize("end", ["kill", "power", "pages", "names"])
def test_a_crash_leaves_the_complete_snapshot_or_none(end: str) -> None:
    """Whatever has a snapshot's name is complete; the next start removes the rest."""
    content = [b"%d" % number * 50 for number in range(1500)]
    old, new = SnapshotId(10, 1), SnapshotId(20, 1)
    finished = False
    ends_at = 0
    while not finished:
        files = MortalFiles()
        files.mkdirs("/m")
        write(files, snapshot_path("/m", old), [b"old"])
        files.sync_dir("/")
        files.ends_at, files.done = ends_at, 0
        try:
            write(files, snapshot_path("/m", new), content)
            finished = True
        except Crash:
            pass
        files.ends_at = None
        crash(end, ends_at)(files)
        remove_unfinished_snapshots(files, "/m")
        found = list_snapshots(files, "/m")
        assert found in (([old, new],) if finished else ([old], [old, new]))
        assert len(files.listdir("/m")) == len(found)
        for one in found:
            wanted = content if one == new else [b"old"]
            assert read(files, snapshot_path("/m", one)) == wanted
        write(files, snapshot_path("/m", new), content)
        assert read(files, snapshot_path("/m", new)) == content
        ends_at += 1
    assert ends_at > 8


def crash(end: str, seed: int) -> Callable[[MemoryFiles], None]:
    if end == "kill":
        return lambda files: files.crash()
    source = random.Random(seed) if end != "power" else None
    return lambda files: files.power_cut(source, ordered=end != "names")
