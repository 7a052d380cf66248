"""The states of a classic group, and the one table of moves between them. Owns no group.

Source: Kafka ``ClassicGroupState.java``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["MOVES", "ClassicState"]


class ClassicState(Enum):
    """Where a classic group is in its rebalance, by the name clients are told."""

    EMPTY = "Empty"
    """No members. Its offsets live until they expire."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again; the joins wait for the last of them."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All have joined; the group waits for the leader's assignment."""
    STABLE = "Stable"
    """Every member can have its assignment."""
    DEAD = "Dead"
    """Deleted, or coordinated by another node: whoever finds it so must look it up again."""


MOVES: Final[dict[ClassicState, frozenset[ClassicState]]] = {
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
"""From each state, those that it may become."""
