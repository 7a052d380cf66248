"""EmbeddedCluster used from other loops than the one that started it, and after that loop ended."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.broker.loop_thread import LoopThread
from aiokq.core.errors import Closed, WrongLoop
from aiokq.core.files import OsFiles

ROOT = Path(__file__).resolve().parents[2]

both_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


class Owner:
    """The loop on which a cluster is started, in a thread; the test stops and closes the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def call(self, coro: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coro, self.loop).result(60)

    def stop(self) -> None:
        if self.thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(60)
            self.thread = None

    def close(self) -> None:
        """Close the loop as asyncio.run() does."""
        self.stop()
        if not self.loop.is_closed():
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks))
            self.loop.close()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def owner(request: pytest.FixtureRequest) -> Iterator[Owner]:
    owner = Owner(request.param())
    owner.run()
    yield owner
    owner.close()


def refuses(address: str) -> bool:
    """Whether no socket of this process listens at `address`.

    Does not connect, because another process may have got the port since.
    """
    host, port = address.split(":")
    for fd in map(int, os.listdir("/dev/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.socket(fileno=os.dup(fd)) as found:
                listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and found.getsockname()[:2] == (host, int(port)):
                    return False
        except OSError:  # listdir()'s own descriptor, or one that a thread has closed
            continue
    return True


def directory_of(kafka: EmbeddedCluster) -> Path:
    return Path(kafka.node.storage.directories.online[0].path)


def calls(kafka: EmbeddedCluster, path: Path) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    return {
        "create_topic": lambda: kafka.create_topic("t", 1),
        "delete_topic": lambda: kafka.delete_topic("t"),
        "reset": kafka.reset,
        "snapshot": lambda: kafka.snapshot(path / "snapshot"),
    }


async def test_control_calls_and_close_go_to_the_owner_while_it_runs(owner: Owner, tmp_path: Path):
    """Regression: `close()` closed the node on the loop of its caller, where it hung."""
    kafka = EmbeddedCluster()
    owner.call(kafka.start())
    async with asyncio.timeout(60):
        for call in calls(kafka, tmp_path).values():
            await call()
        address, directory = kafka.bootstrap_servers, directory_of(kafka)
        await kafka.close()
        await kafka.close()
        assert refuses(address)
        assert not directory.exists()
        with pytest.raises(Closed):
            await kafka.create_topic("t")


async def test_every_call_fails_at_once_while_the_owner_does_not_run(owner: Owner, tmp_path: Path):
    """Regression: the calls never returned, `close()` not even at `wait_for`'s timeout."""
    kafka = EmbeddedCluster()
    owner.call(kafka.start())
    owner.stop()
    directory = directory_of(kafka)
    async with asyncio.timeout(60):
        for call in (*calls(kafka, tmp_path).values(), kafka.close):
            with pytest.raises(WrongLoop, match=r"loop_scope=\"session\""):
                await call()
    assert directory.exists(), "its loop may run again"
    assert "127.0.0.1" in repr(kafka)
    assert not refuses(kafka.bootstrap_servers), "a value, and the system accepts"
    owner.run()
    owner.call(kafka.create_topic("again"))
    owner.call(kafka.close())
    assert not directory.exists()


async def test_a_call_is_told_when_the_owner_stops_meanwhile(owner: Owner, tmp_path: Path):
    """The loop of a fixture ends while a test waits for the cluster."""
    kafka = EmbeddedCluster()
    owner.call(kafka.start())
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go.wait(60)

    owner.loop.call_soon_threadsafe(hold)
    await asyncio.to_thread(held.wait, 60)
    copying = asyncio.create_task(kafka.snapshot(tmp_path / "snapshot"))
    closing = asyncio.create_task(kafka.close())
    await asyncio.sleep(0)  # both are handed over, and take several iterations of the loop
    owner.loop.call_soon_threadsafe(owner.loop.stop)
    go.set()
    for task in (copying, closing):
        with pytest.raises(WrongLoop, match="loop_scope"):
            await task
    assert owner.thread is not None
    await asyncio.to_thread(owner.thread.join)
    owner.run()
    owner.call(kafka.close())


@pytest.mark.parametrize("closes", [False, True], ids=["forgotten", "closed elsewhere"])
@both_loops
def test_after_the_owners_end_the_finaliser_gives_everything_back(
    new_loop: NewLoop, closes: bool, tmp_path: Path
):
    """Regression: lock, port and temporary directory were held until the process ended."""
    kept: list[EmbeddedCluster] = []

    async def start() -> tuple[str, Path]:
        temporary = EmbeddedCluster()
        await temporary.start()
        lasting = EmbeddedCluster(data_dir=tmp_path / "data")
        await lasting.start()
        await lasting.create_topic("kept", 1)
        kept.extend([temporary, lasting])
        return f"{temporary.bootstrap_servers} {lasting.bootstrap_servers}", directory_of(temporary)

    # uvloop warns about an open listener, and hangs where warnings are errors.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            addresses, directory = runner.run(start())
    with pytest.raises(BlockingIOError):
        OsFiles().lock(tmp_path / "data" / ".lock")

    async def close() -> None:
        for kafka in kept:
            with pytest.raises(WrongLoop, match="loop_scope"):
                await kafka.close()
            assert repr(kafka) == "<EmbeddedCluster not running>"
            await kafka.close()

    if closes:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(close())
    else:
        with pytest.warns(ResourceWarning, match="was not closed") as caught:  # noqa: PT031
            kept.clear()
            gc.collect()  # the clusters may be in a cycle
        where = {each.filename for each in caught if "was not closed" in str(each.message)}
        del caught  # the warnings refer to the clusters
        assert where == {__file__}
    # A thread of the executor may refer to its last task for a moment after the task has ended.
    deadline = time.monotonic() + 5
    while True:
        gc.collect()
        released = not directory.exists() and all(map(refuses, addresses.split()))
        if released or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert released
    OsFiles().lock(tmp_path / "data" / ".lock").release()

    async def again() -> None:
        async with EmbeddedCluster(data_dir=tmp_path / "data") as kafka:
            assert kafka.node.topics.get("kept") is not None

    asyncio.run(again())
    if closes:
        asyncio.run(restarted(kept[0]))


async def restarted(kafka: EmbeddedCluster) -> None:
    async with kafka:
        await kafka.create_topic("anew")


async def test_one_on_a_thread_is_closed_from_another_loop():
    """Regression: leaving `with` afterwards waited for half a minute and then reported a hang."""
    with EmbeddedCluster() as kafka:
        await kafka.create_topic("t")
        address = kafka.bootstrap_servers
        await kafka.close()
        with pytest.raises(Closed, match="needs a running cluster"):
            kafka.run(kafka.create_topic("u"))
    assert refuses(address)
    with kafka:
        kafka.run(kafka.create_topic("t"))


async def test_a_second_close_waits_for_the_end_of_the_first(tmp_path: Path):
    """Regression: the second close() returned at once, and a restart found the directory in use."""
    kafka = EmbeddedCluster(data_dir=tmp_path / "data")
    await kafka.start()
    await kafka.create_topic("t", 20)
    first = asyncio.create_task(kafka.close())
    await asyncio.sleep(0)
    with pytest.raises(Closed):
        await kafka.create_topic("u")
    await kafka.close()
    async with EmbeddedCluster(data_dir=tmp_path / "data"):
        pass
    await first


class Interrupted(threading.Event):
    """An event whose wait() raises KeyboardInterrupt, as Ctrl-C does, once `reached` is set."""

    def __init__(self, reached: threading.Event) -> None:
        super().__init__()
        self.reached = reached

    def wait(self, timeout: float | None = None) -> bool:
        self.reached.wait(60)
        raise KeyboardInterrupt


@pytest.mark.parametrize("when", ["before its loop", "while it starts", "when it has started"])
def test_an_interrupted_start_on_a_thread_leaves_nothing(when: str, tmp_path: Path):
    """Regression: Ctrl-C in `with EmbeddedCluster()` left a broker that nobody could stop."""
    kafka = EmbeddedCluster(data_dir=tmp_path / "data")
    reached = threading.Event()

    async def start() -> None:
        if when == "while it starts":
            reached.set()
            await asyncio.sleep(60)
        await kafka.start()
        reached.set()

    if when == "before its loop":
        reached.set()
    thread = LoopThread(start, kafka.close)
    thread._ready = Interrupted(reached)
    with pytest.raises(KeyboardInterrupt):
        thread.enter()
    assert "aiokq-broker" not in [each.name for each in threading.enumerate()]
    with EmbeddedCluster(data_dir=tmp_path / "data"):
        pass


def test_run_on_the_clusters_own_thread_is_refused():
    """Regression: run() waited for its own thread for half a minute."""
    with EmbeddedCluster() as kafka:

        async def main() -> None:
            kafka.run(kafka.create_topic("t"))

        with pytest.raises(WrongLoop, match="await the coroutine"):
            kafka.run(main())


def test_a_call_that_runs_when_its_thread_ends_is_told():
    """`run(..., timeout=None)` would otherwise wait for ever."""
    begun = threading.Event()
    with EmbeddedCluster() as kafka:

        async def endless() -> None:
            begun.set()
            await asyncio.get_running_loop().create_future()

        caught: list[BaseException] = []

        def call() -> None:
            try:
                kafka.run(endless(), timeout=None)
            except Closed as error:
                caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        assert begun.wait(60)
        with pytest.raises(TimeoutError):
            kafka.run(endless(), timeout=0)
    thread.join(60)
    assert len(caught) == 1


SESSION_FIXTURE = """
import aiokq
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(scope="session"{fixture})
async def kafka():
    async with aiokq.EmbeddedCluster() as kafka:
        yield kafka


@pytest_asyncio.fixture{plain}
async def clean(kafka):
    await kafka.reset()


{mark}
async def test_topics(kafka):
    await kafka.create_topic("orders", 3)


{mark}
async def test_clean(clean, kafka):
    async with aiokq.Producer(kafka.bootstrap_servers) as producer:
        await producer.send("orders", b"value")
"""


def run_pytest(
    path: Path, *, default: str = "function", **parts: str
) -> subprocess.CompletedProcess[str]:
    (path / "tmp").mkdir()
    (path / "test_it.py").write_text(SESSION_FIXTURE.format(**parts))
    (path / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = {default}\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "."],
        cwd=path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(path / "tmp"),
            "PYTEST_ADDOPTS": "",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize(
    ("fixture", "default"),
    [(', loop_scope="session"', "function"), ("", "session")],
    ids=["by the fixture", "by default"],
)
def test_a_session_fixture_with_tests_on_other_loops_is_told_what_to_write(
    tmp_path: Path, fixture: str, default: str
):
    """The fixture's loop does not run while a test uses its own loop: `create_topic` hung there."""
    done = run_pytest(
        tmp_path,
        default=default,
        fixture=fixture,
        plain='(loop_scope="function")',
        mark="@pytest.mark.asyncio",
    )
    assert "1 failed, 1 error" in done.stdout, done.stdout
    assert "aiokq.core.errors.WrongLoop" in done.stdout
    assert '@pytest.mark.asyncio(loop_scope="session")' in done.stdout
    assert list((tmp_path / "tmp").glob("aiokq-*")) == []


def test_what_the_error_says_works(tmp_path: Path):
    """Run the same file with the loop_scope that the error names."""
    done = run_pytest(
        tmp_path,
        fixture=', loop_scope="session"',
        plain='(loop_scope="session")',
        mark='@pytest.mark.asyncio(loop_scope="session")',
    )
    assert "2 passed" in done.stdout, done.stdout
    assert list((tmp_path / "tmp").glob("aiokq-*")) == []


@pytest.mark.torture
@pytest.mark.timeout(1200)
def test_ten_thousand_resets_keep_memory_level() -> None:
    """A test suite resets its cluster after each test; the metadata log is cut off by snapshots.

    `python -m benchmarks.resets` measures the time of a reset, too.
    """

    async def main() -> tuple[list[int], int, int]:
        memory = []
        async with EmbeddedCluster() as kafka:
            for number in range(1, 10_001):
                for topic in range(5):
                    await kafka.create_topic(f"t{topic}")
                await kafka.reset()
                if number in (1_000, 10_000):
                    memory.append(resident_bytes())
            log = kafka.node.storage.metadata
            return memory, log.start_offset, log.end_offset

    (early, late), start_offset, end_offset = asyncio.run(main())
    assert late - early < 4_000_000
    assert end_offset == 150_010
    assert end_offset - start_offset < 60_000


def resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
