"""Schemas of the metadata records about topics, configs and the metadata log.

Kafka's other metadata records are in `registration_records` (brokers and controllers) and
`principal_records` (users), because one file would be too long.
"""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i8, i16, i32, i64, string, uuid_
from aiokq.wire.struct import Message

__all__ = [
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "ClearElrRecord",
    "ConfigRecord",
    "EndTransactionRecord",
    "FeatureLevelRecord",
    "NoOpRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "ZkMigrationStateRecord",
]


class FeatureLevelRecord(Message):
    """Metadata record that sets the level of a feature.

    The level of metadata.version is required to read later records of the log. The version of
    FeatureLevelRecord itself must stay 0, so that every version of Kafka can read the record.

    Source: `FeatureLevelRecord.json`.
    """

    NAME = "FeatureLevelRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 12

    name: str = string()
    """The feature name."""

    feature_level: int = i16()
    """The finalized level of the feature in the cluster; 0 if the feature is disabled."""


class TopicRecord(Message):
    """Metadata record that creates a topic.

    Source: `TopicRecord.json`.
    """

    NAME = "TopicRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 2

    name: str = string()
    """The topic name."""

    topic_id: uuid.UUID = uuid_()
    """The id of the created topic."""


class PartitionRecord(Message):
    """Metadata record that creates a partition.

    Version 1 adds Directories (KIP-858).

    Version 2 adds EligibleLeaderReplicas and LastKnownElr (KIP-966).

    Source: `PartitionRecord.json`.
    """

    NAME = "PartitionRecord"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 3

    partition_id: int = i32(default=-1)
    """The index of the created partition in its topic."""

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partition."""

    replicas: list[int] = array(i32)
    """The broker ids of the replicas, the preferred leader first."""

    isr: list[int] = array(i32)
    """The broker ids of the in-sync replicas."""

    removing_replicas: list[int] = array(i32)
    """The replicas that are being removed."""

    adding_replicas: list[int] = array(i32)
    """The replicas that are being added."""

    leader: int = i32(default=-1)
    """The broker id of the leader, or -1 if there is no leader."""

    leader_recovery_state: int = i8(tag=0)
    """1 if the partition is recovering from an unclean leader election; 0 otherwise."""

    leader_epoch: int = i32(default=-1)
    """The leader epoch of the partition."""

    partition_epoch: int = i32(default=-1)
    """The partition epoch, which increases with each change of the partition."""

    directories: list[uuid.UUID] = array(uuid_, since=1)
    """The id of each replica's log directory, in the order of `replicas`."""

    eligible_leader_replicas: list[int] | None = array(
        i32, since=2, nullable_since=2, default=None, tag=1
    )
    """The broker ids of the eligible leader replicas (ELR), or null."""

    last_known_elr: list[int] | None = array(i32, since=2, nullable_since=2, default=None, tag=2)
    """The broker ids of the last known eligible leader replicas, or null."""


class PartitionChangeRecord(Message):
    """Metadata record that changes the state of a partition.

    Version 1 adds Directories (KIP-858).

    Version 2 adds EligibleLeaderReplicas and LastKnownElr (KIP-966).

    Source: `PartitionChangeRecord.json`.
    """

    NAME = "PartitionChangeRecord"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 5

    partition_id: int = i32(default=-1)
    """The index of the changed partition in its topic."""

    topic_id: uuid.UUID = uuid_()
    """The id of the topic that has the partition."""

    isr: list[int] | None = array(i32, nullable_since=0, default=None, tag=0)
    """The new in-sync replicas; null if they did not change."""

    leader: int = i32(default=-2, tag=1)
    """The new leader; -1 if there is no leader now, -2 if the leader did not change."""

    replicas: list[int] | None = array(i32, nullable_since=0, default=None, tag=2)
    """The new replicas; null if they did not change."""

    removing_replicas: list[int] | None = array(i32, nullable_since=0, default=None, tag=3)
    """The new list of replicas that are being removed; null if it did not change."""

    adding_replicas: list[int] | None = array(i32, nullable_since=0, default=None, tag=4)
    """The new list of replicas that are being added; null if it did not change."""

    leader_recovery_state: int = i8(default=-1, tag=5)
    """The new recovery state: 0 if the leader was elected from the ISR or has recovered from an
    unclean election, 1 if it is still recovering from an unclean election; -1 if the state did not
    change.
    """

    directories: list[uuid.UUID] | None = array(
        uuid_, since=1, nullable_since=1, default=None, tag=8
    )
    """The id of each replica's new log directory; null if the directories did not change."""

    eligible_leader_replicas: list[int] | None = array(
        i32, since=2, nullable_since=2, default=None, tag=6
    )
    """The new eligible leader replicas (ELR); null if they did not change."""

    last_known_elr: list[int] | None = array(i32, since=2, nullable_since=2, default=None, tag=7)
    """The new last known eligible leader replicas; null if they did not change."""


