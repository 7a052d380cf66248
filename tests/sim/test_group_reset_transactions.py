"""Reset and rewind of a group whose offsets an open transaction is about to commit."""

from __future__ import annotations

import asyncio

import aiokq
from aiokq import errors
from aiokq.core.types import TopicPartition
from tests.sim.test_consumer_markers import Topic, by_iteration, simulate

T0 = TopicPartition("t", 0)


async def pending(topic: Topic, consumer: aiokq.Consumer) -> None:
    """Read three records, and commit their offsets in a transaction that stays open."""
    await topic.commit(b"0", b"1", b"2")
    await by_iteration(consumer)
    txn = await topic.producer.begin_transaction()
    await txn.send_offsets(consumer)


def test_a_reset_does_not_guess_what_an_open_transaction_commits() -> None:
    """The partition fails with UNSTABLE_OFFSET_COMMIT; after the transaction it is reset."""

    async def body(topic: Topic) -> None:
        environment = topic.world.environment()
        async with topic.consumer() as consumer:
            await pending(topic, consumer)
        async with aiokq.Admin(topic.servers, _environment=environment) as admin:
            reset = await admin.reset_group_offsets("g", "earliest", [T0], timeout=5)
            assert isinstance(reset[T0].error, errors.UnstableOffsetCommit)
            await topic.producer.commit_transaction()
            await asyncio.sleep(1)
            reset = await admin.reset_group_offsets("g", "earliest", [T0], raise_errors=True)
            assert (reset[T0].previous, reset[T0].offset) == (4, 0)
        assert await topic.lag() == 4

    simulate(body)


def test_a_commit_of_an_administrator_wins_over_an_older_transaction() -> None:
    """The marker comes after it, but the record of the transaction is older."""

    async def body(topic: Topic) -> None:
        environment = topic.world.environment()
        async with topic.consumer() as consumer:
            await pending(topic, consumer)
        async with aiokq.Admin(topic.servers, _environment=environment) as admin:
            await admin.alter_group_offsets("g", {T0: 1}, raise_errors=True)
            await topic.producer.commit_transaction()
            await asyncio.sleep(1)
            found = await admin.list_group_offsets("g", require_stable=True, raise_errors=True)
            committed = found["g"].offsets[T0]
            assert committed is not None
            assert committed.offset == 1

    simulate(body)


def test_a_rewind_of_a_live_group_is_not_undone_by_an_aborted_transaction() -> None:
    """The member reads again from the rewound offset."""

    async def body(topic: Topic) -> None:
        environment = topic.world.environment()
        async with topic.consumer() as consumer:
            await pending(topic, consumer)
            await topic.producer.abort_transaction()
            await asyncio.sleep(1)
            reading = asyncio.create_task(by_iteration(consumer))
            async with aiokq.Admin(topic.servers, _environment=environment) as admin:
                await admin.rewind_group("g", "earliest", [T0], raise_errors=True)
            assert await reading == [b"0", b"1", b"2"]

    simulate(body)
