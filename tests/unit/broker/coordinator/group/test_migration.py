"""Groups whose members change the protocol: responses to members, and records in the log."""

from __future__ import annotations

import re

import pytest

from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import decode_assignment, encode_assignment, encode_subscription
from aiokq.broker.coordinator.group.record_types import decode_record
from aiokq.core.types import TopicPartition
from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, ShardWorld
from tests.unit.broker.coordinator.group.test_group_shard import consumer_heartbeat, types

POLICY = "group_consumer_migration_policy"


def assigned(*partitions: int, user_data: bytes | None = None, topic: str = "t") -> bytes:
    return encode_assignment(
        Assignment(tuple(TopicPartition(topic, n) for n in partitions), user_data)
    )


def numbers(assignment: bytes) -> list[int]:
    return [tp.partition for tp in decode_assignment(assignment).partitions]


def classic(world: ShardWorld, members: int = 1, **options) -> list[str]:
    """Form a stable classic group on topic `t`; return the member ids, leader first."""
    joins = [world.enter(client=f"c{n}", **options) for n in range(members)]
    if members > 1:
        joins = [
            join if join.waits else world.join(join.member_id, client=f"c{n}", **options)
            for n, join in enumerate(joins)
        ]
    joins.sort(key=lambda join: join.member_id != join.leader)
    parts = {join.member_id: assigned(*range(n, 4, members)) for n, join in enumerate(joins)}
    for n, join in enumerate(joins):
        answer = world.sync(join.member_id, join.generation_id, {} if n else parts)
        assert answer.code in (0, "waits")
    assert world.state == "Stable"
    return [join.member_id for join in joins]


def written(world: ShardWorld, since: int) -> list[str]:
    """Return the types of the records since position `since`; a minus marks a tombstone."""
    shown = []
    for key, value in world.log[since:]:
        record = decode_record(key, value)
        assert record is not None
        name = re.sub(r"Key$", "", type(record.key).__name__)
        shown.append(name if value is not None else f"-{name}")
    return shown


def rejoined(world: ShardWorld, member_id: str, **options) -> tuple[int, list[int]]:
    """Rejoin and sync a member; return its epoch and partitions."""
    join = world.join(member_id, **options)
    assert join.code == 0
    assert (join.leader, join.members, join.protocol_type) == ("", [], "consumer")
    sync = world.sync(member_id, join.generation_id, protocol_name=join.protocol_name)
    assert sync.code == 0
    return join.generation_id, numbers(sync.assignment)


# Upgrade


def test_a_consumer_that_joins_upgrades_a_classic_group() -> None:
    """One batch has the tombstone, the existing members unchanged, and then the new member."""
    world = ShardWorld()
    [member] = classic(world)
    before = len(world.log)
    joined = consumer_heartbeat(world, 0, "new")
    assert (joined.code, joined.member_epoch) == (0, 2)
    assert joined.assignment.topic_partitions == []  # the other member still owns all
    assert written(world, before) == [
        "-GroupMetadata",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadata",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMember",
        "ConsumerGroupTargetAssignmentMetadata",
        "ConsumerGroupCurrentMemberAssignment",
    ]
    for _ in range(2):
        assert types(world) == {"g": ("consumer", "Reconciling")}
        found = {one.member_id: one for one in world.shard.describe_consumer_group("g").members}
        assert (found[member].member_type, found["new"].member_type) == (0, 1)
        assert (found[member].member_epoch, found["new"].member_epoch) == (1, 2)
        assert found[member].assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
        world.restart()


def test_an_upgrade_that_cannot_be_written_changes_nothing() -> None:
    """The classic group continues, and a member that is joining still waits."""
    world = ShardWorld()
    first, second = classic(world, 2)
    waiting = world.join(first)
    world.refuse_writes = DISK_FULL
    assert consumer_heartbeat(world, 0, "new").code == 16
    world.refuse_writes = None
    assert types(world) == {"g": ("classic", "PreparingRebalance")}
    assert waiting.waits
    assert world.heartbeat(second, 2).code == 27
    assert world.join(second).code == 0
    assert waiting.code == 0
    world.pass_time(3600)
    assert types(world) == {"g": ("classic", "Empty")}


