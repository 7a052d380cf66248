"""Members and coordinator as state machines in random histories on virtual time.

There are no loop and no sockets. Both ends exchange encoded requests with random delays and losses.
Members join, leave, crash, stall, and change their subscriptions; topics grow; the coordinator
restarts from its log. AIOKQ_GROUP_SEEDS sets the number of seeds of the long run.
"""

from __future__ import annotations

import heapq
import os
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiokq.assign.assignor import resolve
from aiokq.assign.model import Topology
from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
from aiokq.broker.coordinator.group.group import Caller
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimeout,
    UnreleasedInstanceId,
)
from aiokq.core.types import TopicPartition
from aiokq.group.actions import (
    Abandon,
    Ask,
    Fail,
    GiveUp,
    Lose,
    NeedNames,
    NeedTopics,
    Take,
)
from aiokq.group.classic_member import ClassicMember
from aiokq.group.consumer_member import ConsumerMember
from aiokq.group.member_state import MemberConfig, MemberState
from aiokq.wire.codec import decode, encode_bytes
from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokq.wire.heartbeat import HeartbeatRequest
from aiokq.wire.join_group import JoinGroupRequest
from aiokq.wire.leave_group import LeaveGroupRequest
from aiokq.wire.sync_group import SyncGroupRequest
from tests.unit.broker.coordinator.group.shard_harness import ShardWorld

LONG_RUN = int(os.environ.get("AIOKQ_GROUP_SEEDS", "3000"))
SESSION = 10.0
REBALANCE = 20.0
VERSIONS = {
    JoinGroupRequest: 9,
    SyncGroupRequest: 5,
    HeartbeatRequest: 4,
    LeaveGroupRequest: 5,
    ConsumerGroupHeartbeatRequest: 1,
}
KINDS = ("range", "roundrobin", "sticky", "cooperative-sticky", "consumer")


