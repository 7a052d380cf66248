"""Checks of a node's log directories for `aiokq doctor`; nothing is written or locked.

The metadata log is read completely. Of other logs, only the directory names are compared with the
metadata; `aiokq log verify` reads their contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.inspection.findings import Severity
from aiokq.broker.inspection.metadata_checks import check_metadata_files
from aiokq.broker.inspection.storage_info import storage_info
from aiokq.broker.log import file_names
from aiokq.broker.log.meta_properties import MetaProperties, decode_meta_properties
from aiokq.broker.log.partition_directories import PartitionDirectories
from aiokq.broker.metadata.earlier.private_file import MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.metadata.image.features import METADATA_VERSIONS
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.sole_voter import check_sole_voter
from aiokq.broker.metadata.start.missing_directories import missing_partitions
from aiokq.cli.installation_checks import Check, Status
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.core.files import Files

__all__ = ["directory_checks"]


def directory_checks(
    files: Files, paths: Sequence[str], metadata_path: str | None = None
) -> Iterator[Check]:
    """Yield the checks of the log directories of a node.

    Args:
        paths: the log directories (``log.dirs``).
        metadata_path: ``metadata.log.dir``; None for the first log directory.
    """
    places = list(dict.fromkeys([metadata_path or paths[0], *paths]))
    try:
        yield from _checks(files, places)
    except OSError as error:
        where = error.filename or places[0]
        yield Check("log directories", Status.FAIL, f"{where}: {error.strerror or error}")


def _checks(files: Files, places: Sequence[str]) -> Iterator[Check]:
    info = storage_info(files, places)
    for problem in info.problems:
        fix = "mount the disk, or format the directory: aiokq storage format"
        yield Check("log directories", Status.FAIL, problem, fix)
    formatted = [one for one in info.found if files.exists(f"{one}/{file_names.META_PROPERTIES}")]
    if not formatted:
        return
    if not info.problems:
        ids = f"node {info.metadata.get('node.id', '?')}, cluster {info.metadata['cluster.id']}"
        yield Check("log directories", Status.OK, f"{', '.join(places)} ({ids})")
    yield _shutdown(files, formatted)
    for path in formatted:
        for finding in check_metadata_files(files, path, crc32c):
            status = Status.FAIL if finding.severity is Severity.ERROR else Status.WARN
            fix = "restore the file from a copy; aiokq broker may repair it: see the log guide"
            yield Check("metadata files", status, f"{finding.path}: {finding.message}", fix)
    yield from _metadata(files, places[0], formatted)


def _shutdown(files: Files, paths: Sequence[str]) -> Check:
    unclean = [one for one in paths if not files.exists(f"{one}/{file_names.CLEAN_SHUTDOWN}")]
    if not unclean:
        return Check("shutdown", Status.OK, "the broker was stopped cleanly")
    detail = f"a broker is running, or was not stopped cleanly: {', '.join(unclean)}"
    return Check("shutdown", Status.WARN, detail, "none needed: the next start checks the logs")


def _metadata(files: Files, home: str, paths: Sequence[str]) -> Iterator[Check]:
    """Check the metadata log, and whether log directories have the partitions in the metadata."""
    name = "metadata log"
    readers = {
        path: MetadataReader(files, f"{path}/{file_names.CLUSTER_METADATA}", crc32c)
        for path in paths
    }
    found = [path for path in paths if readers[path].exists()]
    private = f"{home}/{PRIVATE_FILE}"
    if not found:
        if files.exists(private) and files.read_bytes(private) != MIGRATED_LINE:
            detail = f"the next start moves {private}, of an earlier version, to the metadata log"
            yield Check(name, Status.OK, detail)
        else:
            yield Check(name, Status.OK, "none yet: the first start begins one")
        return
    if found != [home]:
        where = ", ".join(found)
        fix = "name the directory that has it in metadata.log.dir, and move others away"
        yield Check(name, Status.FAIL, f"the log is in {where}, but belongs in {home}", fix)
        return
    reader = readers[home]
    try:
        state = reader.read()
        ids = _ids(files, home)
        check_sole_voter(
            state,
            read_quorum_state(files, reader.directory),
            directory=reader.directory,
            node_id=ids.node_id,
            directory_id=ids.directory_uuid or ZERO_UUID,
        )
    except (KafkaStorage, ConfigError) as error:
        yield Check(name, Status.FAIL, error.message)
        return
    if state.torn is not None:
        detail = f"{state.torn.path} has {state.torn.size} bytes of an incomplete append at its end"
        yield Check(name, Status.WARN, detail, "none needed: the next start cuts them off")
    yield Check(name, Status.OK, _contents(state))
    yield _partitions(files, state, ids.node_id, paths)


def _ids(files: Files, path: str) -> MetaProperties:
    file = f"{path}/{file_names.META_PROPERTIES}"
    return decode_meta_properties(files.read_bytes(file), file)


def _contents(state: MetadataState) -> str:
    level = state.image.metadata_version
    release = "none" if level is None else METADATA_VERSIONS[level]
    return (
        f"sound up to offset {state.end_offset}, epoch {state.epoch}: {len(state.image.topics)} "
        f"topics, metadata.version {release}, kraft.version {state.kraft_version}"
    )


def _partitions(files: Files, state: MetadataState, node_id: int, paths: Sequence[str]) -> Check:
    """Compare the partitions in the metadata with the partition directories that exist."""
    present = {_ids(files, path).directory_uuid for path in paths}
    there = {one for path in paths for one in PartitionDirectories(files, path).names()}
    missing = missing_partitions(
        state.image,
        node_id,
        present={one for one in present if one is not None},
        is_there=there.__contains__,
    )
    lost = {one for partitions in missing.values() for one in partitions}
    if lost:
        detail = f"{len(lost)} are in log directories that are missing, such as {min(lost)}"
        fix = "mount the disk and name its directory; if it is lost: aiokq log forget-missing"
        return Check("partitions", Status.FAIL, detail, fix)
    owned = [
        TopicPartition(topic.name, number)
        for topic in state.image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if node_id in partition.replicas
    ]
    without = [one for one in owned if one not in there]
    if without:
        detail = f"{len(without)} of {len(owned)} have no directory, such as {min(without)}"
        fix = "restore the directories if they had records: the next start makes empty ones"
        return Check("partitions", Status.WARN, detail, fix)
    return Check("partitions", Status.OK, f"{len(owned)}, each has its directory")
