"""aiokq.broker.log.disk_trouble: an I/O error takes the directory offline, with one log line."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from aiokq.broker.log.disk_trouble import DiskTrouble, unusable
from aiokq.core.errors import CorruptRecord, KafkaStorage
from tests.unit.broker.log.samples import TP


def error_of(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.ENOENT])
def test_a_disk_that_refuses_takes_the_directory_offline_once(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The listener is called once, whatever fails afterwards."""
    told: list[KafkaStorage] = []
    disk = DiskTrouble(Time(), "/data")
    disk.listener = told.append
    assert disk.failure is None
    disk.refused(TP, "append failed", error_of(number))
    disk.refused(TP, "read failed", error_of(errno.EIO))
    assert told == [disk.failure]
    assert "log directory /data is offline until the broker restarts" in told[0].message
    assert f"append failed: {os.strerror(number)}" in told[0].message
    lines = [line for line in caplog.messages if line.startswith("log directory offline")]
    assert len(lines) == 1


def test_two_threads_that_meet_it_take_the_directory_offline_once() -> None:
    """Regression: both halves of a flush failed at once, and the partitions went offline twice."""
    told: list[KafkaStorage] = []
    disk = DiskTrouble(Time(), "/data")
    disk.listener = told.append

    class Overtaken(OSError):
        looks = 0

        @property
        def errno(self) -> int:
            self.looks += 1
            if self.looks == 2:
                disk.refused(TP, "flush failed", error_of(errno.EIO))
            return errno.ENOSPC

    disk.refused(TP, "flush failed", Overtaken())
    assert told == [disk.failure]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_process_without_descriptors_has_no_broken_disk(number: int) -> None:
    """Apache Kafka halts then, but closing a few connections is enough."""
    disk = DiskTrouble(Time(), "/data")
    assert disk.refused(TP, "read failed", error_of(number)).code == 56
    assert disk.failure is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_may_refuse_a_new_log_and_stay_online(number: int) -> None:
    """Nothing else that fails is accepted, and no other operation may fail."""
    disk = DiskTrouble(Time(), "/data")
    refused = disk.refused(TP, "log not created", error_of(number), may_be_full=True)
    assert (refused.code, disk.failure) == (56, None)
    disk.refused(TP, "log not created", error_of(errno.EIO), may_be_full=True)
    assert disk.failure is not None
    disk = DiskTrouble(Time(), "/data")
    disk.refused(TP, "append failed", error_of(number))
    assert disk.failure is not None


def test_damage_in_one_log_is_not_the_directorys() -> None:
    """The partition cannot be read; the others are not affected."""
    disk = DiskTrouble(Time(), "/data")
    assert disk.refused(TP, "append failed", CorruptRecord("bad index")).code == 56
    assert disk.failure is None


def test_what_is_refused_all_the_time_is_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Without descriptors thousands of reads a second fail in the same way."""
    time = Time()
    disk = DiskTrouble(time)
    for _ in range(600):
        time.now += 0.1
        for _ in range(10):
            disk.refused(TP, "read failed", error_of(errno.EMFILE), "/data/orders-0/0.log")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert 4 <= len(errors) <= 8
    assert errors[0].getMessage().endswith("times=1")
    assert not errors[-1].getMessage().endswith("times=1")


def test_the_error_names_the_cause_and_the_partition() -> None:
    """The producer gets it as the error message of the partition."""
    error = DiskTrouble(Time()).refused(
        TP, "append failed", error_of(errno.ENOSPC, "/data/orders-0/0.log")
    )
    assert error.code == 56
    assert "No space left on device" in error.message
    assert "orders-0" in error.message


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EIO, "check the disk"),
        (errno.ENOTDIR, "is a file"),
        (errno.EEXIST, "is a file"),
        (errno.EACCES, "make the directory writable"),
        (errno.EROFS, "make the directory writable"),
        (errno.ENOENT, "No such file or directory; choose another"),
        (errno.ENAMETOOLONG, "File name too long; choose another"),
        (errno.EMFILE, "raise the limit of open files"),
    ],
)
def test_what_to_do_fits_the_cause(number: int, words: str) -> None:
    """Another directory is no help without descriptors, nor are permissions on a full disk."""
    assert words in unusable("/data", error_of(number)).message


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_what_was_not_synced_takes_the_directory_offline_whatever_the_error(number: int) -> None:
    """A lack of descriptors passes, but it stays unknown what was written."""
    told: list[KafkaStorage] = []
    disk = DiskTrouble(Time(), "/data")
    disk.listener = told.append
    failed = disk.fail(TP, "log not synced", error_of(number))
    assert failed.message.startswith(f"log not synced: {os.strerror(number)}; ")
    disk.fail(TP, "log not synced", KafkaStorage("again"))
    assert told == [disk.failure]
    assert told[0].message.endswith("start the broker again")
    disk = DiskTrouble(Time(), "/data")
    assert disk.fail(TP, "log not synced", KafkaStorage("no")).message == (
        "log not synced: no; start the broker again"
    )
