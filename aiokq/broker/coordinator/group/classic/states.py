"""The states of a classic group, and the permitted transitions between them.

Source: Kafka ``ClassicGroupState.java``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["PERMITTED_TRANSITIONS", "ClassicState"]


class ClassicState(Enum):
    """The state of a classic group, by its name in DescribeGroups."""

    EMPTY = "Empty"
    """The group has no members; offsets remain until they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members have to join; their JoinGroup requests wait for the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The next generation has begun; the group waits for the leader's assignment."""
    STABLE = "Stable"
    """The assignments are written; the response to SyncGroup has the member's assignment."""
    DEAD = "Dead"
    """The group was deleted or unloaded; references to it are obsolete."""


PERMITTED_TRANSITIONS: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset({ClassicState.DEAD}),
}
"""The states that may follow each state."""
