"""Producer ids are issued once each, whatever happens to the process."""

from __future__ import annotations

import asyncio
import errno

import pytest

from aiokq.broker.metadata.controller.controller import BLOCK_SIZE
from aiokq.broker.metadata.producer_ids import ProducerIds
from aiokq.core.errors import KafkaStorage
from aiokq.wire.registration_records import RegisterBrokerRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import memory, read
from tests.unit.broker.metadata.metadata_logs import opened as opened_log
from tests.unit.broker.metadata.world import changes_on


def opened(files: MemoryFiles) -> ProducerIds:
    log = opened_log(files)
    log.append(RegisterBrokerRecord(broker_id=log.node_id))
    return ProducerIds(changes_on(log).allocate_producer_ids)


async def test_an_id_is_never_issued_twice() -> None:
    """The broker would reject the records of two producers with one id as out of
    sequence (*Non-obvious* 11).
    """
    files = memory()
    seen: list[int] = []
    for stop in (files.crash, files.power_cut, files.crash):
        ids = opened(files)
        seen += [await ids.next() for _ in range(BLOCK_SIZE + 1)]
        stop()
    assert len(set(seen)) == len(seen)
    assert seen[0] == 0
    assert seen[: BLOCK_SIZE + 1] == list(range(BLOCK_SIZE + 1))


async def test_many_at_once_share_one_reservation() -> None:
    """A thousand producers that start together must not wait for a thousand syncs."""
    files = memory()
    ids = opened(files)
    found = await asyncio.gather(*(ids.next() for _ in range(500)))
    assert sorted(found) == list(range(500))
    assert read(files).image.next_producer_id == BLOCK_SIZE


async def test_a_block_that_is_not_durable_is_not_issued() -> None:
    """After a power cut the same block would be reserved again."""
    files = memory()
    ids = opened(files)
    files.fail("sync", errno.EIO)
    with pytest.raises(KafkaStorage):
        await ids.next()
    with pytest.raises(KafkaStorage):  # the record may be durable
        await ids.next()
    files.crash()
    assert await opened(files).next() == BLOCK_SIZE


async def test_a_block_that_is_not_written_is_reserved_again() -> None:
    """A disk that is full costs no ids; the directory is offline until the next start."""
    files = memory()
    ids = opened(files)
    files.fail("pwritev", errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(KafkaStorage):
            await ids.next()
    files.crash()
    assert await opened(files).next() == 0


async def test_a_failed_reservation_of_a_cancelled_producer_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The failed directory has a line of its own; a second one would have a traceback."""
    files = memory()
    ids = opened(files)
    files.fail("sync", errno.EIO)
    task = asyncio.create_task(ids.next())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, KafkaStorage)
    assert "failed while being cancelled" not in caplog.text


async def test_a_cancelled_wait_loses_no_block() -> None:
    """The next waiter gets the ids that were being reserved."""
    ids = opened(memory())
    task = asyncio.create_task(ids.next())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ids.next() == 0
