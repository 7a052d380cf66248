"""Schemas of the records that store committed offsets and classic groups, in all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, bytes_, i32, i64, string, uuid_
from aiokq.wire.struct import Message, Struct

__all__ = [
    "GroupMetadataKey",
    "GroupMetadataValue",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
]


class LegacyOffsetCommitKey(Message):
    """Key of the record that stores a committed offset, in the old format (record type 0).

    Source: `LegacyOffsetCommitKey.json`.
    """

    NAME = "LegacyOffsetCommitKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 0

    group: str = string()
    """The id of the group that committed the offset."""

    topic: str = string()
    """The name of the topic that the offset is in."""

    partition: int = i32()
    """The index of the partition that the offset is in."""


class LegacyOffsetCommitValue(Message):
    """Value of the record that stores a committed offset, in the old format (record type 0).

    Source: `LegacyOffsetCommitValue.json`.
    """

    NAME = "LegacyOffsetCommitValue"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 0

    offset: int = i64()
    """The committed offset."""

    metadata: str = string()
    """The metadata that the client committed with the offset."""

    commit_timestamp: int = i64()
    """When the commit was added to the log, in milliseconds since the Unix epoch."""


class OffsetCommitKey(Message):
    """Key of the record that stores a committed offset.

    Source: `OffsetCommitKey.json`.
    """

    NAME = "OffsetCommitKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 1

    group: str = string()
    """The id of the group that committed the offset."""

    topic: str = string()
    """The name of the topic that the offset is in."""

    partition: int = i32()
    """The index of the partition that the offset is in."""


class OffsetCommitValue(Message):
    """Value of the record that stores a committed offset.

    Version 4 is the first flexible version. Later changes should only add or remove tagged fields,
    because an older Kafka cannot read a newer version (KIP-915).

    Source: `OffsetCommitValue.json`.
    """

    NAME = "OffsetCommitValue"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RECORD_TYPE = 1

    offset: int = i64()
    """The committed offset."""

    leader_epoch: int = i32(since=3, default=-1, ignorable=True)
    """The leader epoch of the last consumed record, or -1 if it is unknown."""

    metadata: str = string()
    """The metadata that the client committed with the offset."""

    commit_timestamp: int = i64()
    """When the commit was added to the log, in milliseconds since the Unix epoch."""

    expire_timestamp: int = i64(since=1, until=1, default=-1, ignorable=True)
    """When the offset expires, in milliseconds since the Unix epoch; -1 for the broker's retention.
    """

    topic_id: uuid.UUID = uuid_(since=4, tag=0, ignorable=True)
    """The topic id; zero if it is unknown."""


class GroupMetadataKey(Message):
    """Key of the record that stores a classic group.

    Source: `GroupMetadataKey.json`.
    """

    NAME = "GroupMetadataKey"
    MIN_VERSION = 0
    MAX_VERSION = 0
    RECORD_TYPE = 2

    group: str = string()
    """The id of the classic group."""


class MemberMetadata(Struct):
    """One member of a classic group: an element of `GroupMetadataValue.members`.

    Source: `GroupMetadataValue.json`, struct `MemberMetadata`.
    """

    member_id: str = string()
    """The id of the group's member."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None, ignorable=True)
    """The group.instance.id of the member (static membership), or null."""

    client_id: str = string()
    """The client id that the member sent."""

    client_host: str = string()
    """The host from which the member connected."""

    rebalance_timeout: int = i32(since=1, default=-1, ignorable=True)
    """The rebalance timeout, in milliseconds; -1 means the session timeout."""

    session_timeout: int = i32()
    """The session timeout, in milliseconds."""

    subscription: bytes = bytes_()
    """The member's metadata for the group's protocol, such as its subscription."""

    assignment: bytes = bytes_()
    """The assignment of the member."""


class GroupMetadataValue(Message):
    """Value of the record that stores the generation and members of a classic group.

    Version 4 is the first flexible version. Later changes should only add or remove tagged fields,
    because an older Kafka cannot read a newer version (KIP-915).

    Source: `GroupMetadataValue.json`.
    """

    NAME = "GroupMetadataValue"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4
    RECORD_TYPE = 2

    protocol_type: str = string()
    """The protocol type of the group, such as `consumer`."""

    generation: int = i32()
    """The generation of the group."""

    protocol: str | None = string(nullable_since=0)
    """The name of the group's protocol, such as `range`, or null."""

    leader: str | None = string(nullable_since=0)
    """The member id of the group's leader, or null."""

    current_state_timestamp: int = i64(since=2, default=-1, ignorable=True)
    """When the state of the group last changed, in milliseconds since the Unix epoch."""

    members: list[MemberMetadata] = array(MemberMetadata)
    """The group members."""
