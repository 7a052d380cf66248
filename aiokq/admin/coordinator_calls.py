"""Requests to the coordinators of groups or transactional ids, sent concurrently and retried.

The caller supplies the request and interprets the response.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from aiokq.admin.retrying import per_item
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import CoordinatorKind
from aiokq.core.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    RequestTimeout,
    UnsupportedVersion,
)

__all__ = ["Ask", "find_coordinators", "may_have_been_done", "per_group", "per_item_of"]

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

MOVED: Final = (NotCoordinator, CoordinatorNotAvailable, ConnectionLost)

LEAST: Final = 0.001
"""Seconds that must remain for the retry of a request that timed out."""

Ask = Callable[[int, Mapping[K, T], float], Coroutine[Any, Any, Mapping[K, R | KafkaError]]]
"""Coroutine function that sends a coordinator a request.

Its arguments are the node id, the items of the request (groups, transactional ids, or items of one
group), and a timeout in seconds.
"""


async def per_group(
    engine: ClusterEngine,
    groups: Mapping[str, T],
    ask: Ask[str, T, R],
    *,
    api: str,
    timeout: float | None,
    batched: bool = True,
    kind: CoordinatorKind = CoordinatorKind.GROUP,
) -> dict[str, R | KafkaError]:
    """Return an outcome per group or transactional id, in the order of ``groups``.

    Only groups with a retriable error are retried, for example because their coordinator moved, is
    loading or did not respond.

    Args:
        kind: GROUP if ``groups`` has group ids, TRANSACTION if it has transactional ids.
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.
        batched: whether one request takes all groups of a coordinator.

    Raises:
        UnsupportedVersion: no coordinator supports the request.
    """

    refused: set[str] = set()

    async def attempt(left: Mapping[str, T], remaining: float) -> dict[str, R | KafkaError]:
        deadline = engine.now() + remaining
        outcomes: dict[str, R | KafkaError] = {}
        nodes: dict[str, int] = {}
        # In each attempt, a group without a coordinator delays other groups by at most a quarter of
        # the timeout of one request.
        limit = min(remaining, engine.settings.request_timeout) / 4
        found_nodes = await find_coordinators(engine, left, timeout=limit, kind=kind)
        for group_id, found in found_nodes.items():
            if isinstance(found, KafkaError):
                outcomes[group_id] = found
            else:
                nodes[group_id] = found
        requests = _requests(nodes, batched=batched)
        answers = await concurrently(
            engine.supervisor,
            (ask(node, {g: left[g] for g in asked}, remaining) for node, asked in requests),
            name=api,
        )
        old = [answer for answer in answers if isinstance(answer, UnsupportedVersion)]
        if old and len(old) == len(answers) and not outcomes:
            raise old[0]
        for (node, asked), answer in zip(requests, answers, strict=True):
            for group_id in asked:
                outcome = _outcome(answer, group_id)
                if isinstance(outcome, (*MOVED, RequestTimeout)):
                    engine.coordinator_failed(kind, group_id, node)
                if isinstance(outcome, RequestTimeout):
                    if deadline - engine.now() > LEAST:
                        # Only this request timed out. The coordinator may answer the next request.
                        outcome = _later(outcome)
                    elif group_id in refused:
                        continue  # keep the error of an earlier attempt, which names the cause
                outcomes[group_id] = outcome
        for group_id, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                refused.add(group_id)
                name_denial(engine, outcome, group_id)
        return outcomes

    return await per_item(engine, groups, attempt, api=api, timeout=timeout, final=())


async def per_item_of(
    engine: ClusterEngine,
    group_id: str,
    items: Mapping[K, T],
    ask: Ask[K, T, R],
    *,
    api: str,
    timeout: float | None,
) -> dict[K, R | KafkaError]:
    """Return an outcome per item of one group (partitions, members), in the order of ``items``.

    Args:
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.

    Raises:
        KafkaError: an attempt failed for all its items, and no retry can help.
        RequestTimeout: no request succeeded in time; ``__cause__`` is the last error.
    """

    async def attempt(left: Mapping[K, T], remaining: float) -> Mapping[K, R | KafkaError]:
        node = await engine.coordinator(CoordinatorKind.GROUP, group_id, timeout=remaining)
        try:
            outcomes = await ask(node, left, remaining)
        except KafkaError:
            engine.coordinator_failed(CoordinatorKind.GROUP, group_id, node)
            raise
        if any(isinstance(outcome, MOVED) for outcome in outcomes.values()):
            engine.coordinator_failed(CoordinatorKind.GROUP, group_id, node)
        for outcome in outcomes.values():
            if isinstance(outcome, KafkaError):
                name_denial(engine, outcome, group_id)
        return outcomes

    return await per_item(engine, items, attempt, api=api, timeout=timeout)


def may_have_been_done(error: ConnectionLost | RequestTimeout) -> bool:
    """Return whether the coordinator may have received and executed the failed request."""
    return isinstance(error, RequestTimeout) or error.may_have_been_written


async def find_coordinators(
    engine: ClusterEngine,
    groups: Iterable[str],
    *,
    timeout: float,
    kind: CoordinatorKind = CoordinatorKind.GROUP,
) -> dict[str, int | KafkaError]:
    """Look up the coordinators of groups; return a node id or an error by group.

    The lookups share a request if the broker supports KIP-699.

    Args:
        kind: GROUP if ``groups`` has group ids, TRANSACTION if it has transactional ids.
    """
    names = list(groups)
    found = await concurrently(
        engine.supervisor,
        (engine.coordinator(kind, name, timeout=timeout) for name in names),
        name="find coordinators",
    )
    return {
        name: _later(node) if isinstance(node, RequestTimeout) else node
        for name, node in zip(names, found, strict=True)
    }


def _later(error: RequestTimeout) -> KafkaError:
    """Return the timeout as a retriable error, because it ended only this attempt."""
    later = CoordinatorNotAvailable(error.message)
    later.__cause__ = error.__cause__ or error
    return later


def _requests(nodes: Mapping[str, int], *, batched: bool) -> list[tuple[int, list[str]]]:
    if not batched:
        return [(node, [group_id]) for group_id, node in nodes.items()]
    by_node: dict[int, list[str]] = defaultdict(list)
    for group_id, node in nodes.items():
        by_node[node].append(group_id)
    return list(by_node.items())


def _outcome(answer: Mapping[str, R | KafkaError] | KafkaError, group_id: str) -> R | KafkaError:
    if isinstance(answer, KafkaError):
        return answer
    if group_id not in answer:
        return CoordinatorNotAvailable(f"the coordinator's response does not have {group_id!r}")
    return answer[group_id]
