"""Rewinding a classic group whose members are other clients, which must not undo the rewind."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.group_types import GroupState
from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import decode_assignment, encode_assignment, encode_subscription
from aiokq.client.cluster import Cluster
from aiokq.cluster.group_offsets import (
    commit_request,
    fetch_request,
    fetched_offsets,
)
from aiokq.core.errors import GroupNotEmpty, KafkaError
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from tests.sim.group_world import World, simulate, until
from tests.sim.test_whole_system import SERVERS

GROUP = "g"
PARTITIONS = 2
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
END = 100
UNKNOWN_MEMBER_ID = 25


class ForeignMember:
    """A member that behaves like aiokafka with automatic commits, request by request.

    When it learns that it was removed, it commits its position without member id and generation,
    and rejoins. Then it continues from the committed offset to the log end offset.

    Attributes:
        at: its position in each partition that it owns.
        resumed: the offset at which it started, for each assignment of a partition.
        commits: error codes of its commits from outside the group.
    """

    def __init__(self, w: World, host: str, *, assignor: str = "range", beat: float = 1.0) -> None:
        self._cluster = Cluster(SERVERS, _environment=w.world.environment(host))
        self._assignor = assignor
        self._beat = beat
        self._task: asyncio.Task[None] | None = None
        self._member = GroupMetadata(GROUP)
        self.at: dict[TopicPartition, int] = {}
        self.resumed: list[tuple[TopicPartition, int]] = []
        self.commits: list[int] = []

    async def __aenter__(self) -> ForeignMember:
        await self._cluster.start()
        self._task = asyncio.create_task(self._live())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._cluster.close()

    async def _ask(self, message: Any) -> Any:
        while True:
            try:
                return await self._cluster.request(message, timeout=5)
            except KafkaError:
                await asyncio.sleep(0.2)

    async def _live(self) -> None:
        while True:
            if await self._join():
                await self._resume()
                await self._beats()
            code = await self._commit()
            if not self._member.member_id and self.at:
                self.commits.append(code)

    async def _beats(self) -> None:
        """Send heartbeats until the member has to rejoin."""
        while True:
            await asyncio.sleep(self._beat)
            beaten = await self._ask(
                wire.HeartbeatRequest(
                    group_id=GROUP,
                    generation_id=self._member.generation,
                    member_id=self._member.member_id,
                )
            )
            if beaten.error_code in (22, UNKNOWN_MEMBER_ID):
                self._member = GroupMetadata(GROUP)
            if beaten.error_code in (22, UNKNOWN_MEMBER_ID, 27):
                return
            await self._commit()

    async def _join(self) -> bool:
        while True:
            subscription = Subscription(("t",))
            joined = await self._ask(
                wire.JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=6_000,
                    rebalance_timeout_ms=6_000,
                    member_id=self._member.member_id,
                    protocol_type="consumer",
                    protocols=[
                        wire.JoinGroupRequestProtocol(
                            name=self._assignor, metadata=encode_subscription(subscription)
                        )
                    ],
                )
            )
            if joined.error_code in (0, 79):
                self._member = GroupMetadata(GROUP, joined.generation_id, joined.member_id)
            elif joined.error_code == UNKNOWN_MEMBER_ID:
                self._member = GroupMetadata(GROUP)
            else:
                assert joined.error_code in (14, 15, 16, 27), joined  # others are final
                await asyncio.sleep(0.2)
            if not joined.error_code:
                break
        members = sorted(member.member_id for member in joined.members)
        shares: dict[str, list[TopicPartition]] = {name: [] for name in members}
        for number in range(PARTITIONS if members else 0):
            shares[members[number % len(members)]].append(TopicPartition("t", number))
        synced = await self._ask(
            wire.SyncGroupRequest(
                group_id=GROUP,
                generation_id=self._member.generation,
                member_id=self._member.member_id,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=[
                    wire.SyncGroupRequestAssignment(
                        member_id=name, assignment=encode_assignment(Assignment(tuple(share)))
                    )
                    for name, share in shares.items()
                ],
            )
        )
        if synced.error_code:
            assert synced.error_code in (14, 15, 16, 22, UNKNOWN_MEMBER_ID, 27), synced
            if synced.error_code == UNKNOWN_MEMBER_ID:
                self._member = GroupMetadata(GROUP)
            return False
        self.at = dict.fromkeys(decode_assignment(synced.assignment).partitions, END)
        return True

    async def _resume(self) -> None:
        """Find the start positions; the member reads to the end at once."""
        if self.at:
            request = fetch_request(9, {GROUP: list(self.at)}, require_stable=False)
            found = fetched_offsets(await self._ask(request), [GROUP])[GROUP]
            assert found.error is None
            for tp, offset in found.offsets.items():
                self.resumed.append((tp, 0 if offset is None else offset.offset))

    async def _commit(self) -> int:
        if not self.at:
            return 0
        offsets = {tp: OffsetAndMetadata(at) for tp, at in self.at.items()}
        answer = await self._ask(commit_request(GROUP, offsets, member=self._member))
        codes: set[int] = {p.error_code for topic in answer.topics for p in topic.partitions}
        return max(codes)


def admin(w: World) -> Admin:
    return Admin(SERVERS, _environment=w.world.environment("10.0.0.8"))


async def at_work(w: World) -> None:
    """Create topic t, whose records can be read again after a rewind."""
    await w.topic("t", PARTITIONS)
    await w.produce("t", range(END * PARTITIONS), PARTITIONS)
    assert await w.committed("t", PARTITIONS) == [None] * PARTITIONS  # finds the coordinator


async def settled(w: World, *members: ForeignMember) -> None:
    """Wait until the members own all partitions and have committed what they read."""
    await until(lambda: sum(len(m.at) for m in members) == PARTITIONS)
    async with asyncio.timeout(60):
        while await w.committed("t", PARTITIONS) != [END] * PARTITIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def resumed(members: list[ForeignMember]) -> dict[int, int]:
    """Return the lowest offset at which each partition was resumed."""
    first: dict[int, int] = {}
    for member in members:
        for tp, offset in member.resumed:
            first[tp.partition] = min(first.get(tp.partition, END), offset)
    return first


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_member_that_commits_from_outside_does_not_undo_the_rewind(seed: int) -> None:
    """The empty group accepted such a commit of aiokafka, and the rewind reported success."""

    async def body(w: World) -> None:
        await at_work(w)
        # Fast members rejoin before the others are removed.
        slowest = 0.05 if seed % 2 else 3
        beats = [w.random.uniform(0.01, slowest) for _ in range(seed % 5 + 1)]
        members = [ForeignMember(w, f"10.0.3.{n}", beat=b) for n, b in enumerate(beats)]
        try:
            for member in members:
                await member.__aenter__()
            await settled(w, *members)
            for member in members:
                member.resumed.clear()
            async with admin(w) as a:
                results = await a.rewind_group(GROUP, {T0: 7, T1: "earliest"}, raise_errors=True)
            assert {tp.partition: r.offset for tp, r in results.items()} == {0: 7, 1: 0}
            await until(lambda: len(resumed(members)) == PARTITIONS)
            await asyncio.sleep(10)
            assert resumed(members) == {0: 7, 1: 0}
            codes = {code for member in members for code in member.commits}
            # A member that rejoined before it was removed does not commit from outside.
            assert codes == {UNKNOWN_MEMBER_ID} or (seed % 2 and not codes)
        finally:
            for member in members:
                await member.__aexit__(None, None, None)

    simulate(body, seed=seed)


def test_a_rewind_holds_the_group_until_its_members_are_back() -> None:
    """Otherwise anyone could delete the group or reset its offsets for a heartbeat interval."""

    async def body(w: World) -> None:
        await at_work(w)
        async with ForeignMember(w, "10.0.3.1", assignor="custom") as member, admin(w) as a:
            await settled(w, member)
            states: set[GroupState] = set()
            rewinding = asyncio.create_task(a.rewind_group(GROUP, {T0: 7}, raise_errors=True))
            while not rewinding.done():
                found = (await a.describe_groups(GROUP, raise_errors=True))[GROUP]
                states.add(found.state)
                deleted = await a.delete_groups(GROUP)
                assert isinstance(deleted[GROUP].error, GroupNotEmpty)
                await asyncio.sleep(0.01)
            assert GroupState.STABLE in states
            assert GroupState.EMPTY not in states
            await rewinding

    simulate(body)


@pytest.mark.parametrize("delay", [0.001, 0.01, 0.05, 0.5])
def test_if_the_admin_client_dies_during_a_rewind_the_members_continue(delay: float) -> None:
    """Its session expires, and the group continues from the new or the old offsets."""

    async def body(w: World) -> None:
        await at_work(w)
        async with ForeignMember(w, "10.0.3.1") as member:
            await settled(w, member)
            member.resumed.clear()
            a = admin(w)
            await a.start()
            rewinding = asyncio.create_task(a.rewind_group(GROUP, {T0: 7}))
            await asyncio.sleep(delay)
            w.network.partition("10.0.0.8")
            await asyncio.sleep(30)
            rewinding.cancel()
            await asyncio.gather(rewinding, return_exceptions=True)
            await a.close()
            assert len(member.at) == PARTITIONS
            assert await w.committed("t", PARTITIONS) == [END] * PARTITIONS
            w.network.heal()

    simulate(body)


@pytest.mark.parametrize("seed", range(8))
def test_a_restart_of_the_coordinator_does_not_undo_a_rewind(seed: int) -> None:
    """The coordinator may restore the group as before, as held, or with rejoining members."""

    async def body(w: World) -> None:
        await at_work(w)
        async with ForeignMember(w, "10.0.3.1") as member, admin(w) as a:
            await settled(w, member)
            member.resumed.clear()
            rewinding = asyncio.create_task(a.rewind_group(GROUP, {T0: 7}))
            await asyncio.sleep(w.random.uniform(0, 0.05 if seed % 2 else 1))
            w.broker.kill()
            await asyncio.sleep(1)
            await w.broker.start()
            result = (await rewinding)[T0]
            await asyncio.sleep(20)
            began = resumed([member])
            if result.error is None:
                assert began[0] == result.offset == 7
            assert len(member.at) == PARTITIONS

    simulate(body, seed=seed)
