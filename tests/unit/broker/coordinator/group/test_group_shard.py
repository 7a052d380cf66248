"""Dispatch of requests to the type of a group, conversion of empty groups, and replay."""

from __future__ import annotations

import pytest

from aiokq.broker.coordinator.group.group import Caller
from aiokq.wire.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.unit.broker.coordinator.group.shard_harness import DISK_FULL, Answer, ShardWorld


def consumer_heartbeat(world, epoch, member_id="m", group="g", **options) -> Answer:
    if epoch == 0:
        options = {
            "rebalance_timeout_ms": 10_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **options,
        }
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=epoch, **options
    )
    caller = Caller("c", "/h", 1, frozenset)
    return world.ask(lambda: world.shard.consumer_group_heartbeat(request, caller, world.instant))


def types(world):
    return {
        one.group_id: (one.group_type, one.group_state) for one in world.shard.list_groups([], [])
    }


def test_an_empty_classic_group_becomes_a_consumer_group():
    """It keeps its offsets; all records are in one batch, so no coordinator sees half of it."""
    world = ShardWorld()
    [member] = world.stable()
    world.commit({("t", 0): 5}, member_id=member.member_id, generation=1)
    world.leave((member.member_id, None))
    joined = consumer_heartbeat(world, 0)
    assert joined.code == 0
    for _ in range(2):
        assert types(world)["g"][0] == "consumer"
        assert world.committed() == {("t", 0): 5}
        assert consumer_heartbeat(world, joined.member_epoch).code == 0
        world.restart()


def test_an_empty_consumer_group_becomes_a_classic_group():
    """It keeps its offsets."""
    world = ShardWorld()
    joined = consumer_heartbeat(world, 0)
    world.commit({("t", 0): 5}, member_id="m", generation=joined.member_epoch)
    assert consumer_heartbeat(world, -1).code == 0
    world.stable()
    for _ in range(2):
        assert types(world) == {"g": ("classic", "Stable")}
        assert world.committed() == {("t", 0): 5}
        world.restart()


def test_a_simple_group_becomes_a_consumer_group():
    """An admin client committed offsets before the first member joined."""
    world = ShardWorld()
    world.commit({("t", 0): 5})
    joined = consumer_heartbeat(world, 0)
    assert joined.code == 0
    world.restart()
    assert types(world)["g"][0] == "consumer"
    assert world.committed() == {("t", 0): 5}


def test_an_admin_removes_members_of_a_consumer_group():
    """Regression: LeaveGroup of Java's removeMembersFromConsumerGroup got UNKNOWN_MEMBER_ID."""
    world = ShardWorld()
    consumer_heartbeat(world, 0, "a")
    consumer_heartbeat(world, 0, "b", instance_id="one")
    joined = consumer_heartbeat(world, 0, "c", instance_id="two")
    answer = world.leave(("a", None), ("", "one"), ("x", "two"), ("y", None), ("", "three"))
    assert answer.code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        ("a", None, 0),
        ("", "one", 0),
        ("x", "two", 82),
        ("y", None, 25),
        ("", "three", 25),
    ]
    group = world.shard.groups["g"]
    assert list(group.image.members) == ["c"]
    assert group.image.epoch == joined.member_epoch + 1  # one epoch for all removed members
    world.pass_time(1)
    assert consumer_heartbeat(world, joined.member_epoch, "c", instance_id="two").code == 0
    world.restart()
    assert list(world.shard.groups["g"].image.members) == ["c"]


def test_a_removal_that_cannot_be_written_removes_nobody():
    """The members' sessions continue, so dead members still expire."""
    world = ShardWorld()
    consumer_heartbeat(world, 0, "a")
    world.refuse_writes = DISK_FULL
    assert world.leave(("a", None)).code == 16
    world.refuse_writes = None
    assert list(world.shard.groups["g"].image.members) == ["a"]
    world.pass_time(46)
    assert world.shard.groups["g"].is_empty


def test_an_unknown_group_is_not_made_by_a_heartbeat_that_goes_on():
    """Only a join creates a group."""
    world = ShardWorld()
    assert consumer_heartbeat(world, 3).code == 69
    assert consumer_heartbeat(world, -1).code == 69
    assert world.shard.groups == {}


def test_a_conversion_that_cannot_be_written_did_not_happen():
    """Otherwise timers of the new group would run although the old group is still in place."""
    world = ShardWorld()
    world.commit({("t", 0): 5})
    world.refuse_writes = DISK_FULL
    assert consumer_heartbeat(world, 0).code == 16
    written = len(world.log)
    world.refuse_writes = None
    world.pass_time(1000)
    assert types(world) == {"g": ("classic", "Empty")}
    assert len(world.log) == written
    world.refuse_writes = None
    consumer_heartbeat(world, 0)
    consumer_heartbeat(world, -1)
    world.refuse_writes = DISK_FULL
    assert world.join().code == 16
    world.refuse_writes = None
    world.pass_time(1000)
    assert types(world) == {"g": ("consumer", "Empty")}


