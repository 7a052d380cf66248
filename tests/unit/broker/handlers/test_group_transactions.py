"""TxnOffsetCommit, and OffsetFetch, OffsetDelete, DeleteGroups and expiry beside transactions.

Rules: Kafka ``OffsetMetadataManager.java``, ``ClassicGroup.java``, ``ConsumerGroup.java``.
"""

from __future__ import annotations

import random

import pytest

from aiokq import wire
from aiokq.broker.log import file_names
from aiokq.records.header import BatchHeader, iter_headers
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.group_transactions import (
    NONE,
    RETENTION_MS,
    UNSTABLE,
    OffsetModel,
    commit,
    compact,
    delete_group,
    delete_offset,
    fetched,
    join,
    pend,
    ready,
)
from tests.unit.broker.harness import Broker
from tests.unit.broker.transactional_client import TransactionalClient, world

ABORT, COMMIT = False, True

CLEANING = {"log_cleaner_min_cleanable_ratio": 0, "log_cleaner_delete_retention_ms": RETENTION_MS}


async def client_of(broker: Broker, name="t", *, version=2) -> TransactionalClient:
    client = TransactionalClient(broker, name, version=version)
    assert await client.initialize(900_000) == 0
    return client


@pytest.mark.parametrize("version", [1, 2])
async def test_offsets_count_when_the_transaction_commits(version):
    """Until then the old offset is returned, or 88 to who asks for stable offsets (KIP-447)."""
    async with world() as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker, version=version)
        assert await commit(broker, "g", 0, 1) == 0
        assert await pend(client, "g", 0, 5) == 0
        assert await fetched(broker, "g", stable=True) == {0: (UNSTABLE, NONE), 1: (0, NONE)}
        assert await fetched(broker, "g", stable=False) == {0: (0, 1), 1: (0, NONE)}
        everything = {"everything": True}
        assert await fetched(broker, "g", stable=True, **everything) == {0: (UNSTABLE, NONE)}
        assert await client.end(COMMIT) == 0
        assert await fetched(broker, "g", stable=True, **everything) == {0: (0, 5)}
        assert await pend(client, "g", 0, 6) == 0
        assert await pend(client, "g", 1, 6) == 0
        assert await client.end(ABORT) == 0
        assert await fetched(broker, "g", stable=True) == {0: (0, 5), 1: (0, NONE)}


async def test_a_commit_needs_the_group_in_the_transaction_below_version_5():
    """A late request must not join the next transaction of its producer."""
    async with world() as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker, version=1)
        request = {"generation_id": -1}
        for version, code in ((3, 48), (4, 120)):
            response = await broker.ask(
                wire.TxnOffsetCommitRequest(
                    transactional_id="t",
                    group_id="g",
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    topics=[
                        wire.TxnOffsetCommitRequestTopic(
                            name="t",
                            partitions=[
                                wire.TxnOffsetCommitRequestPartition(
                                    partition_index=0, committed_offset=5
                                )
                            ],
                        )
                    ],
                    **request,
                ),
                version,
            )
            assert response.topics[0].partitions[0].error_code == code
        assert await join(client, "g") == 0
        assert await pend(client, "g", 0, 5, version=4) == 0
        client.epoch -= 1
        assert await pend(client, "g", 0, 7, version=5) in (47, 90)


async def test_two_transactions_of_a_group_end_separately():
    """With KIP-447, each instance of an application has a producer of its own."""
    async with world() as broker:
        await broker.create("t", 2)
        await ready(broker)
        one, two = await client_of(broker, "one"), await client_of(broker, "two")
        assert await pend(one, "g", 0, 5) == 0
        assert await pend(two, "g", 0, 6) == 0
        assert await pend(two, "g", 1, 7) == 0
        assert await two.end(ABORT) == 0
        assert await fetched(broker, "g", stable=True) == {0: (UNSTABLE, NONE), 1: (0, NONE)}
        assert await pend(two, "g", 0, 8) == 0
        assert await two.end(COMMIT) == 0
        assert await fetched(broker, "g", stable=False) == {0: (0, 8), 1: (0, NONE)}
        assert await one.end(COMMIT) == 0  # its record is older
        assert await fetched(broker, "g", stable=True) == {0: (0, 8), 1: (0, NONE)}


async def classic_member(broker: Broker, group="g", instance=None) -> tuple[str, int]:
    """Join a member of the classic protocol alone; return its id and generation."""
    request = wire.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=45_000,
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[wire.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = await broker.ask(request, 9)
    if joined.error_code == 79:
        request.member_id = joined.member_id
        joined = await broker.ask(request, 9)
    assert joined.error_code == 0
    synced = await broker.ask(
        wire.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                wire.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
            ],
        ),
        5,
    )
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


