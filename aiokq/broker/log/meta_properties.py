"""``meta.properties``: the file with the ids of a log directory and of its node and cluster.

Source: Kafka ``MetaProperties.java``, KIP-866.
Tests: ``tests/unit/broker/log/test_meta_properties.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from random import Random
from typing import Final

from aiokq.broker.log.config import INT_MAX
from aiokq.broker.log.file_names import META_PROPERTIES
from aiokq.broker.log.uuid_text import format_uuid, parse_uuid
from aiokq.core.errors import ConfigError
from aiokq.core.files import Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.numbers import parse_number
from aiokq.core.properties import format_properties, parse_properties

_NAMES: Final = frozenset({"cluster.id", "directory.id", "node.id", "broker.id", "version"})

RESERVED_DIRECTORY_IDS: Final = 100
"""Directory ids below this integer value are reserved for states such as UNASSIGNED."""


class MetaProperties(NamedTuple):
    """The ids of a log directory.

    Attributes:
        cluster_id: id of the cluster, as clients see it.
        node_id: id of the broker.
        directory_id: id of the directory; None if the file was written before Kafka 3.7.
    """

    cluster_id: str
    node_id: int
    directory_id: str | None

    @property
    def directory_uuid(self) -> uuid.UUID | None:
        """The id of the directory as a UUID; None if there is none."""
        return None if self.directory_id is None else parse_uuid(self.directory_id)

    def encode(self) -> bytes:
        """Return the ids as the content of ``meta.properties``."""
        values = {"cluster.id": self.cluster_id}
        if self.directory_id is not None:
            values["directory.id"] = self.directory_id
        return format_properties({**values, "node.id": str(self.node_id), "version": "1"}).encode()


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    """Parse the content of ``meta.properties``.

    Raises:
        ConfigError: the file lacks a valid node id or a cluster id, or has an unknown version or
            an invalid or damaged directory id.
    """
    values = parse_properties(data.decode("utf-8", "replace"))
    version = values.get("version", "0")
    name = "node.id" if version == "1" else "broker.id"
    node = values.get(name)
    cluster_id = values.get("cluster.id")
    if version not in ("0", "1"):
        raise ConfigError(f"{path} has version {version}, which this broker does not support")
    if node is None or not cluster_id:
        raise ConfigError(
            f"{path} lacks {name} (version {version}) or cluster.id: restore the file from a copy, "
            "or choose another directory if this is no Kafka log directory"
        )
    try:
        node_id = parse_number(node, INT_MAX)
    except ValueError as error:
        raise ConfigError(f"{path} has an invalid {name}: {error}") from error
    directory_id = values.get("directory.id")
    if directory_id is None and (unknown := _remains(values)):
        # A directory without an id would get a new id, as in Kafka, and the old id would be lost.
        raise ConfigError(
            f"{path} has no directory.id, but {unknown!r}: restore the file from a copy, or "
            "correct the name"
        )
    if directory_id is not None:
        try:
            reserved = parse_uuid(directory_id).int < RESERVED_DIRECTORY_IDS
        except ValueError:
            reserved = True
        if reserved:
            raise ConfigError(f"{path} has an invalid directory.id: {directory_id!r}")
    return MetaProperties(cluster_id, node_id, directory_id)


def _remains(values: Mapping[str, str]) -> str:
    """Return text that may be a damaged line with the directory.id; "" if there is none."""
    if "directory.id" in values["cluster.id"]:
        return values["cluster.id"]
    return next((name for name in values if name not in _NAMES), "")


def random_id(source: Random) -> uuid.UUID:
    """Return a random UUID of version 4 that is not reserved and has no leading dash in base64."""
    while True:
        value = uuid.UUID(int=source.getrandbits(128), version=4)
        if value.int > 1 and not format_uuid(value).startswith("-"):
            return value


def find_meta_properties(
    files: Files,
    path: str,
    node_id: int | None,
    cluster_id: str | None,
    random: Random,
) -> tuple[MetaProperties, bool]:
    """Return the ids of a log directory, and whether all ids are stored.

    This function chooses missing ids; `write_meta_properties` stores them.

    Args:
        node_id: the broker's id; None takes the stored id, or 0 in a new directory.
        cluster_id: id of the cluster; None takes the stored id, or a random id in a new directory.

    Raises:
        ConfigError: the directory belongs to another node or cluster, or its ``meta.properties`` is
            invalid.
        OSError: the disk failed.
    """
    file = f"{path}/{META_PROPERTIES}"
    if not files.exists(file):
        properties = MetaProperties(
            cluster_id or format_uuid(random_id(random)),
            0 if node_id is None else node_id,
            format_uuid(random_id(random)),
        )
        return properties, False
    stored = decode_meta_properties(files.read_bytes(file), file)
    if node_id is not None and node_id != stored.node_id:
        raise ConfigError(
            f"log directory {path} belongs to node {stored.node_id}, not {node_id}: leave the"
            " node id out, or choose another directory"
        )
    if cluster_id is not None and cluster_id != stored.cluster_id:
        raise ConfigError(
            f"log directory {path} belongs to cluster {stored.cluster_id}, not {cluster_id}"
        )
    if stored.directory_id is None:  # written before Kafka 3.7
        return stored._replace(directory_id=format_uuid(random_id(random))), False
    return stored, True


def write_meta_properties(files: Files, path: str, properties: MetaProperties) -> None:
    """Store the ids of a log directory, durably.

    Only the owner can read the file, because the id of a directory is a secret of logins by SCRAM.

    Raises:
        OSError: the disk failed.
    """
    files.private().write_atomic(f"{path}/{META_PROPERTIES}", properties.encode())
