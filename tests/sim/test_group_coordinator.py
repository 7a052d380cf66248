"""The group coordinator in virtual time: classic members, and a broker that crashes or resigns.

The members are scripted, so that failures are those of the coordinator; other simulations test the
client's members. AIOKQ_COORDINATOR_SEEDS sets the number of seeds of the long run.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any

import pytest

from aiokq import wire
from aiokq.broker.coordinator.group.coordinator import OFFSETS_TOPIC
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.connection.node import Node
from aiokq.connection.options import ConnectionOptions
from aiokq.core.counters import ClientCounters
from aiokq.core.errors import ConnectionLost, RequestTimeout
from aiokq.core.supervisor import Supervisor
from tests.sim.harness.simulation import run
from tests.sim.test_whole_system import BROKER, PORT, Broker

PARTITIONS = 6
LONG_RUN = int(os.environ.get("AIOKQ_COORDINATOR_SEEDS", "300"))

SETTINGS = {"group.initial.rebalance.delay.ms": "50"}
SESSION_MS = 1_000
REBALANCE_MS = 3_000

AGAIN = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR."""


class Account:
    """The responses that all members received, from which the coordinator is judged."""

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.owners: dict[tuple[int, int], set[str]] = {}
        """Owners by generation and partition."""
        self.acknowledged: dict[int, int] = {}
        """The last committed offset that was acknowledged, by partition."""
        self.commits = 0


