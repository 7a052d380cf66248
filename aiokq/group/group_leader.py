"""GroupLeader: the data from which the leader of a classic group assigns partitions.

`classic_member` decides when to assign, and when to request a rebalance.

Source: Kafka's `ConsumerCoordinator.onLeaderElected`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokq.assign.model import Assignment
from aiokq.assign.protocol import decode_subscription, encode_assignment
from aiokq.core.errors import KafkaError
from aiokq.core.user_errors import INTERRUPTS
from aiokq.wire.sync_group import SyncGroupRequestAssignment

if TYPE_CHECKING:
    from aiokq.assign.assignor import Assignor
    from aiokq.assign.model import Topology
    from aiokq.wire.join_group import JoinGroupResponseMember

__all__ = ["GroupLeader", "assignor_failed"]


class GroupLeader:
    """The members' subscriptions, and the latest topics, of one generation.

    Raises:
        ProtocolError: a member's subscription cannot be decoded.
    """

    def __init__(self, members: Iterable[JoinGroupResponseMember]) -> None:
        self._members = {
            member.member_id: decode_subscription(member.metadata, member.group_instance_id)
            for member in members
        }
        self._topology: Topology | None = None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that at least one member subscribes to."""
        return frozenset(topic for member in self._members.values() for topic in member.topics)

    def sees(self, topology: Topology) -> bool:
        """Store the topics; return whether they differ from those of the previous call, if any."""
        before, self._topology = self._topology, topology
        return before is not None and topology != before

    def assign(self, assignor: Assignor, topology: Topology) -> list[SyncGroupRequestAssignment]:
        """Return an assignment for each member, empty if the assignor leaves the member out.

        Raises:
            KafkaError: the assignor failed; ``__cause__`` is the assignor's exception.
        """
        nothing = Assignment(())
        try:
            assigned = assignor.assign(topology, self._members)
            return [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=encode_assignment(assigned.get(member, nothing))
                )
                for member in self._members
            ]
        except INTERRUPTS:
            raise
        except BaseException as error:
            raise assignor_failed(assignor, error) from error


def assignor_failed(assignor: Assignor, error: BaseException) -> KafkaError:
    """Return the error that ends the membership after an exception of an assignor."""
    failure = KafkaError(f"the assignor {assignor.name!r} failed: {error!r}")
    failure.__cause__ = error
    return failure
