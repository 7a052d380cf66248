"""Repairs a damaged metadata log: keeps the sound part, and saves the removed bytes in files.

The broker refuses to start with a log that has a bad byte before its end, because the acknowledged
records after that byte would be lost unnoticed. `repair_plan` finds what can be kept, and this
module carries out the plan:

- A damaged snapshot is set aside. Its records are taken from an older snapshot and from the log, as
  far as these have them.
- A segment is cut at its bad batch, and later segments are set aside. The records in the removed
  parts are lost, except those in a snapshot.
- If only the leader epoch of a batch is wrong, the batch gets the epoch that the adjacent batches
  require, and no record is lost.
- If the records of a bad batch are in the newest snapshot, and a later batch continues this
  snapshot, the repaired log begins with that later batch. No record is lost.
- Damaged segments that the newest snapshot has replaced are set aside, as at a start of the broker.

A kill during a repair leaves a log that the broker still refuses, or a repaired log. Removed bytes
are in files with ``.corrupt-`` in their names.

Source: none; Apache Kafka drops everything from the first bad batch on.
Tests: ``tests/unit/broker/metadata/stopped_broker/test_log_repair.py``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.corruption import Damage, keep_aside, unused_name
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.producer_snapshot import remove_snapshots_behind
from aiokq.broker.metadata.log.covered_segments import damaged_segments
from aiokq.broker.metadata.log.log_opening import METADATA_PARTITION
from aiokq.broker.metadata.log.lost_records import note_lost_records
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.snapshot_file import snapshot_path
from aiokq.broker.metadata.log.sole_voter import check_sole_voter, voter_ids
from aiokq.broker.metadata.stopped_broker.cut_records import LostRecord
from aiokq.broker.metadata.stopped_broker.repair_plan import Correction, RepairPlan, Rest
from aiokq.broker.metadata.stopped_broker.stopped_log import check_log_exists
from aiokq.core.errors import KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.records.header import LOG_OVERHEAD
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Repair", "repair_log"]

COPIED_BYTES: Final = 1024 * 1024

EPOCH_OFFSET: Final = LOG_OVERHEAD
"""Byte position of the leader epoch in a batch."""

EPOCH_BYTES: Final = 4


@frozen
class Repair:
    """The result of a repair or of a dry run.

    Attributes:
        path: path of the file with the damage that was found first; "" if nothing is damaged. Bad
            snapshots are found before bad segments, the newest snapshot first. If the newest
            snapshot has replaced all damaged segments, `path` names the last of these segments.
        position: byte position in the file where the damage begins; 0 for a snapshot and for a
            segment that a snapshot has replaced.
        offset: offset of the first record in the bad part of a segment, or of the first missing
            record. If `path` names a snapshot, the value is 0; if it names a segment that a
            snapshot has replaced, the value is the segment's base offset.
        reason: what is wrong with the file.
        end_offset: offset after the last record of the repaired log.
        topics: number of topics in the metadata of the repaired log.
        lost: the records that are cut off; records that cannot be decoded are given as ranges of
            offsets.
        loses: whether records are lost.
        corrected: batches that get another epoch.
        set_aside: names of files that are set aside whole.
        kept: paths of the files with the removed bytes; empty in a dry run, and if nothing was
            removed.
    """

    path: str = ""
    position: int = 0
    offset: int = 0
    reason: str = ""
    end_offset: int = 0
    topics: int = 0
    lost: tuple[LostRecord, ...] = ()
    loses: bool = False
    corrected: tuple[Correction, ...] = ()
    set_aside: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def repair_log(
    files: Files,
    path: str,
    *,
    execute: bool,
    others_lost: bool = False,
    crc32c: Checksum,
) -> Repair:
    """Repair the metadata log in a log directory, if it is damaged.

    Args:
        path: the log directory with ``__cluster_metadata-0``.
        execute: False to return the result without changing anything.
        others_lost: repair the log even if its quorum has other voters. They must be lost for good:
            otherwise this node, which has lost records, could vote for a leader that lacks the same
            records.

    Raises:
        ConfigError: ``path`` is not a log directory with a metadata log.
        KafkaStorage: the directory is in use, the log was written by a newer Kafka, no metadata is
            left without the bad bytes, there are other voters, or the disk failed; the message says
            what to do.
    """
    with locked_directories(files, [path]) as (properties,):
        directory = f"{path}/{file_names.CLUSTER_METADATA}"
        plan = RepairPlan(files, directory, crc32c)
        check_log_exists(plan, path)
        state = plan.make()
        if not plan.damages:
            return _replaced(files, plan, state, crc32c, execute=execute)
        damage = plan.damages[0]
        if state.image.metadata_version is None:
            raise KafkaStorage(
                f"{directory} cannot be repaired, because no metadata is left without the bad "
                f"bytes ({damage.reason}): restore it from a copy"
            )
        if not others_lost:
            directory_id = properties.directory_uuid or ZERO_UUID
            _check_voters(files, state, directory, properties.node_id, directory_id)
        lost = tuple(plan.cut_records(state.end_offset))
        loses = plan.cut is not None and any(
            one.snapshot is None and one.epoch is None and one.offset >= state.end_offset
            for one in plan.damages
        )
        aside = [snapshot_path(directory, one) for one in sorted(plan.dropped)]
        aside += [plan.path(one) for one in (*plan.earlier(), *plan.later())]
        snapshot = damage.snapshot
        return Repair(
            path=plan.path(damage.base) if snapshot is None else snapshot_path(directory, snapshot),
            position=damage.position,
            offset=damage.offset,
            reason=damage.reason,
            end_offset=state.end_offset,
            topics=len(state.image.topics),
            lost=lost,
            loses=loses or bool(lost),
            corrected=tuple(plan.corrections()),
            set_aside=tuple(one.rpartition("/")[2] for one in aside),
            kept=_execute(files, plan, state, crc32c) if execute else (),
        )


def _replaced(
    files: Files, plan: RepairPlan, state: MetadataState, crc32c: Checksum, *, execute: bool
) -> Repair:
    """Find damaged segments that the newest snapshot has replaced; set them aside if `execute`.

    Returns:
        The repair that was made, or would be made with `execute`.
    """
    directory = plan.directory
    end_offset = 0 if state.snapshot is None else state.snapshot.end_offset
    damaged = damaged_segments(files, directory, end_offset, crc32c)
    before = set(files.listdir(directory))
    if execute:
        Damage(files, directory, METADATA_PARTITION, crc32c).set_segments_aside(damaged)
        _sync(files, plan)  # an interrupted repair may not have synced
    return Repair(
        path=plan.path(damaged[-1]) if damaged else "",
        reason="damaged, but replaced by the newest snapshot" if damaged else "",
        offset=damaged[-1] if damaged else 0,
        end_offset=state.end_offset,
        topics=len(state.image.topics),
        set_aside=tuple(plan.path(one).rpartition("/")[2] for one in damaged),
        kept=_kept(files, directory, before),
    )


def _kept(files: Files, directory: str, before: set[str]) -> tuple[str, ...]:
    """Return the paths of the new files that keep removed bytes; `before` has the earlier names."""
    added = set(files.listdir(directory)) - before
    return tuple(f"{directory}/{name}" for name in sorted(added) if file_names.CORRUPT in name)


def _check_voters(
    files: Files, state: MetadataState, directory: str, node_id: int, directory_id: uuid.UUID
) -> None:
    """Raise KafkaStorage unless this node is known to be the only voter of the log's quorum."""
    quorum = read_quorum_state(files, directory)
    try:
        check_sole_voter(
            state, quorum, directory=directory, node_id=node_id, directory_id=directory_id
        )
    except KafkaStorage as error:
        voters = ", ".join(map(str, sorted(voter_ids(state, quorum)))) or "unknown"
        raise KafkaStorage(
            f"{directory} belongs to a quorum with the voters {voters}, and a voter that has "
            "forgotten records is a danger to them: remove the directory and let Apache Kafka "
            "fetch the log from the other voters; if they are lost for good, repeat the command "
            "with --others-lost, and run aiokq storage adopt"
        ) from error


