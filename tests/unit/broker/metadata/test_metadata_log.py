"""The metadata log is durable, replayed and compacted, and reports what it cannot read."""

from __future__ import annotations

import errno
import logging
import random
import uuid

import pytest

from aiokq.broker.metadata import metadata_file
from aiokq.broker.metadata.file_adapter import file_records_of_image
from aiokq.broker.metadata.file_records import (
    FileRecord,
    ProducerIdsLine,
    SettingLine,
    TopicDeletedLine,
    TopicLine,
    decode_records,
    encode_records,
)
from aiokq.broker.metadata.metadata_file import read_image
from aiokq.broker.metadata.metadata_log import BEHIND, MetadataLog
from aiokq.broker.metadata.records import DirectoriesKnown, MetadataRecord
from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.file_samples import records_of

PATH = "/aiokq-metadata.log"
ID = uuid.UUID(int=1)
ORDERS = TopicLine("orders", ID, 3, {"retention.ms": "1000"})
RECORDS = [
    ORDERS,
    TopicDeletedLine("orders", ID),
    ProducerIdsLine(4000),
    SettingLine("größe", "42"),
    SettingLine("größe", None),
    DirectoriesKnown({"AAAA": "/a"}),
]


def append(log: MetadataLog, *lines: FileRecord) -> None:
    """Append the records that these lines of the file stand for."""
    image = log.image.copy()
    records: list[MetadataRecord] = []
    for line in lines:
        for record in records_of(line, image):
            image.replay(record)
            records.append(record)
    log.append(*records)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def topics(log: MetadataLog) -> dict[str, TopicLine]:
    lines = file_records_of_image(log.image)
    return {line.name: line for line in lines if isinstance(line, TopicLine)}


def state(log: MetadataLog) -> tuple[dict[str, TopicLine], int, dict[str, str]]:
    return topics(log), log.image.next_producer_id, dict(log.image.cluster_configs())


@pytest.mark.parametrize("record", RECORDS)
def test_records_survive_their_text(record) -> None:
    """Each record is one line, whatever characters a name has."""
    text = encode_records([record])
    assert "\n" not in text
    assert decode_records(text) == [record]


def test_what_was_appended_is_there_after_a_kill_and_a_power_cut(files: MemoryFiles) -> None:
    """The client has its response, so the topic must exist whatever happens next."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    append(log, ProducerIdsLine(1000), SettingLine("a", "b"))
    before = state(log)
    assert before == ({"orders": ORDERS}, 1000, {"a": "b"})
    files.crash()
    assert state(MetadataLog.open(files, PATH)) == before
    files.power_cut()
    assert state(MetadataLog.open(files, PATH)) == before
    for seed in range(20):
        log = MetadataLog.open(files, PATH)
        append(log, TopicLine(f"t{seed}", uuid.UUID(int=1000 + seed), 1))
        files.power_cut(random.Random(seed))
        assert f"t{seed}" in MetadataLog.open(files, PATH).image.topics


def test_records_replace_each_other(files: MemoryFiles) -> None:
    """The order decides; a late deletion of an older topic of the same name has no effect."""
    log = MetadataLog.open(files, PATH)
    other = uuid.UUID(int=2)
    append(log, ORDERS, TopicLine("orders", ID, 5))
    assert len(log.image.topics["orders"].partitions) == 5
    append(log, TopicDeletedLine("orders", ID), TopicLine("orders", other, 1))
    append(log, TopicDeletedLine("orders", ID))
    assert log.image.topics["orders"].topic_id == other
    append(log, ProducerIdsLine(2000), ProducerIdsLine(1000))
    assert log.image.next_producer_id == 2000
    append(log, SettingLine("a", "1"), SettingLine("a", None))
    assert not log.image.cluster_configs()


def test_a_torn_last_line_is_removed(files: MemoryFiles, caplog: pytest.LogCaptureFixture) -> None:
    """The process died during the append, so no client got a response."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    whole = files.read_bytes(PATH)
    append(log, TopicLine("lost", uuid.UUID(int=9), 1))
    data = files.read_bytes(PATH)
    for length in range(len(whole), len(data)):
        files.write_atomic(PATH, data[:length])
        with caplog.at_level(logging.WARNING, "aiokq.broker"):
            assert list(MetadataLog.open(files, PATH).image.topics) == ["orders"]
        assert files.read_bytes(PATH) == whole
    assert "torn tail" in caplog.text


