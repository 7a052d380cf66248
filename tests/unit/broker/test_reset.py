"""reset(): a broker that deletes all data while its clients stay connected."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq import wire
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.errors import ConfigError, KafkaStorage
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.coordinator.group.test_group_coordinator import GroupBroker
from tests.unit.broker.harness import Broker, batch, offsets

INIT = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


async def test_nothing_of_before_is_left_and_ids_are_new():
    """Tests that share a broker must not see each other's records, whatever their topics' names."""
    async with Broker() as broker:
        before = await broker.create("t", 2)
        await broker.produce("t", batch(3))
        await broker.node.reset()
        assert len(broker.node.topics) == 0
        assert (await broker.fetch_one(before, 0, 0, version=13)).error_code == 100
        assert (await broker.produce("t", batch())).error_code == 3
        after = await broker.create("t", 2)
        assert after != before
        assert (await broker.produce("t", batch())).base_offset == 0
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0]
        await broker.node.reset()
        await broker.node.reset()  # a reset without any data


async def test_a_restart_after_it_finds_nothing_either():
    """Data deleted only in memory would come back with the next start."""
    broker = Broker()
    async with broker:
        await broker.create("t", 2)
        await broker.node.reset()
        await broker.create("new")
        for _ in range(5):
            await asyncio.sleep(0)
        names = broker.files.listdir("/data")
        assert [name for name in names if name.endswith("-delete")] == []
    async with Broker(broker.files) as again:
        assert [topic.name for topic in again.node.topics] == ["new"]


async def test_a_waiting_fetch_is_answered_at_once():
    """Otherwise a consumer that waits for a minute would hold up its test."""
    async with Broker() as broker:
        by_id = await broker.create("a")
        await broker.create("b")
        waiting = [
            asyncio.ensure_future(broker.fetch((name, 0, 0), version=version, max_wait_ms=60_000))
            for name, version in ((by_id, 13), ("b", 12))
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(broker.node.purgatory) == 2
        async with asyncio.timeout(5):
            await broker.node.reset()
            answers = await asyncio.gather(*waiting)
        codes = [answer.responses[0].partitions[0].error_code for answer in answers]
        assert codes == [100, 3]


async def test_fetch_sessions_of_before_are_unknown():
    """A session has offsets by topic name, and would continue inside a new topic."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
        first = await broker.fetch(("t", 0, 0), session_id=0, session_epoch=0)
        assert first.session_id
        await broker.node.reset()
        await broker.create("t")
        again = await broker.fetch(("t", 0, 3), session_id=first.session_id, session_epoch=1)
        assert again.error_code == 70


async def test_groups_offsets_and_members_that_wait_are_gone():
    """A waiting member looks for the coordinator again, and starts without offsets."""
    async with GroupBroker(group_initial_rebalance_delay_ms=60_000) as broker:
        await broker.create("t")
        await broker.find()
        assert await broker.commit(5, generation_id_or_member_epoch=-1) == 0
        joining = asyncio.ensure_future(broker.join(version=3))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not joining.done()
        async with asyncio.timeout(5):
            await broker.node.reset()
            assert (await joining).error_code == 16
        assert await broker.committed() == 16  # __consumer_offsets was not created again
        await broker.create("t")
        assert (await broker.find()).error_code == 0
        assert await broker.committed() == {}
        assert await broker.heartbeat("member", 1) == 25


async def test_producers_of_before_go_on_and_are_nobody_elses():
    """Idempotence state is gone; if ids were issued again, two producers could share one."""
    async with Broker() as broker:
        await broker.create("t")
        initialized = await broker.ask(INIT, 4)
        known = {"producer_id": initialized.producer_id, "producer_epoch": 0}
        await broker.produce("t", batch(base_sequence=0, **known))
        await broker.node.reset()
        await broker.create("t")
        assert (await broker.produce("t", batch(base_sequence=1, **known))).error_code == 0
        other = await broker.ask(INIT, 4)
        assert other.producer_id > initialized.producer_id


async def test_a_topic_in_the_making_is_forgotten_or_made_whole():
    """Half a topic would be of no use to either caller."""
    async with Broker() as broker:
        made = asyncio.ensure_future(broker.create("t", 3))
        await asyncio.sleep(0)
        await broker.node.reset()
        assert isinstance(await made, uuid.UUID)
        topic = broker.node.topics.get("t")
        assert topic is None or len(topic.partitions) == 3


async def test_a_disk_that_refuses_leaves_all_as_it_was():
    """Data that is gone from memory must not come back with the next start."""
    async with Broker() as broker:
        await broker.create("t")
        broker.files.fail("pwritev", matches=lambda path: "metadata" in path)
        with pytest.raises(KafkaStorage):
            await broker.node.reset()
        broker.files.heal()
        assert broker.node.topics.get("t") is not None


async def test_an_ephemeral_cluster_waits_for_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is synced, and a hand-over to a thread takes as long as the rest of a reset."""
    loop = asyncio.get_running_loop()
    threads: list[object] = []
    async with EmbeddedCluster() as kafka:
        monkeypatch.setattr(loop, "run_in_executor", lambda _, work, *rest: threads.append(work))
        for topic in ("a", "b"):
            await kafka.create_topic(topic)
        await kafka.reset()
        monkeypatch.undo()
        assert not list(kafka.node.topics)
    assert threads == []


def test_data_that_somebody_keeps_is_not_thrown_away():
    """A fixture with the path of a valuable directory must not empty it."""

    async def main(world: Simulation) -> None:
        environment = world.environment()
        async with EmbeddedCluster(data_dir="/kept", environment=environment) as kafka:
            await kafka.create_topic("t")
            with pytest.raises(ConfigError, match="would delete the data in /kept"):
                await kafka.reset()
            assert kafka.node.topics.get("t") is not None

    run(1, main)


async def test_resets_do_not_make_the_metadata_log_longer_and_longer():
    """A cluster without a directory may be reset thousands of times, with its files in memory."""
    async with Broker(**{"metadata.log.max.record.bytes.between.snapshots": 3000}) as broker:
        sizes = []
        for _ in range(60):
            for name in "abcde":
                await broker.create(name)
            await broker.node.reset()
            log = broker.node.storage.metadata
            sizes.append(log.end_offset - log.start_offset)
        assert max(sizes[30:]) <= max(sizes[:30])
        assert len(broker.files.listdir(log.directory)) < 20
