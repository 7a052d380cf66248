"""Offsets of a group member in a transaction: a member that lost its partitions commits nothing."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.core.errors import CommitFailed, TransactionAborted
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction import TransactionOutcome
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until
from tests.sim.test_whole_system import SERVERS

T0 = TopicPartition("t", 0)


def transactional(w: World) -> Producer:
    """Return a transactional producer on a machine of its own."""
    return Producer(
        SERVERS,
        transactional_id="tx",
        transaction_timeout_ms=300_000,
        _environment=w.world.environment("10.0.5.1"),
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("rejoined", [False, True], ids=["outside", "rejoined"])
def test_the_offsets_of_lost_partitions_are_refused(protocol: str, rejoined: bool) -> None:
    """A member that was removed while it handled a record would overwrite its successor's offset.

    A classic member outside its group has neither a generation nor a member id: the coordinator
    accepts such offsets unchecked, because clients before KIP-447 have no other.
    """

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        lost: list[TopicPartition] = []
        async with (
            transactional(w) as producer,
            w.member("t", protocol=protocol, enable_auto_commit=False, on_lost=lost.extend) as c,
        ):
            await read(c, 3)
            before = c.group_metadata().generation
            w.network.partition(w.hosts[c])
            async with w.member("t", protocol=protocol) as other:
                assert numbers(await read(other, 5)) == [0, 1, 2, 3, 4]
                await other.commit()
                if not rejoined:
                    w.network.heal()
                    await until(lambda: lost)
            w.network.heal()
            if rejoined:
                await until(lambda: c.group_metadata().generation > before and c.assignment())
            with pytest.raises(CommitFailed) as caught:
                async with producer.transaction() as txn:
                    await txn.send_offsets(c)
            assert caught.value.lost == {T0}
            assert await txn.outcome() is TransactionOutcome.ABORTED
            assert await w.committed("t", 1) == [5]
            assert await c.getmany(timeout=0.1) == {}
            await asyncio.sleep(10)
            async with producer.transaction() as txn:
                await txn.send_offsets(c)  # the assignment is a new one, and so are its offsets
            assert await w.committed("t", 1) == [5]

    simulate(body)


def test_manually_assigned_partitions_need_no_member() -> None:
    """assign() with a group_id has no generation, and is no member that is outside its group."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with transactional(w) as producer, w.member(enable_auto_commit=False) as c:
            c.assign([T0])
            await read(c, 3)
            async with producer.transaction() as txn:
                await txn.send_offsets(c)
            await asyncio.sleep(1)
        assert await w.committed("t", 1) == [3]

    simulate(body)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_metadata_of_a_member_outside_its_group_is_refused(protocol: str) -> None:
    """A classic member then has no generation, so that the coordinator would accept the offsets."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        lost: list[TopicPartition] = []
        async with (
            transactional(w) as producer,
            w.member("t", protocol=protocol, enable_auto_commit=False, on_lost=lost.extend) as c,
        ):
            assert c.group_metadata().outside_group, "it has not joined yet"
            await read(c, 3)
            inside = c.group_metadata()
            assert not inside.outside_group
            w.network.partition(w.hosts[c])
            async with w.member("t", protocol=protocol) as other:
                await read(other, 5)
                await other.commit()
                w.network.heal()
                await until(lambda: lost)
                outside = c.group_metadata()
                assert outside.outside_group
                with pytest.raises(CommitFailed, match="no longer owns t-0") as caught:
                    async with producer.transaction() as txn:
                        await txn.send_offsets({("t", 0): 3}, outside)
                assert caught.value.lost == {T0}
                assert await txn.outcome() is TransactionOutcome.ABORTED
                async with producer.transaction() as txn:
                    await txn.send_offsets({}, outside)  # there is nothing to commit
                with pytest.raises(TransactionAborted):  # the coordinator fences the old generation
                    async with producer.transaction() as txn:
                        await txn.send_offsets({("t", 0): 3}, inside)
                assert await w.committed("t", 1) == [5]

    simulate(body)


def test_the_metadata_of_manually_assigned_partitions_is_accepted() -> None:
    """The group has no members, so that nobody else can own the partitions."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with transactional(w) as producer, w.member(enable_auto_commit=False) as c:
            c.assign([T0])
            assert not c.group_metadata().outside_group
            async with producer.transaction() as txn:
                await txn.send_offsets({("t", 0): 3}, c.group_metadata())
        assert await w.committed("t", 1) == [3]

    simulate(body)
