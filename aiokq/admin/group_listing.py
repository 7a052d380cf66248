"""Listing the groups of a cluster: each broker lists the groups that it coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Self

from aiokq.admin.group_types import GroupListing, GroupState, GroupType
from aiokq.admin.retrying import per_item, refresh_metadata
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import str_list_argument
from aiokq.core.errors import (
    ConnectionLost,
    KafkaError,
    RequestTimeout,
    UnsupportedVersion,
    copy_error,
    error_for,
)
from aiokq.wire.list_groups import ListGroupsRequest

__all__ = ["GroupListings", "list_groups"]

STATES_SINCE: Final = 4
"""First ListGroups version that filters by state (KIP-518)."""
TYPES_SINCE: Final = 5
"""First ListGroups version that filters by type (KIP-848)."""

TRIES: Final = 2
"""Maximum number of attempts to reach a broker if other brokers respond."""


class GroupListings(Mapping[str, GroupListing]):
    """The groups found, sorted by id, and the brokers that failed.

    Attributes:
        errors: errors of the brokers that failed, by node id; the groups that these brokers
            coordinate are missing.
    """

    __slots__ = ("_groups", "errors")

    def __init__(
        self, groups: Iterable[GroupListing], errors: Mapping[int, KafkaError] | None = None
    ) -> None:
        self._groups = {group.group_id: group for group in groups}
        self.errors = dict(errors or {})

    def __getitem__(self, group_id: str) -> GroupListing:
        return self._groups[group_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __repr__(self) -> str:
        return f"GroupListings({list(self._groups)!r}, errors={self.errors!r})"

    @property
    def ok(self) -> bool:
        """Whether every broker listed its groups."""
        return not self.errors

    def raise_for_errors(self) -> Self:
        """Return self, or raise the first broker's error with the other brokers' errors as notes.

        Raises:
            KafkaError: the error of the first broker that failed.
        """
        if not self.errors:
            return self
        (_, first), *others = self.errors.items()
        error = copy_error(first)
        for node, other in others:
            error.add_note(f"broker {node}: {other}")
        raise error


async def list_groups(
    engine: ClusterEngine,
    *,
    states: Iterable[str],
    types: Iterable[str],
    timeout: float | None,
) -> GroupListings:
    """Implement `Admin.list_groups`."""
    engine.bind()
    wanted_states = [
        GroupState.wanted(state)
        for state in str_list_argument(states, "states", "['Stable', 'Empty']")
    ]
    wanted_types = [
        GroupType.wanted(kind)
        for kind in str_list_argument(types, "types", "['Classic', 'Consumer']")
    ]
    total = engine.settings.default_api_timeout if timeout is None else timeout
    deadline = engine.now() + total
    nodes = await _nodes(engine, total)
    tries: Counter[int] = Counter()
    answered = False

    def make(version: int) -> ListGroupsRequest:
        return _request(version, wanted_states, wanted_types)

    async def attempt(
        left: Mapping[int, bool], remaining: float
    ) -> dict[int, list[GroupListing] | KafkaError]:
        nonlocal answered
        # A broker that does not respond delays the listing by one request timeout.
        each = min(remaining, engine.settings.request_timeout)
        answers = await concurrently(
            engine.supervisor, (_ask(engine, node, make, each) for node in left), name="list groups"
        )
        outcomes = dict(zip(left, answers, strict=True))
        answered |= any(not isinstance(answer, KafkaError) for answer in answers)
        for node, outcome in outcomes.items():
            if isinstance(outcome, ConnectionLost):
                tries[node] += 1
                if answered and tries[node] >= TRIES:
                    outcome.retriable = False
                    outcome.add_context(node=node)
        return outcomes

    outcomes = await per_item(
        engine,
        dict.fromkeys(nodes, True),
        attempt,
        api="ListGroups",
        timeout=max(0.0, deadline - engine.now()),
        final=(),
    )
    return _merged(outcomes)


def _request(
    version: int, states: Sequence[GroupState], types: Sequence[GroupType]
) -> ListGroupsRequest:
    """Return the request in the given version.

    Raises:
        UnsupportedVersion: the version cannot filter by state, or by type.
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


async def _ask(
    engine: ClusterEngine, node: int, make: Callable[[int], ListGroupsRequest], timeout: float
) -> list[GroupListing]:
    """Return the groups that one broker coordinates."""
    response = await engine.router.request(make, ListGroupsRequest, node, timeout=timeout)
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


def _merged(outcomes: Mapping[int, list[GroupListing] | KafkaError]) -> GroupListings:
    """Return the groups of all brokers and the brokers that failed.

    Raises:
        KafkaError: all brokers failed.
    """
    found: dict[str, GroupListing] = {}
    errors: dict[int, KafkaError] = {}
    for node, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            errors[node] = outcome
        else:
            found |= {group.group_id: group for group in outcome}
    if not found and len(errors) == len(outcomes):
        raise _of_all(errors)
    return GroupListings((found[group_id] for group_id in sorted(found)), errors)


def _of_all(errors: Mapping[int, KafkaError]) -> KafkaError:
    (_, error), *_ = errors.items()
    if error.retriable and not isinstance(error, RequestTimeout):
        timeout = RequestTimeout(f"no broker listed its groups: {error}", api="ListGroups")
        timeout.__cause__ = error
        return timeout
    return error


async def _nodes(engine: ClusterEngine, timeout: float) -> list[int]:
    """Return the node ids of the current brokers of the cluster.

    Raises:
        RequestTimeout: no broker responded in time.
    """
    await refresh_metadata(engine, timeout, api="ListGroups")
    return sorted(engine.metadata.brokers)
