"""`aiokq log repair`: the damage, the lost records and the repair, on a real disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.broker.metadata.metadata_logs import DIRECTORY
from tests.unit.broker.metadata.stopped_broker.test_log_repair import log_of, spoil

LOG = f"{0:020d}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory whose metadata log has a bad batch before two topics."""
    return written(tmp_path / "data", topics=4)


def written(directory: Path, *, topics: int) -> Path:
    files = log_of(topics)
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
    assert run.lines[3].startswith('     6  TOPIC_RECORD {"name":"t2","topicId":')
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
    assert (len(told["lost"]), told["loses_records"], told["executed"]) == (36, True, False)
    assert told["lost"][0]["type"] == "TOPIC_RECORD"
    assert told["lost"][0]["data"]["name"] == "t2"
    lines = alone("log", "repair", str(data), servers=None).lines
    assert "and 16 more, which --json lists" in lines


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