def test_of_records_appended_together_a_kill_leaves_all_or_none(files: MemoryFiles) -> None:
    """Half of a change would be a state that nobody asked for."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    whole = len(files.read_bytes(PATH))
    append(log, TopicLine("a", uuid.UUID(int=8), 1), TopicLine("b", uuid.UUID(int=9), 1))
    data = files.read_bytes(PATH)
    assert list(MetadataLog.open(files, PATH).image.topics) == ["orders", "a", "b"]
    for length in range(whole, len(data)):
        files.write_atomic(PATH, data[:length])
        assert list(MetadataLog.open(files, PATH).image.topics) == ["orders"]


def test_a_damaged_last_line_that_was_whole_is_kept_aside(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been acknowledged, so its topic must not vanish with a torn-tail warning."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    position = len(files.read_bytes(PATH))
    append(log, TopicLine("next", uuid.UUID(int=9), 1))
    files.corrupt(PATH, position + 20)
    damaged = files.read_bytes(PATH)[position:]
    with caplog.at_level(logging.ERROR, "aiokq.broker"):
        assert list(MetadataLog.open(files, PATH).image.topics) == ["orders"]
    assert files.read_bytes(f"{PATH}.corrupt-{position}") == damaged
    assert f"kept={PATH}.corrupt-{position}" in caplog.text
    assert len(files.read_bytes(PATH)) == position


def test_damage_in_the_middle_stops_the_broker(files: MemoryFiles) -> None:
    """Starting all the same would lose acknowledged topics; the operator has to decide."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    position = len(files.read_bytes(PATH)) - 20
    append(log, TopicLine("next", uuid.UUID(int=9), 1))
    files.corrupt(PATH, position)
    with pytest.raises(KafkaStorage, match=r"corrupt at byte .*restore it from a copy"):
        MetadataLog.open(files, PATH)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00" * 100])
def test_another_programs_file_is_refused(files: MemoryFiles, content: bytes) -> None:
    """Otherwise it would be truncated to nothing."""
    files.write_atomic(PATH, content)
    with pytest.raises(KafkaStorage, match="not the header of a metadata log"):
        MetadataLog.open(files, PATH)
    assert files.read_bytes(PATH) == content


