"""The actions that a group member requests from its driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.struct import Request, Response

__all__ = [
    "Abandon",
    "Action",
    "Ask",
    "Fail",
    "GiveUp",
    "Lose",
    "NeedNames",
    "NeedTopics",
    "Relocate",
    "Take",
]


@frozen
class Ask:
    """Send a request to the coordinator, and pass the outcome to `received` or `failed`.

    Attributes:
        make: returns the request for the API version of the connection.
        timeout: seconds until the request counts as lost.
        ticket: passed back with the outcome, to recognize outcomes of abandoned requests.
    """

    request_class: type[Request[Response]]
    make: Callable[[int], Request[Response]]
    timeout: float
    ticket: int


@frozen
class Abandon:
    """Close the connection that has a request in flight, because the response is not needed."""


@frozen
class Relocate:
    """Look up the coordinator before the next request, because it moved or does not respond."""


@frozen
class GiveUp:
    """Revoke these partitions; then call `handled`.

    The consumer stops reading them, commits finished records if it commits automatically, and calls
    on_revoked.
    """

    partitions: frozenset[TopicPartition]


@frozen
class Take:
    """Read these partitions, which are assigned to this member; then call `handled`."""

    partitions: frozenset[TopicPartition]


@frozen
class Lose:
    """Stop reading these partitions, which other members may own; then call `handled`.

    Commits of their offsets are refused from now on.
    """

    partitions: frozenset[TopicPartition]
    error: KafkaError


@frozen
class NeedTopics:
    """Call `topology` with the partitions of these topics once they are known and at each change.

    Only the leader of a group requests this action.
    """

    topics: frozenset[str]


@frozen
class NeedNames:
    """Call `named` with the names of these topics once they are known."""

    topic_ids: frozenset[UUID]


@frozen
class Fail:
    """The membership ended with `error`, and a retry is useless.

    If the error means that the group may use the other group protocol, the driver tries that
    protocol. Otherwise the driver raises `error` to the user.
    """

    error: KafkaError


Action: TypeAlias = Ask | Abandon | Relocate | GiveUp | Take | Lose | NeedTopics | NeedNames | Fail
