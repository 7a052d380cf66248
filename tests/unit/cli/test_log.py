"""`aiokq log`: directories on a real disk, without a cluster."""

from __future__ import annotations

import asyncio
import json
import shutil
import zlib
from pathlib import Path

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.metadata.earlier.private_file import MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.node import BrokerNode
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Environment
from aiokq.core.files import OsFiles
from aiokq.core.offload import InlineOffload
from tests.unit.broker.harness import Broker, NoNetwork, batch
from tests.unit.cli.harness import CommandLine


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory of a stopped broker: topic t, a partition, two batches."""

    async def main() -> None:
        import random

        broker = Broker()
        broker.node = BrokerNode(
            broker_settings(),
            Environment(SystemClock(), random.Random(1), NoNetwork(), OsFiles(), InlineOffload()),
            data_dir=str(tmp_path / "data"),
        )
        async with broker:
            await broker.create("t")
            now_ms = SystemClock().timestamp_ms()
            for value in (b"plain", b"\xff\x00"):
                data = batch(2, value=value, timestamp_ms=now_ms)
                assert (await broker.produce("t", data)).error_code == 0

    asyncio.run(main())
    return tmp_path / "data"


def run(alone: CommandLine, *arguments: object):
    return alone("log", *map(str, arguments), servers=None)


def log_of(data: Path) -> Path:
    return data / "t-0" / f"{0:020d}.log"


def test_a_partition_is_shown_in_kafkas_words(alone, data):
    """Scripts written for kafka-dump-log find the same terms."""
    result = run(alone, "dump", log_of(data), "--records")
    assert result.code == 0
    assert result.lines[0] == f"Dumping {log_of(data)}"
    assert result.lines[1].startswith("baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1")
    assert "isValid: true" in result.lines[1]
    assert result.lines[2].startswith("| offset: 0 timestamp: ")
    assert result.lines[2].endswith("key: k payload: plain")
    assert result.lines[5].endswith(r"payload: \xff\x00")  # escaped for the terminal


def test_json_is_one_object_a_line(alone, data):
    """Programs cannot read a terabyte as one document."""
    result = run(alone, "dump", data, "--json", "--only", "log", "--only", "checkpoint")
    entries = [json.loads(line) for line in result.lines]
    assert {entry["kind"] for entry in entries} == {"log", "checkpoint"}
    assert [e["base_offset"] for e in entries if e["kind"] == "log"][-2:] == [0, 2]
    assert run(alone, "dump", data, "--only", "nonsense").code == 2


def test_a_sound_directory_is_said_to_be(alone, data):
    """The exit code of a sound directory is 0."""
    result = run(alone, "verify", data, "--records")
    assert (result.code, result.lines[-2].split()) == (
        0,
        ["t-0", "0", "4", "1", "2", str(log_of(data).stat().st_size), "sound"],
    )
    assert result.lines[-1].startswith(f"{data}: sound; 2 partitions")


def test_damage_is_told_with_file_and_byte(alone, data):
    """The message locates the damage without Kafka's Java tools."""
    path = log_of(data)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = {file: file.stat().st_mtime_ns for file in data.rglob("*")}
    result = run(alone, "verify", data)
    assert result.code == 1
    position = len(content) // 2 + 1
    line = result.lines[0]
    assert line.startswith("error: ")
    assert f"{path}:" in line
    assert "CRC mismatch" in line
    assert int(line.split(f"{path}:")[1].split(":")[0]) < position + 20
    assert "NOT SOUND" in result.lines[-1]
    [document] = run(alone, "verify", data, "--json").json  # a list, as with several directories
    assert document["sound"] is False
    assert document["findings"][0]["severity"] == "error"
    dumped = run(alone, "dump", path)
    assert (dumped.code, "wrong checksum" in dumped.err) == (1, True)
    assert {file: file.stat().st_mtime_ns for file in data.rglob("*")} == before


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda lines: [b"x" + lines[0], *lines[1:]], "the first line is not the header"),
        (lambda lines: [lines[0], b"x\n", *lines[1:]], "line 2 is damaged, and a valid line"),
    ],
    ids=["header", "middle"],
)
def test_a_damaged_metadata_file_hides_no_other_file(alone, data, damage, reason):
    """The file of an earlier version. Regression: the command ended there, with no JSON."""
    path = data / PRIVATE_FILE
    path.write_bytes(b"".join(damage([line(HEADER), line(TOPIC)])))
    result = run(alone, "dump", data)
    assert result.code == 1
    assert f"aiokq: {path}: metadata log {path} is corrupt at byte" in result.err
    assert reason in result.err
    assert f"Dumping {log_of(data)}" in result.lines
    documents = [json.loads(line) for line in run(alone, "dump", data, "--json").lines]
    [error] = [one for one in documents if one["kind"] == "metadata"]
    assert reason in error["error"]
    assert any(one["kind"] == "log" for one in documents)
    assert run(alone, "verify", data).code == 1


HEADER = "aiokq metadata log, version 1"
TOPIC = (
    '{"type":"topic","name":"t","topic_id":"00000000-0000-0000-0000-000000000001","partitions":1}'
)


def line(text: str) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text.encode()), text.encode())


def test_the_file_of_an_earlier_version_is_shown_until_its_content_is_moved(alone, data):
    """Afterwards the one line in its place says where the metadata is."""
    path = data / PRIVATE_FILE
    path.write_bytes(line(HEADER) + line(TOPIC))
    shown = [json.loads(one) for one in run(alone, "dump", path, "--json").lines]
    assert [one.get("topic") for one in shown] == [None, "t"]
    path.write_bytes(MIGRATED_LINE)
    [only] = [json.loads(one) for one in run(alone, "dump", path, "--json").lines]
    assert only["migrated"] == "the metadata is in __cluster_metadata-0"
    assert run(alone, "verify", data).code == 0


def test_a_damaged_metadata_log_hides_no_other_file(alone, data):
    """It is reported like damage of any other log, and nothing is changed."""
    path = data / "__cluster_metadata-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[150] ^= 1
    path.write_bytes(content)
    dumped = run(alone, "dump", data)
    assert (dumped.code, "wrong checksum" in dumped.err) == (1, True)
    assert f"Dumping {log_of(data)}" in dumped.lines
    verified = run(alone, "verify", data)
    assert verified.code == 1
    assert any(str(path) in one for one in verified.lines)
    assert any(one.startswith("t-0") for one in verified.lines)
    assert path.read_bytes() == content


def test_several_directories_of_a_node_are_checked_together(alone, data, tmp_path):
    """A partition in both directories is an error, one in either directory is not missing."""
    other = tmp_path / "other"
    shutil.copytree(data, other)
    doubled = run(alone, "verify", data, other)
    assert doubled.code == 1
    assert f"t-0 is also in {other}" in doubled.lines[0]
    shutil.rmtree(other / "t-0")
    assert "no directory here for partition 0" in "\n".join(run(alone, "verify", other).lines)
    result = run(alone, "verify", data, other)
    assert "no directory here" not in "\n".join(result.lines)
    assert [line for line in result.lines if line.startswith("error")] == []
    documents = run(alone, "verify", data, other, "--json").json
    assert [document["path"] for document in documents] == [str(data), str(other)]


def test_a_path_without_a_log_is_refused(alone, tmp_path):
    """A misspelt path must not look like a directory without problems."""
    assert run(alone, "dump", tmp_path).code == 1
    assert run(alone, "verify", tmp_path / "missing").code == 2
    (tmp_path / "file").write_bytes(b"")
    assert run(alone, "verify", tmp_path / "file").code == 2
    assert run(alone, "verify", tmp_path).code == 1
