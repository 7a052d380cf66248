"""`aiokq log hand-over`: Apache Kafka starts with the directory of a stopped broker as it is."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.node import BrokerNode
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Environment
from aiokq.core.files import OsFiles
from aiokq.core.offload import InlineOffload
from tests.unit.broker.harness import Broker, NoNetwork


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with a topic of two partitions."""

    async def main() -> None:
        broker = Broker()
        broker.node = BrokerNode(
            broker_settings(),
            Environment(SystemClock(), random.Random(1), NoNetwork(), OsFiles(), InlineOffload()),
            data_dir=str(tmp_path / "data"),
        )
        async with broker:
            await broker.create("orders", 2)

    asyncio.run(main())
    return tmp_path / "data"


def test_what_kafka_needs_is_printed(alone, data: Path) -> None:
    """Lines for its server.properties; nothing is written."""
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    done = alone("log", "hand-over", str(data), servers=None)
    assert done.code == 0
    assert "nothing to do" in done.lines[0]
    assert done.lines[1:] == [
        "node.id=0",
        f"log.dirs={data}",
        f"metadata.log.dir={data}",
        "controller.quorum.voters=0@localhost:9093",
    ]
    told = alone("log", "hand-over", "--json", str(data), servers=None).json
    assert (told["node_id"], told["log_dirs"]) == (0, [str(data)])
    assert told["metadata_log_dir"] == str(data)
    assert told["controller_quorum_voters"] == "0@localhost:9093"
    after = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert {path for path in after if path.name != ".lock"} >= set(before) - {data / ".lock"}
    assert all(after[path] == at for path, at in before.items() if path.name != ".lock")


def test_what_cannot_be_handed_over_says_why(alone, data: Path, tmp_path: Path) -> None:
    """The reason is one line."""
    done = alone("log", "hand-over", str(tmp_path), servers=None)
    assert done.code == 1
    assert "no meta.properties" in done.err
    (data / "aiokq-metadata.log").write_bytes(b"lines of an earlier version")
    done = alone("log", "hand-over", str(data), servers=None)
    assert done.code == 1
    assert "written by an earlier version of aiokq: start and stop aiokq broker once" in done.err


def test_a_directory_in_use_is_not_told_to_have_a_full_disk(alone, data: Path) -> None:
    """Regression: the advice to free space on the disk was added, as for errors of a broker."""
    lock = OsFiles().lock(str(data / ".lock"))
    try:
        done = alone("log", "hand-over", str(data), servers=None)
    finally:
        lock.release()
    assert done.code == 1
    assert done.err == f"aiokq: log directory {data} is in use: stop the broker that uses it\n"