def test_a_consumer_group_is_described_and_deleted():
    """ConsumerGroupDescribe rejects classic groups, and DescribeGroups consumer groups."""
    world = ShardWorld()
    world.join(group="classic")
    joined = consumer_heartbeat(world, 0)
    described = world.shard.describe_consumer_group("g")
    assert (described.group_id, described.group_epoch) == ("g", joined.member_epoch)
    with pytest.raises(Exception, match="not a consumer group"):
        world.shard.describe_consumer_group("classic")
    assert world.delete_group("g").code == 68
    consumer_heartbeat(world, -1)
    assert world.delete_group("g").code == 0
    world.restart()
    assert set(world.shard.groups) == {"classic"}


@pytest.mark.parametrize(
    ("states", "wanted", "found"),
    [
        ([], [], {"classic", "consumer", "simple"}),
        (["stable"], [], {"classic", "consumer"}),
        (["Empty", " STABLE "], ["Classic"], {"classic", "simple"}),
        ([], ["CONSUMER"], {"consumer"}),
        ([], ["share"], set()),
        (["nonsense"], [], set()),
    ],
)
def test_groups_are_listed_by_state_and_type(states, wanted, found):
    """States and types are compared without regard to case."""
    world = ShardWorld()
    world.commit({("t", 0): 5}, group="simple")
    consumer_heartbeat(world, 0, group="consumer")
    joined = world.enter(group="classic")
    world.sync(joined.member_id, 1, {}, group="classic")
    assert {one.group_id for one in world.shard.list_groups(states, wanted)} == found


def test_the_log_alone_makes_the_same_shard():
    """A failover replays the log, after which all responses must be the same."""
    world = ShardWorld()
    world.stable(3)
    consumer_heartbeat(world, 0, group="k")
    world.commit({("t", 0): 5, ("u", 1): 6}, group="simple", metadata="x")
    world.enter(group="leaving")
    world.pass_time(10.5)
    before = (types(world), world.committed("simple"), world.shard.describe_consumer_group("k"))
    world.restart()
    after = (types(world), world.committed("simple"), world.shard.describe_consumer_group("k"))
    assert after == before


def test_a_compacted_log_makes_the_same_shard():
    """Compaction keeps the last record of each key, also in groups that changed their type."""
    world = ShardWorld()
    [member] = world.stable()
    world.leave((member.member_id, None))
    consumer_heartbeat(world, 0)
    consumer_heartbeat(world, -1)
    world.stable()
    world.leave(*[(one, None) for one in list(world.group().roster.members)])
    consumer_heartbeat(world, 0)
    world.commit({("t", 0): 1}, group="h")
    before = types(world)
    last = {key: position for position, (key, _) in enumerate(world.log)}
    for without_tombstones in (False, True):
        world.log = [
            (key, value)
            for position, (key, value) in enumerate(world.log)
            if last.get(key) == position and not (without_tombstones and value is None)
        ]
        last = {key: position for position, (key, _) in enumerate(world.log)}
        world.restart()
        assert types(world) == before


def test_only_the_assignors_of_the_setting_are_there():
    """The first is the default, and unlisted ones get UNSUPPORTED_ASSIGNOR."""
    world = ShardWorld(group_consumer_assignors="range")
    assert consumer_heartbeat(world, 0, server_assignor="uniform").code == 112
    assert consumer_heartbeat(world, 0).code == 0
    assert world.shard.describe_consumer_group("g").assignor_name == "range"
    world = ShardWorld(group_consumer_assignors="range, uniform")
    assert consumer_heartbeat(world, 0, server_assignor="uniform").code == 0
    assert world.shard.describe_consumer_group("g").assignor_name == "uniform"


def test_a_member_id_can_be_told_whatever_its_client_is_called():
    """Regression: with a client id of 32,767 bytes neither response nor record could be encoded."""
    world = ShardWorld()
    for options in ({"client": "c" * 32_767}, {"instance": "i" * 32_767}):
        answer = world.join(**options)
        assert answer.code in (0, 79)
        assert len(answer.member_id) < 1_100
    assert world.join(client="short").member_id.startswith("short-")


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**63 - 2, -(2**63)])
def test_any_retention_of_a_commit_has_a_form_in_the_log(retention_ms):
    """Long.MAX_VALUE means no expiry; its sum with the current time would not fit a record."""
    world = ShardWorld()
    assert world.commit({("t", 0): 5}, retention_ms=retention_ms, version=2).code == 0
