"""The contents and problems of a node's log directories, as ``kafka-storage info`` reports them.

Source: Kafka ``StorageTool.scala``.
Tests: ``tests/unit/broker/inspection/test_storage_info.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.meta_properties import decode_meta_properties
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.properties import parse_properties

if TYPE_CHECKING:
    from aiokq.broker.log.meta_properties import MetaProperties
    from aiokq.core.files import Files

__all__ = ["StorageInfo", "storage_info"]


class StorageInfo(NamedTuple):
    """The contents of a node's log directories, and their problems.

    Attributes:
        found: paths of the directories that exist, sorted.
        metadata: the content of the first valid ``meta.properties``; empty if no directory has a
            valid ``meta.properties``.
        problems: a sentence for each reason why a node of Kafka would not start.
    """

    found: tuple[str, ...]
    metadata: Mapping[str, str]
    problems: tuple[str, ...]


def storage_info(files: Files, directories: Iterable[str]) -> StorageInfo:
    """Examine log directories without changing them. Raises OSError."""
    found: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    metadata: dict[str, str] = {}
    for path in sorted(set(directories)):
        if not files.is_dir(path):
            exists = files.exists(path)
            problems.append(f"{path} is not a directory" if exists else f"{path} does not exist")
            continue
        found.append(path)
        file = f"{path}/{file_names.META_PROPERTIES}"
        if not files.exists(file):
            problems.append(f"{path} is not formatted.")
            continue
        data = files.read_bytes(file)
        try:
            one = decode_meta_properties(data, file)
        except ConfigError as error:
            problems.append(f"Error loading {file}: {error.message}")
            continue
        if first is None:
            first, metadata = one, dict(sorted(parse_properties(data.decode()).items()))
        elif first.cluster_id != one.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != one.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if metadata and metadata.get("version", "0") == "0":
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
            "directories are formatted for legacy mode."
        )
    return StorageInfo(tuple(found), metadata, tuple(problems))
