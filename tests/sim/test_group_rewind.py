"""Rewinding a group with active members: no record from the new offset on is skipped."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from aiokq.admin.client import Admin
from aiokq.admin.group_reset import ResetTo
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import CommitFailed, ConfigError, ForeignMembers
from tests.sim.group_world import PROTOCOLS, World, read, simulate, until
from tests.sim.test_whole_system import SERVERS


class Crew:
    """Members that read forever, and the records they got, in order."""

    def __init__(self, w: World, protocol: str, count: int) -> None:
        self.members = [w.member("t", protocol=protocol, auto_commit_interval_ms=500)]
        self.members += [
            w.member("t", protocol=protocol, auto_commit_interval_ms=500) for _ in range(count - 1)
        ]
        self.handed: dict[int, list[int]] = defaultdict(list)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Crew:
        for member in self.members:
            await self._begin(member)
        return self

    async def add(self, member: Consumer) -> None:
        self.members.append(member)
        await self._begin(member)

    async def _begin(self, member: Consumer) -> None:
        await member.start()
        self._tasks.append(asyncio.create_task(self._work(member)))

    def check_resumed(self, partition: int, first: int, end: int) -> None:
        """Check that reading resumed at `first` after all was read once, without gaps."""
        again = self.handed[partition][end:]
        resumed = [i for i, offset in enumerate(again) if offset == first]
        assert resumed, f"{partition} did not resume at {first}: {again}"
        rest = again[resumed[-1] :]
        assert all(later <= offset + 1 for offset, later in pairwise(rest)), rest
        assert rest[-1] == end - 1

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.close()
        await asyncio.gather(*self._tasks)

    async def _work(self, member: Consumer) -> None:
        async for record in member:
            self.handed[record.partition].append(record.offset)

    @property
    def total(self) -> int:
        return sum(map(len, self.handed.values()))


def admin(w: World) -> Admin:
    return Admin(SERVERS, _environment=w.world.environment("10.0.0.8"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_active_members_continue_from_the_new_offsets(protocol: str) -> None:
    """One partition is rewound to its beginning, one to an offset; the third is not affected."""

    async def body(w: World) -> None:
        await w.topic("t", 3)
        await w.produce("t", range(300), 3)
        async with Crew(w, protocol, 2) as crew:
            await until(lambda: crew.total == 300)
            await asyncio.sleep(2)  # until the offsets are committed
            async with admin(w) as a:
                results = await a.rewind_group(
                    "g", {("t", 0): "earliest", ("t", 1): 60}, raise_errors=True
                )
            assert {tp.partition: (r.previous, r.offset) for tp, r in results.items()} == {
                0: (100, 0),
                1: (100, 60),
            }
            await until(lambda: crew.total >= 440)
            await asyncio.sleep(10)
            assert crew.handed[0] == [*range(100), *range(100)]
            assert crew.handed[1] == [*range(100), *range(60, 100)]
            assert crew.handed[2] == [*range(100)]
        assert await w.committed("t", 3) == [100, 100, 100]

    simulate(body)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(5))
def test_no_record_is_skipped_while_records_are_produced(protocol: str, seed: int) -> None:
    """Members commit all the time; a late commit must not overwrite the new offsets."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        async with Crew(w, protocol, 3) as crew, admin(w) as a:
            producing = asyncio.create_task(w.produce("t", range(2000), 2))
            await until(lambda: crew.total > 200)
            await asyncio.sleep(w.random.uniform(0, 3))
            before = {p: len(offsets) for p, offsets in crew.handed.items()}
            await a.rewind_group("g", {("t", 0): 7, ("t", 1): 0}, raise_errors=True)
            await producing
            await asyncio.sleep(10)  # until heartbeats have told the members to rejoin
            await until(lambda: all(o[-1] == 999 for o in crew.handed.values()), 120)
            for partition, first in ((0, 7), (1, 0)):
                again = crew.handed[partition][before[partition] :]
                resumed = max(i for i, offset in enumerate(again) if offset == first)
                assert again[resumed:] == [*range(first, 1000)]

    simulate(body, seed=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(3))