class Member:
    """A scripted consumer, as its group sees it; its assignor distributes partitions in turn."""

    def __init__(self, world: Any, name: str, account: Account, supervisor: Supervisor) -> None:
        self.account = account
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self._random = world.random
        self._node = Node(
            0,
            BROKER,
            PORT,
            options=ConnectionOptions(client_id=name),
            environment=world.environment("10.0.0.9"),
            supervisor=supervisor,
            counters=ClientCounters(name=name),
        )

    async def live(self) -> None:
        """Be a member for ever, although connections and coordinators come and go."""
        while True:
            try:
                await self._be_member()
            except (ConnectionLost, RequestTimeout):
                await asyncio.sleep(0.05 + self._random.random() * 0.1)

    async def close(self) -> None:
        await self._node.close()

    async def leave(self) -> None:
        if self.member_id:
            await self._ask(
                wire.LeaveGroupRequest(
                    group_id="g", members=[wire.MemberIdentity(member_id=self.member_id)]
                )
            )

    async def _ask(self, request: Any, timeout: float = 2.0) -> Any:
        return await self._node.request(request, timeout=timeout)

    async def _be_member(self) -> None:
        self.owned = []
        [found] = (
            await self._ask(wire.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0))
        ).coordinators
        if found.error_code:
            assert found.error_code == 15, found
            await asyncio.sleep(0.1)
            return
        joined = await self._ask(
            wire.JoinGroupRequest(
                group_id="g",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="test",
                protocols=[wire.JoinGroupRequestProtocol(name="deal", metadata=b"")],
            ),
            timeout=REBALANCE_MS / 1000 + 2,
        )
        if joined.error_code == 79:
            self.member_id = joined.member_id
            return
        if joined.error_code:
            await self._refused(joined.error_code)
            return
        self.member_id, self.generation = joined.member_id, joined.generation_id
        members = sorted(one.member_id for one in joined.members)
        synced = await self._ask(
            wire.SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="test",
                protocol_name="deal",
                assignments=[
                    wire.SyncGroupRequestAssignment(
                        member_id=member, assignment=bytes(range(PARTITIONS))[n :: len(members)]
                    )
                    for n, member in enumerate(members)
                ],
            ),
            timeout=REBALANCE_MS / 1000 + 2,
        )
        if synced.error_code:
            await self._refused(synced.error_code)
            return
        self.owned = list(synced.assignment)
        for partition in self.owned:
            owners = self.account.owners.setdefault((self.generation, partition), set())
            owners.add(self.member_id)
            assert len(owners) == 1, f"{owners} own {partition} in generation {self.generation}"
        await self._work()

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(0.1 + self._random.random() * 0.2)
            code = (
                await self._ask(
                    wire.HeartbeatRequest(
                        group_id="g", generation_id=self.generation, member_id=self.member_id
                    )
                )
            ).error_code
            if not code and self.owned and self._random.random() < 0.7:
                code = await self._advance(self._random.choice(self.owned))
            if code:
                self.owned = []
                await self._refused(code)
                return

    async def _advance(self, partition: int) -> int:
        """Fetch the committed offset and commit the next one."""
        response = await self._ask(
            wire.OffsetFetchRequest(
                groups=[
                    wire.OffsetFetchRequestGroup(
                        group_id="g",
                        topics=[
                            wire.OffsetFetchRequestTopics(
                                topic_id=self.account.topic_id, partition_indexes=[partition]
                            )
                        ],
                    )
                ]
            )
        )
        [group] = response.groups
        if group.error_code:
            return int(group.error_code)
        present = group.topics[0].partitions[0].committed_offset
        known = self.account.acknowledged.get(partition, -1)
        assert present >= known, f"offset {present} of {partition} went back from {known}"
        committed = await self._ask(
            wire.OffsetCommitRequest(
                group_id="g",
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                topics=[
                    wire.OffsetCommitRequestTopic(
                        topic_id=self.account.topic_id,
                        partitions=[
                            wire.OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=present + 1,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            )
        )
        code = int(committed.topics[0].partitions[0].error_code)
        if not code:
            self.account.commits += 1
            self.account.acknowledged[partition] = max(
                self.account.acknowledged.get(partition, -1), present + 1
            )
        return code

    async def _refused(self, code: int) -> None:
        if code in (22, 25):
            self.member_id = "" if code == 25 else self.member_id
        elif code in AGAIN:
            await asyncio.sleep(0.05)
        else:
            assert code == 27, code


async def settled(supervisor: Supervisor, members: list[Member], seconds: float) -> None:
    """Wait until all members share one generation for a while and each partition has one owner."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    since = None
    while since is None or loop.time() - since < 2 * SESSION_MS / 1000:
        owned = sorted(partition for member in members for partition in member.owned)
        if owned == list(range(PARTITIONS)) and len({m.generation for m in members}) == 1:
            since = loop.time() if since is None else since
        else:
            since = None
        state = [(m.name, m.generation, m.owned) for m in members]
        if supervisor.failed is not None:
            raise supervisor.failed
        assert loop.time() < deadline, f"not settled: {state}"
        await asyncio.sleep(0.1)


async def resign(broker: Broker, seconds: float) -> None:
    """Let another node lead the group's partition for a while, then this one again."""
    assert broker.node is not None
    coordinator = broker.node.group_coordinator
    topic = broker.node.topics.get(OFFSETS_TOPIC)
    for partition in [] if topic is None else topic.partitions:
        if partition.is_online:
            coordinator.resigned(partition)
            await asyncio.sleep(seconds)
            partition.leader_epoch += 1
            coordinator.elected(partition)


async def course(world: Any) -> tuple[int, int]:
    random = world.random
    broker = Broker(world, SETTINGS)
    await broker.start()
    assert broker.node is not None
    created = await broker.node.metadata.create_topic(TopicSpec(name="t", partitions=PARTITIONS))
    account = Account(created.topic_id)
    async with Supervisor("members") as supervisor:
        members: list[Member] = []
        tasks: dict[str, asyncio.Task[None]] = {}

        def come() -> None:
            member = Member(world, f"m{len(tasks)}", account, supervisor)
            members.append(member)
            tasks[member.name] = supervisor.spawn(member.live(), name=member.name)

        async def go(*, quietly: bool) -> None:
            member = members.pop(random.randrange(len(members)))
            tasks[member.name].cancel()
            await asyncio.wait([tasks[member.name]])
            if not quietly:
                try:
                    await member.leave()
                except (ConnectionLost, RequestTimeout):
                    pass
            await member.close()

        for _ in range(1 + random.randrange(4)):
            come()
        for _ in range(random.randrange(3, 9)):
            await asyncio.sleep(random.random() * 3)
            match random.randrange(7):
                case 0:
                    come()
                case 1 if len(members) > 1:
                    await go(quietly=random.random() < 0.5)
                case 2:
                    await broker.stop()
                    await asyncio.sleep(random.random() * 2)
                    await broker.start()
                case 3:
                    broker.kill()
                    await asyncio.sleep(random.random() * 2)
                    await broker.start()
                case 4:
                    for connection in world.network.connections(BROKER, PORT):
                        if random.random() < 0.5:
                            connection.cut()
                case 5:
                    broker.fall_silent()
                    await asyncio.sleep(random.random() * 3)
                    await broker.start()
                case 6:
                    await resign(broker, random.choice([0, random.random() * 2]))
        await settled(supervisor, members, 60)
        for member in list(members):
            tasks[member.name].cancel()
            await asyncio.wait([tasks[member.name]])
            await member.close()
    await broker.end()
    return account.commits, len(account.owners)


@pytest.mark.parametrize("seed", range(25))
def test_no_partition_has_two_owners_and_no_committed_offset_decreases(seed: int) -> None:
    """Members and the broker start, stop and crash; a minute after that the group has settled."""
    commits, owned = run(seed, course).value
    assert owned >= PARTITIONS
    assert commits


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_no_partition_has_two_owners_in_many_runs() -> None:
    """The same for AIOKQ_COORDINATOR_SEEDS seeds."""
    for seed in range(1000, 1000 + LONG_RUN):
        run(seed, course)


def test_the_same_seed_gives_the_same_run() -> None:
    """Member ids and timers depend only on the environment."""
    first, second = run(3, course), run(3, course)
    assert first.trace.digest() == second.trace.digest()
    assert first.duration == second.duration
