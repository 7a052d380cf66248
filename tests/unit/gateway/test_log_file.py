"""Log files: rotation, the limit of old files, and disks that refuse writes."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from aiokq.gateway.reports import log_file
from aiokq.gateway.reports.log_file import LogFile


class Clock:
    def __init__(self) -> None:
        self.ms = 1000
        self.seconds = 50.0

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def monotonic(self) -> float:
        return self.seconds


def opened(path: Path, *, size: int = 100, archive: int = 1000) -> tuple[LogFile, Clock]:
    clock = Clock()
    file = LogFile(
        path,
        max_file_bytes=size,
        max_archive_bytes=archive,
        now_ms=clock.now_ms,
        monotonic=clock.monotonic,
    )
    return file, clock


def lines(count: int, start: int = 0) -> list[bytes]:
    return [b"line %04d\n" % (start + n) for n in range(count)]  # 10 bytes each


def test_point_48_the_log_rotates_by_size(tmp_path: Path):
    path = tmp_path / "new" / "discards"
    file, _ = opened(path)
    for n in range(25):
        file.append(lines(1, n))
    assert file.rotations == 2
    assert file.written == 25
    old = sorted(file.archived())
    assert [one.read_bytes() for one in old] == [b"".join(lines(10)), b"".join(lines(10, 10))]
    assert all(int(one.suffix[1:]) for one in old)
    assert path.read_bytes() == b"".join(lines(5, 20))
    file.close()


def test_point_48_the_archive_is_pruned_the_oldest_first(tmp_path: Path):
    file, _ = opened(tmp_path / "f", archive=250)
    (tmp_path / "f.backup").write_text("this is no file of the log")
    file.append(lines(100))
    old = sorted(file.archived(), key=lambda path: int(path.suffix[1:]))
    assert len(old) == 2
    assert old[0].read_bytes().startswith(b"line 0070")
    assert (tmp_path / "f.backup").exists()


def test_point_48_what_is_there_is_continued_and_pruned_when_the_log_is_opened(tmp_path: Path):
    (tmp_path / "f").write_bytes(b"".join(lines(9)))
    for n in range(5):
        (tmp_path / f"f.{n}").write_bytes(bytes(400))
    file, _ = opened(tmp_path / "f")
    file.append(lines(2, 9))
    assert (tmp_path / "f").read_bytes() == b"".join(lines(2, 9))
    assert {path.name for path in file.archived()} == {"f.3", "f.4", "f.1001"}


def test_a_file_of_the_same_millisecond_is_not_overwritten(tmp_path: Path):
    file, clock = opened(tmp_path / "f")
    file.append(lines(10))
    (tmp_path / f"f.{clock.ms + 1}").write_bytes(b"old")
    file.append(lines(1, 10))
    assert sorted(len(path.read_bytes()) for path in file.archived()) == [3, 100]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_writes_costs_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
):
    """A line is written whole or not at all, also when the disk is full in the middle of it."""
    file, clock = opened(tmp_path / "f", size=10_000)
    file.append(lines(2))
    real, room = os.write, 25

    def write(fd: int, data: bytes) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(code, os.strerror(code))
        done = real(fd, data[:room])
        room -= done
        return done

    monkeypatch.setattr(log_file.os, "write", write)
    file.append(lines(3, 2))
    assert (file.written, file.dropped) == (2, 3)
    assert file.error == os.strerror(code)
    file.append(lines(1, 5))
    assert file.dropped == 4  # it is not tried again within a second
    room = 1000
    file.append(lines(1, 6))
    assert file.dropped == 5
    clock.seconds += 1
    file.append(lines(1, 7))
    assert file.error is None
    assert (tmp_path / "f").read_bytes() == b"".join(lines(2) + lines(1, 7))


def test_a_directory_that_cannot_be_made_costs_lines_and_nothing_else(tmp_path: Path):
    (tmp_path / "file").write_text("")
    file, _ = opened(tmp_path / "file" / "discards")
    file.append(lines(3))
    assert file.dropped == 3
    file.truncate()
    file.prune()


def test_truncating_empties_an_open_and_a_closed_file(tmp_path: Path):
    file, _ = opened(tmp_path / "f")
    file.truncate()
    file.append(lines(3))
    file.truncate()
    assert (tmp_path / "f").read_bytes() == b""
    file.append(lines(1))
    file.close()
    file.truncate()
    assert (tmp_path / "f").read_bytes() == b""
