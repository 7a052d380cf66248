"""Random runs of a consumer-protocol group, with clients that lose responses, dawdle and die.

Clients behave like Java's: they read a partition until they have revoked it. A request has the
owned partitions if they changed, and the full state after an error or a lost response.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from aiokq.broker.coordinator.group.consumer.member import MemberState
from aiokq.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from tests.unit.broker.coordinator.group.consumer.consumer_harness import World

Place = tuple[uuid.UUID, int]

NAMES = ("orders", "others", "audits")
SUBSCRIPTIONS = (
    (("orders",), ""),
    (("orders", "others"), ""),
    (("audits",), ""),
    ((), "o.*"),
    (("audits",), "o.*"),
)


@dataclass(eq=False)
class Client:
    """One consumer."""

    member_id: str
    names: tuple[str, ...]
    regex: str
    instance: str | None = None
    epoch: int = 0
    reading: set[Place] = field(default_factory=set)
    told: set[Place] = field(default_factory=set)
    reported: set[Place] | None = None
    """The partitions that the coordinator is known to have received last; None if unknown."""
    is_sure: bool = False
    """Whether the last request got its response."""
    lost_in_a_row: int = 0

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat."""
        full = self.epoch == 0 or not self.is_sure
        owned = self.reading if full or self.reading != self.reported else None
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=30_000 if full else -1,
            subscribed_topic_names=list(self.names) if full else None,
            subscribed_topic_regex=self.regex if full else None,
            topic_partitions=None if owned is None else _listed(owned),
        )

    def answered(self, response: ConsumerGroupHeartbeatResponse) -> None:
        """Start reading new partitions; those to be revoked are read until `give_up`."""
        self.reported = set(self.reading)
        self.epoch = response.member_epoch
        self.is_sure, self.lost_in_a_row = True, 0
        if response.assignment is not None:
            self.told = {
                (part.topic_id, number)
                for part in response.assignment.topic_partitions
                for number in part.partitions
            }
            self.reading |= self.told

    def give_up(self) -> None:
        self.reading &= self.told

    def abandon(self) -> None:
        """Drop all partitions after being fenced."""
        self.epoch = 0
        self.reading, self.told = set(), set()
        self.reported, self.is_sure = None, False
        self.lost_in_a_row = 0


def _listed(places: set[Place]) -> list[ConsumerGroupHeartbeatTopicPartitions]:
    topics: dict[uuid.UUID, list[int]] = {}
    for topic_id, number in sorted(places):
        topics.setdefault(topic_id, []).append(number)
    return [
        ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]


