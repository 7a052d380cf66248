"""The records of the metadata file, as values and as text.

A record of a topic or of a group says all of it, and replaces what was said before. Unknown kinds,
of a newer version, are refused and never skipped. What they mean in Kafka's records is
`file_adapter`'s.

Tests: ``tests/unit/broker/metadata/test_metadata_log.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from aiokq.broker.metadata.records import (
    AppendsCounted,
    DirectoriesKnown,
    KafkaTakenOver,
    StartedUnclean,
)

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
    """A topic exists, with so many partitions and these settings: new, grown or altered.

    Attributes:
        elsewhere, kafka_epochs: as in `TopicTakenOver`.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = MappingProxyType({})
    elsewhere: tuple[int, ...] = ()
    kafka_epochs: tuple[int, ...] = ()


class TopicDeletedLine(NamedTuple):
    """A topic is gone."""

    name: str
    topic_id: uuid.UUID


class ProducerIdsLine(NamedTuple):
    """Producer ids below ``next_producer_id`` may have been issued, and never are again."""

    next_producer_id: int


class SettingLine(NamedTuple):
    """A cluster-wide setting has this value; None takes it back."""

    name: str
    value: str | None


class GroupLine(NamedTuple):
    """A group has these settings of its own; without any, it has none any more."""

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
    """Records as one line of JSON, without the line's end: they count together or not at all."""
    values = [_to_json(record) for record in records]
    content = values[0] if len(values) == 1 else values
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, default=dict)


def decode_records(text: str) -> list[FileRecord]:
    """The records of a line. Raises ValueError for anything that is none."""
    content = json.loads(text)
    return [_from_json(values) for values in (content if isinstance(content, list) else [content])]


def _to_json(record: FileRecord) -> dict[str, object]:
    values: dict[str, object] = {"type": _NAMES[type(record)]}
    for name, value in zip(record._fields, record, strict=True):
        if value or name not in ("elsewhere", "kafka_epochs"):  # mostly there is none
            values[name] = str(value) if isinstance(value, uuid.UUID) else value
    return values


def _from_json(values: object) -> FileRecord:
    if not isinstance(values, dict):
        raise ValueError("no object")
    kind = _KINDS.get(values.pop("type", None))
    if kind is None:
        raise ValueError("a kind of record that this version does not know")
    if "topic_id" in values:
        values["topic_id"] = uuid.UUID(values["topic_id"])
    for name in ("elsewhere", "kafka_epochs", "topic_ids"):
        if name in values:
            values[name] = tuple(values[name])
    try:
        return kind(**values)
    except TypeError as error:
        raise ValueError(str(error)) from None
