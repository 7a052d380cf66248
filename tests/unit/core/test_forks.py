"""How a forked child handles descriptors, locks and loops of its parent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from aiokq.core import forks, locks, watchdog
from aiokq.core.files import OsFiles
from aiokq.core.watchdog import Watchdog
from tests.forking import LIMIT, LivingChild, in_child, needs_fork
from tests.sim.harness.network import Always

pytestmark = needs_fork


def test_a_child_replaces_an_inherited_descriptor_with_the_null_device(tmp_path: Path) -> None:
    """The parent's object closes that number in the child too, so no other file may have it."""
    with open(tmp_path / "file", "wb") as file:
        descriptor = forks.Descriptor(file.fileno())
        assert in_child(lambda: os.readlink(f"/proc/self/fd/{file.fileno()}")) == os.devnull
        file.write(b"the parent's is as it was")
        assert descriptor is not None
    assert (tmp_path / "file").read_bytes() == b"the parent's is as it was"


def test_a_descriptor_that_was_reused_for_another_file_is_not_closed(tmp_path: Path) -> None:
    """The owner closed its file in another way; the child must not close the later file."""
    first = open(tmp_path / "first", "wb")  # noqa: SIM115
    number = first.fileno()
    kept = forks.Descriptor(number)
    first.close()
    with open(tmp_path / "second", "wb") as second:
        assert second.fileno() == number
        assert in_child(lambda: os.readlink(f"/proc/self/fd/{number}")).endswith("second")
    assert in_child(lambda: "nothing to close") == "nothing to close"
    assert kept is not None


def test_a_child_closes_inherited_descriptors_even_at_the_limit(tmp_path: Path) -> None:
    """A parent forks when it has no file descriptors left.

    The test sets the limit above all open descriptors and uses up the rest. With a limit below some
    of them, a child could not reopen a descriptor that it closed: libuv, which keeps a pipe once
    uvloop has run, does that in each child and aborts if it fails.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    read, write = os.pipe()
    with open(tmp_path / "file", "wb") as file:
        descriptor = forks.Descriptor(file.fileno())
        limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(file.fileno()))
            child = os.fork()
            if child == 0:
                # Not readlink: importing the path module would need a descriptor.
                same = os.fstat(file.fileno()).st_ino == os.stat(tmp_path / "file").st_ino
                os.write(write, b"file" if same else b"null")
                os._exit(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for number in (*taken, write):
                os.close(number)
    _, status = os.waitpid(child, 0)
    assert (status, os.read(read, 10)) == (0, b"null")
    os.close(read)
    assert descriptor is not None


def test_a_flock_is_released_with_the_parent_and_not_with_its_child(tmp_path: Path) -> None:
    """A child that exits must not unlock the file; one that lives on must not keep the lock."""
    path = tmp_path / "lock"
    holder = open(path, "wb")  # noqa: SIM115
    fcntl.flock(holder, fcntl.LOCK_EX)
    descriptor = forks.Descriptor(holder.fileno())
    with open(path, "wb") as other:
        with LivingChild(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with LivingChild():
            holder.close()
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert descriptor is not None


def test_a_child_can_lock_although_a_thread_of_its_parent_held_the_guard(tmp_path: Path) -> None:
    """The thread does not exist in the child and would never release the guard."""
    taken, go = threading.Event(), threading.Event()

    def hold() -> None:
        with locks._held.guard, watchdog._threads.lock:
            taken.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait(60)

    async def watched() -> str:
        dog = Watchdog(lambda seconds, stack: None)
        dog.start()
        dog.stop()
        return "watched"

    def work() -> str:
        OsFiles().lock(tmp_path / "child's").release()
        return asyncio.run(watched())

    try:
        assert in_child(work) == "watched"
    finally:
        go.set()
        thread.join()


def test_a_child_can_neither_take_nor_release_a_lock_of_its_parent(
    tmp_path: Path,
) -> None:
    """POSIX locks belong to a process; the child's own list of locks starts empty."""
    lock = OsFiles().lock(tmp_path / ".lock")

    def work() -> str:
        with pytest.raises(BlockingIOError, match="another process"):
            OsFiles().lock(tmp_path / ".lock")
        lock.release()
        with pytest.raises(BlockingIOError, match="another process"):
            OsFiles().lock(tmp_path / ".lock")
        return "refused"

    assert in_child(work) == "refused"
    with pytest.raises(BlockingIOError, match="this process"):
        OsFiles().lock(tmp_path / ".lock")
    with LivingChild():
        lock.release()
        assert in_child(lambda: OsFiles().lock(tmp_path / ".lock")).startswith("<aiokq")


