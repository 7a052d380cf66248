"""aiokq.broker.log.disk_trouble: a line when it begins, few while it lasts, one at its end."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from aiokq.broker.log.disk_trouble import CALM_SECONDS, DiskTrouble, unusable
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import TP, append, batch, open_partition


def full(path: str | None = None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_full_disk_is_few_lines_whatever_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Each of 10,000 appends a second was a line: the log filled what was left of the disk."""
    time = Time()
    disk = DiskTrouble(time)
    for _ in range(600):
        time.now += 0.1
        for _ in range(10):
            disk.append_refused(TP, "append failed", full(), "/data/orders-0/0.log")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 4 <= len(errors) <= 8
    assert "No space left on device" in errors[0].getMessage()
    assert errors[0].getMessage().endswith("times=1")
    assert not errors[-1].getMessage().endswith("times=1")


def test_the_end_is_a_line_once_nothing_has_failed_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a full disk small appends go through between large ones: that is not the end."""
    time = Time()
    disk = DiskTrouble(time)
    disk.append_refused(TP, "append failed", full())
    for _ in range(3):
        time.now += CALM_SECONDS - 1
        disk.append_worked()
        assert disk.lasting
        disk.append_refused(TP, "append failed", full())
    time.now += CALM_SECONDS
    caplog.clear()
    disk.append_worked()
    assert not disk.lasting
    assert [record.getMessage() for record in caplog.records] == [
        "appends are written again failed_before=4"
    ]
    disk.append_refused(TP, "append failed", full())
    assert caplog.records[-1].levelno == logging.ERROR  # new trouble is said at once


def test_another_cause_is_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """An I/O error behind a full disk is news."""
    disk = DiskTrouble(Time())
    disk.append_refused(TP, "append failed", full())
    disk.append_refused(TP, "append failed", OSError(errno.EIO, "Input/output error"))
    disk.refused(TP, "read failed", OSError(errno.EIO, "Input/output error"))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3


def test_the_error_names_the_cause_and_the_partition() -> None:
    """It goes to the producer as the error message of its partition."""
    error = DiskTrouble(Time()).append_refused(TP, "append failed", full("/data/orders-0/0.log"))
    assert error.code == 56
    assert "No space left on device" in error.message
    assert "orders-0" in error.message


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free space"),
        (errno.ENOTDIR, "is a file"),
        (errno.EEXIST, "is a file"),
        (errno.EACCES, "make it writable"),
        (errno.EROFS, "make it writable"),
    ],
)
def test_what_to_do_fits_the_cause(number: int, words: str) -> None:
    """'make it writable' is no help on a full disk, and none for a file."""
    assert words in unusable("/data", OSError(number, os.strerror(number))).message


def test_an_append_that_works_again_tells_the_disks_trouble() -> None:
    """The state must not stay on: every append would pay for it."""
    files = MemoryFiles()
    log = open_partition(files)
    files.fail("pwritev", errno.ENOSPC, matches=lambda path: path.endswith(".log"))
    with pytest.raises(Exception, match="No space left on device"):
        append(log, batch())
    assert log._disk.lasting
    log._disk._latest = -CALM_SECONDS
    append(log, batch())
    assert not log._disk.lasting
