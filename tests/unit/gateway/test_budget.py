"""How many bytes of each topic an engine takes over."""

from __future__ import annotations

from aiokq.gateway import GatewaySettings
from aiokq.gateway.budget import LEAST_ROOM, MOST_ROOM, Budget, budget_bytes
from aiokq.gateway.engine import TopicState

LIMIT = 4 * 1024 * 1024


def topic(name: str) -> TopicState:
    return TopicState(name, GatewaySettings().of_topic(name))


class Desk:
    """A budget, and the topics that were told that there is room, which take nothing."""

    def __init__(self, max_bytes: int = LIMIT) -> None:
        self.told: list[str] = []
        self.budget = Budget(max_bytes, lambda one: self.told.append(one.name))

    def fill(self, one: TopicState, most: int = 1 << 40) -> int:
        """Take messages of a topic while there is room; return their bytes."""
        total = 0
        while (room := self.budget.room(one)) and total < most:
            self.budget.add(one, min(room, LEAST_ROOM))
            total += min(room, LEAST_ROOM)
        return total

    def offered(self) -> list[str]:
        self.budget.offer()
        told, self.told = self.told, []
        return told


def test_a_stuck_topic_gets_at_most_half_of_the_budget() -> None:
    """The other half is left for topics that are delivered."""
    desk = Desk()
    assert LIMIT // 2 - LEAST_ROOM <= desk.fill(topic("stuck")) <= LIMIT // 2
    assert desk.budget.room(topic("next")) == MOST_ROOM


def test_many_stuck_topics_leave_room_for_each_other_topic() -> None:
    """The more topics are stuck, the less each of them gets."""
    desk = Desk()
    for n in range(20):
        desk.fill(topic(f"stuck-{n}"))
    assert desk.budget.bytes <= LIMIT + LIMIT // 2
    assert desk.budget.room(topic("healthy")) >= LEAST_ROOM


def test_topics_that_have_room_again_are_told_those_that_hold_least_first() -> None:
    """Each is told once, and only if it was refused."""
    desk = Desk()
    stuck, other, idle = topic("stuck"), topic("other"), topic("idle")
    desk.fill(stuck)
    desk.fill(other)
    desk.fill(idle, LEAST_ROOM)
    assert desk.offered() == []
    desk.budget.remove(stuck, LIMIT // 4)
    assert desk.offered() == ["other", "stuck"]
    desk.budget.remove(stuck, LEAST_ROOM)
    assert desk.offered() == []


def test_a_topic_that_holds_too_much_hides_no_other_one() -> None:
    """The first topic that was refused still has no room; nothing else may be delivered later."""
    desk = Desk(1_000_000)
    full, empty = topic("full"), topic("empty")
    desk.fill(full)
    others = [topic(f"other-{n}") for n in range(40)]
    for one in others:
        desk.fill(one, LEAST_ROOM)
    assert desk.budget.room(empty) == 0
    for one in others[:3]:
        if desk.budget._own.get(one):
            desk.budget.remove(one, desk.budget._own[one])
    assert "empty" in desk.offered()
    assert desk.budget.room(full) == 0


def test_offers_after_many_releases_stay_exact() -> None:
    """The heap does not keep an entry for each release."""
    desk = Desk(1_000_000)
    one, other = topic("one"), topic("other")
    desk.budget.add(other, 300_000)
    desk.budget.add(one, 600_000)
    assert desk.budget.room(one) == 0
    for _ in range(1000):
        desk.budget.remove(one, 1)
        assert desk.offered() == []
    assert len(desk.budget._least) < 100
    desk.budget.remove(other, 300_000)
    desk.budget.remove(one, 599_000)
    assert desk.offered() == ["one"]
    assert desk.budget.bytes == 0


def test_the_budget_depends_on_the_pool_and_holds_the_largest_message() -> None:
    """An eighth of the pool, 4 MiB at least if the pool has them, and 32 MiB at most."""
    for pool, expected in (("1 MiB", 1), ("8 MiB", 4), ("64 MiB", 8), ("1 GiB", 32)):
        settings = GatewaySettings.checked({"pool": {"max_bytes": pool}})
        assert budget_bytes(settings) == expected * 1024 * 1024
    settings = GatewaySettings.checked(
        {
            "pool": {"max_bytes": "8 MiB"},
            "inputs": [{"type": "tcp", "port": 1, "max_message_bytes": "16 MiB"}],
        }
    )
    assert budget_bytes(settings) == 8 * 1024 * 1024  # the pool has no larger message
    settings = GatewaySettings.checked(
        {"inputs": [{"type": "tcp", "port": 1, "max_message_bytes": "24 MiB"}]}
    )
    assert budget_bytes(settings) == 24 * 1024 * 1024
