"""A group shard under random requests, silent members, full disks and takeovers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.classic.states import ClassicState
from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, Answer, ShardWorld

GROUPS = ("g", "h")
CODES = {0, 15, 16, 22, 23, 25, 26, 27, 69, 79, 81, 82}
"""The error codes that members of a classic group understand."""


class GroupShardMachine(RuleBasedStateMachine):
    """Members send random requests, and the shard must keep its guarantees.

    Each request gets a response with an error code that clients know. Acknowledged writes survive
    every takeover. A group whose members stop responding becomes empty and sets no more timers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = ShardWorld(group_initial_rebalance_delay_ms=500, group_max_size=4)
        self.world.restart()
        self.waiting: list[Answer] = []
        self.known: list[tuple[str, str, int, str | None]] = []
        """Group, member id, generation and instance id of each member that ever received them."""
        self.committed: dict[tuple[str, str, int], int] = {}

    def told(self, answer: Answer) -> Answer:
        if answer.waits:
            self.waiting.append(answer)
        else:
            assert answer.code in CODES
        return answer

    def note(self, group: str, answer: Answer, instance: str | None) -> None:
        if not answer.waits and answer.code in (0, 79):
            self.known.append((group, answer.member_id, answer.generation_id, instance))

    def somebody(self, data: st.DataObject) -> tuple[str, str, int, str | None]:
        return data.draw(st.sampled_from(self.known[-12:]))

    @rule(
        group=st.sampled_from(GROUPS),
        instance=st.sampled_from([None, None, "i", "j"]),
        version=st.sampled_from([3, 5, 9]),
        protocols=st.sampled_from([["a"], ["a", "b"], ["b", "a"]]),
        rebalance=st.sampled_from([1_000, 20_000]),
    )
    def come(self, group, instance, version, protocols, rebalance):
        if version < 5:
            instance = None
        answer = self.told(
            self.world.join(
                group=group, instance=instance, version=version, protocols=protocols,
                rebalance_ms=rebalance,
            )
        )  # fmt: skip
        self.note(group, answer, instance)
        for member_id in self.members(group):
            self.known.append((group, member_id, self.world.group(group).generation, instance))

    def members(self, group: str) -> list[str]:
        found = self.world.shard.groups.get(group)
        return list(found.roster.members) if isinstance(found, ClassicGroup) else []

    @precondition(lambda self: self.known)
    @rule(data=st.data(), protocols=st.sampled_from([["a"], ["a", "b"]]))
    def join_again(self, data, protocols):
        group, member_id, _, instance = self.somebody(data)
        answer = self.told(
            self.world.join(member_id, group=group, instance=instance, protocols=protocols)
        )
        self.note(group, answer, instance)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), late=st.booleans())
    def sync(self, data, late):
        group, member_id, generation, instance = self.somebody(data)
        if not late and group in self.world.shard.groups:
            generation = self.world.group(group).generation
        assignment = {one: one.encode() for one in self.members(group)}
        answer = self.told(
            self.world.sync(member_id, generation, assignment, group=group, instance=instance)
        )
        if not answer.waits and answer.code == 0:
            assert answer.assignment in (member_id.encode(), b"")

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def heartbeat(self, data):
        group, member_id, generation, instance = self.somebody(data)
        self.told(self.world.heartbeat(member_id, generation, group=group, instance=instance))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), by_instance=st.booleans())
    def leave(self, data, by_instance):
        group, member_id, _, instance = self.somebody(data)
        named = ("", instance) if by_instance and instance else (member_id, instance)
        self.told(self.world.leave(named, group=group))

    @rule(
        data=st.data(), group=st.sampled_from(GROUPS), partition=st.integers(0, 1),
        offset=st.integers(0, 100), member=st.booleans(),
    )  # fmt: skip
    def commit(self, data, group, partition, offset, member):
        options = {}
        if member and self.known:
            group, member_id, generation, instance = self.somebody(data)
            options = {"member_id": member_id, "generation": generation, "instance": instance}
        answer = self.told(self.world.commit({("t", partition): offset}, group=group, **options))
        if answer.code == 0:
            self.committed[group, "t", partition] = offset

    @rule(seconds=st.sampled_from([0.1, 0.6, 5.0, 11.0]))
    def wait(self, seconds):
        self.world.refuse_writes = None
        self.world.pass_time(seconds)

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group):
        answer = self.world.delete_group(group)
        assert answer.code in (0, 16, 68, 69)
        if answer.code == 0:
            self.committed = {k: v for k, v in self.committed.items() if k[0] != group}

    @rule(full=st.booleans())
    def disk(self, full):
        self.world.refuse_writes = DISK_FULL if full else None

    @rule()
    def take_over(self):
        self.world.restart()

    @invariant()
    def what_was_acknowledged_is_there(self):
        found = {
            (group, topic, partition): offset
            for group in GROUPS
            for (topic, partition), offset in self.world.committed(group).items()
        }
        assert found == self.committed

    @invariant()
    def rosters_add_up(self):
        for group in self.world.shard.groups.values():
            roster = group.roster
            waiting = [member for member in roster if member.joining is not None]
            assert roster.joining == len(waiting)
            assert set(roster.static_members.values()) <= set(roster.members)
            assert not roster.pending_joins.keys() & roster.members.keys()
            assert roster.pending_syncs.keys() <= roster.members.keys()
            if group.state is ClassicState.EMPTY:
                assert not roster.members
            elif not roster.members:  # all members left before the initial delay was over
                assert group.state is ClassicState.PREPARING_REBALANCE
            if roster.members:
                assert roster.leader_id in roster.members
                assert roster.elect_protocol() in {p.name for m in roster for p in m.protocols}
            if group.state is ClassicState.STABLE:
                assert all(member.syncing is None for member in roster)

    def teardown(self):
        self.world.refuse_writes = None
        self.world.pass_time(1000)
        for group in self.world.shard.groups.values():
            assert group.is_empty
            assert not group.roster.pending_joins
        assert len(self.world.timers) <= 1, "only the look for what expires is left"
        for answer in self.waiting:
            assert answer.code in CODES


TestGroupShard = GroupShardMachine.TestCase
TestGroupShard.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
