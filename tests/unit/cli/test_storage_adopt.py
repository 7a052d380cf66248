"""`aiokq storage adopt`: what it prints, and the directory on a real disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from tests.unit.broker.metadata.metadata_logs import DIRECTORY
from tests.unit.broker.metadata.quorum_logs import quorum_of_three


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The log directory of node 3 of three."""
    files = quorum_of_three(1)
    directory = tmp_path / "data"
    inner = directory / "__cluster_metadata-0"
    inner.mkdir(parents=True)
    (directory / "meta.properties").write_bytes(files.read_bytes("/data/meta.properties"))
    for name in files.listdir(DIRECTORY):
        (inner / name).write_bytes(files.read_bytes(f"{DIRECTORY}/{name}"))
    return directory


def test_what_is_offline_is_shown_first(alone, data: Path) -> None:
    """A user can decide before anything changes."""
    before = {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    run = alone("storage", "adopt", str(data), "--dry-run", servers=None)
    assert run.code == 0, run.err
    shown = [
        "node 3 is the only voter; the voters were 1, 2, 3",
        "registrations dropped: 1, 2",
        "partitions that this node leads: 5",
        "offline, because only other nodes have them: 1",
        "topic  partitions",
        "t      1",
        "offline, because the replica here was not in sync: 2",
        "topic  partitions",
        "t      2,6",
    ]
    assert run.lines == [*shown, "dry run, nothing was changed"]
    after = {path.name: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    assert after == before | {".lock": b""}
    run = alone("storage", "adopt", str(data), servers=None)
    assert run.code == 0, run.err
    kept = data / "__cluster_metadata-0.before-adoption-stray"
    assert run.lines == [*shown, f"the old log is in {kept}"]
    assert (kept / f"{0:020d}.log").read_bytes() == before[f"{0:020d}.log"]
    state = MetadataReader(OsFiles(), str(data / "__cluster_metadata-0"), crc32c).read()
    assert state.voters is not None
    assert [one.voter_id for one in state.voters.voters] == [3]
    again = alone("storage", "adopt", str(data), servers=None)
    assert (again.code, "the only voter" in again.complaint) == (1, True)


def test_json_and_unclean_leadership(alone, data: Path, tmp_path: Path) -> None:
    """Scripts get lists of partitions."""
    shutil.copytree(data, tmp_path / "copy")
    told = alone("storage", "adopt", str(tmp_path / "copy"), "--json", servers=None).json
    assert (told["node_id"], told["voters_before"], told["leads"]) == (3, [1, 2, 3], 5)
    assert told["on_other_nodes"] == [{"topic": "t", "partition": 1}]
    assert told["executed"]
    run = alone("storage", "adopt", str(data), "--unclean", servers=None)
    assert "partitions that this node leads: 7" in run.lines
    assert "led although the replica was not in sync: 2" in run.lines


def test_a_directory_that_is_no_log_directory(alone, tmp_path: Path) -> None:
    """The message names what is missing."""
    refused = alone("storage", "adopt", str(tmp_path), servers=None)
    assert (refused.code, "no meta.properties" in refused.complaint) == (1, True)
    refused = alone("storage", "adopt", str(tmp_path / "none"), servers=None)
    assert refused.code == 2