class GroupLife(RuleBasedStateMachine):
    """The group, its clients, and what must hold after every step."""

    clients = Bundle("clients")

    @initialize(partitions=st.integers(1, 7))
    def start(self, partitions: int) -> None:
        self.world = World(orders=partitions, audits=2)
        self.alive: list[Client] = []
        self.made = 0
        self.group_epoch = self.assignment_epoch = 0
        self.member_epochs: dict[str, int] = {}

    def _new_client(self, subscription: int, instance: str | None) -> Client:
        self.made += 1
        names, regex = SUBSCRIPTIONS[subscription]
        client = Client(f"m{self.made}", names, regex, instance)
        self.alive.append(client)
        return client

    def _send(self, client: Client, *, lost: bool = False) -> None:
        # A member that joins again starts afresh, with epochs of its own.
        if client.epoch == 0:
            self.member_epochs.pop(client.member_id, None)
        try:
            response = self.world.send(client.request())
        except (FencedMemberEpoch, UnknownMemberId) as error:
            if isinstance(error, FencedMemberEpoch):
                assert client.lost_in_a_row >= 2, "one lost reply must not fence"
            if not lost:
                client.abandon()
            return
        except UnreleasedInstanceId:
            return  # its predecessor has not left yet, so it retries
        except FencedInstanceId:
            # A fenced instance ends, because another process took over its instance id.
            if not lost:
                self.alive.remove(client)
            return
        if lost:
            client.is_sure = False
            client.lost_in_a_row += 1
        else:
            client.answered(response)

    # Events

    @rule(target=clients, subscription=st.integers(0, len(SUBSCRIPTIONS) - 1))
    def join(self, subscription: int) -> object:
        if len(self.alive) >= 6:
            return multiple()
        client = self._new_client(subscription, None)
        self._send(client)
        return client

    @rule(target=clients, subscription=st.integers(0, 1), instance=st.sampled_from("ij"))
    def join_static(self, subscription: int, instance: str) -> object:
        if len(self.alive) >= 6:
            return multiple()
        client = self._new_client(subscription, instance)
        self._send(client)
        return client

    @rule(client=clients, lost=st.booleans())
    def heartbeat(self, client: Client, lost: bool) -> None:
        if client in self.alive:
            self._send(client, lost=lost)

    @rule(client=clients)
    def give_up_and_say_so(self, client: Client) -> None:
        if client in self.alive:
            client.give_up()
            self._send(client)

    @rule(client=clients, subscription=st.integers(0, len(SUBSCRIPTIONS) - 1))
    def change_subscription(self, client: Client, subscription: int) -> None:
        client.names, client.regex = SUBSCRIPTIONS[subscription]
        client.is_sure = False  # makes the next request a full one

    @rule(client=consumes(clients), for_good=st.booleans())
    def leave(self, client: Client, for_good: bool) -> None:
        if client not in self.alive or client.epoch == 0:
            return
        self.alive.remove(client)
        client.abandon()
        try:
            self.world.leave(
                client.member_id,
                instance=client.instance,
                for_good=for_good or client.instance is None,
            )
        except (UnknownMemberId, FencedInstanceId):
            pass

    @rule(client=consumes(clients))
    def die(self, client: Client) -> None:
        """The client stops reading and sends nothing more."""
        if client in self.alive:
            self.alive.remove(client)
            client.abandon()

    @rule(seconds=st.sampled_from([1, 10, 31, 50]))
    def wait(self, seconds: int) -> None:
        self.world.advance(seconds)

    @rule(compacted=st.booleans())
    def move_coordinator(self, compacted: bool) -> None:
        self.world.reload(compacted=compacted)

    @rule(name=st.sampled_from(NAMES), partitions=st.integers(1, 6))
    def make_or_grow_topic(self, name: str, partitions: int) -> None:
        topic = self.world.topics.topic(name)
        if topic is None:
            self.world.topics.create(name, partitions)
        else:
            self.world.topics.grow(name, topic.partitions + 1)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        if self.world.topics.topic(name) is not None:
            self.world.topics.delete(name)

    # Invariants

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        if not hasattr(self, "world"):
            return
        members = self.world.group.image.members
        readers: dict[Place, str] = {}
        for client in self.alive:
            member = members.get(client.member_id)
            if member is None or member.is_away:
                continue  # fenced, but has not noticed it yet
            for place in client.reading:
                assert place not in readers, f"{place} is read by {readers[place]} as well"
                readers[place] = client.member_id
                owned = member.assigned.get(place[0], frozenset()) | (
                    member.pending_revocation.get(place[0], frozenset())
                )
                assert place[1] in owned, "the coordinator thinks it has given this up"
        self.world.owners()  # asserts that no partition has two owners

    @invariant()
    def epochs_never_go_back(self) -> None:
        if not hasattr(self, "world"):
            return
        image = self.world.group.image
        assert image.epoch >= self.group_epoch
        assert image.assignment_epoch >= self.assignment_epoch
        self.group_epoch, self.assignment_epoch = image.epoch, image.assignment_epoch
        for member in image.members.values():
            assert member.member_epoch <= image.epoch
            if not member.is_away:
                assert member.member_epoch >= self.member_epochs.get(member.member_id, 0)
                self.member_epochs[member.member_id] = member.member_epoch

    @invariant()
    def owners_are_those_of_the_members(self) -> None:
        if not hasattr(self, "world"):
            return
        owners = self.world.owners()
        known = {
            (topic_id, number): owner
            for topic_id, numbers in self.world.group.image._owners.items()
            for number, owner in numbers.items()
        }
        assert known == owners

    def teardown(self) -> None:
        """Without further faults, all partitions are assigned within a few heartbeats."""
        if not hasattr(self, "world"):
            return
        for _ in range(2):  # dead members expire, live ones stay
            for client in list(self.alive):
                self._send(client)
                client.give_up()
            self.world.advance(30)
        for _ in range(12):
            for client in list(self.alive):
                self._send(client)
                client.give_up()
        members = self.world.group.image.members
        assert set(members) == {client.member_id for client in self.alive if client.epoch > 0}
        assert self.world.group.state_name == ("Stable" if members else "Empty")
        self._assert_all_is_assigned()

    def _assert_all_is_assigned(self) -> None:
        topics, image = self.world.topics, self.world.group.image
        live = [client for client in self.alive if client.member_id in image.members]
        wanted: dict[Place, set[str]] = {}
        for client in live:
            member = image.members[client.member_id]
            assert member.state is MemberState.STABLE
            assert client.epoch == member.member_epoch == image.epoch
            for name in topics.names():
                if name in client.names or (client.regex and name.startswith("o")):
                    topic = topics.topic(name)
                    assert topic is not None
                    for number in range(topic.partitions):
                        wanted.setdefault((topic.topic_id, number), set()).add(client.member_id)
        readers = {place: client.member_id for client in live for place in client.reading}
        assert readers.keys() == wanted.keys()
        for place, reader in readers.items():
            assert reader in wanted[place]
        if len({(client.names, client.regex) for client in live}) == 1:
            sizes = [len(client.reading) for client in live]
            assert max(sizes) - min(sizes) <= 1


TestGroupLife = GroupLife.TestCase
TestGroupLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