class World:
    """The coordinator, the network, and the scheduled events."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = ShardWorld({"t": self.random.randint(1, 12), "u": self.random.randint(1, 6)})
        self.members: list[Member] = []
        self.loss = 0.0
        self.epoch = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0

    @property
    def now(self) -> float:
        return self.broker.now

    def at(self, delay: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now + delay, self._sequence, action))

    def run(self, seconds: float) -> None:
        """Run all events of the next `seconds` at their times, with checks after each."""
        end = self.now + seconds
        while True:
            when = self._events[0][0] if self._events else end
            timer = self.broker.timers.next_at
            when = min(when, end if timer is None else timer)
            for member in self.members:
                wakes = member.wake_at()
                if wakes is not None:
                    when = min(when, wakes)
            if when >= end:
                break
            self.broker.now = max(self.now, when)
            self.broker.run_timers()
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            for member in self.members:
                member.poll()
            self.check()
        self.broker.now = end

    def delay(self) -> float:
        return self.random.expovariate(50.0)

    def lost(self) -> bool:
        return self.random.random() < self.loss

    def restart(self) -> None:
        """Replay the log with a new coordinator; requests in progress get no response."""
        self.epoch += 1
        self.broker.restart()

    # -- the wire

    def ask(self, member: Member, ask: Ask) -> None:
        version = VERSIONS[ask.request_class]  # type: ignore[index]
        request = ask.make(version)
        frame = encode_bytes(request, version)
        kind: Any = ask.request_class
        lost, epoch = self.lost(), self.epoch
        life = member.life

        def answered(response: Any) -> None:
            if epoch != self.epoch or lost_back or member.life != life:
                return
            back = decode(kind.RESPONSE, encode_bytes(response, version), version)
            self.at(self.delay(), lambda: member.received(ask, back, life))

        lost_back = self.lost()
        arrives = self.delay()

        def arrived() -> None:
            # A request of a dead static process must not arrive after the first one of its
            # successor, or the coordinator would take it for the newer process. A process start
            # takes longer than that.
            if member.life == life or member.instance_id is None:
                self._serve(decode(kind, frame, version), version, answered)

        if not lost:
            self.at(arrives, arrived)
        # A lost request ends with a lost connection, an unanswered one with a timeout.
        error = ConnectionLost("cut") if lost or lost_back else RequestTimeout("silent")
        wait = arrives + self.delay() if lost or lost_back else ask.timeout
        self.at(wait, lambda: member.failed(ask, error, life))

    def _serve(self, request: Any, version: int, answered: Callable[[Any], None]) -> None:
        shard, instant = self.broker.shard, self.broker.instant
        caller = Caller("c", "/10.0.0.1", version, frozenset)

        def operation() -> Outcome[Any]:
            match request:
                case JoinGroupRequest():
                    return shard.join(request, caller, instant)
                case SyncGroupRequest():
                    return shard.sync(request, instant)
                case HeartbeatRequest():
                    return shard.heartbeat(request, instant)
                case LeaveGroupRequest():
                    return shard.leave(request, instant)
                case ConsumerGroupHeartbeatRequest():
                    return shard.consumer_group_heartbeat(request, caller, instant)
            raise AssertionError(request)

        try:
            outcome = operation()
            self.broker.apply(outcome)
        except BrokerError as error:
            answered(_refusal(request, error))
            return
        if outcome.deferred is None:
            answered(outcome.response)
        else:
            outcome.deferred.on_complete(answered)

    # -- what must hold

    def check(self) -> None:
        """Check that no two members that the coordinator considers current own a partition."""
        group = self.broker.shard.groups.get("g")
        owners: Counter[TopicPartition] = Counter()
        for member in self.members:
            if member.is_current(group):
                owners.update(member.machine.owned)
        twice = {tp: count for tp, count in owners.items() if count > 1}
        assert not twice, f"{twice} at {self.now}"

    def check_settled(self) -> None:
        """Check that every subscribed partition has one owner and that all members agree on it."""
        live = [member for member in self.members if member.alive]
        for member in live:
            assert member.machine.state is MemberState.STABLE, (member.name, member.machine.state)
        owned = Counter(tp for member in live for tp in member.machine.owned)
        topics = {topic for member in live for topic in member.topics}
        assert owned == Counter(
            TopicPartition(topic, number)
            for topic in topics
            for number in range(self.broker.topics.topic(topic).partitions)  # type: ignore[union-attr]
        )
        for member in live:
            assert {tp.topic for tp in member.machine.owned} <= set(member.topics)


class Member:
    """A member's state machine and its user, who may crash and start again."""

    def __init__(self, world: World, name: str, kind: str, instance_id: str | None = None) -> None:
        self.world = world
        self.name = name
        self.kind = kind
        self.instance_id = instance_id
        self.topics = frozenset({"t", "u"})
        self.alive = False
        self.life = 0
        self.stalled_until = 0.0
        self.machine = self._make()

    def _make(self) -> ClassicMember | ConsumerMember:
        rng = self.world.random
        config = MemberConfig(
            group_id="g",
            instance_id=self.instance_id,
            session_timeout=45.0 if self.kind == "consumer" else SESSION,
            rebalance_timeout=REBALANCE,
            heartbeat_interval=3.0,
            request_timeout=5.0,
        )
        backoff = Backoff(0.1, 1.0, rng)
        if self.kind == "consumer":
            return ConsumerMember(config, f"aiokq-{self.name}-{self.life}", backoff)
        return ClassicMember(config, resolve([self.kind]), backoff)

    def start(self) -> None:
        self.life += 1
        self.machine = self._make()
        self.alive = True
        self.machine.subscribe(self.topics, self.world.now)
        self.poll()

    def subscribe(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.machine.subscribe(topics, self.world.now)
        self.poll()

    def leave(self) -> None:
        self.alive = False
        self.machine.leave(self.world.now)
        self.poll()

    def crash(self) -> None:
        """Stop without sending anything."""
        self.alive = False
        self.life += 1
        self.machine = self._make()

    def stall(self, seconds: float) -> None:
        """Stop the member's loop for `seconds`: nothing is sent, and responses are read later."""
        self.stalled_until = self.world.now + seconds

    @property
    def stalled(self) -> bool:
        return self.world.now < self.stalled_until

    def _later(self, action: Callable[[], None]) -> None:
        self.world.at(self.stalled_until - self.world.now, action)

    def is_current(self, group: object) -> bool:
        """Return whether the coordinator considers this instance a current group member."""
        metadata = self.machine.group_metadata
        if isinstance(group, ClassicGroup):
            return (
                metadata.generation == group.generation
                and metadata.member_id in group.roster.members
            )
        if isinstance(group, ConsumerGroup):
            return metadata.generation > 0 and metadata.member_id in group.image.members
        return False

    def wake_at(self) -> float | None:
        wakes = self.machine.wake_at()
        return None if wakes is None else max(wakes, self.stalled_until)

    def received(self, ask: Ask, response: Any, life: int) -> None:
        if self.stalled:
            self._later(lambda: self.received(ask, response, life))
        elif life == self.life:
            self.machine.received(ask.ticket, response, self.world.now)
            self.poll()

    def failed(self, ask: Ask, error: Any, life: int) -> None:
        if self.stalled:
            self._later(lambda: self.failed(ask, error, life))
        elif life == self.life:
            self.machine.failed(ask.ticket, error, self.world.now)
            self.poll()

    def poll(self) -> None:
        if self.stalled:
            return
        world, machine, life = self.world, self.machine, self.life
        for action in machine.poll(world.now):
            match action:
                case Ask():
                    world.ask(self, action)
                case GiveUp() | Take() | Lose():
                    world.at(world.random.expovariate(2.0), partial(self._handled, life))
                case NeedTopics():
                    self._tell_topology(life)
                case NeedNames(topic_ids):
                    names = {
                        topic.topic_id: topic.name
                        for topic_id in topic_ids
                        if (topic := world.broker.topics.by_id(topic_id)) is not None
                    }
                    assert isinstance(machine, ConsumerMember)
                    world.at(world.delay() * 10, partial(self._named, names, life))
                case Fail(error) if isinstance(error, UnreleasedInstanceId) and world.epoch:
                    # A restarted coordinator grants former members another session, which is longer
                    # than a member waits for its instance id. The user starts it again.
                    self.crash()
                    self.start()
                    return
                case Fail(error):
                    raise AssertionError(f"{self.name} gave up: {error}")
                case Abandon():
                    pass

    def _handled(self, life: int) -> None:
        if self.stalled:
            self._later(lambda: self._handled(life))
        elif life == self.life:
            self.machine.handled(self.world.now)
            self.poll()

    def _named(self, names: Any, life: int) -> None:
        if self.stalled:
            self._later(lambda: self._named(names, life))
        elif life == self.life and isinstance(self.machine, ConsumerMember):
            self.machine.named(names, self.world.now)
            self.poll()

    def _tell_topology(self, life: int) -> None:
        """Pass the topology on now and every second, like metadata refreshes."""
        if life != self.life or not isinstance(self.machine, ClassicMember):
            return
        if self.stalled:
            self._later(lambda: self._tell_topology(life))
            return
        topics = self.world.broker.topics
        partitions = {name: topics.topic(name).partitions for name in topics.names()}  # type: ignore[union-attr]
        self.machine.topology(Topology(partitions), self.world.now)
        self.world.at(1.0, lambda: self._tell_topology(life))
        self.poll()


def _refusal(request: Any, error: BrokerError) -> Any:
    response = type(request).RESPONSE
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return response(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=str(error),
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    return response(error_code=error.code)


def live(seed: int) -> World:
    """Run one history: up to twenty members, some minutes of faults, then a quiet time."""
    world = World(seed)
    rng = world.random
    kind = KINDS[seed % len(KINDS)]
    static = seed % 3 == 0
    for number in range(rng.choice([1, 2, 3, 5, 8, 20])):
        world.members.append(
            Member(world, f"m{number}", kind, f"i{number}" if static and number % 2 else None)
        )
    world.loss = rng.choice([0.0, 0.02, 0.1])
    for _ in range(rng.randint(3, 40)):
        member = rng.choice(world.members)
        trouble = rng.random()
        if member.stalled:
            pass
        elif not member.alive:
            if member.machine.state is MemberState.OUT:
                member.start()
        elif trouble < 0.3:
            member.leave()
        elif trouble < 0.5:
            member.crash()
        elif trouble < 0.6:
            world.restart()
        elif trouble < 0.75:
            member.subscribe(frozenset(rng.sample(["t", "u"], rng.randint(1, 2))))
        elif trouble < 0.8:
            name = rng.choice(["t", "u"])
            count = world.broker.topics.topic(name).partitions  # type: ignore[union-attr]
            world.broker.topics.grow(name, count + rng.randint(1, 3))
        elif trouble < 0.9:
            member.stall(rng.choice([1.0, 8.0, 30.0]))
        world.run(rng.choice([0.01, 0.3, 3.0, 12.0]))
    world.loss = 0.0
    if not any(member.alive for member in world.members):
        world.run(60.0)
        world.members[0].start()
    world.run(150.0)
    world.check_settled()
    return world


@pytest.mark.parametrize("seed", range(200))
def test_a_group_settles_after_any_history_and_no_partition_has_two_owners(seed: int) -> None:
    """The limit is 150 s after the last fault, with sessions of 10 s and handlers of 0.5 s."""
    live(seed)


@pytest.mark.torture
def test_thousands_of_histories() -> None:
    """The same for seeds that CI does not run."""
    for seed in range(200, 200 + LONG_RUN):
        live(seed)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["roundrobin", "sticky", "cooperative-sticky", "consumer"])
def test_equal_subscriptions_are_balanced_within_one(kind: str, seed: int) -> None:
    """Also after members joined one by one and some left."""
    world = World(seed)
    world.members = [Member(world, f"m{number}", kind) for number in range(6)]
    for member in world.members:
        member.start()
        world.run(world.random.choice([0.0, 1.0, 20.0]))
    for member in world.random.sample(world.members, 2):
        member.leave()
    world.run(120.0)
    world.check_settled()
    sizes = [len(member.machine.owned) for member in world.members if member.alive]
    assert max(sizes) - min(sizes) <= 1