async def test_the_member_of_a_classic_group_is_checked():
    """A consumer that lost its partitions must not commit them, even inside a transaction."""
    async with world(group_initial_rebalance_delay_ms=0) as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        member, generation = await classic_member(broker, instance="i")

        async def code(**named) -> int:
            return await pend(client, "g", 0, 5, **named)

        right = {"member_id": member, "generation_id": generation, "group_instance_id": "i"}
        assert await code(**right | {"generation_id": generation - 1}) == 22
        assert await code(**right | {"generation_id": generation + 1}) == 22
        assert await code(member_id="nobody", generation_id=generation) == 25
        assert await code(**right | {"member_id": "other"}) == 82
        assert await code(**right | {"group_instance_id": "other"}) == 25
        assert await code(member_id=member) == 22
        assert await fetched(broker, "g", stable=True) == {0: (0, NONE), 1: (0, NONE)}
        assert await code() == 0  # requests before version 3 name no member
        assert await code(**right) == 0
        # a group that does not exist has no generation
        assert await pend(client, "none", 0, 5, generation_id=3, member_id="m") == 22
        assert await pend(client, "none", 0, 5, metadata="x" * 4097) == 12


async def test_the_member_of_a_consumer_group_is_checked():
    """STALE_MEMBER_EPOCH becomes ILLEGAL_GENERATION, which the producers of all versions know."""
    async with world() as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        joined = await broker.ask(
            wire.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=45_000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            ),
            1,
        )
        assert joined.error_code == 0
        epoch = joined.member_epoch

        async def code(**named) -> int:
            return await pend(client, "g", 0, 5, **named)

        assert await code(member_id="m", generation_id=epoch - 1) == 22
        assert await code(member_id="m", generation_id=epoch + 1) == 22
        assert await code(member_id="nobody", generation_id=epoch) == 25
        assert await code(generation_id=epoch) == 25
        assert await code(member_id="m", generation_id=epoch, version=3 + 2) == 0
        assert await code() == 0
        assert await commit(broker, "g", 0, 7) == 25  # outside, the group is not empty
        assert await client.end(COMMIT) == 0
        assert await fetched(broker, "g", 0, stable=True) == {0: (0, 5)}


async def test_a_deleted_group_takes_pending_offsets_along():
    """As in Kafka 4.2, an open transaction does not stop DeleteGroups; its marker restores nothing.

    Not even after a restart, when the log is replayed with the transaction's records in it.
    """
    files = MemoryFiles()
    async with world(files) as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        assert await commit(broker, "g", 0, 1) == 0
        assert await pend(client, "g", 0, 5) == 0
        assert await pend(client, "g", 1, 6) == 0
        assert await delete_group(broker, "g") == 0
        assert await delete_group(broker, "g") == 69
        assert await fetched(broker, "g", stable=True) == {0: (0, NONE), 1: (0, NONE)}
    async with world(files) as broker:
        client.broker = broker
        await ready(broker)
        assert await client.end(COMMIT) == 0
        assert await fetched(broker, "g", stable=True) == {0: (0, NONE), 1: (0, NONE)}
        assert await delete_group(broker, "g") == 69


async def test_a_deleted_offset_is_not_committed_by_its_transaction():
    """OffsetDelete removes pending offsets, too; other partitions of the transaction stay."""
    async with world() as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        assert await pend(client, "g", 0, 5) == 0
        assert await pend(client, "g", 1, 6) == 0
        assert await delete_offset(broker, "g", 0) == 0
        assert await fetched(broker, "g", stable=True) == {0: (0, NONE), 1: (UNSTABLE, NONE)}
        assert await client.end(COMMIT) == 0
        assert await fetched(broker, "g", stable=True) == {0: (0, NONE), 1: (0, 6)}


async def test_pending_offsets_stop_the_expiry_of_their_partition_and_group():
    """The offset that the transaction would replace stays, as long as the transaction is open."""
    week_ms = 7 * 86_400_000
    async with world(offsets_retention_check_interval_ms=1000) as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        for partition in (0, 1):
            assert await commit(broker, "g", partition, 1) == 0
        assert await pend(client, "g", 0, 5) == 0
        assert await pend(client, "only-pending", 0, 5) == 0
        broker.clock.now_ms += week_ms + 1
        await expire(broker)
        assert await fetched(broker, "g", stable=False) == {0: (0, 1), 1: (0, NONE)}
        assert await listed(broker) == {"g", "only-pending"}
        assert await client.end(ABORT) == 0
        await expire(broker)
        assert await listed(broker) == set()


async def expire(broker: Broker) -> None:
    """Run the expiry of the shard now."""
    coordinator = broker.node.group_coordinator
    await coordinator.write("g", lambda shard, instant: shard._expiry._begin(instant))


