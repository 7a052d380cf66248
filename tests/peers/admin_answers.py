"""Comparison of the responses that admin tools got from two brokers, item by item, as lines.

Ids, times, ports, paths and sizes are replaced before the comparison. An item that only one broker
returns is one difference, whatever it contains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["differences", "read_answers"]

ABSENT: Final = object()

_REPLACED: Final = {
    name: word
    for word, names in {
        "ID": "topicId topic_id cluster_id consumerId member_id memberId replicaDirectoryId"
        " producer_id",
        "PORT": "port",
        "SIZE": "size partition_size total_bytes usable_bytes",
        "TIME": "lastCaughtUpTimestamp lastFetchTimestamp last_caught_up_timestamp"
        " last_fetch_timestamp",
        "COUNT": "highWatermark high_watermark logEndOffset log_end_offset finalizedFeaturesEpoch"
        " finalized_epoch",
    }.items()
    for name in names.split()
}
"""Replacements for values, by the key of the value."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PORT: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")


def read_answers(lines: str, *, paths: Mapping[str, str]) -> dict[tuple[str, str], Any]:
    """Return the responses by part and operation.

    Args:
        lines: the output of one of the programs.
        paths: names of directories, by their paths.
    """
    found = {}
    for line in lines.splitlines():
        answer = json.loads(line)
        found[answer["part"], answer["operation"]] = _replaced(answer["answer"], paths)
    return found


def _replaced(value: Any, paths: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            _text(name, paths): _replaced(member, paths, name) for name, member in value.items()
        }
    if isinstance(value, list):  # Kafka's lists come from hash maps, so their order has no meaning
        return sorted((_replaced(member, paths, key) for member in value), key=_sorting)
    if key in _REPLACED and value is not None:
        return _REPLACED[key]
    return _text(value, paths) if isinstance(value, str) else value


def _sorting(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _text(text: str, paths: Mapping[str, str]) -> str:
    for path, name in paths.items():
        text = text.replace(path, name)
    return _PORT.sub("PORT", _UUID.sub("UUID", text))


def differences(
    kafka: Mapping[tuple[str, str], Any], aiokq: Mapping[tuple[str, str], Any]
) -> Iterator[str]:
    """Return a line for each item that differs, in the order of the operations."""
    for place in dict.fromkeys([*kafka, *aiokq]):
        left, right = kafka.get(place, ABSENT), aiokq.get(place, ABSENT)
        for path, ours, theirs in _compare("", right, left):
            only_one = ABSENT in (ours, theirs)
            yield (
                f"{'/'.join(place)}{path}: {_shown(theirs, short=only_one)}"
                f" | {_shown(ours, short=only_one)}"
            )


def _compare(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(ours, dict) and isinstance(theirs, dict) and _is_error(ours) == _is_error(theirs):
        for name in sorted({*ours, *theirs}):
            member = f"{path} > {name}"
            yield from _compare(member, ours.get(name, ABSENT), theirs.get(name, ABSENT))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from _compare(f"{path} > {index}", our, their)
    elif ours != theirs:
        yield path, ours, theirs


def _is_error(value: dict[str, Any]) -> bool:
    """Whether `value` is an error, which has nothing to compare with a successful response."""
    return set(value) == {"error", "message"}


def _shown(value: Any, *, short: bool) -> str:
    if value is ABSENT:
        return "-"
    if isinstance(value, dict) and _is_error(value):
        return str(value["error"])
    if short and isinstance(value, dict | list) and value:
        return "..."
    return json.dumps(value, ensure_ascii=False)
