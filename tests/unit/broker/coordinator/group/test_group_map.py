"""The groups of a shard by id: an addition that could not be written is undone."""

from __future__ import annotations

import random

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.coordinator.group.group_map import GroupMap
from aiokq.broker.coordinator.timers import Timers
from tests.unit.broker.coordinator.group.consumer.consumer_harness import Topics


def a_map() -> GroupMap:
    return GroupMap(
        settings=broker_settings({}), timers=Timers(), topics=Topics(t=1), rng=random.Random(1)
    )


def test_an_undone_addition_brings_the_replaced_group_back():
    """The records of the new group were not written, so the old group still exists."""
    groups = a_map()
    old, new = groups.new_classic("g", 1), groups.new_classic("g", 2)
    groups.put(old)
    groups.put(new)
    groups.undo_put(new, old)
    assert groups.by_id == {"g": old}
    groups.undo_put(old, None)
    assert groups.by_id == {}


def test_an_addition_is_not_undone_when_another_group_has_its_id():
    """Only the group whose records were not written may disappear."""
    groups = a_map()
    unwritten, other = groups.new_classic("g", 1), groups.new_classic("g", 2)
    groups.put(unwritten)
    groups.put(other)
    groups.undo_put(unwritten, None)
    assert groups.by_id == {"g": other}
    groups.undo_put(unwritten, groups.new_classic("g", 3))
    assert groups.by_id == {"g": other}
