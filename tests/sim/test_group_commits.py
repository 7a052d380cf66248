"""Group members commit only finished records, however processing ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.core.errors import Closed, CommitFailed, ConfigError, RequestTimeout
from aiokq.core.types import OffsetAndMetadata, TopicPartition
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_auto_commit_never_covers_the_record_being_processed(protocol: str) -> None:
    """aiokafka commits delivered records: a crash then loses the record being processed."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", protocol=protocol) as c:
            async for record in c:
                await asyncio.sleep(6)
                assert (await w.committed("t", 1)) == [record.offset]
                if record.offset == 2:
                    break
            # After `break` the record counts as finished only when the consumer is used again or
            # closed.
            await asyncio.sleep(6)
            assert (await w.committed("t", 1)) == [2]
        assert (await w.committed("t", 1)) == [3]

    simulate(body)


@pytest.mark.parametrize("end", ["normal", "exception", "cancel", "close in finally"])
def test_only_a_normal_exit_finishes_the_last_record(end: str) -> None:
    """After an exception in the loop body the record is not finished."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)

        async def work() -> None:
            if end == "close in finally":
                c = w.member("t")
                await c.start()
                try:
                    async for record in c:
                        if record.offset == 2:
                            raise LookupError
                finally:
                    await c.close()
            async with w.member("t") as c:
                async for record in c:
                    if record.offset == 2:
                        if end == "exception":
                            raise LookupError
                        if end == "cancel":
                            await asyncio.sleep(1000)
                        break

        task = asyncio.create_task(work())
        await asyncio.sleep(4)
        task.cancel()
        await asyncio.wait([task])
        assert (await w.committed("t", 1)) == [3 if end == "normal" else 2]

    simulate(body)


@both
def test_commit_covers_all_delivered_records(protocol: str) -> None:
    """By calling commit() the program declares that the current record is processed."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(10), 2)
        async with w.member("t", protocol=protocol, enable_auto_commit=False) as c:
            got = 0
            async for _ in c:
                got += 1
                await c.commit()
                assert sum(filter(None, await w.committed("t", 2))) == got
                if got == 4:
                    break
            await c.commit({("t", 0): 1, T1: OffsetAndMetadata(2, "mine")})
            assert await w.committed("t", 2) == [1, 2]
            assert await c.committed(("t", 0)) == 1
            done = c.commit_nowait()
            later = c.commit_nowait({T0: 3})
            await done
            await later
            assert await c.committed(T0) == 3
            await c.seek_to_committed(T0)
            assert await c.position(T0) == 3
        assert (await w.committed("t", 2))[0] == 3, "no automatic commit at the end"

    simulate(body)


@both
def test_acks_out_of_order_commit_up_to_the_first_missing_one(protocol: str) -> None:
    """Workers finish in any order; the slowest one holds the committed offset back."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(6), 1)
        c = w.member("t", protocol=protocol, ack_mode="explicit", auto_commit_interval_ms=1000)
        async with c:
            records = await read(c, 6)
            for n in (1, 2, 4):
                c.ack(records[n])
            await asyncio.sleep(2)
            assert await w.committed("t", 1) == [0]
            c.ack(records[0])
            await asyncio.sleep(2)
            assert await w.committed("t", 1) == [3]
            c.ack(records[3])
            await c.commit()
            assert await w.committed("t", 1) == [5]
        assert await w.committed("t", 1) == [5], "the last one was never acknowledged"

    simulate(body)


def test_acks_of_batches_and_of_getmany() -> None:
    """With batches() a batch is acknowledged, with getmany() a record."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(6), 1)
        async with w.member("t", ack_mode="explicit") as c:
            (records,) = (await c.getmany(timeout=10, max_records=2)).values()
            c.ack(records[1])
            await c.commit()
            assert await w.committed("t", 1) == [0]
            c.ack(records[0])
            async for batch in c.batches():
                await c.commit()
                assert await w.committed("t", 1) == [2]
                c.ack(batch)
                await c.commit()
                assert await w.committed("t", 1) == [batch.next_offset]
                break

    simulate(body)


