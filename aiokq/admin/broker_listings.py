"""Listings of groups or transactional ids, merged from the responses of all brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final, Generic, Self, TypeVar

from aiokq.admin.deadline import Deadline
from aiokq.admin.retrying import per_item, refresh_metadata
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import ConnectionLost, KafkaError, RequestTimeout, copy_error

__all__ = ["AskBroker", "BrokerListings", "from_all_brokers"]

TRIES: Final = 2
"""Lost connections after which a broker counts as failed, if another broker has responded."""

L = TypeVar("L")

AskBroker = Callable[[int, float], Coroutine[Any, Any, list[L]]]
"""Coroutine function that returns a broker's part of the listing.

Its arguments are the node id and a timeout in seconds.
"""


class BrokerListings(Mapping[str, L], Generic[L]):
    """Listed items by id, and the errors of brokers that failed.

    Attributes:
        errors: errors of the brokers that failed, by node id; the items that these brokers
            coordinate are missing.
    """

    __slots__ = ("_items", "errors")

    def __init__(
        self, items: Mapping[str, L], errors: Mapping[int, KafkaError] | None = None
    ) -> None:
        self._items = dict(items)
        self.errors = dict(errors or {})

    def __getitem__(self, item_id: str) -> L:
        return self._items[item_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self._items)!r}, errors={self.errors!r})"

    @property
    def ok(self) -> bool:
        """Whether no broker failed."""
        return not self.errors

    def raise_for_errors(self) -> Self:
        """Return self if no broker failed; else raise the first error, with other errors as notes.

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


async def from_all_brokers(
    engine: ClusterEngine, ask: AskBroker[L], *, api: str, timeout: float | None
) -> tuple[list[L], dict[int, KafkaError]]:
    """Request the listing from each broker; return all items, and the errors by node id.

    Args:
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.

    Raises:
        KafkaError: all brokers failed.
        RequestTimeout: no broker responded in time.
    """
    engine.bind()
    deadline = Deadline(engine, timeout)
    await refresh_metadata(engine, deadline.total, api=api)
    nodes = sorted(engine.metadata.brokers)
    tries: Counter[int] = Counter()
    answered = False

    async def attempt(
        left: Mapping[int, bool], remaining: float
    ) -> dict[int, list[L] | KafkaError]:
        nonlocal answered
        # A broker that does not respond delays the listing by one request timeout at most.
        each = min(remaining, engine.settings.request_timeout)
        answers = await concurrently(
            engine.supervisor, (ask(node, each) for node in left), name=api
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
        engine, dict.fromkeys(nodes, True), attempt, api=api, timeout=deadline.left(), final=()
    )
    found: list[L] = []
    errors: dict[int, KafkaError] = {}
    for node, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            errors[node] = outcome
        else:
            found += outcome
    if not found and len(errors) == len(outcomes):
        raise _of_all(errors, api)
    return found, errors


def _of_all(errors: Mapping[int, KafkaError], api: str) -> KafkaError:
    (_, error), *_ = errors.items()
    if error.retriable and not isinstance(error, RequestTimeout):
        timeout = RequestTimeout(f"no broker answered the listing: {error}", api=api)
        timeout.__cause__ = error
        return timeout
    return error
