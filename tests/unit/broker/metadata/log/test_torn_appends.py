"""What a power cut leaves of the last append: any of its sectors, and any part of its length.

Nothing in such an append was acknowledged. A node that refused such a log would not start after an
ordinary power cut.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import pairwise, product

import pytest

from aiokq.broker.metadata.image.records import TOPIC_CONFIG
from aiokq.broker.metadata.log import metadata_batches
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
from aiokq.broker.metadata.log.voters import only_voter, write_voters
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.wire.cluster_metadata_records import ConfigRecord, NoOpRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    LEVEL,
    NODE,
    memory,
    opened,
    read,
    topic,
)

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
SECTOR = 512

CASES = [
    *product([1, 7, 8, 9, 10, 11, 12, 16, 17, 61, 100, 512], [100, 470], [0]),
    *product([9, 11, 40, 110, 130], [180, 1300], [0]),
    *product([5, 7, 8, 11], [180], [300]),
]
"""Cases of the last append: the number of bytes from its beginning to the end of the sector, the
size of its value, and the approximate number of records before it.

An append occupies one to four sectors. Behind 300 records, two bytes of the base offset are not 0.
"""


def config(size: int) -> ConfigRecord:
    return ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="t0", name="a", value="v" * size)


def log_before(left: int, offsets: int) -> tuple[MemoryFiles, ClusterMetadataLog]:
    """Return an open log that ends ``left`` bytes before the end of a sector.

    Args:
        offsets: the log has a few more records than this.
    """
    files = memory()
    log = opened(files)
    log.append(*topic(0), *(NoOpRecord() for _ in range(offsets)))
    before = files.stat_size(SEGMENT)
    log.append(config(1000))
    after = files.stat_size(SEGMENT)
    log.append(config(1000 + -(2 * after - before + left) % SECTOR))
    assert (files.stat_size(SEGMENT) + left) % SECTOR == 0
    return files, log


def positions(data: bytes) -> list[int]:
    """Return the position of each batch."""
    found, position = [], 0
    while position < len(data):
        found.append(position)
        position += read_header(data, position).size
    return found


def torn(whole: bytes, start: int) -> Iterator[tuple[str, bytes]]:
    """Yield what a power cut may leave of the bytes from ``start`` on, each with a description.

    A sector that was not written has its old bytes, and zeros behind the old end of the file.
    """
    edges = [start, *range(start + SECTOR - start % SECTOR, len(whole), SECTOR), len(whole)]
    parts = list(pairwise(edges))
    for written in product([False, True], repeat=len(parts)):
        data = bytearray(whole)
        for (first, end), is_written in zip(parts, written, strict=True):
            if not is_written:
                data[first:end] = bytes(end - first)
        if data != whole:
            yield f"written sectors {written}", bytes(data)
        for first, end in parts:
            for size in {first, first + 1, first + 9, first + 40, (first + end) // 2, end - 1}:
                if start <= size < end:
                    yield f"written sectors {written}, size {size}", bytes(data[:size])


def check(files: MemoryFiles, start: int, image: list[object]) -> None:
    """Check that the log can be continued without the append at ``start``, however it is torn."""
    whole = files.read_bytes(SEGMENT)
    refused: list[str] = []
    for description, data in torn(whole, start):
        files.write_atomic(SEGMENT, data)
        try:
            state = read(files)
        except KafkaStorage as error:
            refused.append(f"{description}: {error.message}")
        else:
            assert list(state.image.records()) == image, description
    assert not refused, f"{len(refused)} refused: " + "\n".join(refused[:3])


@pytest.mark.parametrize(("left", "size", "offsets"), CASES)
def test_a_torn_batch_is_cut_off(left: int, size: int, offsets: int) -> None:
    """Regression: a batch whose base offset was lost has a valid checksum, and was refused."""
    files, log = log_before(left, offsets)
    start, image = files.stat_size(SEGMENT), list(read(files).image.records())
    log.append(config(size))
    check(files, start, image)


@pytest.mark.parametrize(("left", "size", "offsets"), CASES)
def test_a_torn_first_append_of_an_epoch_is_cut_off(left: int, size: int, offsets: int) -> None:
    """It has two batches, of which the second may be on the disk without the first one."""
    files, log = log_before(left, offsets)
    log.close(clean=False)
    start, image = files.stat_size(SEGMENT), list(read(files).image.records())
    opened(files, lead=False).lead([config(size)])
    check(files, start, image)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_torn_first_append_of_a_log_is_cut_off(dynamic: bool) -> None:
    """With kraft.version 1, its control batch also has the voters."""
    files = memory()
    if dynamic:
        voters = only_voter(NODE, uuid.UUID(int=7001), [])
        write_voters(files, "/data", voters, timestamp_ms=1000, crc32c=crc32c)
    opened(files, lead=False).lead([LEVEL, *topic(0), config(700)])
    check(files, 0, [])


def test_a_missing_sector_of_a_durable_batch_is_refused() -> None:
    """It was synced before the batches behind it were written."""
    for left, lead in product([8, 9, 11, 40, 100, 512], [False, True]):
        files, log = log_before(left, 0)
        start = files.stat_size(SEGMENT)
        log.append(config(1000))
        if lead:
            log.close(clean=False)
            opened(files, lead=False).lead([config(100)])
        else:
            log.append(config(100))
        whole = files.read_bytes(SEGMENT)
        for boundary in (start, start + left):
            end = boundary - boundary % SECTOR + SECTOR
            files.write_atomic(SEGMENT, whole[:boundary] + bytes(end - boundary) + whole[end:])
            with pytest.raises(KafkaStorage, match="is damaged at byte"):
                read(files)


@pytest.mark.parametrize("left", [9, 40, 250])
def test_only_the_last_batch_of_a_large_append_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """Each batch is durable before the next is written, so the earlier ones are whole."""
    files, log = log_before(left, 0)
    monkeypatch.setattr(metadata_batches, "MAX_BATCH_BYTES", 720)
    start = files.stat_size(SEGMENT)
    log.append(config(560), config(561))
    *_, second, last = positions(files.read_bytes(SEGMENT))
    assert second == start
    whole = files.read_bytes(SEGMENT)
    files.write_atomic(SEGMENT, whole[:last])
    image = list(read(files).image.records())
    files.write_atomic(SEGMENT, whole)
    check(files, last, image)
