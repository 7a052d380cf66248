"""The steps of a member towards its target: partitions kept, revoked, awaited and assigned."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest

from aiokq.broker.coordinator.group.consumer.member import ConsumerMember, MemberState
from aiokq.broker.coordinator.group.consumer.reconciliation import Target, reconcile
from aiokq.core.errors import FencedMemberEpoch

T1, T2 = uuid.UUID(int=1), uuid.UUID(int=2)
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def some(*numbers: int, topic: uuid.UUID = T1) -> dict[uuid.UUID, frozenset[int]]:
    return {topic: frozenset(numbers)} if numbers else {}


@dataclass
class Step:
    """A member at epoch 10, its target at epoch 11 by default, and the expected next state."""

    name: str
    state: MemberState
    assigned: dict[uuid.UUID, frozenset[int]]
    target: dict[uuid.UUID, frozenset[int]]
    then: tuple[int, MemberState, dict[uuid.UUID, frozenset[int]], dict[uuid.UUID, frozenset[int]]]
    pending: dict[uuid.UUID, frozenset[int]] = field(default_factory=dict)
    owned: dict[uuid.UUID, frozenset[int]] | None = None
    others: frozenset[int] = frozenset()
    """Partitions of the first topic that another member owns."""
    epoch: int = 10
    wanted: frozenset[uuid.UUID] = frozenset({T1, T2})
    changed: bool = False


STEPS = [
    Step("stable and there", STABLE, some(1), some(1), (11, STABLE, some(1), {}), epoch=11),
    Step("nothing moves but the epoch", STABLE, some(1), some(1), (11, STABLE, some(1), {})),
    Step("new and free: taken at once", STABLE, some(1), some(1, 2), (11, STABLE, some(1, 2), {})),
    Step(
        "new and somebody else's: waits at the new epoch",
        STABLE,
        some(1),
        some(1, 2, 3),
        (11, UNRELEASED, some(1, 2), {}),
        others=frozenset({3}),
    ),
    Step(
        "to be given up: told at the old epoch, and nothing new before it has",
        STABLE,
        some(1, 2),
        some(2, 3),
        (10, UNREVOKED, some(2), some(1)),
    ),
    Step(
        "given up already, as the request says",
        STABLE,
        some(1, 2),
        some(2, 3),
        (11, STABLE, some(2, 3), {}),
        owned=some(2),
    ),
    Step(
        "has not said yet: stays",
        UNREVOKED,
        some(2),
        some(2, 3),
        (10, UNREVOKED, some(2), some(1)),
        pending=some(1),
    ),
    Step(
        "says that it still has it: stays",
        UNREVOKED,
        some(2),
        some(2, 3),
        (10, UNREVOKED, some(2), some(1, 4)),
        pending=some(1, 4),
        owned=some(2, 4),
    ),
    Step(
        "has given up: gets the rest at the new epoch",
        UNREVOKED,
        some(2),
        some(2, 3),
        (11, STABLE, some(2, 3), {}),
        pending=some(1),
        owned=some(2),
    ),
    Step(
        "has given up what the target means to give it after all",
        UNREVOKED,
        some(2),
        some(1, 2),
        (11, STABLE, some(1, 2), {}),
        pending=some(1),
        owned=some(2),
    ),
    Step(
        "has given up, and has more to give up by now",
        UNREVOKED,
        some(2, 3),
        some(3),
        (10, UNREVOKED, some(3), some(2)),
        pending=some(1),
        owned=some(2, 3),
    ),
    Step(
        "still waits",
        UNRELEASED,
        some(1),
        some(1, 2),
        (11, UNRELEASED, some(1), {}),
        epoch=11,
        others=frozenset({2}),
    ),
    Step(
        "waited for long enough",
        UNRELEASED,
        some(1),
        some(1, 2),
        (11, STABLE, some(1, 2), {}),
        epoch=11,
    ),
    Step(
        "waits no more, for the target changed",
        UNRELEASED,
        some(1, 2),
        some(1),
        (10, UNREVOKED, some(1), some(2)),
        others=frozenset({3}),
    ),
    Step(
        "unsubscribed topics are given up whatever the target says",
        STABLE,
        some(1) | some(1, topic=T2),
        some(1) | some(1, topic=T2),
        (10, UNREVOKED, some(1), some(1, topic=T2)),
        wanted=frozenset({T1}),
    ),
    Step(
        "unsubscribed at the target's own epoch",
        STABLE,
        some(1) | some(1, topic=T2),
        some(1) | some(1, topic=T2),
        (11, UNREVOKED, some(1), some(1, topic=T2)),
        epoch=11,
        wanted=frozenset({T1}),
        changed=True,
    ),
    Step(
        "unsubscribed, and not read any more",
        STABLE,
        some(1) | some(1, topic=T2),
        some(1) | some(1, topic=T2),
        (11, STABLE, some(1), {}),
        epoch=11,
        wanted=frozenset({T1}),
        changed=True,
        owned=some(1),
    ),
    Step(
        "unsubscribed while it gives up",
        UNREVOKED,
        some(2) | some(1, topic=T2),
        some(2),
        (10, UNREVOKED, some(2), some(1) | some(1, topic=T2)),
        pending=some(1),
        wanted=frozenset({T1}),
        changed=True,
    ),
    Step(
        "of an unknown state, without partitions: starts afresh",
        UNKNOWN,
        some(1),
        some(1, 2),
        (11, STABLE, some(1, 2), {}),
        owned={},
    ),
]


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
def test_each_step_is_kafkas(step: Step) -> None:
    """Revoke first, take only released partitions, keep the rest."""
    member = ConsumerMember(
        "a",
        member_epoch=step.epoch,
        previous_member_epoch=9,
        state=step.state,
        assigned=step.assigned,
        pending_revocation=step.pending,
    )

    def owner_of(topic_id: uuid.UUID, number: int) -> str | None:
        if topic_id == T1 and number in step.others:
            return "b"
        mine = step.assigned.get(topic_id, frozenset()) | step.pending.get(topic_id, frozenset())
        return "a" if number in mine else None

    after = reconcile(
        member,
        Target(11, step.target),
        wanted=step.wanted,
        owner_of=owner_of,
        owned=step.owned,
        subscription_changed=step.changed,
    )
    assert (
        after.member_epoch,
        after.state,
        after.assigned,
        after.pending_revocation,
    ) == step.then
    if after is not member and after.member_epoch != step.epoch:
        assert after.previous_member_epoch == step.epoch


@pytest.mark.parametrize("owned", [None, some(1)])
def test_an_unknown_state_with_partitions_is_fenced(
    owned: dict[uuid.UUID, frozenset[int]] | None,
) -> None:
    """It is unknown what the member was about to do with them."""
    member = ConsumerMember("a", member_epoch=10, state=UNKNOWN, assigned=some(1))
    with pytest.raises(FencedMemberEpoch):
        reconcile(
            member,
            Target(11, some(1)),
            wanted=frozenset({T1}),
            owner_of=lambda topic_id, number: None,
            owned=owned,
            subscription_changed=False,
        )
