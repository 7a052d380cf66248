"""The metadata file of version 0.1.0: its records, its end, and what is refused."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from aiokq.broker.metadata.earlier.private_file import (
    MIGRATED_LINE,
    PrivateMetadata,
    read_private_file,
)
from aiokq.core.errors import KafkaStorage
from tests.unit.broker.metadata.old_directories import (
    deleted,
    group,
    line,
    private,
    producer_ids,
    taken_over,
    topic,
    topic_id,
    unclean_start,
)

RECORDED = Path(__file__).with_name("private_file.txt")
"""What version 0.1.0 wrote for requests of each kind; the last one deletes all topics."""


def read(data: bytes) -> PrivateMetadata:
    found, size = read_private_file(data, "/a/f")
    assert found is not None
    assert size == len(data)
    return found


def test_a_record_replaces_earlier_ones_of_the_same_topic_or_group() -> None:
    """Except the number of partitions and the counters, which never decrease."""
    found = read(
        private(
            topic(1, 3, configs={"a": "1"}, elsewhere=[2], kafka_epochs=[4, 5, -1]),
            [topic(1, 2, configs={"b": "2"}), group("g", c="1")],
            group("g", d="2"),
            producer_ids(2000),
            producer_ids(1000),
            unclean_start(2),
            unclean_start(1),
            {"type": "setting", "name": "s", "value": 1},
            {"type": "setting", "name": "gone", "value": "1"},
            {"type": "setting", "name": "gone", "value": None},
            taken_over(17, 1),
        )
    )
    [one] = found.topics.values()
    assert (one.name, one.topic_id, one.partitions) == ("t1", topic_id(1), 3)
    assert (one.configs, one.elsewhere, one.kafka_epochs) == ({"b": "2"}, (), ())
    assert (found.groups, found.settings) == ({"g": {"d": "2"}}, {"s": "1"})
    assert (found.next_producer_id, found.unclean_starts) == (2000, 2)
    assert (found.kafka, len(found.kafka_topic_ids)) == ((17, 1), 1)
    assert found.appends == 11


def test_a_compacted_file_counts_the_appends_before() -> None:
    """The copy with the most appends is the newest."""
    assert read(private([{"type": "appends", "appends": 40}, topic(1)], topic(2))).appends == 41


def test_a_deletion_names_the_id_of_the_topic() -> None:
    """A newer topic of the name stays."""
    newer = {**topic(1), "topic_id": str(uuid.UUID(int=5))}
    assert read(private(topic(1), newer, deleted(1))).topics["t1"].topic_id.int == 5
    assert read(private(topic(1), deleted(1), deleted(1))).topics == {}


def test_the_line_of_this_version_has_no_metadata() -> None:
    assert read_private_file(MIGRATED_LINE, "/a/f") == (None, len(MIGRATED_LINE))


@pytest.mark.parametrize("cut", range(1, 40))
def test_an_incomplete_last_line_is_not_counted(cut: int) -> None:
    whole = private(topic(1))
    found, size = read_private_file(whole + line(json.dumps(topic(2)))[:cut], "/a/f")
    assert found is not None
    assert list(found.topics) == ["t1"]
    assert size == len(whole)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (1, "the record is not a JSON object"),
        ({}, "the type of the record is unknown to this version"),
        ({"type": "topic", "name": "t"}, "KeyError"),
        ({**topic(1), "topic_id": "?"}, "badly formed"),
        ({**topic(1), "partitions": None}, "TypeError"),
        ({**topic(1), "configs": [1]}, "TypeError"),
        ({"type": "group", "group_id": "g", "configs": 1}, "TypeError"),
        ({**producer_ids(1), "next_producer_id": "x"}, "TypeError"),
    ],
)
def test_a_malformed_record_is_refused(record: Any, reason: str) -> None:
    size = len(private(topic(1)))
    with pytest.raises(KafkaStorage) as caught:
        read_private_file(private(topic(1), record), "/a/f")
    assert f"/a/f is corrupt at byte {size}: line 3: " in caught.value.message
    assert reason in caught.value.message


def test_what_version_0_1_0_wrote_for_requests_of_each_kind_is_read() -> None:
    """The records of each request, as the broker of that version wrote them."""
    *before, _ = RECORDED.read_bytes().splitlines(keepends=True)
    found = read(b"".join(before))
    assert {one.name: (one.partitions, one.configs) for one in found.topics.values()} == {
        "orders": (5, {"cleanup.policy": "delete"}),
        "plain": (1, {}),
        "third": (1, {}),
    }
    assert (found.groups, found.next_producer_id, found.unclean_starts) == ({}, 1000, 1)
    assert found.appends == len(before) - 1
    assert read(RECORDED.read_bytes()).topics == {}


def test_a_last_line_with_a_wrong_checksum_is_not_counted() -> None:
    """A power cut may leave it."""
    whole = private(topic(1))
    found, size = read_private_file(whole + b"0" * 8 + line(json.dumps(topic(2)))[8:], "/a/f")
    assert found is not None
    assert (list(found.topics), size) == (["t1"], len(whole))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "byte 0: the first line is not the header"),
        (b"x" + private(topic(1)), "byte 0: the first line is not the header"),
        (line("aiokq metadata log, version 3"), "byte 0: the first line is not the header"),
        (private() + b"x\n" + line(json.dumps(topic(1))), "line 2 is damaged, and a valid line"),
    ],
)
def test_damage_before_the_end_is_refused(data: bytes, reason: str) -> None:
    """Topics would be lost with their records. An earlier version refuses the line of this one."""
    with pytest.raises(KafkaStorage) as caught:
        read_private_file(data, "/a/f")
    assert reason in caught.value.message


def test_the_line_of_this_version_is_a_header_of_another_version() -> None:
    """Version 0.1.0 refuses it by name."""
    text = "aiokq metadata log, version 2: the metadata is in __cluster_metadata-0"
    assert line(text) == MIGRATED_LINE
