"""aiokq.broker.storage: opening and closing the data of a node."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from aiokq.broker import storage
from aiokq.broker.metadata.changes import MetadataChanges
from aiokq.broker.metadata.metadata_file import MetadataFile
from aiokq.broker.metadata.metadata_log import MetadataLog
from aiokq.broker.node import BrokerNode
from aiokq.core.environment import Environment
from aiokq.core.errors import KafkaStorage
from aiokq.core.offload import ThreadOffload
from tests.unit.broker.harness import Broker, NoNetwork, until


async def test_the_loop_goes_on_while_a_stop_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow sync of the metadata log during a stop must not block the loop."""
    broker = Broker()
    offload = ThreadOffload()
    broker.node = BrokerNode(
        broker.node.settings,
        Environment(broker.clock, random.Random(1), NoNetwork(), broker.files, offload),
        data_dir="/data",
    )
    await broker.node.open()
    syncing, closing, loop_went_on = threading.Event(), threading.Event(), threading.Event()
    append, close = MetadataFile.append, MetadataChanges.close
    waited: list[bool] = []

    def slow_append(file: MetadataFile, data: bytes) -> None:
        syncing.set()
        waited.append(loop_went_on.wait(10))
        append(file, data)

    async def noted_close(changes: MetadataChanges) -> None:
        closing.set()
        await close(changes)

    monkeypatch.setattr(MetadataFile, "append", slow_append)
    monkeypatch.setattr(MetadataChanges, "close", noted_close)
    change = asyncio.ensure_future(broker.node.producer_ids.next())
    await until(syncing.is_set)
    stop = asyncio.ensure_future(broker.node.close())
    await until(closing.is_set)
    loop_went_on.set()
    await asyncio.gather(change, stop)
    offload.close()
    assert waited == [True]


async def test_a_start_that_fails_keeps_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a failed start leaked descriptors, so a program that retried ran out of them."""
    closed: list[MetadataLog] = []
    close = MetadataLog.close

    def noted_close(log: MetadataLog) -> None:
        closed.append(log)
        close(log)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorage("not this directory")

    monkeypatch.setattr(MetadataLog, "close", noted_close)
    monkeypatch.setattr(storage, "take_over", refuse)
    with pytest.raises(KafkaStorage, match="not this directory"):
        await Broker().node.open()
    assert len(closed) == 1