class RemoveTopicRecord(Message):
    """Metadata record that deletes a topic.

    Source: `RemoveTopicRecord.json`.
    """

    NAME = "RemoveTopicRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 9

    topic_id: uuid.UUID = uuid_()
    """The id of the topic to delete with all its partitions."""


class ConfigRecord(Message):
    """Metadata record that sets or removes one config of a resource.

    Source: `ConfigRecord.json`.
    """

    NAME = "ConfigRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 4

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource that has the config."""

    name: str = string()
    """The name of the configuration."""

    value: str | None = string(nullable_since=0)
    """The value of the configuration, or null to remove the configuration."""


class ProducerIdsRecord(Message):
    """Metadata record that reserves a block of producer ids.

    Source: `ProducerIdsRecord.json`.
    """

    NAME = "ProducerIdsRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 15

    broker_id: int = i32()
    """The id of the broker that requested the block."""

    broker_epoch: int = i64(default=-1)
    """The broker epoch of the broker that requested the block."""

    next_producer_id: int = i64()
    """The first producer id after the block, with which the next block begins."""


class BeginTransactionRecord(Message):
    """Metadata record that begins a transaction of metadata records.

    Source: `BeginTransactionRecord.json`.
    """

    NAME = "BeginTransactionRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 23

    name: str | None = string(nullable_since=0, default=None, tag=0)
    """The name of the transaction, or null."""


class EndTransactionRecord(Message):
    """Metadata record that commits a transaction of metadata records.

    Source: `EndTransactionRecord.json`.
    """

    NAME = "EndTransactionRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 24


class AbortTransactionRecord(Message):
    """Metadata record that aborts a transaction of metadata records.

    Source: `AbortTransactionRecord.json`.
    """

    NAME = "AbortTransactionRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 25

    reason: str | None = string(nullable_since=0, default=None, tag=0)
    """The reason for the abort, or null."""


class ClearElrRecord(Message):
    """Metadata record that empties the eligible leader replicas of partitions.

    Source: `ClearElrRecord.json`.
    """

    NAME = "ClearElrRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 28

    topic_name: str = string()
    """The topic whose eligible leader replicas are cleared; the empty string for all topics."""


class NoOpRecord(Message):
    """Metadata record without content, which Kafka's controller writes periodically when it is
    idle.

    Source: `NoOpRecord.json`.
    """

    NAME = "NoOpRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 20


class ZkMigrationStateRecord(Message):
    """Metadata record with the state of the migration from ZooKeeper. Kafka 4 ignores the record.

    In Kafka 3.4, the states are 0 (None), 1 (PreMigration), 2 (Migration) and 3 (PostMigration).
    Kafka 3.5 swapped two numbers: 1 is Migration and 2 is PreMigration. The swap was possible
    because Kafka 3.4 never wrote Migration or PostMigration records.

    Source: `ZkMigrationStateRecord.json`.
    """

    NAME = "ZkMigrationStateRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 21

    zk_migration_state: int = i8()
    """The state of the migration, numbered as in Kafka 3.5."""
