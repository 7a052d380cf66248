"""`aiokq log hand-over`: a directory of a stopped broker, for Apache Kafka."""

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
    """Two lines for its server.properties."""
    done = alone("log", "hand-over", str(data), servers=None)
    assert done.code == 0
    assert done.lines == [
        "Kafka will find topics=1 partitions=2",
        "node.id=0",
        f"log.dirs={data}",
    ]
    assert (data / "bootstrap.checkpoint").stat().st_size > 200
    told = alone("log", "hand-over", "--json", str(data), servers=None).json
    assert (told["topics"], told["partitions"], told["node_id"]) == (1, 2, 0)
    assert told["files"] == [f"{data}/bootstrap.checkpoint"]


def test_what_cannot_be_handed_over_says_why(alone, data: Path, tmp_path: Path) -> None:
    """The reason is one line, and nothing is written."""
    done = alone("log", "hand-over", str(tmp_path), servers=None)
    assert done.code == 1
    assert "no meta.properties" in done.err
    (data / "__cluster_metadata-0").mkdir()
    done = alone("log", "hand-over", str(data), servers=None)
    assert done.code == 1
    assert "would continue with it" in done.err
    assert not (data / "bootstrap.checkpoint").exists()


def test_a_directory_in_use_is_not_told_to_have_a_full_disk(alone, data: Path) -> None:
    """Regression: the advice to free space on the disk was added, as for errors of a broker."""
    lock = OsFiles().lock(str(data / ".lock"))
    try:
        done = alone("log", "hand-over", str(data), servers=None)
    finally:
        lock.release()
    assert done.code == 1
    assert done.err == f"aiokq: log directory {data} is in use: stop the broker that uses it\n"
