"""The metadata file of earlier versions of aiokq, ``aiokq-metadata.log``, which is only read now.

Earlier versions kept topics, settings and producer ids in a file of this name in each log
directory. `migration` moves its content to ``__cluster_metadata-0`` and leaves a file with one line
in its place: a header with a newer version, which earlier versions of aiokq refuse.

Each line consists of the CRC-32 of a text in hexadecimal, a space, and the text. The text of the
first line is a header. The text of each other line is JSON with the records of one append. A record
of a topic or a group contains the complete state and replaces earlier records of this topic or
group.

Tests: ``tests/unit/broker/metadata/earlier/test_private_file.py``.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokq.broker.log.file_names import PRIVATE_FILE
from aiokq.core.errors import KafkaStorage

__all__ = ["MIGRATED", "MIGRATED_LINE", "PRIVATE_FILE", "PrivateMetadata", "read_private_file"]

MIGRATED: Final = ".migrated"
"""Suffix of the file after its content was moved to ``__cluster_metadata-0``."""

_HEADER: Final = "aiokq metadata log, version 1"
_NEWER: Final = "aiokq metadata log, version 2: the metadata is in __cluster_metadata-0"


class PrivateTopic:
    """A topic in the file.

    Attributes:
        partitions: number of partitions.
        elsewhere: partitions that were on other nodes of Apache Kafka, or in other directories.
        kafka_epochs: by partition, the leader epoch that Apache Kafka would have used next; -1 for
            an unknown epoch. Empty for a topic that Apache Kafka did not know.
    """

    __slots__ = ("configs", "elsewhere", "kafka_epochs", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = 0
        self.configs: Mapping[str, str] = {}
        self.elsewhere: tuple[int, ...] = ()
        self.kafka_epochs: tuple[int, ...] = ()


class PrivateMetadata:
    """The content of ``aiokq-metadata.log``.

    Attributes:
        topics: the topics, by name.
        groups: settings of groups, by group id.
        settings: settings of all brokers.
        next_producer_id: the id with which the next reserved block begins.
        unclean_starts: number of starts after an unclean shutdown; a lower limit of the leader
            epochs that later starts used.
        kafka: end offset and epoch of Apache Kafka's metadata log in the same directory, at the
            time when that log was copied into this file; None if there was no such log.
        kafka_topic_ids: text forms of the ids of the topics in that log.
        directories: the path of each log directory of the node, by directory.id; empty if the node
            never had more than one log directory.
        appends: number of appends to the file.
    """

    def __init__(self) -> None:
        self.topics: dict[str, PrivateTopic] = {}
        self.groups: dict[str, Mapping[str, str]] = {}
        self.settings: dict[str, str] = {}
        self.next_producer_id = 0
        self.unclean_starts = 0
        self.kafka: tuple[int, int] | None = None
        self.kafka_topic_ids: tuple[str, ...] = ()
        self.directories: Mapping[str, str] = {}
        self.appends = 0

    def leave_ids(self) -> None:
        """Drop the topics and settings; keep the producer ids, which must not be issued again."""
        self.topics = {}
        self.groups = {}
        self.settings = {}
        self.kafka = None

    def _topic(self, values: dict[str, Any]) -> None:
        topic_id = uuid.UUID(values["topic_id"])
        topic = self.topics.get(values["name"])
        if topic is None or topic.topic_id != topic_id:
            topic = self.topics[values["name"]] = PrivateTopic(values["name"], topic_id)
        topic.partitions = max(topic.partitions, values["partitions"])
        topic.configs = dict(values.get("configs", {}))
        topic.elsewhere = tuple(values.get("elsewhere", ()))
        topic.kafka_epochs = tuple(values.get("kafka_epochs", ()))

    def _topic_deleted(self, values: dict[str, Any]) -> None:
        # A newer topic of the same name may have replaced this topic already.
        topic_id = uuid.UUID(values["topic_id"])
        found = [name for name, topic in self.topics.items() if topic.topic_id == topic_id]
        for name in found[-1:]:  # topics of a damaged directory may share an id
            del self.topics[name]

    def _producer_ids(self, values: dict[str, Any]) -> None:
        self.next_producer_id = max(self.next_producer_id, values["next_producer_id"])

    def _setting(self, values: dict[str, Any]) -> None:
        if values["value"] is None:
            self.settings.pop(values["name"], None)
        else:
            self.settings[values["name"]] = str(values["value"])

    def _group(self, values: dict[str, Any]) -> None:
        self.groups.pop(values["group_id"], None)
        if values["configs"]:
            self.groups[values["group_id"]] = dict(values["configs"])

    def _unclean_start(self, values: dict[str, Any]) -> None:
        self.unclean_starts = max(self.unclean_starts, values["unclean_starts"])

    def _kafka(self, values: dict[str, Any]) -> None:
        self.kafka = values["end_offset"], values["epoch"]
        self.kafka_topic_ids = tuple(values["topic_ids"])

    def _directories(self, values: dict[str, Any]) -> None:
        self.directories = dict(values["directories"])

    def _appends(self, values: dict[str, Any]) -> None:
        self.appends = values["appends"]

    def replay(self, text: str) -> None:
        """Replay the records of one line. Raises ValueError if the line is malformed."""
        self.appends += 1
        content = json.loads(text)
        for values in content if isinstance(content, list) else [content]:
            if not isinstance(values, dict):
                raise ValueError("the record is not a JSON object")
            replay = _REPLAYS.get(values.get("type", ""))
            if replay is None:
                raise ValueError("the type of the record is unknown to this version")
            try:
                replay(self, values)
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{type(error).__name__}: {error}") from None


_REPLAYS: Final[Mapping[str, Callable[[PrivateMetadata, dict[str, Any]], None]]] = {
    "topic": PrivateMetadata._topic,
    "topic-deleted": PrivateMetadata._topic_deleted,
    "producer-ids": PrivateMetadata._producer_ids,
    "setting": PrivateMetadata._setting,
    "group": PrivateMetadata._group,
    "unclean-start": PrivateMetadata._unclean_start,
    "kafka": PrivateMetadata._kafka,
    "directories": PrivateMetadata._directories,
    "appends": PrivateMetadata._appends,
}


def _line(text: str) -> bytes:
    data = text.encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(data), data)


MIGRATED_LINE: Final = _line(_NEWER)
"""The content of the file that a migration leaves in place of the old one."""


def _text(line: bytes) -> str | None:
    """Return the text of a complete line with a correct CRC; None for any other line."""
    if len(line) < 10 or line[8:9] != b" " or b"%08x" % zlib.crc32(line[9:]) != line[:8]:
        return None
    return line[9:].decode("ascii", "replace")


def read_private_file(data: bytes, path: str) -> tuple[PrivateMetadata | None, int]:
    """Return the metadata in a file's content, and the number of valid bytes.

    The metadata is None if a migration has moved it. A last line that is incomplete or damaged was
    left by a kill or a power cut during an append, and is not counted as valid.

    Raises:
        KafkaStorage: the header is damaged, a valid line follows a damaged one, or a line cannot be
            replayed.
    """
    if data == MIGRATED_LINE:
        return None, len(data)
    metadata = PrivateMetadata()
    lines = data.split(b"\n")
    if _text(lines[0]) != _HEADER:
        raise _corrupt(
            path, 0, "the first line is not the header of a metadata log of this version"
        )
    size = len(lines[0]) + 1
    for number, line in enumerate(lines[1:-1], 2):
        text = _text(line)
        if text is None:
            # Each append was synced before the next one, so only the last line can be torn.
            if any(_text(later) is not None for later in lines[number:]):
                raise _corrupt(path, size, f"line {number} is damaged, and a valid line follows")
            break
        try:
            metadata.replay(text)
        except ValueError as error:
            raise _corrupt(path, size, f"line {number}: {error}") from error
        size += len(line) + 1
    return metadata, size


def _corrupt(path: str, position: int, detail: str) -> KafkaStorage:
    return KafkaStorage(
        f"metadata log {path} is corrupt at byte {position}: {detail}; restore it from a copy, "
        "or move the data directory away to start with an empty one"
    )
