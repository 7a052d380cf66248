"""Files: the guarantees that the broker's log relies on, on a real and a simulated disk."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.core import files as files_module
from aiokq.core.ephemeral_files import EphemeralFiles
from aiokq.core.files import FileRange, Files, OsFiles
from tests.sim.harness.files import PAGE, MemoryFiles


@pytest.fixture(params=["os", "ephemeral", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "os":
        return OsFiles(), str(tmp_path)
    if request.param == "ephemeral":
        return EphemeralFiles(), str(tmp_path)
    memory = MemoryFiles()
    memory.mkdirs("/data")
    return memory, "/data"


def test_bytes_are_read_where_they_were_written(disk):
    files, root = disk
    file = files.open(f"{root}/log", create=True)
    assert file.pwritev([b"abc", bytearray(b"def"), memoryview(b"xghix")[1:4]], 0) == 9
    assert file.pwritev([b"DE"], 3) == 2
    assert file.pread(4, 2) == b"cDEf"
    assert file.pread(100, 7) == b"hi"
    assert file.pread(5, 9) == b""
    assert file.size() == 9
    buffer = bytearray(20)
    assert file.preadinto(buffer, 5) == 4
    assert buffer[:5] == b"fghi\0"
    assert file.preadinto(memoryview(buffer)[:2], 0) == 2
    assert file.pwritev([], 0) == 0
    assert file.pwritev([b""], 0) == 0
    file.sync()
    file.close()
    assert file.closed
    file.close()
    assert files.read_bytes(f"{root}/log") == b"abcDEfghi"
    assert files.stat_size(f"{root}/log") == 9


def test_a_file_is_closed_when_its_last_reference_is_gone(tmp_path):
    """A segment drops its file while responses still read from it; the last response closes it."""
    file = OsFiles().open(tmp_path / "log", create=True)
    file.pwritev([b"abc"], 0)
    descriptor = file.fileno()
    ranges = [FileRange(file, 0, 3)]
    del file
    assert ranges[0].read() == b"abc"
    ranges.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_truncate_cuts_and_extends_with_zeros(disk):
    """Recovery truncates incomplete batches, and index files are preallocated."""
    files, root = disk
    file = files.open(f"{root}/log", create=True)
    file.pwritev([b"abcdef"], 0)
    file.truncate(3)
    file.truncate(5)
    assert file.pread(10, 0) == b"abc\0\0"
    file.pwritev([b"x"], 8)
    assert file.pread(10, 0) == b"abc\0\0\0\0\0x"
    file.close()


def test_a_file_that_nobody_may_write_to_is_read_and_replaced(disk):
    """Kafka's metadata snapshots have mode 0400; root may still write to them."""
    files, root = disk
    files.write_atomic(f"{root}/snapshot", b"abc")
    files.chmod(f"{root}/snapshot", 0o400)
    file = files.open(f"{root}/snapshot", writable=False)
    assert file.pread(3, 0) == b"abc"
    file.close()
    if isinstance(files, MemoryFiles) or os.geteuid():
        with pytest.raises(PermissionError):
            files.open(f"{root}/snapshot")
    if not isinstance(files, MemoryFiles):
        assert os.stat(f"{root}/snapshot").st_mode & 0o777 == 0o400
    files.write_atomic(f"{root}/snapshot", b"def")
    assert files.read_bytes(f"{root}/snapshot") == b"def"
    with pytest.raises(FileNotFoundError):
        files.chmod(f"{root}/missing", 0o400)


def test_each_failure_to_open_has_an_exception_of_its_own(disk):
    """Each of these has its own message on the command line."""
    files, root = disk
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/no/such/dir", create=True)
    files.open(f"{root}/new", exclusive=True).close()
    with pytest.raises(FileExistsError):
        files.open(f"{root}/new", exclusive=True)
    with pytest.raises(IsADirectoryError):
        files.open(root)
    read_only = files.open(f"{root}/new", writable=False)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_only.pwritev([b"x"], 0)
    read_only.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_only.pread(1, 0)


