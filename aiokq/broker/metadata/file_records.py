"""The records of the metadata file, as values and as text.

A record of a topic or a group contains its complete state and replaces earlier records. Unknown
kinds of records, written by a newer version, are refused, never skipped. `file_adapter` translates
between these records and Kafka's.

Tests: ``tests/unit/broker/metadata/test_metadata_log.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from aiokq.broker.metadata.records import (
    AppendsCounted,
    DirectoriesKnown,
    KafkaTakenOver,
    StartedUnclean,
)
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "FileRecord",
    "GroupLine",
    "ProducerIdsLine",
    "SettingLine",
    "TopicDeletedLine",
    "TopicLine",
    "decode_records",
    "encode_records",
]


class TopicLine(NamedTuple):
    """The state of a topic that was created, altered or given more partitions.

    Attributes:
        partitions: number of partitions.
        elsewhere, kafka_epochs: see `TopicTakenOver`.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = MappingProxyType({})
    elsewhere: tuple[int, ...] = ()
    kafka_epochs: tuple[int, ...] = ()


class TopicDeletedLine(NamedTuple):
    """The deletion of a topic."""

    name: str
    topic_id: uuid.UUID


class ProducerIdsLine(NamedTuple):
    """A reservation: producer ids below ``next_producer_id`` are not reserved again."""

    next_producer_id: int


class SettingLine(NamedTuple):
    """The value of a cluster-wide setting; None removes the setting."""

    name: str
    value: str | None


class GroupLine(NamedTuple):
    """All settings of a group; empty if the group has none."""

    group_id: str
    configs: Mapping[str, str]


FileRecord: TypeAlias = (
    TopicLine
    | TopicDeletedLine
    | ProducerIdsLine
    | SettingLine
    | GroupLine
    | StartedUnclean
    | KafkaTakenOver
    | DirectoriesKnown
    | AppendsCounted
)

_KINDS: Final[Mapping[str, type[FileRecord]]] = {
    "topic": TopicLine,
    "topic-deleted": TopicDeletedLine,
    "producer-ids": ProducerIdsLine,
    "setting": SettingLine,
    "group": GroupLine,
    "unclean-start": StartedUnclean,
    "kafka": KafkaTakenOver,
    "directories": DirectoriesKnown,
    "appends": AppendsCounted,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_records(records: Sequence[FileRecord]) -> str:
    """Return records as one line of JSON, without a line break."""
    values = [_to_json(record) for record in records]
    content = values[0] if len(values) == 1 else values
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, default=dict)


def decode_records(text: str) -> list[FileRecord]:
    """Return the records of one line of JSON. Raises ValueError if the line is malformed."""
    content = json.loads(text)
    return [_from_json(values) for values in (content if isinstance(content, list) else [content])]


def _to_json(record: FileRecord) -> dict[str, object]:
    values: dict[str, object] = {"type": _NAMES[type(record)]}
    for name, value in zip(record._fields, record, strict=True):
        if value or name not in ("elsewhere", "kafka_epochs"):  # left out if empty
            values[name] = str(value) if isinstance(value, uuid.UUID) else value
    return values


def _from_json(values: object) -> FileRecord:
    if not isinstance(values, dict):
        raise ValueError("the record is not a JSON object")
    kind = _KINDS.get(values.pop("type", None))
    if kind is None:
        raise ValueError("the type of the record is unknown to this version")
    if "topic_id" in values:
        values["topic_id"] = uuid.UUID(values["topic_id"])
    for name in ("elsewhere", "kafka_epochs", "topic_ids"):
        if name in values:
            values[name] = tuple(values[name])
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None