def test_a_lock_is_released_when_its_last_reference_is_gone(tmp_path: Path) -> None:
    """A broker whose loop was closed first can only be garbage collected."""
    held = [OsFiles().lock(tmp_path / ".lock")]
    with pytest.raises(BlockingIOError):
        OsFiles().lock(tmp_path / ".lock")
    held.clear()
    gc.collect()
    OsFiles().lock(tmp_path / ".lock").release()


def test_a_child_that_leaves_a_coroutine_of_its_parents_loop_does_not_stop_it() -> None:
    """asyncio removed the parent's self-pipe from the shared epoll set: no thread could wake it."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        forks.watch_loop(loop)
        await asyncio.to_thread(lambda: None)  # so that the child shuts an executor down
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT)
            raise SystemExit(3)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        async with asyncio.timeout(30):
            for _ in range(3):
                await asyncio.to_thread(lambda: None)
        return f"{os.waitstatus_to_exitcode(status)}"

    assert run_as_a_process(main) == "3"


def test_files_of_a_child_are_left_alone_when_it_forks(tmp_path: Path) -> None:
    """A daemon closes what it inherited, opens its own files under these numbers, and forks."""

    async def main() -> str:
        from aiokq import EmbeddedCluster

        async with EmbeddedCluster() as kafka:
            host, _, port = kafka.bootstrap_servers.rpartition(":")
            clients = [socket.create_connection((host, int(port))) for _ in range(20)]
            await asyncio.sleep(0.3)  # until all are accepted
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(LIMIT)
                os.dup2(write, 250)
                os.closerange(3, 250)
                files = [os.open(tmp_path / f"{n}", os.O_CREAT | os.O_WRONLY) for n in range(100)]
                if os.fork() == 0:
                    names = {os.readlink(f"/proc/self/fd/{file}") for file in files}
                    os.write(250, f"{len(names)}".encode())
                os._exit(0)
            os.close(write)
            await asyncio.to_thread(os.waitpid, child, 0)
            found = (await asyncio.to_thread(os.read, read, 10)).decode()
            os.close(read)
            for client in clients:
                client.close()
        return found

    assert run_as_a_process(main) == "100"


def run_as_a_process(main: object) -> str:
    """Run `main` in a child process, which has none of the test's threads and may fork and exit."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        status = 1
        try:
            os.write(write, asyncio.run(main()).encode())  # type: ignore[operator]
            status = 0
        except SystemExit as error:
            status = int(error.code or 0)
        finally:
            os._exit(status)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


def test_a_child_closes_its_copy_of_a_listening_socket() -> None:
    """The port accepts connections exactly as long as the parent listens."""

    async def main() -> str:
        from aiokq.connection.network import TcpNetwork

        accepted = asyncio.Event()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set()
                transport.close()  # type: ignore[attr-defined]

        listener = await TcpNetwork().listen(Always(Accepted), "127.0.0.1", 0)
        with LivingChild():
            await asyncio.open_connection("127.0.0.1", listener.port)
            async with asyncio.timeout(30):
                await accepted.wait()
            listener.close()
            await listener.wait_closed()
            try:
                socket.create_connection(("127.0.0.1", listener.port), 5).close()
            except ConnectionRefusedError:
                return "refused"
            return "accepted"

    assert run_as_a_process(main) == "refused"
