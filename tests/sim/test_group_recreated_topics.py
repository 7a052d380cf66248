"""A topic is deleted and recreated while members read it: offsets of the old topic are never used
for the new one, and no record of the new topic is skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

import pytest

from aiokq.broker.handlers import advertised_versions
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import CommitFailed, UnknownTopicId
from aiokq.core.types import TopicPartition
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until

T0 = TopicPartition("t", 0)
both = pytest.mark.parametrize("protocol", PROTOCOLS)
gaps = pytest.mark.parametrize("gap", [0.0, 0.5, 12.0])
EACH = 4
"""Records in each partition of the old and of the new topic."""
OFFSET_COMMIT, OFFSET_FETCH = 8, 9


@pytest.fixture(params=["ids", "names"])
def versions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """OffsetCommit and OffsetFetch use topic ids, or names as before version 10."""
    if request.param == "names":

        def older(legacy: bool) -> list[tuple[int, int, int]]:
            return [
                (key, low, min(high, 9) if key in (OFFSET_COMMIT, OFFSET_FETCH) else high)
                for key, low, high in advertised_versions(legacy)
            ]

        monkeypatch.setattr("aiokq.broker.node.advertised_versions", older)
    return str(request.param)


class Reader:
    """One way to read and to finish records.

    Attributes:
        got: the numbers that were delivered.
        held: delivered items that are not acknowledged, with ``how="ack"``.
    """

    def __init__(self, consumer: Consumer, how: str) -> None:
        self.consumer = consumer
        self.how = how
        self.got: list[int] = []
        self.held: list[Any] = []
        self._streams = consumer.streams(2) if how == "streams" else []

    async def some(self) -> None:
        """Read one record with each reader, or one batch."""
        if self.how == "batches":
            async for batch in self.consumer.batches():
                self.got += numbers(batch)
                return
        if self.how == "many":
            for records in (await self.consumer.getmany(timeout=1.0)).values():
                self.got += numbers(records)
            return
        if self.how == "streams":
            tasks = [asyncio.create_task(stream.getone()) for stream in self._streams]
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.wait(tasks)
            self.got += numbers(task.result() for task in tasks if not task.cancelled())
            return
        record = await self.consumer.getone()
        self.got += numbers([record])
        self.held.append(record)

    async def until(self, wanted: set[int]) -> None:
        """Read until all of `wanted` were delivered."""
        async with asyncio.timeout(120):
            while not wanted <= set(self.got):
                await self.some()

    def ack(self) -> None:
        """Acknowledge all held items."""
        for record in self.held:
            self.consumer.ack(record)
        self.held.clear()


@both
@gaps
@pytest.mark.parametrize(
    ("how", "before", "after"),
    [
        ("one", 1, 1),
        ("one", 1, 3),
        ("many", 2, 1),
        ("batches", 1, 3),
        ("streams", 2, 1),
        ("ack", 1, 1),
        ("ack", 3, 2),
        ("manual", 1, 1),
        ("manual", 2, 1),
    ],
)
def test_the_new_topic_is_read_from_its_first_record(
    protocol: str, gap: float, how: str, before: int, after: int, versions: str
) -> None:
    """The committed offsets of the old topic do not apply to the new one."""

    async def body(w: World) -> None:
        await w.topic("t", before)
        old, new = range(before * EACH), range(100, 100 + after * EACH)
        await w.produce("t", old, before)
        options: dict[str, Any] = {"protocol": protocol, "auto_commit_interval_ms": 300}
        if how == "ack":
            options["ack_mode"] = "explicit"
        if how == "manual":
            options["enable_auto_commit"] = False
        async with w.member("t", **options) as c:
            await until(lambda: len(c.assignment()) == before)
            reader = Reader(c, how)
            await reader.until(set(old))
            await w.recreate("t", after, gap=gap)
            await w.produce("t", new, after)
            if how == "ack":
                reader.ack()
            if how == "manual":
                with contextlib.suppress(CommitFailed):
                    await c.commit()
            await asyncio.sleep(3)
            assert set(await w.committed("t", after)) <= {None, 0}, "nothing of it was handed over"
            await reader.until(set(new))
            assert sorted(reader.got) == [*old, *new], "nothing was read twice"
            if how == "ack":
                reader.ack()
            if how == "manual":
                await c.commit()
        assert await w.committed("t", after) == [EACH] * after

    simulate(body)


@both
@gaps
@pytest.mark.parametrize("how", ["one", "many", "batches", "ack"])
def test_a_handler_that_fails_after_the_recreation_loses_nothing(
    protocol: str, gap: float, how: str
) -> None:
    """Unfinished records belong to the old topic: the next member starts with the new topic."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(EACH), 1)
        options: dict[str, Any] = {"protocol": protocol, "auto_commit_interval_ms": 300}
        if how == "ack":
            options["ack_mode"] = "explicit"

        async def work() -> None:
            async with w.member("t", **options) as c:
                reader = Reader(c, how)
                await reader.until(set(range(EACH)))
                await w.recreate("t", 1, gap=gap)
                await w.produce("t", range(100, 104), 1)
                await asyncio.sleep(3)
                raise LookupError

        with pytest.raises(LookupError):
            await work()
        async with w.member("t", **options) as c:
            assert numbers(await read(c, 4)) == [100, 101, 102, 103]

    simulate(body)