def test_a_record_of_a_newer_version_is_refused(files: MemoryFiles) -> None:
    """If it were skipped, the next compaction would lose it."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    line = metadata_file.line_of('{"type":"acl","name":"x"}')
    files.write_atomic(PATH, files.read_bytes(PATH) + line)
    with pytest.raises(KafkaStorage, match="is unknown to this version"):
        MetadataLog.open(files, PATH)


@pytest.mark.parametrize("operation", ["pwritev", "sync"])
def test_a_failed_append_does_not_count(files: MemoryFiles, operation: str) -> None:
    """If the next start read it back, a topic would exist whose creation had failed."""
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    files.fail(operation, errno.EIO, **({"written": 25} if operation == "pwritev" else {}))
    with pytest.raises(KafkaStorage, match="cannot be written"):
        append(log, TopicLine("lost", uuid.UUID(int=9), 1))
    assert list(log.image.topics) == ["orders"]
    append(log, TopicLine("kept", uuid.UUID(int=10), 1))
    files.crash()
    assert list(MetadataLog.open(files, PATH).image.topics) == ["orders", "kept"]


def test_a_log_that_cannot_be_cut_back_takes_no_more(files: MemoryFiles) -> None:
    """Its end is unknown, so another append could make an incomplete record valid."""
    log = MetadataLog.open(files, PATH)
    files.fail("pwritev", errno.EIO, written=25)
    files.fail("truncate", errno.EIO)
    with pytest.raises(KafkaStorage):
        append(log, ORDERS)
    with pytest.raises(KafkaStorage, match="until the broker restarts"):
        append(log, ORDERS)
    files.crash()
    append(MetadataLog.open(files, PATH), ORDERS)


def test_it_is_compacted_when_it_grows(files: MemoryFiles, monkeypatch) -> None:
    """A topic created and deleted a million times must not be read a million times."""
    monkeypatch.setattr(metadata_file, "COMPACT_AT_BYTES", 2000)
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS, SettingLine("a", "b"))
    sizes = []
    for number in range(200):
        append(log, ProducerIdsLine(number))
        sizes.append(len(files.read_bytes(PATH)))
    assert max(sizes) < 2200
    assert state(log) == ({"orders": ORDERS}, 199, {"a": "b"})
    files.power_cut()
    assert state(MetadataLog.open(files, PATH)) == state(log)


@pytest.mark.parametrize("operation", ["write_atomic", "rename", "sync_dir", "open"])
def test_a_failed_compaction_loses_nothing(files: MemoryFiles, monkeypatch, operation: str) -> None:
    """Whichever file is in place afterwards, the next append is written to it or fails."""
    monkeypatch.setattr(metadata_file, "COMPACT_AT_BYTES", 300)
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    files.fail(operation, errno.EIO, times=1)
    appended = 0
    for number in range(1, 40):
        try:
            append(log, ProducerIdsLine(number))
        except KafkaStorage:
            break
        appended = number
    assert appended
    files.crash()
    again = MetadataLog.open(files, PATH)
    assert topics(again) == {"orders": ORDERS}
    assert again.image.next_producer_id == appended


@pytest.mark.parametrize("times", [1, 2])
def test_a_compaction_whose_name_is_not_durable_loses_nothing_in_a_power_cut(
    files: MemoryFiles, monkeypatch, times: int
) -> None:
    """If the rename is undone, synced appends to the new file would be gone."""
    monkeypatch.setattr(metadata_file, "COMPACT_AT_BYTES", 300)
    log = MetadataLog.open(files, PATH)
    append(log, ORDERS)
    files.fail("sync_dir", errno.EIO, times=times)
    appended = 0
    for number in range(1, 8):
        try:
            append(log, ProducerIdsLine(number))
        except KafkaStorage:
            break
        appended = number
    assert appended
    files.power_cut()
    assert MetadataLog.open(files, PATH).image.next_producer_id == appended


def test_a_closed_log_takes_nothing(files: MemoryFiles) -> None:
    """A request may still be waiting when the broker stops."""
    log = MetadataLog.open(files, PATH)
    log.close()
    log.close()
    with pytest.raises(KafkaStorage, match="closed"):
        append(log, ORDERS)


def test_an_unreadable_file_says_so(files: MemoryFiles) -> None:
    """The cause may be its permissions or a failing disk."""
    MetadataLog.open(files, PATH).close()
    files.fail("open", errno.EACCES)
    with pytest.raises(KafkaStorage, match="cannot be used"):
        MetadataLog.open(files, PATH)


def test_of_copies_that_went_their_own_ways_nothing_is_lost_for_good(files: MemoryFiles) -> None:
    """Copies of the log in two directories differ if each directory was missing for a time.

    Regression: producer ids were issued twice, and what only the shorter copy had was overwritten.
    """
    files.mkdirs("/other")
    first, second = PATH, f"/other/{PATH.rpartition('/')[2]}"
    MetadataLog.open(files, first, second).close()
    log = MetadataLog.open(files, second)
    append(log, ORDERS, ProducerIdsLine(9000))
    log.close()
    log = MetadataLog.open(files, first)
    for number in range(3):
        append(log, ProducerIdsLine(number * 1000))
    log.close()
    for _ in range(2):
        log = MetadataLog.open(files, first, second)
        assert log.image.next_producer_id == 9000
        assert not log.image.topics
        log.close()
    kept, _ = read_image(files.read_bytes(second + BEHIND), second)
    assert list(kept.topics) == [ORDERS.name]


def test_a_copy_that_lacks_the_last_append_is_made_anew_without_an_alarm(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: after a kill between the two writes of a deletion the topic was reported lost."""
    files.mkdirs("/other")
    first, second = PATH, f"/other/{PATH.rpartition('/')[2]}"
    log = MetadataLog.open(files, first, second)
    append(log, ORDERS)
    log.close()
    before = files.read_bytes(second)
    log = MetadataLog.open(files, first, second)
    append(log, TopicDeletedLine(ORDERS.name, ORDERS.topic_id))
    log.close()
    files.write_atomic(second, before)
    caplog.clear()
    log = MetadataLog.open(files, first, second)
    assert not log.image.topics
    log.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not files.exists(second + BEHIND)
