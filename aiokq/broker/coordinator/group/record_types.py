"""The types of records in `__consumer_offsets`, their encoding, and the versions that aiokq writes.

Source: Kafka ``GroupCoordinatorRecordSerde.java``, ``GroupCoordinatorRecordHelpers.java`` (4.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import ProtocolError
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from aiokq.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from aiokq.wire.struct import Message

if TYPE_CHECKING:
    from aiokq.core.types import Buffer

__all__ = ["decode_record", "encode_record"]

logger = logging.getLogger("aiokq.broker.coordinator")

GROUP_METADATA_VERSION: Final = 3
"""The version in which group metadata is written, as by Kafka; later versions are flexible."""

EXPIRING_OFFSET_VERSION: Final = 1
"""The only version of a committed offset that has an expiry time (set by OffsetCommit 2 to 4)."""

_TYPES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    # The number is the type in the key; the version of the value is independent of it.
    # Type 0 was written by Kafka before 0.9, and has the same meaning as type 1.
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}

_reported: set[int] = set()


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as Kafka writes them.

    The key begins with its 16-bit type, the value with its 16-bit version.
    """
    key, value = record
    assert isinstance(key, Message)
    encoded_key = encode_prefixed(key, key.MIN_VERSION)
    if value is None:
        return encoded_key, None
    assert isinstance(value, Message)
    return encoded_key, encode_prefixed(value, _version(value))


def decode_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """Return the record of a key and value; None for an unknown type, which is logged once.

    Newer brokers write further types (share and streams groups), which are ignored.

    Raises:
        ProtocolError: the bytes are not a valid record of their type.
    """
    if key is None or len(key) < 2:
        raise ProtocolError("coordinator record without a key", api="CoordinatorRecord", offset=0)
    number = int.from_bytes(bytes(key[:2]), "big", signed=True)
    types = _TYPES.get(number)
    if types is None:
        if number not in _reported:
            _reported.add(number)
            logger.warning("coordinator records of an unknown type are ignored: type=%d", number)
        return None
    key_type, value_type = types
    return CoordinatorRecord(
        decode_prefixed(key_type, key),
        None if value is None else decode_prefixed(value_type, value),
    )


def _version(value: Message) -> int:
    if isinstance(value, GroupMetadataValue):
        return GROUP_METADATA_VERSION
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        return EXPIRING_OFFSET_VERSION
    return value.MAX_VERSION
