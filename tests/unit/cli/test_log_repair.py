"""`aiokq log repair`: the damage, the lost records and the repair, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokq.records.header import read_header
from tests.unit.broker.metadata.metadata_logs import DIRECTORY
from tests.unit.broker.metadata.stopped_broker.test_log_repair import log_of, spoil

LOG = f"{0:020d}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory whose metadata log has a bad batch before two topics."""
    return written(tmp_path / "data", topics=4)


def written(directory: Path, *, topics: int, bad: bool = True) -> Path:
    files = log_of(topics)
    if bad:
        spoil(files, 3)
    inner = directory / "__cluster_metadata-0"
    inner.mkdir(parents=True)
    (directory / "meta.properties").write_bytes(files.read_bytes("/data/meta.properties"))
    for name in files.listdir(DIRECTORY):
        (inner / name).write_bytes(files.read_bytes(f"{DIRECTORY}/{name}"))
    return directory


def test_the_damage_is_shown_and_then_cut_off(alone, data: Path) -> None:
    """A user sees which topics are lost before anything changes."""
    log = data / "__cluster_metadata-0" / LOG
    before = log.read_bytes()
    run = alone("log", "repair", str(data), servers=None)
    assert run.code == 0, run.err
    assert run.lines[0].startswith(f"damaged: {log} at byte ")
    assert run.lines[0].endswith(": the checksum does not match")
    assert run.lines[1] == "lost: the records from offset 4 on"
    assert run.lines[2].split() == ["offset", "record"]
    assert run.lines[3].split() == ["4", "unreadable"]
    assert run.lines[4].startswith('     5  PARTITION_RECORD {"partitionId":0,"topicId":')
    assert run.lines[4].endswith(" (its batch is damaged)")
    assert run.lines[5].startswith('     6  TOPIC_RECORD {"name":"t2","topicId":')
    assert run.lines[-2:] == [
        "left: 1 topics, up to offset 4",
        "nothing was changed: add --execute to repair the log",
    ]
    assert log.read_bytes() == before
    run = alone("log", "repair", str(data), "--yes", servers=None)
    assert run.code == 0, run.err
    position = log.stat().st_size
    kept = f"{log}.corrupt-{position}"
    assert run.lines[-2:] == [f"removed bytes: {kept}", "repaired"]
    assert log.read_bytes() + Path(kept).read_bytes() == before
    run = alone("log", "repair", str(data), servers=None)
    assert run.lines == ["the metadata log is sound up to its end at offset 4"]


def test_json_lists_every_record(alone, tmp_path: Path) -> None:
    """The text has the first twenty."""
    data = written(tmp_path / "many", topics=20)
    told = alone("log", "repair", str(data), "--json", servers=None).json
    assert told["damaged"]["offset"] == 4
    assert (len(told["lost"]), told["loses_records"], told["executed"]) == (38, True, False)
    assert told["lost"][1]["type"] == "PARTITION_RECORD"
    assert not told["lost"][1]["batch_is_sound"]
    assert told["lost"][2]["data"]["name"] == "t2"
    assert told["lost"][2]["batch_is_sound"]
    lines = alone("log", "repair", str(data), servers=None).lines
    assert "and 18 more, which --json lists" in lines


def test_a_corrected_epoch_is_shown(alone, tmp_path: Path) -> None:
    """Only four bytes change, and no record is lost."""
    data = written(tmp_path / "data", topics=4, bad=False)
    log = data / "__cluster_metadata-0" / LOG
    sound = log.read_bytes()
    wrong = bytearray(sound)
    wrong[read_header(sound, 0).size + 15] ^= 4  # the epoch of the second batch
    log.write_bytes(wrong)
    told = alone("log", "repair", str(data), "--json", servers=None).json
    assert [(one["offset"], one["old"], one["new"]) for one in told["corrected_epochs"]] == [
        (1, 5, 1)
    ]
    run = alone("log", "repair", str(data), "--yes", servers=None)
    assert run.lines[1:] == [
        "no record is lost",
        "corrected: the leader epoch of the batch at offset 1 is 1, not 5",
        "left: 4 topics, up to offset 10",
        "repaired",
    ]
    assert log.read_bytes() == sound


def test_refusals(alone, tmp_path: Path) -> None:
    """The message names what is missing."""
    refused = alone("log", "repair", str(tmp_path), servers=None)
    assert (refused.code, "no meta.properties" in refused.complaint) == (1, True)


def test_a_dump_names_records_of_the_metadata(alone, data: Path) -> None:
    """As Kafka's tool does with its decoder."""
    run = alone("log", "dump", str(data), "--records", "--only", "log", servers=None)
    assert run.code == 1  # the bad batch
    assert any(
        'payload: {"type":"TOPIC_RECORD","version":0,"data":{"name":"t0"' in line
        for line in run.lines
    )
    assert any(line.startswith("| offset: 0") and "LeaderChange: {" in line for line in run.lines)
