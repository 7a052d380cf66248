"""The value of a record of the metadata log: a frame with type and version, and a message.

    frame version (1)   record type   version   message in that version

The first three parts are unsigned varints. The message fills the rest of the value.

Source: Kafka `AbstractApiMessageSerde.java`, `MetadataRecordSerde.java`, `MetadataVersion.java`.
Tests: `tests/unit/broker/metadata/image/test_record_codec.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from aiokq.broker.metadata.image.features import metadata_version_text
from aiokq.core.errors import CorruptRecord, ProtocolError, UnsupportedVersion
from aiokq.core.types import Buffer
from aiokq.wire import cluster_metadata_records, principal_records, registration_records
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ZkMigrationStateRecord,
)
from aiokq.wire.codec import decode, encode_bytes
from aiokq.wire.primitives import DECODE_ERRORS, unsigned, uvarint
from aiokq.wire.principal_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.registration_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
)
from aiokq.wire.struct import Message

__all__ = [
    "RECORD_CLASSES",
    "UnknownMetadataRecord",
    "decode_metadata_record",
    "encode_metadata_record",
    "record_version",
]

FRAME_VERSION: Final = 1


def _classes() -> dict[int, type[Message]]:
    found: dict[int, type[Message]] = {}
    for module in (cluster_metadata_records, registration_records, principal_records):
        for name in module.__all__:
            cls = getattr(module, name)
            if issubclass(cls, Message):
                assert cls.RECORD_TYPE is not None
                found[cls.RECORD_TYPE] = cls
    return found


RECORD_CLASSES: Final[Mapping[int, type[Message]]] = _classes()
"""The class of each type of record."""

_VERSIONS_SINCE: Final[Mapping[type[Message], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((7, 1), (8, 2), (17, 3)),
    RegisterControllerRecord: ((15, 0),),
    PartitionRecord: ((7, 0), (17, 1), (23, 2)),
    PartitionChangeRecord: ((7, 0), (17, 1), (23, 2)),
    BrokerRegistrationChangeRecord: ((7, 1), (17, 2)),
    ClearElrRecord: ((23, 0),),
    BeginTransactionRecord: ((13, 0),),
    EndTransactionRecord: ((13, 0),),
    AbortTransactionRecord: ((13, 0),),
    UserScramCredentialRecord: ((11, 0),),
    RemoveUserScramCredentialRecord: ((11, 0),),
    DelegationTokenRecord: ((14, 0),),
    RemoveDelegationTokenRecord: ((14, 0),),
}
"""For each type, pairs of a level of metadata.version and the highest record version from that
level on. A type that is not listed has only version 0.
"""

_READ_ONLY: Final = frozenset((FenceBrokerRecord, UnfenceBrokerRecord, ZkMigrationStateRecord))


class UnknownMetadataRecord(ProtocolError):
    """A record of an unknown type or version, probably written by a newer Kafka.

    Attributes:
        record_type: number of the type.
        version: version of the record.
    """

    version: int

    def __init__(self, record_type: int, version: int) -> None:
        cls = RECORD_CLASSES.get(record_type)
        super().__init__(
            f"metadata record of unknown type {record_type}, written by a newer Kafka"
            if cls is None
            else f"{cls.NAME} of unknown version, written by a newer Kafka",
            version=version,
        )
        self.record_type = record_type


def decode_metadata_record(value: Buffer | None) -> Message:
    """Return the record that a value encodes.

    Raises:
        UnknownMetadataRecord: the type or the version is unknown.
        CorruptRecord: the value is not a metadata record, or bytes follow the record.
    """
    try:
        if value is None:
            raise ValueError("no value")
        frame, position = uvarint(value, 0)
        if frame != FRAME_VERSION:
            raise ValueError(f"unknown frame version {frame}")
        number, position = uvarint(value, position)
        version, position = uvarint(value, position)
    except DECODE_ERRORS as error:
        raise CorruptRecord(f"not a metadata record: {error}") from error
    cls = RECORD_CLASSES.get(number)
    if cls is None or not cls.supports(version):
        raise UnknownMetadataRecord(number, version)
    try:
        return decode(cls, value, version, position)
    except ProtocolError as error:
        raise CorruptRecord(f"malformed {cls.NAME}: {error.message}") from error


def encode_metadata_record(record: Message, version: int | None = None) -> bytes:
    """Return the value of a metadata record, by default in the newest version.

    Raises:
        FieldNotSupported: a field that the version lacks is set.
        ProtocolError: the version does not exist, or a value does not fit its field.
    """
    if version is None:
        version = record.MAX_VERSION
    assert record.RECORD_TYPE is not None
    return _head(record.RECORD_TYPE, version) + encode_bytes(record, version)


@functools.cache
def _head(record_type: int, version: int) -> bytes:
    return b"".join(unsigned(number) for number in (FRAME_VERSION, record_type, version))


def record_version(record: Message, metadata_version: int) -> int:
    """Return the version in which a record is written at a known level of metadata.version.

    A `BrokerRegistrationChangeRecord` is written in the lowest version that has all fields that are
    set. Records of other types are written in the highest version that the level allows. Kafka's
    controller chooses the same versions.

    Raises:
        UnsupportedVersion: the level does not have the type or a field that is set, or Kafka no
            longer writes the type.
    """
    cls = type(record)
    if cls in _READ_ONLY:
        raise UnsupportedVersion(f"{cls.NAME} is read from old logs, and never written")
    version = _highest_version(cls, metadata_version)
    changes_registration = cls is BrokerRegistrationChangeRecord
    if version == cls.MAX_VERSION and not changes_registration:
        return version
    needed, name = max(
        (
            (field.since, field.name)
            for field in cls.__fields__
            if not field.is_default(getattr(record, field.name))
        ),
        default=(0, ""),
    )
    if needed > version:
        raise UnsupportedVersion(
            f"metadata.version {metadata_version_text(metadata_version)} has no {name} in "
            f"{cls.NAME}"
        )
    return needed if changes_registration else version


def _highest_version(cls: type[Message], metadata_version: int) -> int:
    reached = [
        version
        for since, version in _VERSIONS_SINCE.get(cls, ((0, 0),))
        if since <= metadata_version
    ]
    if not reached:
        raise UnsupportedVersion(
            f"metadata.version {metadata_version_text(metadata_version)} has no {cls.NAME}"
        )
    return reached[-1]