def test_members_that_wait_are_told_to_join_the_upgraded_group() -> None:
    """REBALANCE_IN_PROGRESS; a member that was in no generation yet is in the upgraded group."""
    world = ShardWorld()
    [member] = classic(world)
    newcomer = world.enter(client="late")
    waiting = world.join(member)
    assert waiting.code == 0  # both are members
    follower = newcomer if newcomer.member_id != waiting.leader else waiting
    syncing = world.sync(follower.member_id, 2)
    assert syncing.waits
    assert consumer_heartbeat(world, 0, "new").code == 0
    assert syncing.code == 27
    epoch, _ = rejoined(world, newcomer.member_id)
    assert epoch > 2


def test_a_rebalance_goes_on_where_the_newcomer_wants_nothing_new() -> None:
    """A static member rejoins in the other protocol while the classic group rebalances."""
    world = ShardWorld()
    [static] = classic(world, instance="one")
    late = world.join("", instance="two")
    assert late.waits
    joined = consumer_heartbeat(world, 0, "new", instance_id="one")
    assert joined.code == 0
    assert late.code == 27
    again = world.join("", instance="two")
    assert again.code == 0
    sync = world.sync(again.member_id, again.generation_id, instance="two")
    assert sync.code == 0
    beat = consumer_heartbeat(
        world, joined.member_epoch, "new", instance_id="one", topic_partitions=[]
    )
    assert beat.code == 0
    described = world.shard.describe_consumer_group("g")
    assert described.assignment_epoch == described.group_epoch
    assert sorted(
        n
        for one in described.members
        for topic in one.target_assignment.topic_partitions
        for n in topic.partitions
    ) == [0, 1, 2, 3]
    assert all(one.target_assignment.topic_partitions for one in described.members)
    assert static not in {one.member_id for one in described.members}


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_group_with_members_is_not_upgraded_by_these_policies(policy: str) -> None:
    """GROUP_ID_NOT_FOUND with Kafka's message; for a heartbeat with an epoch a shorter one."""
    world = ShardWorld(**{POLICY: policy})
    [member] = classic(world)
    refused = consumer_heartbeat(world, 0)
    assert (refused.code, refused.error.message) == (
        69,
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled.",
    )
    refused = consumer_heartbeat(world, 3)
    assert (refused.code, refused.error.message) == (69, "Group g is not a consumer group.")
    assert world.heartbeat(member, 1).code == 0


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("connect", "the group does not use the consumer embedded protocol."),
        ("custom", "an unsupported custom assignor is in use. Please refer"),
        ("malformed", "the embedded consumer protocol is malformed."),
        ("large", "the group size exceeds the consumer group maximum size."),
    ],
)
def test_a_group_that_cannot_be_upgraded_stays(case: str, reason: str) -> None:
    """GROUP_ID_NOT_FOUND, and the existing members notice nothing."""
    world = ShardWorld(group_consumer_max_size=1 if case == "large" else 100)
    options = {"protocol_type": "connect"} if case == "connect" else {}
    if case == "malformed":
        options = {"protocols": {"range": b"\0\1\xff"}}
    join = world.enter(**options)
    given = assigned(0, user_data=b"mine" if case == "custom" else None)
    protocol_type = options.get("protocol_type", "consumer")
    world.sync(join.member_id, 1, {join.member_id: given}, protocol_type=protocol_type)
    if case == "large":
        second = world.enter(client="second")
        world.join(join.member_id)
        assert second.code == 0
    refused = consumer_heartbeat(world, 0)
    assert refused.code == 69
    assert reason in refused.error.message
    assert types(world)["g"][0] == "classic"