def test_directories_are_made_listed_renamed_and_removed(disk):
    """Topics are directories, and a deleted one is renamed first."""
    files, root = disk
    files.mkdirs(f"{root}/a/b")
    files.mkdirs(f"{root}/a/b")
    files.write_atomic(f"{root}/a/b/one", b"1")
    files.write_atomic(f"{root}/a/two", b"2")
    assert files.listdir(f"{root}/a") == ["b", "two"]
    assert files.is_dir(f"{root}/a/b")
    assert not files.is_dir(f"{root}/a/two")
    files.rename(f"{root}/a/b", f"{root}/a/b.deleted")
    assert not files.exists(f"{root}/a/b")
    assert files.read_bytes(f"{root}/a/b.deleted/one") == b"1"
    files.remove_tree(f"{root}/a/b.deleted")
    files.remove(f"{root}/a/two")
    assert files.listdir(f"{root}/a") == []
    with pytest.raises(FileNotFoundError):
        files.listdir(f"{root}/nowhere")
    with pytest.raises(FileNotFoundError):
        files.remove(f"{root}/nowhere")
    files.sync_dir(root)


def test_rename_replaces_a_file_and_open_files_stay_readable(disk):
    """A reader of the old segment must not be disturbed."""
    files, root = disk
    files.write_atomic(f"{root}/old", b"old")
    files.write_atomic(f"{root}/new", b"new")
    reader = files.open(f"{root}/old")
    files.rename(f"{root}/new", f"{root}/old")
    assert reader.pread(3, 0) == b"old"
    assert files.read_bytes(f"{root}/old") == b"new"
    reader.close()


def test_write_atomic_leaves_no_temporary_file(disk):
    """Only a crash may leave a .tmp file."""
    files, root = disk
    files.write_atomic(f"{root}/checkpoint", b"0" * 100)
    files.write_atomic(f"{root}/checkpoint", b"1")
    assert files.listdir(root) == ["checkpoint"]
    assert files.read_bytes(f"{root}/checkpoint") == b"1"
    assert files.modified_ms(f"{root}/checkpoint") >= 0


def test_a_lock_excludes_its_own_process_until_released(disk):
    """Two embedded brokers must not use the same data directory."""
    files, root = disk
    lock = files.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/.lock")
    files.lock(f"{root}/.other").release()
    lock.release()
    lock.release()
    files.lock(f"{root}/.lock").release()


def test_a_file_range_has_a_length_and_reads_its_bytes(disk):
    """Fetch responses consist of file ranges."""
    files, root = disk
    file = files.open(f"{root}/log", create=True)
    file.pwritev([b"0123456789"], 0)
    part = FileRange(file, 3, 4)
    assert len(part) == 4
    assert part.read() == b"3456"
    with pytest.raises(EOFError, match="8 bytes at 5 expected, 5 there"):
        FileRange(file, 5, 8).read()
    file.close()


# -- the real disk -------------------------------------------------------------------------

OTHER_PROCESS = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("blocked")
    else:
        print("locked")
"""


def other_process(path: Path) -> str:
    """Return what a process finds that locks like Java's FileChannel.tryLock."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(path)], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_lock_excludes_other_processes_even_after_a_refused_second_try(tmp_path):
    """Closing any descriptor of a file releases its POSIX lock: the second try must open none."""
    path = tmp_path / ".lock"
    lock = OsFiles().lock(path)
    with pytest.raises(BlockingIOError, match="this process"):
        OsFiles().lock(path)
    assert other_process(path) == "blocked"
    lock.release()
    assert other_process(path) == "locked"


def test_a_lock_of_another_process_is_refused(tmp_path):
    """Another broker, Kafka or aiokq, is using this directory."""
    path = tmp_path / ".lock"
    code = OTHER_PROCESS.replace('print("locked")', 'print("locked", flush=True); input()')
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(BlockingIOError, match="another process"):
            OsFiles().lock(path)
        process.communicate("\n")
    OsFiles().lock(path).release()


