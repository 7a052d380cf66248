"""FairQueue and FairTurns: groups take turns."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.core.fair_queue import FairQueue, FairTurns


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


async def step() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_turn_begins_when_another_one_ends() -> None:
    """Those who wait are served group by group."""
    turns = FairTurns(2)
    began: list[str] = []

    async def work(group: str) -> None:
        await turns.begin(group)
        began.append(group)

    tasks = [asyncio.create_task(work(group)) for group in "aaaab"]
    await step()
    assert began == ["a", "a"]
    for expected in (["a"] * 3, ["a", "a", "a", "b"], ["a", "a", "a", "b", "a"]):
        turns.end()
        await step()
        assert began == expected
    await asyncio.gather(*tasks)
    turns.end()
    turns.end()
    await asyncio.gather(work("c"), work("c"))


@pytest.mark.parametrize("had_begun", [False, True])
async def test_a_cancelled_wait_takes_no_turn(had_begun: bool) -> None:
    """Also if its turn began at the same time."""
    turns = FairTurns(1)
    await turns.begin("a")
    waiting = asyncio.create_task(turns.begin("a"))
    later = asyncio.create_task(turns.begin("a"))
    await step()
    if had_begun:
        turns.end()
    waiting.cancel()
    if not had_begun:
        turns.end()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    await later
    turns.end()
    await turns.begin("b")