def test_ack_without_explicit_ack_mode_names_the_setting() -> None:
    """ack() would have no effect."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(1), 1)
        async with w.member("t") as c:
            (record,) = await read(c, 1)
            with pytest.raises(ConfigError, match="ack_mode='explicit'"):
                c.ack(record)
        async with w.member("t", group_id=None) as c:
            with pytest.raises(ConfigError, match="set group_id"):
                c.ack(record)

    simulate(body)


@both
def test_a_fenced_commit_names_the_lost_partition(protocol: str) -> None:
    """Faust 104: a fenced member must not overwrite its successor's commit."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", protocol=protocol, enable_auto_commit=False) as c:
            await read(c, 3)
            w.network.partition(w.hosts[c])
            async with w.member("t", protocol=protocol) as other:
                assert numbers(await read(other, 5)) == [0, 1, 2, 3, 4]
                await other.commit()
                w.network.heal()
                with pytest.raises(CommitFailed) as caught:
                    await c.commit({T0: 3})
                assert caught.value.lost == {T0}
                assert "this member no longer owns t-0" in str(caught.value)
                assert await w.committed("t", 1) == [5]

    simulate(body)


@both
@pytest.mark.parametrize("what", ["all", "an offset"])
def test_a_commit_for_lost_partitions_fails_even_after_rejoining(protocol: str, what: str) -> None:
    """A member that was removed while it processed a record, and had rejoined meanwhile,
    committed over its successor's offsets, or got no error.
    """

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", protocol=protocol, enable_auto_commit=False) as c:
            await read(c, 3)
            before = c.group_metadata().generation
            w.network.partition(w.hosts[c])
            async with w.member("t", protocol=protocol) as other:
                assert numbers(await read(other, 5)) == [0, 1, 2, 3, 4]
                await other.commit()
            w.network.heal()
            await until(lambda: c.group_metadata().generation > before and T0 in c.assignment())
            for _ in range(2):  # the second attempt must also fail
                with pytest.raises(CommitFailed) as caught:
                    await c.commit({T0: 3} if what == "an offset" else None)
                assert caught.value.lost == {T0}
            with pytest.raises(CommitFailed):
                await c.commit_nowait({T0: 3} if what == "an offset" else None)
            assert await w.committed("t", 1) == [5]

            assert await c.getmany(timeout=0.1) == {}
            await c.commit({T0: 2})  # after further reads this commit is intentional
            assert await w.committed("t", 1) == [2]

    simulate(body)


@both
def test_automatic_commits_continue_while_a_lost_record_is_processed(protocol: str) -> None:
    """Offsets of partitions that had been assigned again were committed and refused every 5 s."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", protocol=protocol, auto_commit_interval_ms=1_000) as c:
            await c.getone()
            before = c.group_metadata().generation
            w.network.partition(w.hosts[c])
            await asyncio.sleep(8)
            w.network.heal()
            await until(lambda: c.group_metadata().generation > before and T0 in c.assignment())
            await asyncio.sleep(5)
            health = c.health().group
            assert health is not None
            assert health.commit_error is None

    simulate(body)


def test_manually_assigned_partitions_are_committed_without_membership() -> None:
    """assign() with a group_id works as in Java and starts at the committed offsets."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(10), 2)
        async with w.member() as c:
            c.assign([T0])
            assert len(await read(c, 3)) == 3
            assert c.group_metadata().generation == -1
            await c.commit()
            assert await w.committed("t", 2) == [3, None]
        async with w.member() as c:
            c.assign([T0])
            assert (await read(c, 1))[0].offset == 3

    simulate(body)