def test_two_concurrent_rewinds_both_take_effect(protocol: str, seed: int) -> None:
    """Each rewind removes the members that rejoined after the other."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(200), 2)
        async with Crew(w, protocol, 2) as crew, admin(w) as a:
            await until(lambda: crew.total == 200)
            await asyncio.sleep(2)  # until the offsets are committed

            async def rewind(partition: int, to: int) -> None:
                await asyncio.sleep(w.random.uniform(0, 0.2))
                await a.rewind_group("g", {("t", partition): to}, raise_errors=True)

            await asyncio.gather(rewind(0, 30), rewind(1, 60))
            await until(lambda: all(o[100:][-1:] == [99] for o in crew.handed.values()), 120)
            await asyncio.sleep(10)
            crew.check_resumed(0, 30, 100)
            crew.check_resumed(1, 60, 100)
        assert await w.committed("t", 2) == [100, 100]

    simulate(body, seed=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(3))
def test_of_two_rewinds_of_a_partition_the_later_one_takes_effect(protocol: str, seed: int) -> None:
    """The later commit decides where the group continues; the earlier rewind may raise an error."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(100), 1)
        async with Crew(w, protocol, 2) as crew, admin(w) as a:
            await until(lambda: crew.total == 100)
            await asyncio.sleep(2)  # until the offsets are committed
            ends: list[int] = []

            async def rewind(to: int) -> None:
                await asyncio.sleep(w.random.uniform(0, 0.2))
                result = (await a.rewind_group("g", {("t", 0): to}))["t", 0]
                if result.error is None:
                    ends.append(to)
                else:
                    assert protocol == "classic"
                    assert isinstance(result.error, CommitFailed)

            await asyncio.gather(rewind(20), rewind(50))
            await until(lambda: crew.handed[0][100:][-1:] == [99], 120)
            await asyncio.sleep(10)
            crew.check_resumed(0, ends[-1], 100)
        assert await w.committed("t", 1) == [100]

    simulate(body, seed=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_skipped_if_members_join_and_crash_during_a_rewind(
    protocol: str, seed: int
) -> None:
    """One member joins during the rewind, so that the group rebalances; another one crashes."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        await w.produce("t", range(200), 2)
        async with Crew(w, protocol, 3) as crew, admin(w) as a:
            await until(lambda: crew.total == 200)
            await asyncio.sleep(2)  # until the offsets are committed
            victim = w.hosts[crew.members[-1]]

            async def crash() -> None:
                await asyncio.sleep(w.random.uniform(0, 0.5))
                w.network.partition(victim)

            async def join() -> None:
                await asyncio.sleep(w.random.uniform(0, 0.5))
                await crew.add(w.member("t", protocol=protocol, auto_commit_interval_ms=500))

            async def rewind() -> None:
                await asyncio.sleep(w.random.uniform(0, 0.5))
                await a.rewind_group("g", {("t", 0): 10, ("t", 1): 40}, raise_errors=True)

            await asyncio.gather(crash(), join(), rewind())
            await until(lambda: all(o[100:][-1:] == [99] for o in crew.handed.values()), 120)
            await asyncio.sleep(20)
            crew.check_resumed(0, 10, 100)
            crew.check_resumed(1, 40, 100)
            w.network.heal()
        assert await w.committed("t", 2) == [100, 100]

    simulate(body, seed=seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", range(4))
def test_a_rewind_survives_a_restart_of_the_coordinator(protocol: str, seed: int) -> None:
    """It is unknown which requests the coordinator had applied."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(100), 1)
        async with Crew(w, protocol, 2) as crew, admin(w) as a:
            await until(lambda: crew.total == 100)
            await asyncio.sleep(2)  # until the offsets are committed
            rewinding = asyncio.create_task(a.rewind_group("g", {("t", 0): 30}, raise_errors=True))
            await asyncio.sleep(w.random.uniform(0, 0.02))
            w.broker.kill()
            await asyncio.sleep(1)
            await w.broker.start()
            assert (await rewinding)["t", 0].offset == 30
            await until(lambda: crew.handed[0][100:][-1:] == [99], 120)
            await asyncio.sleep(10)
            crew.check_resumed(0, 30, 100)
        assert await w.committed("t", 1) == [100]

    simulate(body, seed=seed)


def test_a_rewind_to_a_time_and_of_a_group_without_members() -> None:
    """Without members the rewind is a plain reset; times are compared with record timestamps."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        await asyncio.sleep(5)
        when = w.world.environment("10.0.0.8").clock.timestamp_ms()
        await w.produce("t", range(10, 20), 1)
        async with w.member("t") as c:
            await read(c, 20)
        async with admin(w) as a:
            to = datetime.fromtimestamp(when / 1000, UTC)
            results = await a.rewind_group("g", {("t", 0): to}, raise_errors=True)
            assert results[("t", 0)].offset == 10
            await a.rewind_group("new", {("t", 0): ResetTo.latest()}, raise_errors=True)
        assert await w.committed("t", 1) == [10]
        assert await w.committed("t", 1, "new") == [20]

    simulate(body)


def test_an_invalid_rewind_target_is_refused_before_any_request() -> None:
    """Removing members in vain would cost a rebalance."""

    async def body(w: World) -> None:
        async with admin(w) as a:
            with pytest.raises(ConfigError, match="time zone"):
                await a.rewind_group("g", {("t", 0): datetime(2026, 1, 1)})
            with pytest.raises(ConfigError, match="is not a position to reset to"):
                await a.rewind_group("g", {("t", 0): "start"})  # type: ignore[dict-item]
            with pytest.raises(ConfigError, match="is not a position to reset to"):
                await a.rewind_group("g", {("t", 0): True})

    simulate(body)


def test_members_of_other_clients_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the consumer protocol it is uncertain whether such members rejoin."""
    monkeypatch.setattr("aiokq.consumer.membership.OWN_MEMBER_PREFIX", "java-")

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        async with w.member("t", protocol="consumer") as c, admin(w) as a:
            await read(c, 10)
            with pytest.raises(ForeignMembers, match="java-") as caught:
                await a.rewind_group("g", {("t", 0): "earliest"})
            assert len(caught.value.members) == 1
            assert c.assignment() == {("t", 0)}  # the group was not changed

    simulate(body)