# Classic members of a consumer group


def test_a_classic_member_gives_up_what_another_one_shall_have() -> None:
    """With eager joins at once; with cooperative ones in two steps, the first in its old epoch."""
    world = ShardWorld()
    [member] = classic(world)
    assert consumer_heartbeat(world, 0, "new").member_epoch == 2
    assert world.heartbeat(member, 1).code == 27
    kept = [TopicPartition("t", n) for n in range(4)]
    metadata = cooperative(*kept)
    join = world.join(member, protocols={"range": metadata})
    assert (join.code, join.generation_id) == (0, 1)
    sync = world.sync(member, 1, protocol_name="range")
    left = numbers(sync.assignment)
    assert len(left) == 2
    assert world.heartbeat(member, 1).code == 27  # until it has revoked the other partitions
    epoch, owned = rejoined(
        world, member, protocols={"range": cooperative(*(kept[n] for n in left))}
    )
    assert (epoch, owned) == (2, left)
    assert world.heartbeat(member, 2).code == 0
    joined = consumer_heartbeat(world, 2, "new", topic_partitions=[])
    assert len(joined.assignment.topic_partitions[0].partitions) == 2
    assert types(world) == {"g": ("consumer", "Stable")}


def cooperative(*owned: TopicPartition) -> bytes:
    return encode_subscription(Subscription(("t",), tuple(owned)))


def test_a_classic_member_joins_a_consumer_group() -> None:
    """MEMBER_ID_REQUIRED first; its rebalance begins when its target partitions are free."""
    world = ShardWorld()
    epoch = consumer_heartbeat(world, 0, "m").member_epoch
    assert world.join(version=3).code == 0  # such a client does not know MEMBER_ID_REQUIRED
    first = world.join()
    assert first.code == 79
    join = world.join(first.member_id)
    assert join.code == 0
    assert join.generation_id > epoch
    assert world.heartbeat(first.member_id, join.generation_id + 1).code == 22
    assert world.heartbeat("m", epoch).code == 25  # m is not a classic member
    assert world.sync("m", epoch).code == 25
    assert world.sync(first.member_id, join.generation_id, protocol_name="x").code == 23
    assert world.sync(first.member_id, join.generation_id, protocol_type="connect").code == 23
    assert world.commit({("t", 0): 1}, member_id=first.member_id, generation=99).code == 22
    committed = world.commit(
        {("t", 0): 1}, member_id=first.member_id, generation=join.generation_id, version=5
    )
    assert committed.code == 0


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocols": ("roundrobin",)},
        {"protocols": {"range": b""}},
        {"protocols": {"range": b"\0\1\xff\xff\xff\xff"}},
    ],
)
def test_who_has_nothing_in_common_does_not_get_in(options: dict) -> None:
    """INCONSISTENT_GROUP_PROTOCOL, also if the broker cannot decode the subscription."""
    world = ShardWorld()
    classic(world)
    consumer_heartbeat(world, 0, "m")
    before = len(world.log)
    assert world.join("a", **options).code == 23
    assert len(world.log) == before


def test_a_full_group_takes_no_classic_member() -> None:
    world = ShardWorld(group_consumer_max_size=1)
    consumer_heartbeat(world, 0, "m")
    assert world.join("a").code == 81