@both
def test_single_partitions_beside_a_shared_topic(protocol: str) -> None:
    """One consumer uses both forms of addTopic of an earlier client."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.topic("u", 2)
        await w.produce("t", range(10), 2)
        await w.produce("u", range(100, 110), 2)
        lost: list[Any] = []
        c = w.member(protocol=protocol, on_revoked=lost.extend)
        c.add_topic("u", 1)
        async with c:
            assert numbers(await read(c, 5)) == [101, 103, 105, 107, 109]
            c.add_topic("t")
            assert numbers(await read(c, 10)) == list(range(10))
            reading = asyncio.create_task(c.getone())
            async with w.member("t", protocol=protocol) as other:
                await until(lambda: len(other.assignment()) == 1 and len(c.assignment()) == 2)
                assert ("u", 1) in c.assignment()
            reading.cancel()
        assert ("u", 1) not in lost[:2]
        assert await w.committed("u", 2) == [None, 5]

    simulate(body)


def test_the_start_position_is_committed_if_nothing_was_read() -> None:
    """With `latest`, records written while the group has no member would be skipped."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(5), 1)
        async with w.member("t", auto_offset_reset="latest") as c:
            await until(lambda: len(c.assignment()) == 1)
            assert await c.position(T0) == 5
        await w.produce("t", range(5, 8), 1)
        async with w.member("t", auto_offset_reset="latest") as c:
            assert numbers(await read(c, 3)) == [5, 6, 7]

    simulate(body)


@both
def test_new_partitions_are_read_from_their_beginning(protocol: str) -> None:
    """`latest` must not skip records written before the group noticed the partitions."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        options: Any = {
            "protocol": protocol,
            "auto_offset_reset": "latest",
            "metadata_max_age_ms": 5_000,
        }
        async with w.member("t", **options) as c, w.member("t", **options) as d:
            await until(lambda: len(c.assignment()) + len(d.assignment()) == 1)
            await asyncio.sleep(1)
            await w.grow("t", 4)
            await w.produce("t", range(40), 4)
            got: list[Any] = []

            async def work(consumer: Any) -> None:
                async for record in consumer:
                    got.append(record)

            tasks = [asyncio.create_task(work(x)) for x in (c, d)]
            await until(lambda: len(got) == 40, 120)
            assert numbers(got) == list(range(40))
            for task in tasks:
                task.cancel()

    simulate(body)


def test_a_stream_that_fails_leaves_its_record_to_another_one() -> None:
    """The next reader of the partition must not commit a record that was never processed."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(4), 1)
        async with w.member("t") as c:
            streams = c.streams(2)
            await until(lambda: c.assignment())
            one = next(stream for stream in streams if stream.assignment())
            (other,) = [stream for stream in streams if stream is not one]

            async def fail() -> None:
                async with one:
                    async for record in one:
                        if record.offset == 1:
                            raise LookupError

            with pytest.raises(LookupError):
                await fail()
            assert numbers(await read(other, 3)) == [1, 2, 3]

    simulate(body)


def test_switching_from_subscribe_to_assign() -> None:
    """The group gives up partitions that the consumer assigns to itself at the same time."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)
        async with w.member("t") as c:
            assert len(await read(c, 20)) == 20
            await c.commit({T0: 4})
            c.unsubscribe()
            c.assign([T0])
            await until(lambda: c.assignment() == {T0})
            c.seek(T0, 8)
            assert numbers(await read(c, 2)) == [16, 18]

    simulate(body)


@both
def test_a_commit_that_times_out_names_the_cause(protocol: str) -> None:
    """A commit for a misspelled topic took a minute, and its error named no cause."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with w.member("t", protocol=protocol) as c:
            await until(lambda: c.assignment() == {T0})
            before = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeout, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await c.commit({("misspelt", 0): 1}, timeout=2.0)
            assert asyncio.get_running_loop().time() - before < 2.5

    simulate(body)


