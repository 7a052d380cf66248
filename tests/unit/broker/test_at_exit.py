"""Functions of `atexit`: they run after the interpreter has shut down its thread pools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLOSED_AT_EXIT = """
import atexit, contextlib, sys
import aiokq

stack = contextlib.ExitStack()
atexit.register(stack.close)
kafka = stack.enter_context(aiokq.EmbeddedCluster(data_dir=sys.argv[1]))
kafka.run(kafka.create_topic("t", 2))
"""

OPENED_AT_EXIT = """
import asyncio, atexit
{first}

async def main():
    async with aiokq.EmbeddedCluster() as kafka:
        port = kafka.bootstrap_servers.rpartition(":")[2]
        async with aiokq.Producer("localhost:" + port, compression_type="gzip") as producer:
            print((await producer.send("t", b"x" * 500_000)).offset)

def at_exit():
    import aiokq
    globals()["aiokq"] = aiokq
    asyncio.run(main())

atexit.register(at_exit)
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def test_a_cluster_that_is_closed_at_exit_was_closed_cleanly(tmp_path: Path) -> None:
    """Regression: the stop failed with a RuntimeError, and the next start recovered the logs."""
    run(CLOSED_AT_EXIT, str(tmp_path))
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_cluster_and_a_producer_are_opened_at_exit() -> None:
    """Also if nothing of aiokq was imported before."""
    assert run(OPENED_AT_EXIT.format(first="")) == "0\n"
    assert run(OPENED_AT_EXIT.format(first="import aiokq, aiokq.core.offload")) == "0\n"
