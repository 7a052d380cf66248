"""Replay of encoded metadata records into an image.

The records of a metadata transaction (KIP-868) take effect together, when the transaction ends.
Kafka's controller writes the first records of a new log in a transaction.

Source: Kafka ``MetadataBatchLoader.java``.
Tests: ``tests/unit/broker/metadata/image/test_replay.py``.
"""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.record_codec import decode_metadata_record
from aiokq.broker.metadata.image.topic_image import PartitionImage, TopicImage
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionRecord,
)

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.types import Buffer
    from aiokq.wire.struct import Message

__all__ = ["MetadataReplay"]

_PARTITION: Final = b"\x01\x03"
"""The frame version and the type of a ``PartitionRecord``; both are varints of one byte."""
_INDEX_AT: Final = 3
_TOPIC_ID_AT: Final = 7
_STATE_AT: Final = 23
_index: Final = struct.Struct(">i").unpack_from

MAX_KNOWN_STATES: Final = 4096


class MetadataReplay:
    """Replays the records of one log into an image.

    Attributes:
        image: the state after all records, without those of an open transaction.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._transaction: list[Message] | None = None
        # Most partitions differ only in their number, so their encoded states are equal. Each
        # distinct state is decoded once: decoding each record would take most of a start's time.
        self._states: dict[bytes, PartitionImage] = {}
        self._topic: TopicImage | None = None
        self._topic_id = b""

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open after the last record."""
        return self._transaction is not None

    def replay(self, value: Buffer | None) -> None:
        """Apply one record to `image`.

        The records of a metadata transaction are applied together when the transaction ends. If the
        transaction is aborted, they are dropped.

        Raises:
            CorruptRecord: the value is no metadata record, or contradicts earlier records.
            UnknownMetadataRecord: the type or version of the record is unknown.
        """
        # Hot path, measured by benchmarks/log_startup.py.
        if (
            value is not None
            and value[:2] == _PARTITION
            and len(value) > _STATE_AT
            and self._transaction is None
        ):
            self._replay_partition(value)
            return
        self._topic_id = b""
        record = decode_metadata_record(value)
        match record:
            case BeginTransactionRecord():
                if self._transaction is not None:
                    raise CorruptRecord("metadata transaction inside another one")
                self._transaction = []
            case AbortTransactionRecord() | EndTransactionRecord():
                pending, self._transaction = self._transaction, None
                if pending is None:
                    raise CorruptRecord("end of a metadata transaction that did not begin")
                if isinstance(record, EndTransactionRecord):
                    for one in pending:
                        self.image.replay(one)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self.image.replay(record)

    def _replay_partition(self, value: Buffer) -> None:
        state = bytes(value[2:_INDEX_AT]) + bytes(value[_STATE_AT:])
        partition = self._states.get(state)
        if partition is None:
            record = decode_metadata_record(value)
            assert isinstance(record, PartitionRecord)
            if len(self._states) >= MAX_KNOWN_STATES:
                self._states.clear()
            partition = self._states[state] = self.image.share(PartitionImage.of(record))
        topic_id = bytes(value[_TOPIC_ID_AT:_STATE_AT])
        if topic_id != self._topic_id:
            self._topic = self.image.topic(uuid.UUID(bytes=topic_id))
            self._topic_id = topic_id
        assert self._topic is not None
        self._topic.set_partition(_index(value, _INDEX_AT)[0], partition)