def test_ack_of_a_value_that_is_not_a_record_is_refused() -> None:
    """For an offset an AttributeError was raised inside the client."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with w.member("t", ack_mode="explicit") as c:
            with pytest.raises(TypeError, match=r"ack\(\) needs a record"):
                c.ack(7)  # type: ignore[arg-type]

    simulate(body)


def test_a_commit_does_not_overtake_an_earlier_one() -> None:
    """The older commit then undid the newer one, and the next owner got finished records again."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(9), 1)
        async with w.member("t", enable_auto_commit=False) as c:
            await read(c, 9)
            begun = [c.commit_nowait({T0: 3}), c.commit_nowait({T0: 5})]
            await c.commit({T0: 7})
            assert all(done.done() for done in begun)
            assert await w.committed("t", 1) == [7]

    simulate(body)


def test_cancelling_a_queued_commit_keeps_the_order_of_the_others() -> None:
    """Commits after the cancelled one still wait for those before it."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(9), 1)
        async with w.member("t", enable_auto_commit=False) as c:
            await read(c, 9)
            begun = c.commit_nowait({T0: 3})
            waiting = asyncio.ensure_future(c.commit({T0: 4}))
            await asyncio.sleep(0)
            waiting.cancel()
            await c.commit({T0: 7})
            assert begun.done()
            assert waiting.cancelled()
            assert await w.committed("t", 1) == [7]

    simulate(body)


@both
def test_a_commit_started_before_close_is_completed(protocol: str) -> None:
    """The member left the group first, and the commit was refused and logged."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(9), 1)
        async with w.member("t", protocol=protocol, enable_auto_commit=False) as c:
            await read(c, 9)
            begun = c.commit_nowait({T0: 5})
        assert begun.done()
        assert begun.exception() is None
        assert await w.committed("t", 1) == [5]

    simulate(body)


@both
def test_a_commit_started_in_on_revoked_is_completed_before_the_revocation(protocol: str) -> None:
    """A handler that is not a coroutine function cannot await its commit."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(20), 2)
        begun: list[asyncio.Future[None]] = []
        c = w.member(
            "t",
            protocol=protocol,
            enable_auto_commit=False,
            on_revoked=lambda tps: begun.append(c.commit_nowait(dict.fromkeys(tps, 7))),
        )
        async with c:
            await read(c, 20)
            waiting = asyncio.create_task(read(c, 1, 300))
            async with w.member("t", protocol=protocol) as other:
                await until(lambda: len(other.assignment()) == 1)
                (tp,) = other.assignment()
                assert await other.position(tp) == 7
            waiting.cancel()
        assert all(done.exception() is None for done in begun)

    simulate(body)


def test_a_commit_that_cannot_be_completed_before_close_raises_in_its_caller() -> None:
    """The caller got a CancelledError although no task was cancelled."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(9), 1)
        c = w.member("t", enable_auto_commit=False)
        await c.start()
        await read(c, 9)
        await w.broker.stop()
        begun = c.commit_nowait({T0: 5})
        await c.close(timeout=3)
        with pytest.raises(Closed, match="the response to its commit"):
            await begun

    simulate(body)


def test_a_commit_for_a_missing_topic_fails_and_the_others_succeed() -> None:
    """The commit was retried for a minute, and every later commit waited for it."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(9), 1)
        async with w.member("t", enable_auto_commit=False) as c:
            await read(c, 9)
            began = w.world.loop.time()
            with pytest.raises(CommitFailed) as refused:
                await c.commit({T0: 5, ("typo", 0): 5, T1: 3})
            assert 5 <= w.world.loop.time() - began <= 8
            assert refused.value.errors.keys() == {TopicPartition("typo", 0), T1}
            assert not refused.value.lost
            assert await w.committed("t", 1) == [5]
            assert await c.committed(("typo", 0), timeout=2) is None

    simulate(body)


def test_a_commit_for_a_new_topic_waits_until_the_brokers_know_it() -> None:
    """Brokers learn of a new topic a moment later, which must not fail the commit."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with w.member("t", enable_auto_commit=False) as c:
            await until(lambda: c.assignment())
            committing = asyncio.create_task(c.commit({("new", 0): 5}))
            await asyncio.sleep(3)
            assert not committing.done()
            await w.topic("new", 1)
            await committing
            assert await w.committed("new", 1) == [5]

    simulate(body)