@pytest.mark.parametrize("most", [1, 3, 5, 7])
def test_short_writes_are_continued(tmp_path, monkeypatch, most: int):
    """A write may end early, and half a batch would corrupt the log."""
    real = os.pwritev
    monkeypatch.setattr(files_module, "IOV_MAX", 2)

    def short(fd: int, buffers, position: int) -> int:
        assert len(buffers) <= 2
        return real(fd, [b"".join(map(bytes, buffers))[:most]], position)

    monkeypatch.setattr(files_module.os, "pwritev", short)
    file = OsFiles().open(tmp_path / "log", create=True)
    parts = [b"ab", b"", b"cdefg", memoryview(b"h"), bytearray(b"ijklmnop"), b"q"]
    assert file.pwritev(parts, 3) == 17
    assert file.pread(17, 3) == b"abcdefghijklmnopq"
    file.close()


def test_more_buffers_than_the_system_takes_are_written(tmp_path):
    """For example a batch of many small fragments."""
    file = OsFiles().open(tmp_path / "log", create=True)
    parts = [bytes([n % 256]) for n in range(files_module.IOV_MAX + 10)]
    assert file.pwritev(parts, 0) == len(parts)
    assert file.pread(len(parts), 0) == b"".join(parts)
    file.close()


def test_an_error_in_the_middle_is_raised(tmp_path, monkeypatch):
    """The disk was full after part of the write; the caller has to truncate it."""
    answers = iter([3])
    real = os.pwritev

    def fills_up(fd: int, buffers, position: int) -> int:
        size = next(answers, None)
        if size is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, [b"".join(map(bytes, buffers))[:size]], position)

    monkeypatch.setattr(files_module.os, "pwritev", fills_up)
    file = OsFiles().open(tmp_path / "log", create=True)
    with pytest.raises(OSError, match="No space left"):
        file.pwritev([b"abcdef"], 0)
    assert file.size() == 3
    file.close()


# -- the simulated disk --------------------------------------------------------------------


def test_a_power_cut_loses_what_was_not_synced():
    """All syncs in the broker exist for this case."""
    disk = MemoryFiles()
    disk.mkdirs("/data")
    disk.sync_dir("/")
    log = disk.open("/data/log", create=True)
    log.pwritev([b"durable"], 0)
    log.sync()
    disk.sync_dir("/data")
    log.pwritev([b" and not"], 7)
    disk.open("/data/unnamed", create=True).sync()
    disk.rename("/data/log", "/data/renamed")
    disk.power_cut()
    assert disk.listdir("/data") == ["log"]
    assert disk.read_bytes("/data/log") == b"durable"
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.pread(1, 0)


def test_a_crash_of_the_process_loses_nothing_but_locks():
    """After SIGKILL the page cache is still there."""
    disk = MemoryFiles()
    log = disk.open("/log", create=True)
    log.pwritev([b"not synced"], 0)
    stale = disk.lock("/.lock")
    disk.crash()
    assert disk.read_bytes("/log") == b"not synced"
    lock = disk.lock("/.lock")
    stale.release()  # the lock of a dead process: no effect
    with pytest.raises(BlockingIOError):
        disk.lock("/.lock")
    lock.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        log.pwritev([b"x"], 0)


