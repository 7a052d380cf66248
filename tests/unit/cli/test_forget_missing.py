"""`aiokq log forget-missing`: of two directories one is lost."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.node import BrokerNode
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Environment
from aiokq.core.files import OsFiles
from aiokq.core.offload import InlineOffload
from tests.unit.broker.harness import Broker, NoNetwork


def broker(*directories: Path) -> Broker:
    broker = Broker()
    broker.node = BrokerNode(
        broker_settings(),
        Environment(SystemClock(), random.Random(1), NoNetwork(), OsFiles(), InlineOffload()),
        data_dir=tuple(map(str, directories)),
    )
    return broker


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Two log directories, three partitions of one topic and two of another."""
    both = (tmp_path / "a", tmp_path / "b")

    async def main() -> None:
        async with broker(*both) as node:
            await node.create("orders", 3)
            await node.create("payments", 2)

    asyncio.run(main())
    return both


def offline(*directories: Path) -> int:
    async def main() -> int:
        async with broker(*directories) as node:
            topics = node.node.topics
            return sum(
                not one.is_online
                for name in ("orders", "payments")
                for one in topics.get(name).partitions
            )

    return asyncio.run(main())


def test_what_would_be_lost_is_shown_and_then_forgotten(alone, disks: tuple[Path, Path]) -> None:
    """A user who only forgot to mount a disk can see that and mount it."""
    left, gone = disks
    lost = len([path for path in gone.iterdir() if path.is_dir()])
    shutil.rmtree(gone)
    planned = alone("log", "forget-missing", str(left), servers=None)
    assert planned.code == 0
    assert planned.lines[0] == f"missing: {gone}"
    assert sum(int(line.split()[-1]) for line in planned.lines[2:-1]) == lost
    assert planned.lines[-1].startswith("dry run")
    assert offline(left) == lost
    done = alone("log", "forget-missing", str(left), "--execute", servers=None)
    assert (done.code, done.lines[-1]) == (0, "forgotten")
    assert offline(left) == 0
    assert alone("log", "forget-missing", str(left), servers=None).lines == [
        "no log directory is missing"
    ]


def test_json_and_refusals(alone, disks: tuple[Path, Path], tmp_path: Path) -> None:
    """Scripts that replace disks use the exit code."""
    left, gone = disks
    shutil.rmtree(gone)
    told = alone("log", "forget-missing", str(left), "--json", servers=None).json
    assert (told["forgotten"], told["executed"]) == ([str(gone)], False)
    assert {one["topic"] for one in told["partitions"]} <= {"orders", "payments"}
    refused = alone("log", "forget-missing", str(tmp_path), "--execute", servers=None)
    assert (refused.code, "no meta.properties" in refused.err) == (1, True)
