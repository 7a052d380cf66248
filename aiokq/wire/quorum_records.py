"""Schemas of the control records in the log and snapshots of a KRaft quorum, in all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i16, i32, i64, string, struct, u16, uuid_
from aiokq.wire.struct import Message, Struct

__all__ = [
    "KRaftVersionFeature",
    "KRaftVersionRecord",
    "LeaderChangeMessage",
    "LeaderChangeMessageVoter",
    "SnapshotFooterRecord",
    "SnapshotHeaderRecord",
    "VotersRecord",
    "VotersRecordEndpoint",
    "VotersRecordVoter",
]


class LeaderChangeMessageVoter(Struct):
    """One voter: an element of `LeaderChangeMessage.voters` and of
    `LeaderChangeMessage.granting_voters`.

    Source: `LeaderChangeMessage.json`, struct `Voter`.
    """

    voter_id: int = i32()
    """The node id of the voter."""

    voter_directory_id: uuid.UUID = uuid_(since=1)
    """The id of the voter's log directory."""


class LeaderChangeMessage(Message):
    """Value of the control record that a new leader appends first in its epoch.

    Version 1 adds VoterDirectoryId (KIP-853).

    Source: `LeaderChangeMessage.json`.
    """

    NAME = "LeaderChangeMessage"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    version: int = i16()
    """The version in which this message is encoded."""

    leader_id: int = i32()
    """The ID of the newly elected leader."""

    voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    """The voters of the quorum in this epoch."""

    granting_voters: list[LeaderChangeMessageVoter] = array(LeaderChangeMessageVoter)
    """The voters that voted for the leader."""


class SnapshotHeaderRecord(Message):
    """Value of a snapshot's first control record.

    Source: `SnapshotHeaderRecord.json`.
    """

    NAME = "SnapshotHeaderRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    version: int = i16()
    """The version in which this record is encoded."""

    last_contained_log_timestamp: int = i64()
    """When the last log record that the snapshot contains was appended, in milliseconds since the
    Unix epoch.
    """


class SnapshotFooterRecord(Message):
    """Value of a snapshot's last control record.

    Source: `SnapshotFooterRecord.json`.
    """

    NAME = "SnapshotFooterRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    version: int = i16()
    """The version in which this record is encoded."""


class KRaftVersionRecord(Message):
    """Value of the control record that sets the `kraft.version`.

    Source: `KRaftVersionRecord.json`.
    """

    NAME = "KRaftVersionRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    version: int = i16()
    """The version in which this record is encoded."""

    k_raft_version: int = i16()
    """The new `kraft.version`."""


class VotersRecordEndpoint(Struct):
    """One endpoint of the voter: an element of `VotersRecordVoter.endpoints`.

    Source: `VotersRecord.json`, struct `Endpoint`.
    """

    name: str = string()
    """The name of the endpoint."""

    host: str = string()
    """The host name of the endpoint."""

    port: int = u16()
    """The port of the endpoint."""


class KRaftVersionFeature(Struct):
    """Range of `kraft.version` that a voter supports: the value of
    `VotersRecordVoter.k_raft_version_feature`.

    Source: `VotersRecord.json`, struct `KRaftVersionFeature`.
    """

    min_supported_version: int = i16()
    """The lowest `kraft.version` that the voter supports."""

    max_supported_version: int = i16()
    """The highest `kraft.version` that the voter supports."""


class VotersRecordVoter(Struct):
    """One voter: an element of `VotersRecord.voters`.

    Source: `VotersRecord.json`, struct `Voter`.
    """

    voter_id: int = i32()
    """The node id of the voter."""

    voter_directory_id: uuid.UUID = uuid_()
    """The id of the voter's log directory."""

    endpoints: list[VotersRecordEndpoint] = array(VotersRecordEndpoint)
    """The endpoints at which the voter can be reached."""

    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)
    """The range of `kraft.version` that the voter supports."""


class VotersRecord(Message):
    """Value of the control record that sets the voters of the quorum.

    Source: `VotersRecord.json`.
    """

    NAME = "VotersRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    version: int = i16()
    """The version in which this record is encoded."""

    voters: list[VotersRecordVoter] = array(VotersRecordVoter)
    """The voters of the quorum from this record on."""
