"""The check of a metadata log: its segments, snapshots and `quorum-state`."""

from __future__ import annotations

import pytest

from aiokq.broker.inspection.findings import Severity
from aiokq.broker.inspection.verifying import Report, verify
from aiokq.broker.metadata.log.snapshot_file import list_snapshots, snapshot_path
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY
from tests.unit.broker.metadata.quorum_logs import SEGMENT, quorum_of_three
from tests.unit.broker.metadata.stopped_broker.test_log_repair import log_of, spoil, with_snapshots


def check(files: MemoryFiles) -> Report:
    return verify(files, "/data", crc32c=crc32c, deep=True)


def errors(report: Report) -> list[str]:
    return [one.path for one in report.findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_a_sound_metadata_log(kraft_version: int) -> None:
    """It is checked as a log without a topic."""
    report = check(quorum_of_three(kraft_version))
    assert errors(report) == []
    assert [(one.path, one.partition, one.batches) for one in report.partitions] == [
        (DIRECTORY, None, 2)
    ]


def test_a_bad_batch() -> None:
    """Kafka drops it and everything after it."""
    files = log_of(4)
    spoil(files, 3)
    assert SEGMENT in errors(check(files))


def test_bad_snapshots() -> None:
    """Older ones, too, because the newest may be damaged later."""
    files = with_snapshots()
    paths = [snapshot_path(DIRECTORY, one) for one in list_snapshots(files, DIRECTORY)]
    for path in paths:
        files.corrupt(path, files.stat_size(path) // 2)
    assert set(errors(check(files))) >= set(paths)


def test_other_files() -> None:
    """A node with an unreadable `quorum-state` does not start."""
    files = quorum_of_three(0)
    files.write_atomic(f"{DIRECTORY}/quorum-state", b"{}")
    files.write_atomic("/data/bootstrap.checkpoint", b"short")
    assert errors(check(files)) == ["/data/bootstrap.checkpoint", f"{DIRECTORY}/quorum-state"]
