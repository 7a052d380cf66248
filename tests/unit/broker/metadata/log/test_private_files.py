"""The files of the metadata log, which have credentials, can be read by their owner only.

The same is true of ``meta.properties``, whose directory id is a secret of logins by SCRAM.
"""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from aiokq import EmbeddedCluster
from aiokq.broker.metadata.stopped_broker.formatting import FormatOptions, format_directories
from aiokq.core.ephemeral_files import EphemeralFiles
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c

METADATA = "__cluster_metadata-0"
BOOTSTRAP = "bootstrap.checkpoint"
IDS = "meta.properties"


@pytest.fixture(autouse=True)
def wide_umask():
    """A umask that takes nothing away, so that permissions are those that aiokq asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


def check(directory: Path) -> None:
    """Check the files; bootstrap.checkpoint is written after the start and may be missing."""
    paths = [*(directory / METADATA).iterdir(), *directory.glob(BOOTSTRAP), directory / IDS]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {"quorum-state", "partition.metadata"} <= modes.keys()
    assert not {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


@pytest.mark.parametrize("make", [OsFiles, EphemeralFiles])
def test_a_private_file_system_creates_private_files(tmp_path, make):
    for name, files in (("public", make()), ("private", make().private())):
        files.write_atomic(tmp_path / f"{name}1", b"")
        files.open(tmp_path / f"{name}2", create=True).close()
        files.open(tmp_path / f"{name}3", exclusive=True).close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert all(modes[f"private{n}"] == 0o600 for n in (1, 2, 3))
    assert all(modes[f"public{n}"] & 0o044 for n in (1, 2, 3))


def test_files_of_the_metadata_log_are_private(tmp_path):
    data = tmp_path / "data"
    with EmbeddedCluster(data_dir=data):
        pass
    check(data)
    for path in (data / METADATA).iterdir():
        path.chmod(0o644)
    for name in (BOOTSTRAP, IDS):
        (data / name).chmod(0o644)
    with EmbeddedCluster(data_dir=data):
        pass
    check(data)


def test_a_formatted_directory_is_private(tmp_path):
    options = FormatOptions(
        node_id=1, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", directories=(str(tmp_path),)
    )
    format_directories(OsFiles(), options, random=random.Random(1), timestamp_ms=0, crc32c=crc32c)
    for name in (BOOTSTRAP, IDS):
        assert not stat.S_IMODE((tmp_path / name).stat().st_mode) & 0o077


async def test_a_snapshot_is_private_and_what_is_restored_from_it(tmp_path):
    async with EmbeddedCluster(data_dir=tmp_path / "data") as cluster:
        await cluster.create_topic("t")
        await cluster.snapshot(tmp_path / "snapshot")
    check(tmp_path / "snapshot")
    restored = tmp_path / "restored"
    async with EmbeddedCluster(data_dir=restored, restore_from=tmp_path / "snapshot"):
        check(restored)
