"""FairQueue: groups take turns."""

from __future__ import annotations

import pytest

from aiokq.core.fair_queue import FairQueue


def filled(*groups: str) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for number, group in enumerate(groups):
        queue.add(group, number, f"{group}{number}")
    return queue


def test_groups_take_turns_and_a_group_keeps_its_order() -> None:
    """A new group waits for one item of each other group."""
    queue = filled(*"aaab")
    assert (len(queue), list(queue)) == (4, ["a0", "a1", "a2", "b3"])
    assert queue.take() == "a0"
    queue.add("c", 4, "c4")
    assert [queue.take() for _ in range(4)] == ["b3", "a1", "c4", "a2"]
    assert not queue
    with pytest.raises(KeyError):
        queue.take()


def test_an_item_is_removed_by_its_key() -> None:
    """Nothing is left of a group without items."""
    queue = filled(*"aab")
    assert queue.remove("a", 0) == "a0"
    assert queue.remove("b", 2) == "b2"
    assert queue.remove("b", 2) is None
    assert queue.remove("a", 2) is None
    assert (len(queue), list(queue)) == (1, ["a1"])


def test_the_longest_group_makes_room_for_shorter_ones() -> None:
    """Down to the same length, and never for itself."""
    queue = filled(*"aaaab")
    assert queue.make_room("a") is None
    assert queue.make_room("b") == "a3"
    assert queue.make_room("b") == "a2"
    assert queue.make_room("b") is None
    assert queue.make_room("c") == "a1"
    assert queue.make_room("c") is None
    assert list(queue) == ["a0", "b4"]
    assert filled().make_room("a") is None
