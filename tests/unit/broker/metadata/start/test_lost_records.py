"""If the metadata log lost its end, producer ids and leader epochs in the logs are not reused."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from aiokq import wire
from aiokq.broker.metadata.log.lost_records import LOST_METADATA
from aiokq.broker.metadata.start.lost_records import SKIPPED_IDS
from aiokq.broker.metadata.stopped_broker.adoption import adopt
from aiokq.broker.metadata.stopped_broker.log_repair import repair_log
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets
from tests.unit.broker.metadata.quorum_logs import quorum_of_three
from tests.unit.broker.metadata.start.test_refused_starts import MortalFiles, Stop

SEGMENT = f"/data/__cluster_metadata-0/{0:020d}.log"
FILE = f"/data/{LOST_METADATA}"


async def producer_id(broker: Broker) -> int:
    request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    answer = await broker.ask(request, 4)
    assert answer.error_code == 0
    return answer.producer_id


def batches(files: MemoryFiles) -> list[int]:
    """Return the position of each batch of the metadata log."""
    data, positions, position = files.read_bytes(SEGMENT), [], 0
    while position < len(data):
        positions.append(position)
        position += read_header(data, position).size
    return positions


async def killed(files: MemoryFiles, starts: int = 3) -> int:
    """Return the largest producer id of several starts, each of which was killed."""
    newest = -1
    for start in range(starts):
        broker = Broker(files)
        await broker.node.open()
        if not start:
            await broker.create("t")
        assert (await broker.produce("t", batch(2))).base_offset == 2 * start
        newest = await producer_id(broker)
        files.crash()
    return newest


def cut_by_a_start(files: MemoryFiles) -> None:
    """The last batch has the newest block of producer ids."""
    files.corrupt(SEGMENT, batches(files)[-1] + 80, 4)


def cut_by_a_repair(files: MemoryFiles) -> None:
    """What is left ends before the second start."""
    files.corrupt(SEGMENT, batches(files)[-5] + 80, 4)
    assert repair_log(files, "/data", execute=True, crc32c=crc32c).loses


async def check(files: MemoryFiles, newest_id: int, newest_epoch: int) -> None:
    async with Broker(files) as broker:
        partition = broker.node.topics.partition("t", 0)
        image = broker.node.storage.metadata.image
        assert image.topics["t"].partitions[0].leader_epoch == partition.leader_epoch
        assert partition.leader_epoch > newest_epoch
        assert await producer_id(broker) > newest_id + 1000
        assert (await broker.produce("t", batch(1))).base_offset == 6
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == list(range(7))
    assert not files.exists(FILE)


@pytest.mark.parametrize("cut", [cut_by_a_start, cut_by_a_repair])
async def test_ids_and_epochs_of_lost_records_are_not_used_again(
    cut: Callable[[MemoryFiles], None],
) -> None:
    """Regression: records of a new producer were taken for duplicates, and dropped as delivered."""
    files = MemoryFiles()
    newest = await killed(files)
    cut(files)
    await check(files, newest, newest_epoch=2)


@pytest.mark.parametrize("inside", [True, False])
async def test_a_log_that_was_cut_after_a_clean_stop(inside: bool) -> None:
    """The clean shutdown marker is newer than what is left of the log, or the tail is torn."""
    files = MemoryFiles()
    newest = await killed(files)
    async with Broker(files) as broker:
        newest = await producer_id(broker)
    place = batches(files)[-2 if inside else -3]
    file = files.open(SEGMENT)
    file.truncate(place + (70 if inside else 0))
    file.sync()
    file.close()
    await check(files, newest, newest_epoch=3)


@pytest.mark.parametrize("cut", [cut_by_a_start, cut_by_a_repair])
@pytest.mark.parametrize("power", [False, True])
async def test_a_start_that_is_killed_after_the_cut_forgets_nothing(
    cut: Callable[[MemoryFiles], None], power: bool
) -> None:
    for changes in range(100):
        files = MortalFiles()
        newest = await killed(files)
        files.power_cut() if power else files.crash()
        cut(files)
        files.kill_at = changes
        try:
            await Broker(files).node.open()
        except Stop:
            was_killed = True
        else:
            was_killed = False
        files.kill_at = None
        files.power_cut() if power else files.crash()
        if power:  # unsynced records of the partition may be gone
            async with Broker(files) as broker:
                assert await producer_id(broker) > newest + 1000
        else:
            await check(files, newest, newest_epoch=2)
        if not was_killed:
            assert changes > 5
            return
    raise AssertionError("the start makes too many changes")


@pytest.mark.parametrize("kraft_version", [0, 1])
async def test_an_adopted_log_may_lack_the_last_records_of_its_quorum(kraft_version: int) -> None:
    """The node may have been behind the leader, which gave out producer ids."""
    files = quorum_of_three(kraft_version)
    adopt(files, "/data", execute=True, random=random.Random(1), timestamp_ms=9, crc32c=crc32c)
    assert files.exists(FILE)
    async with Broker(files) as broker:
        assert await producer_id(broker) >= SKIPPED_IDS
    assert not files.exists(FILE)