async def listed(broker: Broker) -> set[str]:
    response = await broker.ask(wire.ListGroupsRequest(), 5)
    return {group.group_id for group in response.groups}


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
async def test_offsets_of_an_open_transaction_outlive_a_restart(outcome):
    """The coordinator replays them as pending; the marker is written by the next broker."""
    files = MemoryFiles()
    async with world(files) as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        assert await commit(broker, "g", 0, 1) == 0
        assert await pend(client, "g", 0, 5) == 0
    async with world(files) as broker:
        client.broker = broker
        await ready(broker)
        assert (await fetched(broker, "g", 0, stable=True)) == {0: (UNSTABLE, NONE)}
        assert (await fetched(broker, "g", 0, stable=False)) == {0: (0, 1)}
        assert await client.end(outcome) == 0
        assert (await fetched(broker, "g", 0, stable=True)) == {0: (0, 5 if outcome else 1)}
    async with world(files) as broker:
        await ready(broker)
        assert (await fetched(broker, "g", 0, stable=True)) == {0: (0, 5 if outcome else 1)}


def batches(broker: Broker) -> list[BatchHeader]:
    """Return the batches of `__consumer_offsets` that still have records."""
    topic = broker.node.topics.get("__consumer_offsets")
    assert topic is not None
    found = []
    for segment in topic.partitions[0].log.segments:
        file = broker.files.open(segment.path(file_names.LOG))
        found += iter_headers(file.pread(file.size(), 0))
        file.close()
    return [header for header in found if header.count]


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
async def test_compaction_keeps_the_outcome_of_a_transaction(outcome):
    """A marker that is removed before its records would leave them pending forever."""
    files = MemoryFiles()
    async with world(files, **CLEANING) as broker:
        await broker.create("t", 2)
        await ready(broker)
        client = await client_of(broker)
        assert await commit(broker, "g", 0, 1) == 0
        assert await pend(client, "g", 0, 5) == 0
        assert await pend(client, "g", 1, 6) == 0
        assert await client.end(outcome) == 0
        assert await commit(broker, "g", 1, 9) == 0
        before = batches(broker)
        for _ in range(4):
            assert await commit(broker, "other", 0, 1) == 0  # only a log with new records is due
            await compact(broker)
        # Of an aborted transaction, records and marker are removed; of a committed one, the marker
        # stays as long as one of its records.
        assert [each.is_control for each in batches(broker)].count(True) == outcome
        assert len(batches(broker)) <= len(before) + 1
    expected = {0: (0, 5 if outcome else 1), 1: (0, 9)}
    async with world(files) as broker:
        await ready(broker)
        assert await fetched(broker, "g", stable=True) == expected


@pytest.mark.parametrize("seed", range(25))
async def test_random_commits_restarts_and_compactions_agree_with_the_model(seed):
    """Commits inside and outside of transactions, deletions, restarts and compaction, at random."""
    random_ = random.Random(seed)
    files, model = MemoryFiles(), OffsetModel()
    broker = world(
        files, log_cleaner_min_cleanable_ratio=0, log_cleaner_delete_retention_ms=RETENTION_MS
    )
    await broker.__aenter__()
    try:
        await broker.create("t", 2)
        await ready(broker)
        clients = [
            await client_of(broker, f"id-{n}", version=random_.choice((1, 2))) for n in range(3)
        ]
        for step in range(40):
            group, partition = random_.choice(("g", "h")), random_.randrange(2)
            client = random_.choice(clients)
            name = client.transactional_id
            done = random_.choices(
                ("pend", "end", "commit", "delete offset", "delete group", "restart", "compact"),
                (8, 5, 4, 2, 1, 1, 1),
            )[0]
            if done == "pend":
                assert await pend(client, group, partition, step) == 0
                model.pend(name, (group, partition), step)
            elif done == "end" and name in model.pending:
                commits = random_.random() < 0.6
                assert await client.end(commits) == 0
                model.end(name, commits=commits)
            elif done == "commit":
                assert await commit(broker, group, partition, step) == 0
                model.commit((group, partition), step)
            elif done == "delete offset":
                code = await delete_offset(broker, group, partition)
                assert code == 0 or (code == 69 and not model.places_of(group))
                model.remove((group, partition))
            elif done == "delete group":
                code = await delete_group(broker, group)
                assert code == 0 or (code == 69 and not model.places_of(group))
                model.remove(*model.places_of(group))
            elif done == "compact":
                await compact(broker)
            elif done == "restart":
                now_ms = broker.clock.now_ms
                await broker.__aexit__(None, None, None)
                broker = world(
                    files,
                    log_cleaner_min_cleanable_ratio=0,
                    log_cleaner_delete_retention_ms=RETENTION_MS,
                )
                broker.clock.now_ms = now_ms
                await broker.__aenter__()
                await ready(broker)
                for each in clients:
                    each.broker = broker
            for stable in (True, False):
                for each in ("g", "h"):
                    found = await fetched(broker, each, stable=stable)
                    assert found == model.fetched(each, stable=stable), (step, done, each, stable)
    finally:
        await broker.__aexit__(None, None, None)
