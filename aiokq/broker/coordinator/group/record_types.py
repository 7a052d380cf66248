"""Records of `__consumer_offsets`: typed keys and values, and their bytes.

Owns which types there are and the version each value is written with. What they mean is the
machines' matter.

Source: Kafka ``GroupCoordinatorRecordSerde.java``, ``GroupCoordinatorRecordHelpers.java`` (4.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

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

if TYPE_CHECKING:
    from aiokq.core.types import Buffer
    from aiokq.wire.struct import Message

__all__ = ["CoordinatorRecord", "decode_record"]

logger = logging.getLogger("aiokq.broker.coordinator")

GROUP_METADATA_VERSION: Final = 3
"""Before version 4, which is flexible: Kafka still writes it so."""

EXPIRING_OFFSET_VERSION: Final = 1
"""The one version of an offset with an expiry of its own (the retention of OffsetCommit 2-4)."""

_TYPES: Final[dict[int, tuple[type[Message], type[Message]]]] = {
    # A value may be newer or older than the schema at its key's number: version and type are two
    # things. Type 0 is what Kafka wrote before 0.10, and is the same record as type 1.
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


class CoordinatorRecord(NamedTuple):
    """One record of the coordinator's log."""

    key: Message
    value: Message | None
    """None is a tombstone: whatever the key names is gone."""

    def encode(self) -> tuple[bytes, bytes | None]:
        """Key and value as Kafka writes them, each behind a 16-bit type or version."""
        key = encode_prefixed(self.key, self.key.MIN_VERSION)
        if self.value is None:
            return key, None
        return key, encode_prefixed(self.value, _version(self.value))


def decode_record(key: Buffer | None, value: Buffer | None) -> CoordinatorRecord | None:
    """A record from its bytes; None, and one line in the log, for a type that is not known.

    Newer brokers write types of their own (share and streams groups), which do not concern us.

    Raises:
        ProtocolError: the bytes are no record of the type that they claim to be.
    """
    if key is None or len(key) < 2:
        raise ProtocolError("a coordinator record without a key", api="CoordinatorRecord", offset=0)
    number = int.from_bytes(bytes(key[:2]), "big", signed=True)
    types = _TYPES.get(number)
    if types is None:
        if number not in _reported:
            _reported.add(number)
            logger.warning("coordinator records of unknown type=%d are ignored", number)
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
