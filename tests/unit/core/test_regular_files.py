"""Only regular files are opened; anything else is an error that names the path, never a hang."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aiokq.core.ephemeral_files import EphemeralFiles
from aiokq.core.files import OsFiles
from aiokq.core.regular_files import NotRegularFile
from tests.peers.special_files import KINDS, make

OPENINGS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: OsFiles().open(path),
    "open to create": lambda path: OsFiles().open(path, create=True),
    "open a file that is never synced": lambda path: EphemeralFiles().open(path),
    "open to read": lambda path: OsFiles().open(path, writable=False),
    "read_bytes": lambda path: OsFiles().read_bytes(path),
    "lock": lambda path: OsFiles().lock(path),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_regular_file_is_refused_by_name(
    tmp_path: Path, kind: str, opening: str
) -> None:
    path = make(tmp_path / "log", kind)
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises((NotRegularFile, IsADirectoryError)) as caught:
        OPENINGS[opening](path)
    assert caught.value.filename == str(path)
    if kind == "directory":
        assert caught.value.errno == errno.EISDIR
    else:
        assert kind in str(caught.value.strerror)
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["FIFO", "socket", "device"])
def test_write_atomic_refuses_a_temporary_file_that_is_not_regular(
    tmp_path: Path, kind: str
) -> None:
    make(tmp_path / "checkpoint.tmp", kind)
    with pytest.raises(NotRegularFile, match=kind):
        OsFiles().write_atomic(tmp_path / "checkpoint", b"1")
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("size", [0, 1, 4095, 300_000])
def test_read_bytes_reads_a_file_of_any_size(tmp_path: Path, size: int) -> None:
    (tmp_path / "log").write_bytes(os.urandom(size))
    assert OsFiles().read_bytes(tmp_path / "log") == (tmp_path / "log").read_bytes()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_read_bytes_reads_a_file_whose_size_the_system_does_not_tell() -> None:
    """Its size is 0, as that of a file which grows while it is read is too small."""
    assert os.stat("/proc/self/status").st_size == 0
    assert b"VmSize" in OsFiles().read_bytes("/proc/self/status")


def test_a_program_started_by_the_process_does_not_inherit_the_file(tmp_path: Path) -> None:
    file = OsFiles().open(tmp_path / "log", create=True)
    asked = subprocess.run(
        [sys.executable, "-c", f"import os; os.fstat({file.fileno()})"],
        capture_output=True,
        close_fds=False,
        text=True,
        check=False,
    )
    file.close()
    assert "Bad file descriptor" in asked.stderr
