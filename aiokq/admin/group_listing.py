"""Listing the groups of a cluster: each broker lists the groups that it coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from aiokq.admin.broker_listings import BrokerListings, from_all_brokers
from aiokq.admin.group_types import GroupListing, GroupState, GroupType
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import str_list_argument
from aiokq.core.errors import UnsupportedVersion, error_for
from aiokq.wire.list_groups import ListGroupsRequest

__all__ = ["GroupListings", "list_groups"]

STATES_SINCE: Final = 4
"""First ListGroups version that filters by state (KIP-518)."""
TYPES_SINCE: Final = 5
"""First ListGroups version that filters by type (KIP-848)."""


class GroupListings(BrokerListings[GroupListing]):
    """The groups of the cluster, sorted by id, and the errors of brokers that failed.

    Attributes:
        errors: errors of the brokers that failed, by node id; the groups that these brokers
            coordinate are missing.
    """

    __slots__ = ()


async def list_groups(
    engine: ClusterEngine,
    *,
    states: Iterable[str],
    types: Iterable[str],
    timeout: float | None,
) -> GroupListings:
    """Implement `Admin.list_groups`."""
    wanted_states = [
        GroupState.wanted(state)
        for state in str_list_argument(states, "states", "['Stable', 'Empty']")
    ]
    wanted_types = [
        GroupType.wanted(kind)
        for kind in str_list_argument(types, "types", "['Classic', 'Consumer']")
    ]

    async def ask(node: int, seconds: float) -> list[GroupListing]:
        response = await engine.router.request(
            lambda version: _request(version, wanted_states, wanted_types),
            ListGroupsRequest,
            node,
            timeout=seconds,
        )
        if response.error_code:
            raise error_for(response.error_code, api="ListGroups", node=node)
        return [
            GroupListing(
                group.group_id,
                group.protocol_type,
                GroupState.of(group.group_state) if group.group_state else None,
                GroupType.of(group.group_type) if group.group_type else None,
                node,
            )
            for group in response.groups
        ]

    found, errors = await from_all_brokers(engine, ask, api="ListGroups", timeout=timeout)
    by_id = {group.group_id: group for group in found}
    return GroupListings({group_id: by_id[group_id] for group_id in sorted(by_id)}, errors)


def _request(
    version: int, states: Sequence[GroupState], types: Sequence[GroupType]
) -> ListGroupsRequest:
    """Return the ListGroups request in the given version.

    Raises:
        UnsupportedVersion: the version cannot filter by a given state or type. Before
            `TYPES_SINCE`, classic groups need no filter by type, because the broker has no others.
    """
    if version < STATES_SINCE and states:
        raise UnsupportedVersion(
            "the broker is older than 2.6: it cannot list by state", api="ListGroups"
        )
    if version < TYPES_SINCE and types:
        if list(types) != [GroupType.CLASSIC]:
            raise UnsupportedVersion(
                "the broker is older than 3.8 and has only classic groups", api="ListGroups"
            )
        types = ()
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))
