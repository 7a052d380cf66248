"""Whole responses of brokers, in a form that can be recorded and compared field by field.

`whole` keeps every field of a response. Only the texts of messages are left out, and the fields
of `MASKED`, whose values are those of one run.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from aiokq.wire.struct import Struct

MASKED: Final[Mapping[str, str]] = {
    "cluster_id": "each cluster has a random id",
    "member_id": "the broker chooses random ids for members without one",
    "port": "each run listens on free ports",
    "last_timestamp": "the time of the run",
    "last_caught_up_timestamp": "the time of the run",
    "last_fetch_timestamp": "the time of the run",
    "total_bytes": "the size of the disk",
    "usable_bytes": "the free space on the disk",
    "DescribeQuorumResponsePartitionData.high_watermark": "Apache Kafka writes records by time",
    "DescribeQuorumReplicaState.log_end_offset": "Apache Kafka writes records by time",
}
"""Fields whose values are those of one run, with the reason.

Negative numbers and zero ids are kept, and so are ids that a client has chosen.
"""

MASK: Final = "~"
TEXT: Final = "a text"

_MESSAGES: Final = ("error_message", "batch_index_error_message")
"""Fields with a message for people; whether there is one is kept."""

_KEYS: Final = (
    *("name", "topic", "topic_name", "group_id", "key", "transactional_id"),
    *("resource_type", "resource_name", "pattern_type", "principal", "host", "operation"),
    *("permission_type", "entity_type", "user", "node_id", "broker_id", "replica_id"),
    *("producer_id", "member_id"),
    *("partition_index", "partition", "partition_id", "index"),
)
"""Fields that tell which elements of two lists belong together."""

_RANDOM_ID: Final = re.compile(r"[\w-]{22}")
"""A random id in Kafka's form, which is base64."""

_SHORT_BYTES: Final = 32
_LONG: Final = 400
_ABSENT: Final = object()


def whole(
    struct: Struct, version: int, *, ids: Mapping[uuid.UUID, str], texts: Mapping[str, str]
) -> dict[str, Any]:
    """Return all fields of a response, in a form that JSON can hold.

    Lists are sorted: the order of Kafka's comes from hash maps.

    Args:
        ids: names of topics, by id.
        texts: what stands for parts of texts, such as paths.
    """
    found: dict[str, Any] = {}
    for field in type(struct).__fields__:
        if field.since <= version <= field.until:
            value = getattr(struct, field.name)
            if field.name in _MESSAGES:
                found[field.name] = TEXT if value else value
            elif field.name in MASKED or f"{type(struct).__name__}.{field.name}" in MASKED:
                found[field.name] = _masked(value)
            else:
                found[field.name] = _plain(value, version, ids, texts)
    assert not struct.unknown_tags, struct
    return found


def _masked(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return MASK if value.int else "none"
    if isinstance(value, int):
        return MASK if value >= 0 else value
    return MASK if value and _RANDOM_ID.fullmatch(value) else value


def _plain(value: Any, version: int, ids: Mapping[uuid.UUID, str], texts: Mapping[str, str]) -> Any:
    if isinstance(value, Struct):
        return whole(value, version, ids=ids, texts=texts)
    if isinstance(value, list):
        return sorted((_plain(each, version, ids, texts) for each in value), key=_dumped)
    if isinstance(value, uuid.UUID):
        return ids.get(value, "some id" if value.int else "none")
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value) <= _SHORT_BYTES:
            return bytes(value).hex()
        return f"{len(value)} bytes, SHA-256 {hashlib.sha256(value).hexdigest()[:16]}"
    if isinstance(value, str):
        for text, replacement in texts.items():
            value = value.replace(text, replacement)
    return value


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the path of each difference, with both values.

    An element that only one of two lists has is one difference, whatever it contains.
    """
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in sorted({*theirs, *ours}):
            member = f"{path}.{name}" if path else name
            yield from differences(theirs.get(name, _ABSENT), ours.get(name, _ABSENT), member)
    elif _is_of_structs(theirs) and _is_of_structs(ours) and (theirs or ours):
        left, right = _by_key(theirs), _by_key(ours)
        for key in sorted({*left, *right}):
            member = f"{path}[{key}]"
            yield from differences(left.get(key, _ABSENT), right.get(key, _ABSENT), member)
    elif theirs != ours:
        yield path, _shown(theirs), _shown(ours)


def _is_of_structs(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _by_key(elements: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in elements:
        names = [name for name in _KEYS if each.get(name) is not None] or ["topic_id"]
        key = base = " ".join(str(each.get(name, "")) for name in names)
        number = 1
        while key in found:
            number += 1
            key = f"{base}#{number}"
        found[key] = each
    return found


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "-"
    if isinstance(value, dict | list) and value:
        return "..."
    return json.dumps(value)


class Parts:
    """Long parts of recorded answers, each of which is recorded once, under a name.

    Args:
        known: the parts of a recording, by name.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.texts: dict[str, str] = dict(known or {})

    def packed(self, value: Any) -> Any:
        """Return a value in which names stand for long lists."""
        if isinstance(value, dict):
            return {name: self.packed(member) for name, member in value.items()}
        if not isinstance(value, list):
            return value
        text = _dumped([self.packed(each) for each in value])
        if len(text) < _LONG:
            return json.loads(text)
        name = f"@{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self.texts[name] = text
        return name

    def unpacked(self, value: Any) -> Any:
        """Return the value that was packed."""
        if isinstance(value, dict):
            return {name: self.unpacked(member) for name, member in value.items()}
        if isinstance(value, str) and value.startswith("@"):
            return self.unpacked(json.loads(self.texts[value]))
        return [self.unpacked(each) for each in value] if isinstance(value, list) else value