def test_a_copy_of_a_disk_is_what_it_was_at_that_moment():
    """What is written, linked, renamed or lost later is so on one of the two disks only."""
    disk = MemoryFiles()
    disk.mkdirs("/d/inner")
    disk.sync_dir("/")
    disk.sync_dir("/d")
    disk.write_atomic("/d/inner/synced", b"1")
    file = disk.open("/d/log", create=True)
    file.pwritev([b"abc"], 0)
    file.sync()
    disk.link("/d/log", "/d/other")
    disk.sync_dir("/d")
    file.pwritev([b"def"], 3)
    disk.rename("/d/log", "/d/renamed")
    there = {"/d/": b"", "/d/inner/": b"", "/d/inner/synced": b"1"}
    now = {**there, "/d/other": b"abcdef", "/d/renamed": b"abcdef"}
    copied, cut = disk.copy(), disk.copy()
    cut.power_cut()
    assert cut.contents("/d") == {**there, "/d/other": b"abc", "/d/log": b"abc"}
    file.truncate(0)
    disk.remove_tree("/d/inner")
    assert copied.contents("/d") == now
    copied.open("/d/other").pwritev([b"x"], 0)
    assert copied.contents("/d/")["/d/renamed"] == b"xbcdef"  # a link is a link in the copy too
    assert disk.contents("/d") == {"/d/": b"", "/d/other": b"", "/d/renamed": b""}


def test_a_random_power_cut_keeps_some_pages_and_a_prefix_of_the_names():
    """Pages are written in any order, so recovery meets holes as well as short files."""
    outcomes = set()
    for seed in range(40):
        disk = MemoryFiles()
        log = disk.open("/log", create=True)
        disk.sync_dir("/")
        log.pwritev([b"a" * 3 * PAGE], 0)
        for name in "xyz":
            disk.open(f"/{name}", create=True)
        disk.power_cut(random.Random(seed))
        names = disk.listdir("/")
        assert names == ["log", "x", "y", "z"][: len(names)]
        content = disk.read_bytes("/log")
        pages = [content[n : n + PAGE] for n in range(0, len(content), PAGE)]
        assert all(page in (b"a" * PAGE, bytes(PAGE)) for page in pages)
        outcomes.add((len(names), *(page[0] for page in pages)))
    assert len(outcomes) > 10


def test_after_a_power_cut_write_atomic_leaves_the_old_or_the_new_content():
    """Checkpoints rely on it."""
    for seed in range(40):
        disk = MemoryFiles()
        disk.write_atomic("/checkpoint", b"old" * 3000)
        disk.fail("sync_dir", times=1)
        with pytest.raises(OSError):
            disk.write_atomic("/checkpoint", b"new" * 3000)
        disk.power_cut(random.Random(seed))
        assert disk.read_bytes("/checkpoint") in (b"old" * 3000, b"new" * 3000)
    disk.write_atomic("/checkpoint", b"last")
    disk.power_cut()
    assert disk.read_bytes("/checkpoint") == b"last"


def test_a_full_disk_makes_a_partial_write():
    """As on a real disk, the part that fits is written."""
    disk = MemoryFiles(capacity=10)
    log = disk.open("/log", create=True)
    log.pwritev([b"12345678"], 0)
    with pytest.raises(OSError, match="No space left") as caught:
        log.pwritev([b"abcdef"], 8)
    assert caught.value.errno == errno.ENOSPC
    assert disk.read_bytes("/log") == b"12345678ab"
    log.pwritev([b"over"], 0)  # overwriting needs no space
    log.truncate(0)
    log.pwritev([b"0123456789"], 0)


def test_faults_affect_only_the_matching_calls():
    """For example EIO on the third sync of one file."""
    disk = MemoryFiles()
    log = disk.open("/log", create=True)
    disk.fail("pwritev", written=2, matches=lambda path: path == "/log")
    disk.fail("sync", times=None)
    with pytest.raises(OSError, match="Input/output error"):
        log.pwritev([b"abcd"], 0)
    assert disk.read_bytes("/log") == b"ab"
    log.pwritev([b"abcd"], 0)
    for _ in range(2):
        with pytest.raises(OSError):
            log.sync()
    disk.heal()
    log.sync()
    disk.corrupt("/log", 1, 0x01)
    assert log.pread(4, 0) == b"accd"


