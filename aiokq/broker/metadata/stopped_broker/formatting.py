"""Formats log directories, as ``kafka-storage format`` does.

Each directory gets a ``meta.properties`` and a ``bootstrap.checkpoint``. For a dynamic quorum whose
only voter is this node, the metadata directory also gets a first snapshot, which names the voter.
With ``--no-initial-controllers`` the metadata directory gets a ``quorum-state`` without voters, as
Kafka writes it at its first start. Without this file, aiokq would take the directory for a new one.

In each directory, ``meta.properties`` is written last. A directory without this file does not count
as formatted, and the next call formats the directory.

Source: Kafka ``Formatter.java``, ``StorageTool.scala``, KIP-853, KIP-1022.
Tests: ``tests/unit/broker/metadata/stopped_broker/test_formatting.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.meta_properties import (
    MetaProperties,
    decode_meta_properties,
    random_id,
    write_meta_properties,
)
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.controller.registration import feature_records
from aiokq.broker.metadata.image.features import (
    DEFAULT_METADATA_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    SCRAM_CREDENTIALS,
    metadata_version_text,
    new_levels,
    release_version,
)
from aiokq.broker.metadata.log.bootstrap_checkpoint import write_bootstrap_checkpoint
from aiokq.broker.metadata.log.quorum_state import (
    QUORUM_STATE,
    QuorumState,
    write_quorum_state,
)
from aiokq.broker.metadata.log.snapshot_file import snapshot_path
from aiokq.broker.metadata.log.voters import (
    FIRST_SNAPSHOT,
    make_directory,
    only_voter,
    write_voters,
)
from aiokq.broker.metadata.stopped_broker.scram_argument import parse_scram_argument
from aiokq.core.errors import ConfigError
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from random import Random

    from aiokq.core.files import Files
    from aiokq.records.header import Checksum
    from aiokq.wire.quorum_records import VotersRecord, VotersRecordEndpoint
    from aiokq.wire.struct import Message

__all__ = [
    "FormatOptions",
    "Formatted",
    "format_directories",
    "format_levels",
    "random_uuid",
]

UNSTABLE_METADATA_VERSION: Final = 30


@frozen
class FormatOptions:
    """The options of a format.

    Attributes:
        node_id, cluster_id: ids for ``meta.properties``.
        directories: paths of the log directories.
        metadata_directory: path of the directory of the metadata log; None for the first log
            directory.
        standalone: the endpoint of the controller's listener, if this node is the only voter of a
            dynamic quorum. None if the voters are in ``controller.quorum.voters`` or are other
            nodes.
        metadata_directory_id: id of the metadata directory, if ``--initial-controllers`` gives one;
            None for a random id.
        without_voters: whether the voters of a dynamic quorum are other nodes
            (``--no-initial-controllers``).
        release: value of ``--release-version``; None for the default.
        features: the levels given by ``--feature``, by name; other features get their default.
        scram: the values of ``--add-scram``, which contain passwords.
        ignore_formatted: leave formatted directories as they are, and format the others.
    """

    node_id: int
    cluster_id: str
    directories: tuple[str, ...]
    metadata_directory: str | None = None
    standalone: VotersRecordEndpoint | None = None
    metadata_directory_id: uuid.UUID | None = None
    without_voters: bool = False
    release: str | None = None
    features: Mapping[str, int] | None = None
    scram: tuple[str, ...] = field(default=(), repr=False)
    ignore_formatted: bool = False


@frozen
class Formatted:
    """The result of a format.

    Attributes:
        levels: the level of each feature, by name, including features of level 0.
        formatted: paths of the directories that were formatted, the metadata directory first.
        kept: paths of the directories that had been formatted before.
        metadata_directory: path of the directory of the metadata log.
    """

    levels: Mapping[str, int]
    formatted: tuple[str, ...]
    kept: tuple[str, ...]
    metadata_directory: str


def random_uuid(random: Random) -> str:
    """Return a new id in Kafka's text form: 22 characters, the first of which is no dash.

    Args:
        random: a ``SystemRandom`` outside of tests.
    """
    return format_uuid(random_id(random))


def format_levels(
    release: str | None, features: Mapping[str, int], *, dynamic: bool
) -> dict[str, int]:
    """Return the level of each feature, with metadata.version first, then sorted by name.

    Args:
        release: value of ``--release-version``.
        features: the requested levels, by name; other features get their default (``new_levels``).
        dynamic: whether the voters of the quorum are in the log, not in the configuration.

    Raises:
        ConfigError: a release, a feature or a level is unknown, or levels contradict each other.
    """
    level = _metadata_version(release, features.get(METADATA_VERSION))
    defaults = {**dict.fromkeys(FEATURES, 0), **new_levels(level), KRAFT_VERSION: int(dynamic)}
    for name in features:
        if name not in defaults:
            known = ", ".join((METADATA_VERSION, *sorted(FEATURES)))
            raise ConfigError(f"unknown feature {name!r}: the features are {known}")
    levels = {**defaults, **features, METADATA_VERSION: level}
    for name, feature in FEATURES.items():
        wanted = levels[name]
        if not 0 <= wanted <= feature.maximum:
            raise ConfigError(
                f"{name} has no level {wanted}: choose a level from 0 to {feature.maximum}"
            )
        if wanted and level < feature.needs:
            raise ConfigError(
                f"{name} cannot be {wanted} with metadata.version {metadata_version_text(level)}: "
                f"it needs {metadata_version_text(feature.needs)}, so choose a later release "
                f"version, or --feature {name}=0"
            )
    if levels[KRAFT_VERSION] and not dynamic:
        raise ConfigError(
            f"kraft.version cannot be {levels[KRAFT_VERSION]} with static voters: use --standalone "
            "and remove controller.quorum.voters, or leave the feature out"
        )
    if dynamic and not levels[KRAFT_VERSION]:
        raise ConfigError(
            "kraft.version cannot be 0 with --standalone, --initial-controllers or "
            "--no-initial-controllers: leave the feature out, or set controller.quorum.voters and "
            "leave the option out"
        )
    return {METADATA_VERSION: level, **dict(sorted(levels.items()))}


def _metadata_version(release: str | None, level: int | None) -> int:
    if level is None:
        return DEFAULT_METADATA_VERSION if release is None else release_version(release)
    if release is not None:
        raise ConfigError(
            "the metadata version is given twice: use --release-version, without "
            "--feature metadata.version"
        )
    if level == UNSTABLE_METADATA_VERSION:
        raise ConfigError(f"metadata.version {level} is not stable yet: choose a lower level")
    if level not in METADATA_VERSIONS:
        least, most = min(METADATA_VERSIONS), max(METADATA_VERSIONS)
        raise ConfigError(
            f"unknown metadata.version {level}: choose a level from {least} to {most}, or use "
            "--release-version"
        )
    return level


def format_directories(
    files: Files,
    options: FormatOptions,
    *,
    random: Random,
    timestamp_ms: int,
    crc32c: Checksum,
) -> Formatted:
    """Format the directories that are not formatted yet; create those that do not exist.

    Everything is checked before anything is written. After a kill, the same call completes the
    work, with ``ignore_formatted`` if a part of the directories is formatted already.

    Args:
        random: source of ids and salts; a ``SystemRandom`` outside of tests.
        timestamp_ms: the present time.

    Raises:
        ConfigError: an option is invalid or does not fit another option, or a directory is
            formatted already or belongs to another node or cluster; the message says what to do.
        KafkaStorage: the disk failed.
    """
    if options.node_id < 0:
        raise ConfigError(f"node id {options.node_id} is negative: set node.id to 0 or more")
    if not options.cluster_id:
        raise ConfigError("the cluster id is empty: give one that aiokq storage random-uuid prints")
    if not options.directories:
        raise ConfigError("there is no log directory to format: set log.dirs")
    levels = format_levels(
        options.release,
        options.features or {},
        dynamic=options.standalone is not None or options.without_voters,
    )
    records = _records(levels, options.scram, random)
    metadata_directory, *others = _distinct(files, options)
    empty: list[str] = []
    kept: list[str] = []
    for path in (metadata_directory, *others):
        (kept if _is_formatted(files, path, options) else empty).append(path)
    if kept and not options.ignore_formatted:
        raise ConfigError(
            f"log directory {kept[0]} is already formatted: use --ignore-formatted to keep it and "
            "to format only the directories that are not"
        )
    ids = {path: random_id(random) for path in empty}
    if metadata_directory in ids and options.metadata_directory_id is not None:
        ids[metadata_directory] = options.metadata_directory_id
    for path in empty:
        with _disk_of(path):
            make_directory(files, path)
            write_bootstrap_checkpoint(
                files, path, records, timestamp_ms=timestamp_ms, crc32c=crc32c
            )
    if metadata_directory in ids:
        voters = _voters(options, ids[metadata_directory])
        with _disk_of(metadata_directory):
            _remove_first_files(files, metadata_directory)
            if voters is not None:
                write_voters(
                    files, metadata_directory, voters, timestamp_ms=timestamp_ms, crc32c=crc32c
                )
            elif options.without_voters:
                log = f"{metadata_directory}/{file_names.CLUSTER_METADATA}"
                make_directory(files, log)
                write_quorum_state(files, log, QuorumState(epoch=0))
    for path in kept:
        with _disk_of(path):
            # An interrupted format may not have made the name of the last file durable.
            files.sync_dir(path)
    for path, directory_id in ids.items():
        properties = MetaProperties(options.cluster_id, options.node_id, format_uuid(directory_id))
        with _disk_of(path):
            write_meta_properties(files, path, properties)
    return Formatted(levels, tuple(empty), tuple(kept), metadata_directory)


@contextmanager
def _disk_of(path: str) -> Iterator[None]:
    """Turn an OSError in a ``with`` block into a KafkaStorage that names the log directory."""
    try:
        yield
    except OSError as error:
        raise unusable(path, error) from error


def _records(levels: Mapping[str, int], scram: tuple[str, ...], random: Random) -> list[Message]:
    """Return the records of ``bootstrap.checkpoint``."""
    level = levels[METADATA_VERSION]
    if scram and level < SCRAM_CREDENTIALS:
        raise ConfigError(
            f"metadata.version {metadata_version_text(level)} has no SCRAM credentials: choose "
            f"release version {METADATA_VERSIONS[SCRAM_CREDENTIALS]} or later"
        )
    # The level of kraft.version is in a control record.
    return [
        *feature_records((name, at) for name, at in levels.items() if name != KRAFT_VERSION),
        *(parse_scram_argument(text, random) for text in scram),
    ]


def _distinct(files: Files, options: FormatOptions) -> list[str]:
    """Return the paths of all directories, each once, the metadata directory first."""
    paths = list(options.directories)
    if options.metadata_directory is not None:
        paths.insert(0, options.metadata_directory)
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(files.real_path(path), path)
    return list(found.values())


def _is_formatted(files: Files, path: str, options: FormatOptions) -> bool:
    """Whether a directory is formatted.

    Raises:
        ConfigError: the directory is formatted for another node or cluster.
    """
    file = f"{path}/{file_names.META_PROPERTIES}"
    with _disk_of(path):
        if not files.exists(file):
            return False
        known = decode_meta_properties(files.read_bytes(file), file)
    if known.cluster_id != options.cluster_id:
        raise ConfigError(
            f"log directory {path} belongs to cluster {known.cluster_id}, not "
            f"{options.cluster_id}: give the id of its cluster, or choose another directory"
        )
    if known.node_id != options.node_id:
        raise ConfigError(
            f"log directory {path} belongs to node {known.node_id}, not {options.node_id}: give "
            "its node id, or choose another directory"
        )
    return True


def _voters(options: FormatOptions, directory_id: uuid.UUID) -> VotersRecord | None:
    if options.standalone is None:
        return None
    return only_voter(options.node_id, directory_id, [options.standalone])


def _remove_first_files(files: Files, path: str) -> None:
    """Remove the first snapshot or ``quorum-state`` if an interrupted format has left it."""
    directory = f"{path}/{file_names.CLUSTER_METADATA}"
    found = files.listdir(directory) if files.exists(directory) else []
    first = snapshot_path(directory, FIRST_SNAPSHOT).rpartition("/")[2]
    if found in ([first], [QUORUM_STATE]):
        files.remove(f"{directory}/{found[0]}")
        files.sync_dir(directory)
