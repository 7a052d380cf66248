"""Requests about partitions, sent concurrently to their leaders and retried.

The caller supplies the request and interprets the response.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from aiokq.admin.retrying import per_item
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.offsets import no_such_partition
from aiokq.core.errors import KafkaError, LeaderNotAvailable
from aiokq.core.types import TopicPartition

__all__ = ["AskLeader", "per_partition"]

T = TypeVar("T")
R = TypeVar("R")

AskLeader = Callable[
    [int, Mapping[TopicPartition, T], float],
    Coroutine[Any, Any, Mapping[TopicPartition, R | KafkaError]],
]
"""Coroutine function that sends a broker a request about partitions that the broker leads.

Its arguments are the node id, the partitions, and a timeout in seconds.
"""


async def per_partition(
    engine: ClusterEngine,
    partitions: Mapping[TopicPartition, T],
    ask: AskLeader[T, R],
    *,
    api: str,
    timeout: float | None,
) -> dict[TopicPartition, R | KafkaError]:
    """Return an outcome per partition, in the order of ``partitions``.

    Partitions with a retriable error are retried, for example after a leader change.

    Args:
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.
    """

    async def attempt(
        left: Mapping[TopicPartition, T], remaining: float
    ) -> dict[TopicPartition, R | KafkaError]:
        outcomes: dict[TopicPartition, R | KafkaError] = {}
        by_leader = await _by_leader(engine, left, outcomes, remaining, api=api)
        answers = await concurrently(
            engine.supervisor,
            (ask(node, asked, remaining) for node, asked in by_leader.items()),
            name=api,
        )
        for asked, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                outcomes.update(dict.fromkeys(asked, answer))
                continue
            for tp, outcome in answer.items():
                outcomes[tp] = outcome
                if isinstance(outcome, KafkaError) and outcome.refresh_metadata:
                    engine.partition_failed(tp, outcome)
        return outcomes

    return await per_item(engine, partitions, attempt, api=api, timeout=timeout, final=())


async def _by_leader(
    engine: ClusterEngine,
    partitions: Mapping[TopicPartition, T],
    outcomes: dict[TopicPartition, R | KafkaError],
    remaining: float,
    *,
    api: str,
) -> dict[int, dict[TopicPartition, T]]:
    """Group partitions by leader; partitions without a known leader get an error in `outcomes`."""
    topics = sorted({tp.topic for tp in partitions})
    # The lookup of a topic that does not exist must not use up the whole timeout.
    wait = min(remaining, engine.settings.request_timeout) / 2
    infos = await concurrently(
        engine.supervisor,
        (engine.topic(topic, timeout=wait, create=False) for topic in topics),
        name=api,
    )
    known = dict(zip(topics, infos, strict=True))
    by_leader: dict[int, dict[TopicPartition, T]] = defaultdict(dict)
    for tp, value in partitions.items():
        info = known[tp.topic]
        if isinstance(info, KafkaError):
            info.retriable = False
            outcomes[tp] = info
        elif tp.partition not in info.partitions:
            outcomes[tp] = no_such_partition(tp, len(info.partitions))
        elif (node := engine.leader_node(tp)) is None:
            outcomes[tp] = LeaderNotAvailable(topic_partition=tp)
        else:
            by_leader[node.node_id][tp] = value
    return by_leader
