"""The records of the metadata log, and the state they add up to.

Owns their shape as values and as text; the file is ``metadata_log``'s. Replaying all records from
the first one gives the state; each also says what it replaces, so that the order is all that
counts. Unknown kinds of a newer version are refused, never skipped.

Tests: ``tests/unit/broker/metadata/test_metadata_log.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "AppendsCounted",
    "DirectoriesKnown",
    "GroupConfigsRecord",
    "KafkaTakenOver",
    "MetadataImage",
    "MetadataRecord",
    "ProducerIdsReserved",
    "SettingChanged",
    "StartedUnclean",
    "TopicDeleted",
    "TopicRecord",
    "decode_records",
    "encode_records",
]


class TopicRecord(NamedTuple):
    """A topic exists, with so many partitions and these settings: new, grown or altered.

    Attributes:
        elsewhere: partitions that other nodes or other directories of Apache Kafka have.
        kafka_epochs: the leader epoch that Apache Kafka will give each of its partitions next. They
            have it here, too: clients take an older one for old news, and a newer one, when Kafka
            has the directory again, for records that were lost. -1 where it gives none any more;
            empty for a topic that was made here.
    """

    name: str
    topic_id: uuid.UUID
    partitions: int
    configs: Mapping[str, str] = MappingProxyType({})
    elsewhere: tuple[int, ...] = ()
    kafka_epochs: tuple[int, ...] = ()


class TopicDeleted(NamedTuple):
    """A topic is gone."""

    name: str
    topic_id: uuid.UUID


class ProducerIdsReserved(NamedTuple):
    """Producer ids below ``next_producer_id`` may have been issued, and never are again."""

    next_producer_id: int


class SettingChanged(NamedTuple):
    """A cluster-wide setting has this value; None takes it back."""

    name: str
    value: str | None


class GroupConfigsRecord(NamedTuple):
    """A group has these settings of its own; without any, it has none any more."""

    group_id: str
    configs: Mapping[str, str]


class StartedUnclean(NamedTuple):
    """The node started so many times after it was not stopped clean, or without a lost directory.

    No leader epoch after such a start is below this number: what a power cut or a disk took cannot
    take the epoch along that readers know.
    """

    unclean_starts: int


class KafkaTakenOver(NamedTuple):
    """The metadata of Apache Kafka in this directory was taken over, up to this end of it.

    Attributes:
        topic_ids: of the topics that it had: one that is missing later was deleted there.
    """

    end_offset: int
    epoch: int
    topic_ids: tuple[str, ...]


class DirectoriesKnown(NamedTuple):
    """The node has these log directories, by directory.id, each with its path: at first sight of a
    second one, and whenever they change."""

    directories: Mapping[str, str]


class AppendsCounted(NamedTuple):
    """So many appends were made until here: a compacted log has fewer lines."""

    appends: int


MetadataRecord: TypeAlias = (
    TopicRecord
    | TopicDeleted
    | ProducerIdsReserved
    | SettingChanged
    | GroupConfigsRecord
    | StartedUnclean
    | KafkaTakenOver
    | DirectoriesKnown
    | AppendsCounted
)

_KINDS: Final[Mapping[str, type[MetadataRecord]]] = {
    "topic": TopicRecord,
    "topic-deleted": TopicDeleted,
    "producer-ids": ProducerIdsReserved,
    "setting": SettingChanged,
    "group": GroupConfigsRecord,
    "unclean-start": StartedUnclean,
    "kafka": KafkaTakenOver,
    "directories": DirectoriesKnown,
    "appends": AppendsCounted,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def encode_records(records: Sequence[MetadataRecord]) -> str:
    """Records as one line of JSON, without the line's end: they count together or not at all."""
    values = [_to_json(record) for record in records]
    content = values[0] if len(values) == 1 else values
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True, default=dict)


def decode_records(text: str) -> list[MetadataRecord]:
    """The records of a line. Raises ValueError for anything that is none."""
    content = json.loads(text)
    return [_from_json(values) for values in (content if isinstance(content, list) else [content])]


def _to_json(record: MetadataRecord) -> dict[str, object]:
    values: dict[str, object] = {"type": _NAMES[type(record)]}
    for name, value in zip(record._fields, record, strict=True):
        if value or name not in ("elsewhere", "kafka_epochs"):  # mostly there is none
            values[name] = str(value) if isinstance(value, uuid.UUID) else value
    return values


def _from_json(values: object) -> MetadataRecord:
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


class MetadataImage:
    """What all records together say.

    Attributes:
        topics: by name.
        next_producer_id: the first id that was never reserved.
        settings: cluster-wide settings by Kafka's names.
        group_configs: settings of single groups, by group id.
        unclean_starts: starts of the node after it was killed or lost its power.
        kafka: what was taken over of Apache Kafka's metadata, and when; None if nothing was.
        directories: the log directories that the node has, if it ever had more than one.
        appends: how often something was appended since the log began.
    """

    __slots__ = (
        "appends",
        "directories",
        "group_configs",
        "kafka",
        "next_producer_id",
        "settings",
        "topics",
        "unclean_starts",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.next_producer_id = 0
        self.settings: dict[str, str] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.unclean_starts = 0
        self.kafka: KafkaTakenOver | None = None
        self.directories: Mapping[str, str] = {}
        self.appends = 0

    def apply_all(self, records: Iterable[MetadataRecord]) -> None:
        """Take over the records of one append."""
        self.appends += 1
        for record in records:
            self.apply(record)

    def apply(self, record: MetadataRecord) -> None:
        """Take over one record."""
        match record:
            case TopicRecord():
                self.topics[record.name] = record
            case TopicDeleted():
                known = self.topics.get(record.name)
                if known is not None and known.topic_id == record.topic_id:
                    del self.topics[record.name]
            case ProducerIdsReserved():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case SettingChanged(name, None):
                self.settings.pop(name, None)
            case SettingChanged(name, value):
                self.settings[name] = str(value)
            case GroupConfigsRecord(group_id, configs) if configs:
                self.group_configs[group_id] = configs
            case GroupConfigsRecord():
                self.group_configs.pop(record.group_id, None)
            case StartedUnclean(unclean_starts):
                self.unclean_starts = max(self.unclean_starts, unclean_starts)
            case KafkaTakenOver():
                self.kafka = record
            case DirectoriesKnown(directories):
                self.directories = directories
            case AppendsCounted(appends):
                self.appends = appends

    def records(self) -> Iterator[MetadataRecord]:
        """The fewest records that give this image."""
        if self.next_producer_id:
            yield ProducerIdsReserved(self.next_producer_id)
        if self.unclean_starts:
            yield StartedUnclean(self.unclean_starts)
        if self.kafka is not None:
            yield self.kafka
        if self.directories:
            yield DirectoriesKnown(self.directories)
        for name, value in self.settings.items():
            yield SettingChanged(name, value)
        for group_id, configs in self.group_configs.items():
            yield GroupConfigsRecord(group_id, configs)
        yield from self.topics.values()
        yield AppendsCounted(self.appends)  # the last: each line counts