def test_a_classic_member_is_fenced_when_it_is_late() -> None:
    """Its session timeout applies, and during a rebalance its rebalance timeout."""
    world = ShardWorld()
    consumer_heartbeat(world, 0, "m")
    world.join("silent", session_ms=7_000)
    world.sync("silent", world.shard.groups["g"].image.members["silent"].member_epoch)
    world.pass_time(6.9)
    assert "silent" in world.shard.groups["g"].image.members
    world.restart()
    world.pass_time(6.9)
    assert "silent" in world.shard.groups["g"].image.members
    world.pass_time(0.2)
    assert "silent" not in world.shard.groups["g"].image.members

    def beats(member_id: str, seconds: int, modern: int) -> None:
        for _ in range(seconds):
            world.pass_time(1)
            members = world.shard.groups["g"].image.members
            consumer_heartbeat(world, modern, "m")
            if member_id in members:
                world.heartbeat(member_id, members[member_id].member_epoch)

    modern = consumer_heartbeat(world, world.shard.groups["g"].image.members["m"].member_epoch, "m")
    join = world.join("unsynced", rebalance_ms=5_000)
    assert join.code == 0
    beats("unsynced", 4, modern.member_epoch)
    assert "unsynced" in world.shard.groups["g"].image.members
    beats("unsynced", 2, modern.member_epoch)
    assert "unsynced" not in world.shard.groups["g"].image.members


# Downgrade


def mixed(world: ShardWorld, classic_members: int = 1, **options) -> list[str]:
    """A consumer group whose classic members have synced, and whose other member is `m`."""
    members = classic(world, classic_members, **options)
    assert consumer_heartbeat(world, 0, "m").code == 0
    for member in members:
        rejoined(world, member, **options)
    return members


@pytest.mark.parametrize("how", ["leaves", "is removed", "dies"])
def test_the_last_consumer_to_go_downgrades_the_group(how: str) -> None:
    """One batch has the tombstones and the classic group, whose members are told to rejoin."""
    world = ShardWorld()
    [member] = mixed(world, session_ms=59_000)
    before = len(world.log)
    epoch = world.shard.groups["g"].image.epoch
    if how == "leaves":
        assert consumer_heartbeat(world, -1, "m").code == 0
    elif how == "is removed":
        assert world.leave(("m", None)).code == 0
    else:
        world.pass_time(46)
    assert written(world, before) == [
        *["-ConsumerGroupCurrentMemberAssignment"] * 2,
        *["-ConsumerGroupTargetAssignmentMember"] * 2,
        "-ConsumerGroupTargetAssignmentMetadata",
        *["-ConsumerGroupMemberMetadata"] * 2,
        "-ConsumerGroupPartitionMetadata",
        "-ConsumerGroupMetadata",
        "GroupMetadata",
    ]
    assert types(world) == {"g": ("classic", "PreparingRebalance")}
    assert world.heartbeat(member, epoch).code == 27
    assert world.join(member).generation_id == epoch + 1
    world.restart()
    assert types(world) == {"g": ("classic", "Stable")}
    assert world.group().generation == epoch


def test_a_downgrade_that_cannot_be_written_changes_nothing() -> None:
    """The dead member is fenced a moment later."""
    world = ShardWorld()
    [member] = mixed(world, session_ms=59_000)
    world.refuse_writes = DISK_FULL
    assert consumer_heartbeat(world, -1, "m").code == 16
    assert types(world)["g"][0] == "consumer"
    world.refuse_writes = None
    members = world.shard.groups["g"].image.members
    assert world.heartbeat(member, members[member].member_epoch).code in (0, 27)
    world.pass_time(50)
    assert types(world)["g"][0] == "classic"


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_group_of_classic_members_stays_one_of_the_consumer_protocol(policy: str) -> None:
    """With these policies there is no downgrade; the members share the last one's partitions."""
    world = ShardWorld(**{POLICY: policy})
    consumer_heartbeat(world, 0, "m")
    first = world.enter()
    world.sync(first.member_id, first.generation_id)
    assert consumer_heartbeat(world, -1, "m").code == 0
    assert types(world)["g"][0] == "consumer"
    assert world.heartbeat(first.member_id, first.generation_id).code == 27
    assert rejoined(world, first.member_id)[1] == [0, 1, 2, 3]


def test_a_group_too_large_for_the_classic_protocol_stays() -> None:
    """group.max.size limits classic groups."""
    world = ShardWorld(group_max_size=1)
    consumer_heartbeat(world, 0, "m")
    for name in ("a", "b"):
        assert world.join(name).code == 0
    assert consumer_heartbeat(world, -1, "m").code == 0
    assert types(world)["g"][0] == "consumer"
    assert world.leave(("a", None)).code == 0
    assert types(world)["g"][0] == "classic"


