"""The table of the broker's assignors by name (KIP-848), and the broker's range assignor.

`uniform` and `uniform_mixed` contain the uniform assignor.

Source: Kafka ``RangeAssignor.java`` of the group coordinator (4.2).
Tests: ``tests/unit/assign/test_server.py``.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiokq.assign.server_model import (
    GroupSpec,
    Partitions,
    ServerAssignor,
    ServerMember,
    TopicSpec,
)
from aiokq.assign.uniform import UniformAssignor

__all__ = [
    "SERVER_ASSIGNORS",
    "GroupSpec",
    "Partitions",
    "ServerAssignor",
    "ServerMember",
    "ServerRangeAssignor",
    "TopicSpec",
    "UniformAssignor",
]


class ServerRangeAssignor:
    """Gives each subscriber of a topic a contiguous range of the topic's partitions.

    Topics with the same number of partitions and the same subscribers are co-partitioned: a member
    gets the same partition numbers of each of these topics. Static members come first, sorted by
    instance id, so that a static member that returns with another member id keeps its range.
    """

    name: Final = "range"

    def assign(self, group: GroupSpec) -> dict[str, dict[uuid.UUID, frozenset[int]]]:
        """Return the ranges of each member, by topic id.

        The sizes of a topic's ranges differ by at most one; the first subscribers get the longer
        ranges. Previous assignments are ignored.
        """
        members = group.members
        order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id]))
        subscribers: defaultdict[uuid.UUID, list[str]] = defaultdict(list)
        for member_id in order:
            for topic_id in members[member_id].topics:
                subscribers[topic_id].append(member_id)
        result: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in order}
        for topic_id, takers in subscribers.items():
            topic = group.topics.get(topic_id)
            if topic is None:
                continue
            quota, longer = divmod(topic.partitions, len(takers))
            start = 0
            for position, member_id in enumerate(takers):
                end = start + quota + (position < longer)
                if start == end:
                    break  # more subscribers than partitions
                result[member_id][topic_id] = frozenset(range(start, end))
                start = end
        return result


def _rank(member_id: str, member: ServerMember) -> tuple[bool, str]:
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member_id


SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType(
    {assignor.name: assignor for assignor in (UniformAssignor(), ServerRangeAssignor())}
)
"""All assignors by name; the first is the default."""
