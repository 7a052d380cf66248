"""The targets of a request: any node, the controller, a partition's leader, a coordinator."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Literal, TypeAlias

from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["ANY", "CONTROLLER", "Coordinator", "CoordinatorKind", "Leader", "Target"]


class Role(Enum):
    """A target that is chosen by its role in the cluster, not by a partition, group or id."""

    ANY = "any"
    CONTROLLER = "controller"


class CoordinatorKind(IntEnum):
    """The kind of a coordinator; the values are FindCoordinator's key types."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


ANY: Final = Role.ANY
"""Any broker, chosen by `Nodes.by_preference`."""

CONTROLLER: Final = Role.CONTROLLER
"""The controller; with KRaft, a broker that forwards requests to the controller."""


@frozen
class Leader:
    """The leader of a partition."""

    topic_partition: TopicPartition


@frozen
class Coordinator:
    """The coordinator of a group or of a transactional id."""

    kind: CoordinatorKind
    key: str


Target: TypeAlias = Literal[Role.ANY, Role.CONTROLLER] | Leader | Coordinator