def test_an_admin_that_removes_everybody_leaves_an_empty_group() -> None:
    """The empty group keeps its type."""
    world = ShardWorld()
    [member] = mixed(world)
    answer = world.leave((member, None), ("m", None))
    assert [one.error_code for one in answer.members] == [0, 0]
    assert types(world) == {"g": ("consumer", "Empty")}


def test_a_classic_member_keeps_all_its_protocols_in_a_downgrade() -> None:
    """The log has only the elected protocol, but the next member may share another one."""
    world = ShardWorld()
    mixed(world, protocols=("range", "sticky"))
    assert consumer_heartbeat(world, -1, "m").code == 0
    waiting = world.enter(protocols=("sticky",))
    assert waiting.waits


# Static members


def test_a_static_member_that_comes_back_classic_downgrades_the_group() -> None:
    """It keeps its partitions, and no member has to rejoin."""
    world = ShardWorld()
    [other] = classic(world, instance="other")
    joined = consumer_heartbeat(world, 0, "m", instance_id="one")
    epoch = joined.member_epoch
    join = world.join(other, instance="other")
    sync = world.sync(other, join.generation_id, instance="other")
    theirs = numbers(sync.assignment)
    owned = consumer_heartbeat(world, epoch, "m", instance_id="one", topic_partitions=[])
    ours = owned.assignment.topic_partitions[0].partitions
    assert sorted([*theirs, *ours]) == [0, 1, 2, 3]
    assert types(world) == {"g": ("consumer", "Stable")}
    back = world.join("", instance="one")
    assert (back.code, back.generation_id) == (0, epoch)
    for _ in range(2):
        assert types(world) == {"g": ("classic", "Stable")}
        sync = world.sync(back.member_id, epoch, instance="one")
        assert numbers(sync.assignment) == ours
        assert world.heartbeat(other, epoch, instance="other").code == 0
        world.restart()
    assert consumer_heartbeat(world, epoch, "m", instance_id="one").code == 69


def test_a_static_member_that_comes_back_with_other_topics_makes_all_join() -> None:
    """The downgraded group rebalances."""
    world = ShardWorld()
    [other] = classic(world, instance="other")
    consumer_heartbeat(world, 0, "m", instance_id="one")
    back = world.join("", instance="one", topics=("t", "u"))
    assert back.code == 0
    assert types(world) == {"g": ("classic", "PreparingRebalance")}
    assert world.sync(back.member_id, back.generation_id, instance="one").code == 22
    assert world.join(back.member_id, instance="one", topics=("t", "u")).waits
    assert world.join(other, instance="other").code == 0


def test_a_static_member_that_changes_its_protocol_fences_its_predecessor() -> None:
    """The old process gets FENCED_INSTANCE_ID, whichever protocol it uses."""
    world = ShardWorld()
    [old] = classic(world, instance="one")
    joined = consumer_heartbeat(world, 0, "m", instance_id="one")
    assert joined.code == 0
    assert joined.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert world.heartbeat(old, 1, instance="one").code == 82
    assert world.sync(old, 1, instance="one").code == 82
    assert world.join(old, instance="one").code == 82
    assert consumer_heartbeat(world, 0, "x", instance_id="one").code == 111  # still in use


def test_requests_reach_the_group_of_the_other_protocol() -> None:
    """A group without classic members rejects classic requests."""
    world = ShardWorld()
    consumer_heartbeat(world, 0)
    assert world.sync("x", 1).code == 25
    assert world.heartbeat("x", 1).code == 25
    assert world.heartbeat("x", 1, instance="one").code == 25
    assert world.shard.describe_group("g", 6).error_code == 69
    assert world.shard.describe_group("g", 5).group_state == "Dead"
