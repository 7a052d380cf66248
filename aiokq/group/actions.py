"""What a membership machine asks of its driver. Owns values only."""

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
    """Send a request to the group's coordinator; answer with `received` or `failed`.

    Attributes:
        make: the request in the version that the connection speaks.
        timeout: seconds until it counts as lost.
        ticket: goes back with the answer; answers to abandoned requests are told by it.
    """

    request_class: type[Request[Response]]
    make: Callable[[int], Request[Response]]
    timeout: float
    ticket: int


@frozen
class Abandon:
    """Nobody waits for the request in flight any more: give its connection up."""


@frozen
class Relocate:
    """The coordinator moved, or does not answer: look it up again before the next request."""


@frozen
class GiveUp:
    """These partitions go, in order: stop them, let the user commit and tidy up; then `handled`."""

    partitions: frozenset[TopicPartition]


@frozen
class Take:
    """These partitions are this member's from now on: read them; then `handled`."""

    partitions: frozenset[TopicPartition]


@frozen
class Lose:
    """These partitions were taken away, perhaps long ago: commits are refused; then `handled`."""

    partitions: frozenset[TopicPartition]
    error: KafkaError


@frozen
class NeedTopics:
    """This member leads: tell how many partitions these topics have, by `topology`, and again
    whenever that changes."""

    topics: frozenset[str]


@frozen
class NeedNames:
    """Tell what these topics are called, by `named`, as soon as it is known."""

    topic_ids: frozenset[UUID]


@frozen
class Fail:
    """Membership ended with an error that repeating does not mend; the user must know."""

    error: KafkaError


Action: TypeAlias = Ask | Abandon | Relocate | GiveUp | Take | Lose | NeedTopics | NeedNames | Fail
