"""Describing log directories: replicas, free space and failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import KafkaError, error_for, raise_for
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult

__all__ = ["BrokerLogDirs", "LogDirDescription", "ReplicaInfo", "describe_log_dirs"]

Outcomes = dict[int, "BrokerLogDirs | KafkaError"]


@frozen
class ReplicaInfo:
    """A partition's log in a log directory.

    Attributes:
        size_bytes: size of the log's segments, in bytes.
        offset_lag: number of offsets from the end of this log to the high watermark, or, if
            `is_future`, to the end of the log that this log will replace.
        is_future: whether this log is a copy in progress that will replace the log in another
            directory of the broker.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool = False


@frozen
class LogDirDescription:
    """A log directory.

    Attributes:
        total_bytes: size of the disk in bytes; None if the broker is older than 3.3.
        usable_bytes: free space on the disk in bytes; None if the broker is older than 3.3.
        error: KafkaStorage if the directory is offline.
    """

    path: str
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    error: KafkaError | None = None

    @property
    def size_bytes(self) -> int:
        """Size of all logs in the directory, in bytes."""
        return sum(replica.size_bytes for replica in self.replicas.values())


@frozen
class BrokerLogDirs:
    """The log directories of one broker, in the order of its response."""

    node_id: int
    log_dirs: tuple[LogDirDescription, ...] = ()
    error: KafkaError | None = None


async def describe_log_dirs(
    engine: ClusterEngine, node_ids: Iterable[int], *, timeout: float | None
) -> Results[int, BrokerLogDirs]:
    """Implement `Admin.describe_log_dirs`."""

    async def attempt(left: Mapping[int, None], remaining: float) -> Outcomes:
        answers = await concurrently(
            engine.supervisor,
            (_ask(engine, node_id, remaining) for node_id in left),
            name="describe log dirs",
        )
        return dict(zip(left, answers, strict=True))

    found = await per_item(
        engine,
        dict.fromkeys(node_ids),
        attempt,
        api="DescribeLogDirs",
        timeout=timeout,
        final=(),
    )
    return results_of(found, lambda node_id, error: BrokerLogDirs(node_id, error=error))


async def _ask(engine: ClusterEngine, node_id: int, remaining: float) -> BrokerLogDirs:
    response = await engine.request(
        DescribeLogDirsRequest(topics=None), node=node_id, timeout=remaining
    )
    raise_for(response.error_code, api="DescribeLogDirs")
    return BrokerLogDirs(node_id, tuple(map(_described, response.results)))


def _described(result: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        result.log_dir,
        {
            TopicPartition(topic.name, partition.partition_index): ReplicaInfo(
                partition.partition_size, partition.offset_lag, partition.is_future_key
            )
            for topic in result.topics
            for partition in topic.partitions
        },
        None if result.total_bytes < 0 else result.total_bytes,
        None if result.usable_bytes < 0 else result.usable_bytes,
        error_for(result.error_code, api="DescribeLogDirs") if result.error_code else None,
    )