def _execute(
    files: Files, plan: RepairPlan, state: MetadataState, crc32c: Checksum
) -> tuple[str, ...]:
    """Carry out a plan; return the paths of the files with the removed bytes.

    The steps that need disk space come before those that remove or cut anything. If the disk is
    full, the repair therefore fails before anything is removed or cut.
    """
    directory = plan.directory
    before = set(files.listdir(directory))
    for one in plan.corrections():
        _correct(files, one)
    if plan.cut or plan.rest or plan.dropped:
        note_lost_records(files, directory.rpartition("/")[0])
    shortened = plan.shortened()
    if shortened is not None:
        path, position = shortened
        file = files.open(path, writable=False)
        try:
            keep_aside(files, file, path, position, file.size())
        finally:
            file.close()
    if plan.rest is not None:
        for base in plan.earlier():
            _keep_whole(files, plan.path(base))
        _write_rest(files, plan, plan.rest)
        files.sync_dir(directory)
    for snapshot in sorted(plan.dropped):
        path = snapshot_path(directory, snapshot)
        files.rename(path, unused_name(files, f"{path}{file_names.CORRUPT}0"))
    epochs = f"{directory}/{file_names.LEADER_EPOCHS}"
    if files.exists(epochs) and (plan.cut or plan.rest or plan.dropped):
        # The file may have epochs of removed records. The next start rebuilds it.
        files.remove(epochs)
    remove_snapshots_behind(files, directory, state.end_offset)
    Damage(files, directory, METADATA_PARTITION, crc32c).set_segments_aside(plan.later())
    if shortened is not None:
        _shorten(files, *shortened)
    if plan.rest is not None:
        _begin_with_rest(files, plan, plan.rest)
    files.sync_dir(directory)
    return _kept(files, directory, before)


