"""Processes that fork with an embedded cluster and clients; the child exits first or last.

Each runs as a process of its own, without the threads of the tests.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aiokq.core.files import OsFiles
from tests.forking import needs_fork

pytestmark = needs_fork

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 90
"""Seconds that a process may take on a busy machine."""

PREAMBLE = """
import asyncio, multiprocessing, os, signal, sys, time, warnings
import aiokq
signal.alarm(80)  # no process of the test outlives it, not even one that hangs
# What Python 3.12 says of every fork in a process with threads; it is in the guide.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
"""

EXITS = (
    PREAMBLE
    + '''
mode, ending, settings = sys.argv[1], sys.argv[2], {}

def child():
    """What it does between the fork and its end."""

def forked():
    """The child ends in the way that was asked for; its exit status, in the parent."""
    if ending.startswith("multiprocessing"):
        process = multiprocessing.get_context(ending.split()[1]).Process(target=child)
        process.start()
        process.join()
        return process.exitcode
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        child()
        match ending:
            case "os._exit":
                os._exit(0)
            case "sys.exit":
                sys.exit(0)
            case "exception":
                raise ZeroDivisionError
            case "SIGTERM":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def directory(kafka):
    return kafka.node.storage.directories.online[0].path

async def on_a_loop():
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Cluster(kafka.bootstrap_servers) as cluster,
        cluster.producer() as producer,
        aiokq.Admin(kafka.bootstrap_servers),
    ):
        await kafka.create_topic("before", 1)
        async with cluster.consumer("before") as consumer:
            await producer.send("before", b"1")
            await asyncio.to_thread(int)  # the loop has an executor, which a child has to end
            print("child", forked(), flush=True)
            assert os.path.isdir(directory(kafka))
            async with asyncio.timeout(40):
                await asyncio.to_thread(int)
                await kafka.create_topic("after", 1)
                await producer.send("before", b"2")
                values = [(await consumer.getone()).value, (await consumer.getone()).value]
        assert values == [b"1", b"2"]
    return kafka

async def used(kafka):
    async with asyncio.timeout(40), aiokq.Producer(kafka.bootstrap_servers) as producer:
        return await producer.send("after", b"v")

def on_a_thread():
    with aiokq.EmbeddedCluster() as kafka:
        kafka.run(kafka.create_topic("before", 1))
        print("child", forked(), flush=True)
        assert os.path.isdir(directory(kafka))
        kafka.run(kafka.create_topic("after", 1))
        assert asyncio.run(used(kafka)).offset == 0

def never_closed():
    """As with pytest's plugins: nothing of the parent is on the child's stack."""
    kafka = aiokq.EmbeddedCluster().__enter__()
    kafka.run(kafka.create_topic("after", 1))
    print("child", forked(), flush=True)
    assert os.path.isdir(directory(kafka))
    assert asyncio.run(used(kafka)).offset == 0
    kafka.__exit__(None, None, None)

if __name__ == "__main__":
    if mode == "asyncio":
        asyncio.run(on_a_loop())
    elif mode == "uvloop":
        import uvloop
        uvloop.run(on_a_loop())
    elif mode == "thread":
        on_a_thread()
    else:
        never_closed()
    print("parent done", flush=True)
'''
)

STATUS = {"exception": "1", "SIGTERM": str(-signal.SIGTERM)}


def run_script(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `script` as a module, which the children of forkserver can import again.

    Also check that its clusters leave no directories behind.
    """
    path.mkdir(exist_ok=True)
    (path / "script.py").write_text(script)
    # The path of forkserver's socket must fit into 107 bytes; pytest's directory is too long.
    with tempfile.TemporaryDirectory(prefix="forks-", dir="/tmp") as temporary:
        done = subprocess.run(
            [sys.executable, "-W", "default", str(path / "script.py"), *arguments],
            env={**os.environ, "TMPDIR": temporary, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert list(Path(temporary).glob("aiokq-*")) == []
    return done


@pytest.mark.parametrize(
    "ending",
    [
        "os._exit",
        "sys.exit",
        "exception",
        "SIGTERM",
        "multiprocessing fork",
        "multiprocessing forkserver",
    ],
)
@pytest.mark.parametrize("mode", ["thread", "asyncio", "uvloop", "never closed"])
def test_a_child_that_exits_takes_nothing_from_its_parent(mode: str, ending: str, tmp_path: Path):
    """Regression: `sys.exit(0)` in a forked child deleted the parent's data and stopped its loop.

    The parent's cluster and clients continue, its directory exists until the cluster is closed, and
    the child exits as intended, without warnings about objects that belong to the parent.
    """
    done = run_script(EXITS, tmp_path / "run", mode, ending)
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert done.stdout == f"child {STATUS.get(ending, '0')}\nparent done\n", said
    assert "was not closed" not in said
    assert "WrongLoop" not in said
    assert "never awaited" not in said
    assert "pending" not in said
    if ending != "exception":
        assert "Traceback" not in said, said


OUTLIVES = (
    PREAMBLE
    + """
async def main(data, how):
    kafka = aiokq.EmbeddedCluster(data_dir=data)
    await kafka.start()
    cluster = aiokq.Cluster(kafka.bootstrap_servers)
    await cluster.start()
    await kafka.create_topic("kept", 1)
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(75)
        os.write(tell, b"!")
        sys.stdin.read()
        os._exit(0)
    os.read(ready, 1)
    print(pid, kafka.bootstrap_servers, flush=True)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await cluster.close()
    await kafka.close()
    print("closed", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
)


@contextmanager
def outliving_child(data: Path, how: str) -> Iterator[tuple[str, int]]:
    """Yield the address of a cluster whose process is gone, and whose forked child still runs.

    The parent has closed its cluster or was killed.
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", OUTLIVES, str(data), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        pid, address = parent.stdout.readline().split()
        # Not communicate(), because the child also has the other end of the pipe.
        parent.wait(LIMIT)
        if how == "closed":
            assert parent.stdout.readline() == "closed\n"
            assert parent.returncode == 0
        os.kill(int(pid), 0)  # raises if the child is gone
        host, port = address.split(":")
        yield host, int(port)
        os.kill(int(pid), 0)
    finally:
        parent.stdin.close()
        parent.stdout.close()


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_child_that_outlives_its_parent_keeps_no_port_and_no_directory(how: str, tmp_path: Path):
    """Regression: the port accepted connections, which nobody served, until the child ended."""
    with outliving_child(tmp_path / "data", how) as address:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, 10)
        OsFiles().lock(tmp_path / "data" / ".lock").release()


BROKER_SIDE = (
    PREAMBLE
    + """
async def main():
    kafka = aiokq.EmbeddedCluster()
    await kafka.start()
    host, port = kafka.bootstrap_servers.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    while not kafka.node.counters.connections.value:
        await asyncio.sleep(0)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os.close(write)
        os.close(writer.get_extra_info("socket").fileno())
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    await kafka.close()
    async with asyncio.timeout(30):
        assert await reader.read() == b""  # the end of the connection
    print("ended", flush=True)
    os.close(write)
    os.waitpid(pid, 0)
    writer.close()

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""
)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_ends_though_a_child_lives(loop: str, tmp_path: Path):
    """Regression: the peer did not see the end of a connection that a child had inherited."""
    done = run_script(BROKER_SIDE, tmp_path / "run", loop)
    assert done.stdout == "ended\n", done.stderr


METRICS = (
    PREAMBLE
    + """
import socket
from aiokq import metrics

with metrics.serve(0) as server:
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        sys.exit(7)  # through the end of the block, whose thread the child does not have
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    read, write = os.pipe()
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os.close(write)
        os.write(tell, b"!")
        os.read(read, 1)
        os._exit(0)
    os.read(ready, 1)
    server.close()
    try:
        socket.create_connection(("127.0.0.1", server.port), 10)
    except ConnectionRefusedError:
        print("refused", flush=True)
    os.close(write)
    os.waitpid(pid, 0)
"""
)


def test_a_child_neither_hangs_on_the_metrics_of_its_parent_nor_keeps_their_port(tmp_path: Path):
    """Regression: leaving the block waited for a thread that does not exist in the child."""
    done = run_script(METRICS, tmp_path / "run")
    assert done.stdout == "7\nrefused\n", done.stderr
