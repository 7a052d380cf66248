"""`Admin.list_offsets`, which looks up the offset of each partition by name or by timestamp."""

from __future__ import annotations

from collections.abc import Mapping

from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.offsets import IsolationLevel, OffsetSpec, offset_spec
from aiokq.cluster.offsets import list_offsets as look_up
from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition

__all__ = ["OffsetListing", "list_offsets"]


@frozen
class OffsetListing:
    """The offset of a partition.

    ``offset`` and ``timestamp_ms`` are -1 if no record is at or after the requested time;
    ``timestamp_ms`` is also -1 for "earliest" and "latest".
    """

    topic_partition: TopicPartition
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int | None = None
    error: KafkaError | None = None


async def list_offsets(
    engine: ClusterEngine,
    partitions: Mapping[TopicPartition, OffsetSpec],
    *,
    isolation_level: IsolationLevel,
    timeout: float | None,
) -> Results[TopicPartition, OffsetListing]:
    """Implement `Admin.list_offsets`."""
    engine.bind()
    wanted = {TopicPartition.of(tp): offset_spec(spec) for tp, spec in partitions.items()}
    outcomes = await look_up(
        engine,
        wanted,
        isolation_level=isolation_level,
        timeout=engine.settings.default_api_timeout if timeout is None else timeout,
    )
    results = {}
    for tp in wanted:
        outcome = outcomes[tp]
        if isinstance(outcome, KafkaError):
            results[tp] = OffsetListing(tp, error=outcome)
        elif outcome is None:
            results[tp] = OffsetListing(tp)
        else:
            results[tp] = OffsetListing(
                tp, outcome.offset, outcome.timestamp_ms, outcome.leader_epoch
            )
    return Results(results)
