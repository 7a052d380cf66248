"""Open transactions in a directory on which Apache Kafka and aiokq's broker take turns.

Each broker ends what the other left open when a new producer with the transactional id asks, and
its markers have no earlier coordinator epoch. Nothing of an unfinished transaction is committed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import aiokq
from tests.interop.apache.directories import started_on
from tests.peers.apache_kafka import ApacheKafka, why_absent
from tests.peers.broker_process import broker_process

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.full,
    pytest.mark.build_independent,
    pytest.mark.skipif(why_absent() is not None, reason=str(why_absent())),
]

TURNS = ("ours", "kafka", "ours again", "kafka again", "ours at last")
LEAVE_OPEN = "import sys; from {module} import leave_open; leave_open(*sys.argv[1:])"


def leave_open(bootstrap: str, name: str) -> None:
    """Begin a transaction, and end the program."""

    async def main() -> None:
        async with aiokq.Producer(bootstrap, transactional_id=f"open {name}") as producer:
            await producer.begin_transaction()
            await producer.send("t", f"open {name}".encode())
            os._exit(0)

    asyncio.run(main())


async def take_turn(bootstrap: str, turn: int) -> int:
    """End what is open, commit one transaction and abort one; return the coordinator epoch."""
    name = TURNS[turn]
    async with aiokq.Cluster(bootstrap) as cluster, aiokq.Admin(bootstrap) as admin:
        if turn:
            async with cluster.producer(transactional_id=f"open {TURNS[turn - 1]}"):
                pass  # fences the producer of the turn before, whose transaction is aborted
        async with cluster.producer(transactional_id="finished") as producer:
            async with producer.transaction():
                await producer.send("t", f"committed {name}".encode())
            await producer.begin_transaction()
            await producer.send("t", f"aborted {name}".encode())
            await producer.abort_transaction()
        settings: Any = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with cluster.consumer("t", **settings) as consumer:
            found = [(await anext(consumer)).value for _ in range(turn + 1)]
            assert found == [f"committed {each}".encode() for each in TURNS[: turn + 1]]
        described = await admin.describe_producers([("t", 0)], raise_errors=True)
        [states] = [each.producers for each in described.values()]
        assert [each.current_transaction_start_offset for each in states] == [None] * len(states)
        return max(each.coordinator_epoch for each in states)


def taken_turn(bootstrap: str, turn: int) -> int:
    epoch = asyncio.run(take_turn(bootstrap, turn))
    if turn + 1 < len(TURNS):
        program = LEAVE_OPEN.format(module=__name__)
        command = [sys.executable, "-c", program, bootstrap, TURNS[turn]]
        subprocess.run(command, check=True, timeout=120)
    return epoch


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_each_broker_ends_what_the_other_left_open(tmp_path: Path, end: str) -> None:
    """Twice over, after a clean stop or SIGKILL of each broker."""
    how = signal.SIGKILL if end == "killed" else signal.SIGTERM
    directory = tmp_path / "data"
    (tmp_path / "kafka").mkdir()
    epochs = []
    for turn, name in enumerate(TURNS):
        if name.startswith("kafka"):
            apache = ApacheKafka(tmp_path / "kafka")
            try:
                started_on(apache, directory)
                epochs.append(taken_turn(apache.bootstrap_servers, turn))
                apache.stop_node(1, how)
            finally:
                apache.stop()
            os.rename(apache.directory / "node-1", directory)
        else:
            with broker_process(directory, "--set", "node.id=1") as running:
                epochs.append(taken_turn(running.bootstrap_servers, turn))
                running.stop(how)
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[-1]
