"""Offset lookups for partitions that may have been deleted, without waiting for missing topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokq.admin.deadline import Deadline
from aiokq.admin.retrying import refresh_metadata
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.offsets import (
    IsolationLevel,
    OffsetSpec,
    list_offsets,
    no_such_partition,
    offset_spec,
)
from aiokq.core.errors import KafkaError, UnknownTopicOrPartition, error_for
from aiokq.core.types import OffsetAndTimestamp, TopicPartition

__all__ = ["Found", "log_offsets", "partitions_of"]

Found = dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]
"""A result per partition; None if no record is at or after the requested time."""


async def log_offsets(
    engine: ClusterEngine,
    *questions: Mapping[TopicPartition, OffsetSpec],
    isolation_level: IsolationLevel = "read_uncommitted",
    timeout: float,
) -> list[Found]:
    """Make several offset lookups concurrently; return their results in the order of `questions`.

    A group keeps committed offsets of deleted topics, so this function does not wait for missing
    topics. `list_offsets` waits for missing topics, because they may be about to be created.

    Raises:
        RequestTimeout: no broker responded in time.
    """
    deadline = Deadline(engine, timeout)
    topics = {tp.topic for wanted in questions for tp in wanted}
    counts = await partitions_of(engine, topics, timeout=timeout)

    async def ask(wanted: Mapping[TopicPartition, OffsetSpec]) -> Found:
        outcomes: Found = {}
        there: dict[TopicPartition, int] = {}
        for tp, spec in wanted.items():
            count = counts[tp.topic]
            if isinstance(count, KafkaError):
                outcomes[tp] = count
            elif not 0 <= tp.partition < count:
                outcomes[tp] = no_such_partition(tp, count)
            else:
                there[tp] = offset_spec(spec)
        if there:
            outcomes |= await list_offsets(
                engine, there, isolation_level=isolation_level, timeout=deadline.left()
            )
        return {tp: outcomes[tp] for tp in wanted}

    answers = await concurrently(engine.supervisor, map(ask, questions), name="log offsets")
    found: list[Found] = []
    for answer in answers:
        if isinstance(answer, KafkaError):
            raise answer
        found.append(answer)
    return found


async def partitions_of(
    engine: ClusterEngine, topics: Iterable[str], *, timeout: float
) -> dict[str, int | KafkaError]:
    """Return the current number of partitions of each topic, or the error of its lookup.

    Raises:
        RequestTimeout: no broker responded in time.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    await refresh_metadata(engine, timeout, names, api="Metadata")
    metadata = engine.metadata
    counts: dict[str, int | KafkaError] = {}
    for name in names:
        info = metadata.topics.get(name)
        if info is not None:
            counts[name] = len(info.partitions)
        else:
            code = metadata.topic_errors.get(name, UnknownTopicOrPartition.code)
            error = error_for(code, api="Metadata", topic_partition=name)
            name_denial(engine, error)
            counts[name] = error
    return counts
