"""Records of a damaged part of a metadata log: what can be decoded, and ranges for the rest."""

from __future__ import annotations

import pytest

from aiokq.broker.metadata.stopped_broker.cut_records import LostRecord, cut_records
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from aiokq.wire.cluster_metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from aiokq.wire.quorum_records import LeaderChangeMessage
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, config, memory, opened, topic

SEGMENT = f"{DIRECTORY}/{0:020d}.log"
FIVE = 4
"""Number of the batch with five records, from offset 6 on."""


@pytest.fixture
def files() -> MemoryFiles:
    """A log of six batches: the leader's, the level, two topics, five settings, a topic."""
    made = memory()
    log = opened(made)
    for number in range(2):
        log.append(*topic(number))
    log.append(*map(config, range(5)))
    log.append(*topic(9))
    made.crash()
    return made


@pytest.fixture
def starts(files: MemoryFiles) -> list[int]:
    """The position of each batch of the sound log."""
    data, positions, position = files.read_bytes(SEGMENT), [], 0
    while position < len(data):
        positions.append(position)
        position += read_header(data, position).size
    return positions


def lost(files: MemoryFiles, position: int, expected: int) -> list[LostRecord]:
    file = files.open(SEGMENT, writable=False)
    return list(cut_records(file, position, expected, crc32c))


def offsets(records: list[LostRecord]) -> list[tuple[int, int | None, bool]]:
    return [(one.offset, one.last_offset, one.is_sound) for one in records]


def test_sound_batches_are_decoded(files: MemoryFiles) -> None:
    """Control records of the quorum, too."""
    records = lost(files, 0, 0)
    assert offsets(records) == [(n, n, True) for n in range(13)]
    assert isinstance(records[0].record, LeaderChangeMessage)
    assert isinstance(records[2].record, TopicRecord)


def test_a_flipped_bit_costs_one_record_of_its_batch(files: MemoryFiles, starts: list[int]) -> None:
    """The others of the batch are decoded, and marked."""
    sound = lost(files, starts[FIVE], 6)
    data = files.read_bytes(SEGMENT)
    begin, end = starts[FIVE : FIVE + 2]
    middle = begin + 61 + (end - begin - 61) // 2
    changed = bytearray(data)
    changed[middle] ^= 1  # in the value of the third setting
    files.write_atomic(SEGMENT, bytes(changed))
    records = lost(files, starts[FIVE], 6)
    assert offsets(records) == [(n, n, n > 10) for n in range(6, 13)]
    assert [a.record == b.record for a, b in zip(records, sound, strict=True)] == [
        n != 8 for n in range(6, 13)
    ]
    assert all(isinstance(one.record, ConfigRecord) for one in records[:5])


def test_no_flipped_bit_hides_a_record(files: MemoryFiles, starts: list[int]) -> None:
    """Each offset is a record or in a range, wherever the damage is."""
    data = files.read_bytes(SEGMENT)
    begin, end = starts[FIVE : FIVE + 2]
    # The base offset is left out: a higher one is valid for its checksum, after a long range.
    for position in [*range(begin + 8, begin + 80), *range(begin + 80, end, 37)]:
        for bit in (0, 3, 7):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            files.write_atomic(SEGMENT, bytes(changed))
            found: list[int] = []
            for one in lost(files, starts[FIVE], 6):
                assert one.last_offset is not None
                found += range(one.offset, one.last_offset + 1)
            assert found == list(range(6, 13)), (position - begin, bit)


def test_what_cannot_be_decoded_is_a_range(files: MemoryFiles, starts: list[int]) -> None:
    """The next sound batch tells where it ends."""
    data = bytearray(files.read_bytes(SEGMENT))
    begin, end = starts[FIVE : FIVE + 2]
    data[begin:end] = bytes(end - begin)
    files.write_atomic(SEGMENT, bytes(data))
    records = lost(files, starts[FIVE], 6)
    assert offsets(records) == [(6, 10, False), (11, 11, True), (12, 12, True)]
    assert records[0].record is None
    data[begin + 300 :] = bytes(len(data) - begin - 300)
    files.write_atomic(SEGMENT, bytes(data))
    assert offsets(lost(files, starts[FIVE], 6)) == [(6, None, False)]


def test_the_header_tells_where_the_last_batch_ends(files: MemoryFiles, starts: list[int]) -> None:
    """No sound batch follows."""
    data = bytearray(files.read_bytes(SEGMENT))
    begin = starts[FIVE]
    data[begin + 900 :] = bytes(len(data) - begin - 900)  # from the middle of the second record on
    files.write_atomic(SEGMENT, bytes(data))
    assert offsets(lost(files, begin, 6)) == [(6, 6, False), (7, 7, False), (8, 10, False)]


def test_two_damaged_batches_side_by_side(files: MemoryFiles, starts: list[int]) -> None:
    """Nothing sound is between them."""
    data = bytearray(files.read_bytes(SEGMENT))
    _, _, first, second, *_ = starts
    for start in (first, second):
        data[start + 17] ^= 1  # the checksum
    files.write_atomic(SEGMENT, bytes(data))
    records = lost(files, starts[2], 2)
    assert offsets(records) == [(n, n, n > 5) for n in range(2, 13)]
    assert [type(one.record) for one in records[:4]] == [TopicRecord, PartitionRecord] * 2