def _correct(files: Files, correction: Correction) -> None:
    """Write another epoch into a batch, durably."""
    file = files.open(correction.path)
    try:
        epoch = correction.new.to_bytes(EPOCH_BYTES, "big")
        file.pwritev([epoch], correction.position + EPOCH_OFFSET)
        file.sync()
    finally:
        file.close()


def _sync(files: Files, plan: RepairPlan) -> None:
    """Make the newest segment and the names in the directory durable."""
    newest = plan.newest()
    if newest is not None:
        file = files.open(newest)
        try:
            file.sync()
        finally:
            file.close()
    files.sync_dir(plan.directory)


def _shorten(files: Files, path: str, position: int) -> None:
    """Cut a segment, and remove its indexes, which the next start rebuilds."""
    for suffix in (file_names.INDEX, file_names.TIME_INDEX, file_names.TXN_INDEX):
        index = path.removesuffix(file_names.LOG) + suffix
        if files.exists(index):
            files.remove(index)
    file = files.open(path)
    try:
        file.truncate(position)
        file.sync()
    finally:
        file.close()


def _keep_whole(files: Files, path: str) -> None:
    """Keep a copy of a segment: a hard link, or a new file if the file system has no hard links."""
    try:
        files.link(path, unused_name(files, f"{path}{file_names.CORRUPT}0"))
    except OSError:
        file = files.open(path, writable=False)
        try:
            keep_aside(files, file, path, 0, file.size())
        finally:
            file.close()


def _write_rest(files: Files, plan: RepairPlan, rest: Rest) -> None:
    """Write the rest of a segment to a temporary file, which later becomes a segment."""
    source, start, end = plan.extent(rest)
    temporary = plan.path(rest.offset) + file_names.TEMPORARY
    if files.exists(temporary):
        files.remove(temporary)
    file = files.open(source, writable=False)
    copy = files.private().open(temporary, exclusive=True)
    try:
        stop = file.size() if end is None else end
        for at in range(start, stop, COPIED_BYTES):
            copy.pwritev([file.pread(min(COPIED_BYTES, stop - at), at)], at - start)
        copy.sync()
    finally:
        file.close()
        copy.close()


def _begin_with_rest(files: Files, plan: RepairPlan, rest: Rest) -> None:
    """Make the log begin with the rest of a damaged segment, which `_write_rest` has written.

    The temporary file gets the name of a segment, and then the earlier segments are removed.
    """
    path = plan.path(rest.offset)
    earlier = plan.earlier()
    files.rename(path + file_names.TEMPORARY, path)
    files.sync_dir(plan.directory)
    for base in earlier:
        for suffix in file_names.SEGMENT_SUFFIXES:
            old = file_names.segment_file(plan.directory, base, suffix)
            if files.exists(old):
                files.remove(old)
