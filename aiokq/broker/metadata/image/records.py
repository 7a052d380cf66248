"""Constants of the fields of Kafka's metadata records, and functions that create such records."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Final

from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionRecord,
)

__all__ = [
    "BROKER_CONFIG",
    "CLIENT_METRICS_CONFIG",
    "GROUP_CONFIG",
    "METADATA_VERSION",
    "NOBODY",
    "TOPIC_CONFIG",
    "TRANSACTION_MARKERS",
    "MIGRATING",
    "UNASSIGNED",
    "config_records",
    "partition_elsewhere",
    "partition_record",
]

TOPIC_CONFIG: Final = 2
BROKER_CONFIG: Final = 4
GROUP_CONFIG: Final = 32
CLIENT_METRICS_CONFIG: Final = 16
"""Each of these constants is a type of resource in a `ConfigRecord`."""

METADATA_VERSION: Final = "metadata.version"
"""The feature whose level decides which records and fields a metadata log may have."""

TRANSACTION_MARKERS: Final = (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
"""The records that begin, end or abort a metadata transaction (KIP-868), and change no state."""

NOBODY: Final = -1
"""The node id that stands for a missing leader, or for the unknown node of a replica."""

MIGRATING: Final = uuid.UUID(int=0)
"""The directory of a replica that was created at a metadata.version without directories."""

UNASSIGNED: Final = uuid.UUID(int=1)
"""The directory of a replica for which no log directory was chosen yet."""


def partition_record(
    topic_id: uuid.UUID,
    index: int,
    node_id: int,
    *,
    directory: uuid.UUID | None,
    leader_epoch: int = 0,
) -> PartitionRecord:
    """Return the record of a new partition whose only replica and leader is ``node_id``.

    Args:
        directory: the log directory of the replica, or ``UNASSIGNED``; None if the
            metadata.version of the log has no directories.
    """
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[node_id],
        isr=[node_id],
        leader=node_id,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        directories=[] if directory is None else [directory],
    )


def partition_elsewhere(
    topic_id: uuid.UUID, index: int, *, has_directories: bool = True, leader_epoch: int = 0
) -> PartitionRecord:
    """Return the record of a partition whose only replica is on an unknown node."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[NOBODY],
        isr=[NOBODY],
        leader=NOBODY,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        directories=[UNASSIGNED] if has_directories else [],
    )


def config_records(
    resource_type: int, name: str, present: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[ConfigRecord]:
    """Yield the records that change a resource's settings from ``present`` to ``wanted``.

    Records that set values come first, then records without a value, which remove settings.
    """
    for key, value in wanted.items():
        if present.get(key) != value:
            yield _config(resource_type, name, key, value)
    for key in present:
        if key not in wanted:
            yield _config(resource_type, name, key, None)


def _config(resource_type: int, name: str, key: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