@both
def test_a_commit_in_flight_is_refused_by_topic_id(protocol: str) -> None:
    """The client learns of the new topic from the response: an automatic commit is dropped, and
    a manual one fails with UnknownTopicId.
    """

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(EACH), 1)
        async with w.member("t", protocol=protocol, enable_auto_commit=False) as c:
            await read(c, EACH)
            w.network.delay_host(w.hosts[c], 0.4)
            commits = [c.commit_nowait(), c.commit_nowait({T0: 2}), c.commit_nowait()]
            await w.recreate("t", 1)
            w.network.delay_host(w.hosts[c], 0.0)
            await w.produce("t", range(100, 104), 1)
            for commit in commits:
                with pytest.raises(CommitFailed) as failure:
                    await commit
                assert isinstance(failure.value.errors[T0], UnknownTopicId)
                assert not failure.value.lost
            assert (await w.committed("t", 1))[0] in (None, 0)
            assert numbers(await read(c, EACH)) == [100, 101, 102, 103]
            await c.commit({T0: 2})
            assert await w.committed("t", 1) == [2], "an offset that is named is of the new topic"

    simulate(body)


@both
def test_a_dropped_offset_is_logged_once_and_is_not_an_error(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The user made no mistake and need not do anything."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(EACH), 1)
        async with w.member("t", protocol=protocol, auto_commit_interval_ms=5_000) as c:
            await read(c, EACH)
            await w.recreate("t", 1)
            await asyncio.sleep(30)
            health = c.health().group
            assert health is not None
            assert (health.commit_error, health.pending_commits) == (None, 0)
        assert await w.committed("t", 1) == [0]

    simulate(body)
    dropped = [r for r in caplog.records if "offset of a deleted topic" in r.getMessage()]
    assert len(dropped) == 1
    assert "commit failed" not in caplog.text


@both
@gaps
@pytest.mark.parametrize("kind", ["record", "batch", "error"])
def test_an_acknowledgement_of_the_old_topic_does_not_finish_new_records(
    protocol: str, gap: float, kind: str
) -> None:
    """Records of both topics have the same topic name, partition and offset."""

    def fail(value: bytes) -> Any:
        raise ValueError(value)

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        options: dict[str, Any] = {"ack_mode": "explicit", "auto_commit_interval_ms": 300}
        if kind == "error":
            options["value_deserializer"] = fail
        async with w.member("t", protocol=protocol, **options) as c:

            async def items(count: int) -> list[Any]:
                found: list[Any] = []
                async with asyncio.timeout(60):
                    while sum(getattr(item, "__len__", lambda: 1)() for item in found) < count:
                        if kind == "batch":
                            async for batch in c.batches():
                                found.append(batch)
                                break
                            continue
                        try:
                            found.append(await c.getone())
                        except ValueError as error:
                            found.append(error.record)  # type: ignore[attr-defined]
                return found

            old = await items(3)
            await w.recreate("t", 1, gap=gap)
            await w.produce("t", range(100, 103), 1)
            new = await items(3)
            for item in old:
                c.ack(item)
            await asyncio.sleep(2)
            assert await w.committed("t", 1) == [0], "the new ones are in work"
            for item in new:
                c.ack(item)
            await asyncio.sleep(2)
            assert await w.committed("t", 1) == [3]

    simulate(body)


@both
@pytest.mark.parametrize("policy", ["latest", "none"])
def test_a_topic_created_after_the_subscription_is_read_completely(
    protocol: str, policy: str
) -> None:
    """Records written before the client learned of the new topic must not be skipped."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        options: dict[str, Any] = {"protocol": protocol, "auto_offset_reset": policy}
        async with w.member("t", **options | {"auto_offset_reset": "earliest"}) as c:
            await w.produce("t", range(EACH), 1)
            await read(c, EACH)
        async with w.member("t", **options) as c:
            await until(lambda: len(c.assignment()) == 1)
            assert await c.position(T0) == EACH
            await w.recreate("t", 1)
            await w.produce("t", range(100, 104), 1)
            assert numbers(await read(c, EACH)) == [100, 101, 102, 103]

    simulate(body)


def test_offsets_committed_in_the_new_topic_take_precedence() -> None:
    """Another member may have committed there before the consumer learned of the new topic."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(EACH), 1)
        async with w.member() as c:
            c.assign([T0])
            await read(c, EACH)
            w.network.delay_host(w.hosts[c], 5.0)
            await w.recreate("t", 1)
            await w.produce("t", range(100, 104), 1)
            async with w.member(enable_auto_commit=False) as outside:
                await outside.commit({T0: 3})
            w.network.delay_host(w.hosts[c], 0.0)
            assert numbers(await read(c, 1)) == [103]

    simulate(body)


@both
@gaps
def test_a_pause_outlives_the_topic_and_a_position_does_not(protocol: str, gap: float) -> None:
    """A pause belongs to the partition name, a position to the records."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(EACH), 1)
        async with w.member("t", protocol=protocol) as c:
            await read(c, 1)
            c.pause(T0)
            c.seek(T0, 3)
            await w.recreate("t", 1, gap=gap)
            await w.produce("t", range(100, 104), 1)
            await asyncio.sleep(20)
            if protocol == "classic" and gap < 5:  # else the group reassigned it
                assert c.paused() == {T0}
            c.resume(T0)
            assert numbers(await read(c, EACH)) == [100, 101, 102, 103]

    simulate(body)


@gaps
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_leader_without_partitions_assigns_those_of_the_new_topic(seed: int, gap: float) -> None:
    """It gets no fetch error; the member that reads the topic starts the rebalance."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        async with contextlib.AsyncExitStack() as stack:
            leader = await stack.enter_async_context(w.member("t"))
            await until(leader.assignment)
            members = [leader]
            while leader.assignment():  # until the partition goes to a member with a lesser id
                members.append(await stack.enter_async_context(w.member("t")))
                await asyncio.sleep(10)
            await w.recreate("t", 4, gap=gap)
            await until(lambda: sum(len(member.assignment()) for member in members) == 4, 10)

    simulate(body, seed=seed)


@pytest.mark.parametrize("seed", range(1, 21))
def test_topics_recreated_again_and_again_are_read_completely(seed: int) -> None:
    """Two members read each topic from its first record, whenever it is created or deleted."""

    async def body(w: World) -> None:
        count = itertools.count()
        got: set[int] = set()
        await w.topic("t", 2)
        protocol = PROTOCOLS[seed % 2]

        async def work(consumer: Consumer) -> None:
            async for record in consumer:
                got.update(numbers([record]))

        options: dict[str, Any] = {"protocol": protocol, "auto_commit_interval_ms": 200}
        async with w.member("t", **options) as c, w.member("t", **options) as d:
            tasks = [asyncio.create_task(work(x)) for x in (c, d)]
            for _ in range(6):
                partitions = w.random.randint(1, 4)
                await w.recreate("t", partitions, gap=w.random.choice((0.0, 0.3, 2.0, 8.0)))
                await asyncio.sleep(w.random.choice((0.0, 0.2, 4.0)))
                new = list(itertools.islice(count, 3 * partitions))
                await w.produce("t", new, partitions)
                await until(lambda new=new: got.issuperset(new), 120)
            for task in tasks:
                task.cancel()

    simulate(body, seed=seed)
