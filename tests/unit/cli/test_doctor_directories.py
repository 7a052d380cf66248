"""`aiokq doctor` and log directories: what is right, what is wrong, and that nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aiokq import fastpath
from aiokq.cli.installation_checks import installation
from aiokq.records.header import read_header
from tests.unit.broker.metadata.start.test_small_files import stopped
from tests.unit.cli.harness import CommandLine

CLUSTER = "__cluster_metadata-0"
LOG = f"{CLUSTER}/{0:020d}.log"


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the core of this checkout appear up to date."""
    monkeypatch.setattr(fastpath, "stale", lambda: False)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The log directory of a stopped broker with a topic."""
    for path, content in asyncio.run(stopped()).items():
        file = tmp_path / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return tmp_path / "data"


def checks(alone: CommandLine, *arguments: str) -> dict[str, tuple[str, str]]:
    """Return status and detail of each check of the directories; the directories do not change."""
    done = alone("doctor", "--json", *arguments, servers=None)
    names = {check.name for check in installation()}
    found = {
        one["check"]: (one["status"], one["detail"])
        for one in done.json
        if one["check"] not in names
    }
    assert done.code == (1 if any(status == "fail" for status, _ in found.values()) else 0)
    return found


def content(path: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}


def test_the_directory_of_a_stopped_broker(alone: CommandLine, data: Path, tmp_path: Path):
    """Named by an option or by the broker's properties file; nothing is written."""
    before = content(tmp_path)
    named = checks(alone, "--data-dir", str(data))
    assert [(name, status) for name, (status, _) in named.items()] == [
        ("log directories", "ok"),
        ("shutdown", "ok"),
        ("metadata log", "ok"),
        ("partitions", "ok"),
    ]
    assert "1 topics, metadata.version 4.0-IV3, kraft.version 0" in named["metadata log"][1]
    assert content(tmp_path) == before
    config = tmp_path / "server.properties"
    config.write_text(f"process.roles=broker,controller\nnode.id=0\nlog.dirs={data}\n")
    assert checks(alone, "--broker-config", str(config)) == named


def test_without_an_option_no_directory_is_looked_for(alone: CommandLine):
    """Most users have no broker on their machine."""
    assert checks(alone) == {}


@pytest.mark.parametrize(
    ("file", "name", "status", "words"),
    [
        (LOG, "metadata log", "fail", "epoch 5 after epoch 1"),
        (".kafka_cleanshutdown", "shutdown", "warn", "is running, or was not stopped cleanly"),
        ("meta.properties", "log directories", "fail", "is not formatted"),
        (f"{CLUSTER}/quorum-state", "metadata log", "fail", "quorum-state cannot be read"),
        ("bootstrap.checkpoint", "metadata files", "fail", "bootstrap.checkpoint"),
        (CLUSTER, "metadata log", "ok", "none yet"),
        ("t-0", "partitions", "warn", "1 of 1 have no directory, such as t-0"),
    ],
)
def test_what_is_wrong_is_named(
    alone: CommandLine, data: Path, file: str, name: str, status: str, words: str
):
    """With what to do, before a start refuses the directory."""
    path = data / file
    if file == LOG:
        wrong = bytearray(path.read_bytes())
        wrong[read_header(wrong, 0).size + 15] ^= 4  # the epoch of the second batch
        path.write_bytes(wrong)
    elif file.endswith(("quorum-state", "bootstrap.checkpoint")):
        path.write_bytes(b"?" + path.read_bytes()[1:])
    else:
        path.rename(data.parent / "moved away")
    before = content(data)
    found = checks(alone, "--data-dir", str(data))
    assert found[name][0] == status
    assert words in found[name][1]
    assert content(data) == before


def test_a_missing_directory_and_a_metadata_log_elsewhere(alone: CommandLine, data: Path):
    """Each directory of log.dirs is checked."""
    missing = data.parent / "missing"
    found = checks(alone, "--data-dir", str(data), "--data-dir", str(missing))
    assert found["log directories"] == ("fail", f"{missing} does not exist")
    other = data.parent / "other"
    other.mkdir()
    (other / "meta.properties").write_bytes((data / "meta.properties").read_bytes())
    found = checks(alone, "--data-dir", str(other), "--data-dir", str(data))
    assert found["metadata log"][0] == "fail"
    assert f"the log is in {data}, but belongs in {other}" in found["metadata log"][1]
