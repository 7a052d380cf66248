"""Deletion of topics: its cost for the loop, and its effect after a power cut."""

from __future__ import annotations

import pytest

from tests.unit.broker.harness import Broker, batch, watch_offload


@pytest.mark.parametrize("everything", [False, True])
async def test_a_deletion_waits_for_the_disk_once_and_off_the_loop(
    everything: bool, monkeypatch: pytest.MonkeyPatch
):
    """Regression: a thousand partitions were a thousand syncs, one after the other, on the loop.

    No other client was served for seconds.
    """
    async with Broker() as broker:
        await broker.create("t", 100)
        syncs: list[str] = []
        sync_dir = broker.files.sync_dir

        def counted(path: str) -> None:
            syncs.append(path)
            sync_dir(path)

        monkeypatch.setattr(broker.files, "sync_dir", counted)
        moved = watch_offload(broker)
        metadata, topic = broker.node.metadata, broker.node.topics.get("t")
        await (metadata.delete_all_topics() if everything else metadata.delete_topic(topic))
        assert syncs.count("/data") == 1
        assert [fn.__name__ for fn in moved].count("sync_names") == 1


async def test_a_deletion_syncs_only_the_directories_of_the_topic(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: the deletion waited for every disk, also for those without its partitions."""
    async with Broker(directories=["/a", "/b", "/c"]) as broker:
        await broker.create("t", 2)
        await broker.create("u")
        syncs: list[str] = []
        monkeypatch.setattr(broker.files, "sync_dir", syncs.append)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        assert syncs == ["/a", "/b"]
        await broker.node.metadata.delete_topic(broker.node.topics.get("u"))
        assert syncs == ["/a", "/b", "/c"]


async def test_a_deleted_topic_is_gone_after_a_power_cut():
    """Otherwise its directory would come back, and never be removed."""
    broker = Broker()
    await broker.node.open()
    await broker.create("t", 3)
    await broker.produce("t", batch(3))
    await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
    broker.files.power_cut()
    async with Broker(broker.files) as again:
        assert again.node.topics.get("t") is None
        assert not [name for name in again.files.listdir("/data") if name.startswith("t-")]
