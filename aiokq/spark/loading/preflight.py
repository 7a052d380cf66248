"""Checks of the cluster before Spark starts, so that errors are reported early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokq import TopicPartition
from aiokq.errors import ConfigError, UnknownTopicOrPartition
from aiokq.spark.data_loss import Losses
from aiokq.spark.loading.option_errors import refusal_of_load
from aiokq.spark.loading.options import LoadOptions, OptionError
from aiokq.spark.offset_reader import Ends, OffsetReader
from aiokq.spark.offsets import PartitionOffsets
from aiokq.spark.options import ReadOptions
from aiokq.spark.stream_ranges import beginning
from aiokq.spark.worker import WorkerClient, worker_client

__all__ = ["Preflight", "look"]


@dataclass(frozen=True)
class Preflight:
    """State of the cluster before a load.

    Attributes:
        cluster: cluster id; None if the cluster has none.
        missing: number of offsets from the position of the load to the end of the log, by
            partition.
    """

    cluster: str | None
    missing: Mapping[TopicPartition, int]


def look(options: LoadOptions, positions: PartitionOffsets | None) -> Preflight:
    """Check a load against the cluster, and return the state of the cluster.

    Args:
        positions: next offset to load, by partition; None for a new load.

    Raises:
        BootstrapFailed: no bootstrap address answered.
        ConfigError: an option is refused.
        KafkaError: a topic does not exist, or may not be read.
    """
    try:
        read = ReadOptions.parse(options.read_options(), streaming=True)
        client = worker_client(read.kafka)
        return client.run(_look(client, options, read, positions))
    except ConfigError as error:
        raise refusal_of_load(error) from None


async def _look(
    client: WorkerClient,
    options: LoadOptions,
    read: ReadOptions,
    positions: PartitionOffsets | None,
) -> Preflight:
    offset_reader = OffsetReader(client.cluster, read)
    try:
        partitions = (await offset_reader.partitions()).leaders
    except UnknownTopicOrPartition as error:
        # The new message omits the source's option, which the user of the load does not know.
        name = error.topic_partition
        raise UnknownTopicOrPartition(
            f"there is no topic {name!r}", topic_partition=name
        ) from error
    if not partitions and options.available_now:
        raise OptionError("topics_pattern", f"no topic matches {options.topics_pattern!r}")
    ends = await offset_reader.ends(partitions)
    if positions is None:
        begun = await _begun(options, read, offset_reader, ends)
    else:
        begun = ends.starts | positions
    missing = {tp: max(0, end - begun.get(tp, end)) for tp, end in ends.ends.items()}
    return Preflight(client.cluster.metadata.cluster_id, missing)


async def _begun(
    options: LoadOptions, read: ReadOptions, offset_reader: OffsetReader, ends: Ends
) -> PartitionOffsets:
    """Return the start positions of a new load."""
    found = await offset_reader.resolve(read.starting, ends.ends, ends, "starting")
    return beginning(found, ends, Losses(options.fail_on_data_loss))