def test_a_link_is_the_same_file_by_another_name(disk):
    """A snapshot shares closed segments; removing one name keeps the other."""
    files, root = disk
    file = files.open(f"{root}/log", create=True)
    file.pwritev([b"abc"], 0)
    file.close()
    files.link(f"{root}/log", f"{root}/second")
    files.remove(f"{root}/log")
    assert files.read_bytes(f"{root}/second") == b"abc"
    with pytest.raises(FileNotFoundError):
        files.link(f"{root}/log", f"{root}/third")
    files.open(f"{root}/log", create=True).close()
    with pytest.raises(FileExistsError):
        files.link(f"{root}/log", f"{root}/second")


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot tell")
def test_data_in_the_page_cache_is_recognised(tmp_path):
    """The event loop must not wait for the disk, nor use a thread for cached data."""
    file = OsFiles().open(tmp_path / "log", create=True)
    file.pwritev([bytes(1_000_000)], 0)
    part, small = FileRange(file, 100, 900_000), FileRange(file, 500_000, 100)
    assert part.cached()
    assert small.cached()
    assert file.cached(0, 2_000_000)
    assert file.pread_cached(100, 500_000) == bytes(100)
    assert file.pread_cached(100, 999_990) == bytes(10)
    file.sync()

    def seen(look) -> bool:
        """Return what `look` says without the data in the page cache.

        A look at data outside the cache makes the kernel read it, so that the next look may find
        it, and data that is being read is not dropped.
        """
        for _ in range(100):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not look():
                return False
        return True

    if seen(part.cached):
        pytest.skip("this file system keeps all in memory, or cannot tell")
    assert not seen(small.cached)
    assert not seen(lambda: file.pread_cached(100, 500_000))
    part.load()
    assert part.cached()
    assert small.cached()
    assert file.pread_cached(100, 500_000) == bytes(100)
    file.close()
    assert part.cached()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pread_cached(100, 500_000)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot tell")
def test_partly_cached_data_counts_as_not_cached(tmp_path, monkeypatch):
    """If only the first of two pages is cached, the system call returns it without an error."""
    file = OsFiles().open(tmp_path / "log", create=True)
    file.pwritev([b"x" * 40_000], 0)
    preadv = os.preadv

    def first_page(fd, buffers, position, *flags):
        if not flags:
            return preadv(fd, buffers, position)
        [buffer] = buffers
        if position >= 4096:
            raise BlockingIOError
        return preadv(fd, [memoryview(buffer)[: 4096 - position]], position)

    monkeypatch.setattr(files_module.os, "preadv", first_page)
    assert file.cached(100, 0)
    assert not file.cached(10_000, 0)
    assert not file.cached(100, 9000)
    assert not file.cached(9_000, 500)
    assert not file.cached(30_000, 0)  # larger ranges are sampled, including the last byte
    assert file.pread_cached(10_000, 4000) == b"x" * 96
    assert file.pread_cached(100, 5000) == b""


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot tell")
@pytest.mark.parametrize("asked", ["cached", "pread_cached"])
def test_a_file_system_without_rwf_nowait_is_asked_once(tmp_path, monkeypatch, asked):
    """On network file systems each read raised an exception or failed."""
    file = OsFiles().open(tmp_path / "log", create=True)
    file.pwritev([b"x" * 100], 0)
    calls = []

    def refuse(*args):
        calls.append(args)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(files_module.os, "preadv", refuse)
    getattr(file, asked)(10, 0)
    assert file.pread_cached(10, 0) == b"x" * 10
    assert file.cached(10, 0)
    assert len(calls) == 1


def test_a_real_path_has_no_links_and_may_be_missing(tmp_path):
    """Two names of one directory are equal."""
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    real = os.path.realpath(tmp_path)
    assert OsFiles().real_path(tmp_path / "link" / "missing") == f"{real}/d/missing"
    assert MemoryFiles().real_path("/data/./d/../e/") == "/data/e"
