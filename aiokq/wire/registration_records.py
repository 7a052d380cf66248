"""Schemas of the metadata records about brokers and controllers, in all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i8, i16, i32, i64, string, u16, uuid_
from aiokq.wire.struct import Message, Struct

__all__ = [
    "BrokerEndpoint",
    "BrokerFeature",
    "BrokerRegistrationChangeRecord",
    "ControllerEndpoint",
    "ControllerFeature",
    "FenceBrokerRecord",
    "RegisterBrokerRecord",
    "RegisterControllerRecord",
    "UnfenceBrokerRecord",
    "UnregisterBrokerRecord",
]


class BrokerEndpoint(Struct):
    """One endpoint of the broker: an element of `RegisterBrokerRecord.end_points`.

    Source: `RegisterBrokerRecord.json`, struct `BrokerEndpoint`.
    """

    name: str = string()
    """The name of the endpoint."""

    host: str = string()
    """The host name of the endpoint."""

    port: int = u16()
    """The port of the endpoint."""

    security_protocol: int = i16()
    """The security protocol, as numbered in Kafka's SecurityProtocol."""


class BrokerFeature(Struct):
    """Range of levels of one feature: an element of `RegisterBrokerRecord.features`.

    Source: `RegisterBrokerRecord.json`, struct `BrokerFeature`.
    """

    name: str = string()
    """The feature name."""

    min_supported_version: int = i16()
    """The minimum supported feature level."""

    max_supported_version: int = i16()
    """The maximum supported feature level."""


class RegisterBrokerRecord(Message):
    """Metadata record that registers a broker, each time it starts.

    Version 1 adds InControlledShutdown.

    Version 2 adds IsMigratingZkBroker.

    Version 3 adds LogDirs.

    Source: `RegisterBrokerRecord.json`.
    """

    NAME = "RegisterBrokerRecord"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 0

    broker_id: int = i32()
    """The node id of the registered broker."""

    is_migrating_zk_broker: bool = boolean(since=2)
    """Whether the broker uses ZooKeeper and is being migrated to KRaft."""

    incarnation_id: uuid.UUID = uuid_()
    """The incarnation id of the broker: a new id for each start."""

    broker_epoch: int = i64()
    """The broker epoch that the controller assigned."""

    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    """The endpoints at which the broker can be reached."""

    features: list[BrokerFeature] = array(BrokerFeature)
    """The features that the broker supports."""

    rack: str | None = string(nullable_since=0)
    """The rack of the broker, or null."""

    fenced: bool = boolean(default=True)
    """Whether the broker is fenced."""

    in_controlled_shutdown: bool = boolean(since=1)
    """Whether the broker is in controlled shutdown."""

    log_dirs: list[uuid.UUID] = array(uuid_, since=3, tag=0)
    """The ids of the broker's log directories that are available."""


class UnregisterBrokerRecord(Message):
    """Metadata record that removes a broker from the cluster.

    Source: `UnregisterBrokerRecord.json`.
    """

    NAME = "UnregisterBrokerRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 1

    broker_id: int = i32()
    """The node id of the removed broker."""

    broker_epoch: int = i64()
    """The broker epoch of the registration to remove."""


class BrokerRegistrationChangeRecord(Message):
    """Metadata record that changes the state of a registered broker.

    Version 1 adds InControlledShutdown.

    Version 2 adds LogDirs.

    Source: `BrokerRegistrationChangeRecord.json`.
    """

    NAME = "BrokerRegistrationChangeRecord"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 17

    broker_id: int = i32()
    """The node id of the broker whose state changes."""

    broker_epoch: int = i64()
    """The broker epoch that the controller assigned."""

    fenced: int = i8(tag=0)
    """1 if the broker was fenced, -1 if the broker was unfenced, 0 if the state did not change."""

    in_controlled_shutdown: int = i8(since=1, tag=1)
    """1 if the broker has begun a controlled shutdown, 0 if the state did not change."""

    log_dirs: list[uuid.UUID] = array(uuid_, since=2, tag=2)
    """The ids of the broker's log directories that are available; empty if they did not change."""


class FenceBrokerRecord(Message):
    """Metadata record that fences a broker. Current versions of Kafka read it, but do not write it.

    Source: `FenceBrokerRecord.json`.
    """

    NAME = "FenceBrokerRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 7

    id: int = i32()
    """The id of the broker to fence and to remove from all ISRs."""

    epoch: int = i64()
    """The broker epoch of the broker."""


class UnfenceBrokerRecord(Message):
    """Metadata record that unfences a broker. Current versions of Kafka read it, but do not write
    it.

    Source: `UnfenceBrokerRecord.json`.
    """

    NAME = "UnfenceBrokerRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 8

    id: int = i32()
    """The id of the broker to unfence."""

    epoch: int = i64()
    """The broker epoch of the broker."""


class ControllerEndpoint(Struct):
    """One endpoint of the controller: an element of `RegisterControllerRecord.end_points`.

    Source: `RegisterControllerRecord.json`, struct `ControllerEndpoint`.
    """

    name: str = string()
    """The name of the endpoint."""

    host: str = string()
    """The host name of the endpoint."""

    port: int = u16()
    """The port of the endpoint."""

    security_protocol: int = i16()
    """The security protocol, as numbered in Kafka's SecurityProtocol."""


class ControllerFeature(Struct):
    """Range of levels of one feature: an element of `RegisterControllerRecord.features`.

    Source: `RegisterControllerRecord.json`, struct `ControllerFeature`.
    """

    name: str = string()
    """The feature name."""

    min_supported_version: int = i16()
    """The minimum supported feature level."""

    max_supported_version: int = i16()
    """The maximum supported feature level."""


class RegisterControllerRecord(Message):
    """Metadata record that registers a controller, each time it starts.

    Source: `RegisterControllerRecord.json`.
    """

    NAME = "RegisterControllerRecord"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0
    RECORD_TYPE = 27

    controller_id: int = i32()
    """The node id of the registered controller."""

    incarnation_id: uuid.UUID = uuid_()
    """The incarnation id of the controller: a new id for each start."""

    zk_migration_ready: bool = boolean()
    """Whether the controller is configured for the migration from ZooKeeper."""

    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    """The endpoints at which the controller can be reached."""

    features: list[ControllerFeature] = array(ControllerFeature)
    """The features that the controller supports."""
