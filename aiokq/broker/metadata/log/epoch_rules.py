"""The rules for the leader epochs of batches in a metadata log; no checksum covers these epochs.

A leader begins its epoch with a control batch whose first record is a ``LeaderChangeMessage``, and
epochs never go down. All other batches therefore have the epoch of the batch before them. The epoch
of a snapshot is that of the last record in it. If these rules do not show which of two batches is
wrong, ``leader-epoch-checkpoint`` decides. An epoch that begins with the last batch of the log is
wrong if neither ``leader-epoch-checkpoint`` nor ``quorum-state`` allows it. A log that Apache Kafka
or aiokq has written obeys the rules, also after a kill or a power cut.

Source: Kafka ``BatchAccumulator.appendLeaderChangeMessage``,
``ReplicatedLog.validateOffsetAndEpoch``.
Tests: ``tests/unit/broker/metadata/log/test_epoch_rules.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.leader_epochs import UNDEFINED_EPOCH, EpochEntry, LeaderEpochs
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.core.errors import (
    CorruptRecord,
    KafkaStorage,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from aiokq.core.frozen import frozen
from aiokq.records.quorum_control import decode_quorum_control
from aiokq.records.record import iter_records
from aiokq.wire.quorum_records import LeaderChangeMessage

if TYPE_CHECKING:
    from aiokq.broker.metadata.log.snapshot_file import SnapshotId
    from aiokq.core.files import Files
    from aiokq.records.header import BatchHeader

__all__ = ["EpochRules", "WrongEpoch", "drop_wrong_epochs"]


@frozen
class WrongEpoch:
    """A batch whose epoch breaks a rule.

    Attributes:
        base: base offset of the segment.
        position: byte position of the batch in the segment.
        offset: base offset of the batch.
        epoch: the epoch that the batch must have; None if it is unknown.
        reason: which rule is broken.
    """

    base: int
    position: int
    offset: int
    epoch: int | None
    reason: str


@frozen
class _First:
    """The first batch of an epoch whose second batch was not checked yet.

    Attributes:
        before: epoch of the record before the batch; -1 if unknown.
        known: epoch of the batch according to ``leader-epoch-checkpoint``; -1 if the file has none.
        by_leader: whether the batch begins with a ``LeaderChangeMessage``.
    """

    base: int
    position: int
    offset: int
    epoch: int
    before: int
    known: int
    by_leader: bool


class EpochRules:
    """Checks the batches of a log; ``check`` is called with each batch, in order.

    Args:
        directory: path of ``__cluster_metadata-0``.
        snapshot: the newest snapshot; None if there is none.

    Attributes:
        entries: the epochs of the checked batches, in the form of ``leader-epoch-checkpoint``.
    """

    def __init__(self, files: Files, directory: str, snapshot: SnapshotId | None) -> None:
        self.entries: list[EpochEntry] = []
        self._files = files
        self._directory = directory
        self._snapshot = snapshot
        self._known = _read_epochs(files, directory)
        self._epoch: int | None = None  # epoch of the last batch
        self._first: _First | None = None

    def check(
        self, base: int, position: int, header: BatchHeader, data: bytes
    ) -> WrongEpoch | None:
        """Check the next batch.

        Args:
            base: base offset of the segment.
            position: byte position of the batch in the segment.
            data: the bytes of the batch.

        Returns:
            This batch if its epoch is wrong, or the batch before if that one's epoch is wrong;
            None if neither is.
        """
        epoch, before = header.leader_epoch, self._before(header)
        first, self._first, is_next = self._first, None, self._epoch is not None
        self._epoch = epoch
        by_leader = _begins_epoch(header, data)
        known = self._known.epoch_for_offset(header.base_offset)
        if by_leader or before < 0:
            if epoch <= before:
                reason = f"epoch {epoch}, which a leader begins, after epoch {before}"
                right = known if known > before else None
                return WrongEpoch(base, position, header.base_offset, right, reason)
            self.entries.append(EpochEntry(epoch, header.base_offset))
            self._first = _First(
                base, position, header.base_offset, epoch, before, known, by_leader
            )
        elif epoch == before:
            if not is_next:
                self.entries.append(EpochEntry(epoch, header.base_offset))
        else:
            if first is not None and first.known == epoch > first.before:
                reason = f"epoch {first.epoch} before epoch {epoch} in one epoch of a leader"
                return WrongEpoch(first.base, first.position, first.offset, epoch, reason)
            reason = f"epoch {epoch} after epoch {before}"
            if epoch > before:
                reason += ", and no leader begins it there"
            return WrongEpoch(base, position, header.base_offset, before, reason)
        return self._beside_snapshot(base, position, header)

    def _before(self, header: BatchHeader) -> int:
        """Return the epoch of the record before a batch; -1 if it is unknown."""
        if self._epoch is not None:
            return self._epoch
        snapshot = self._snapshot
        if snapshot is not None and snapshot.end_offset == header.base_offset:
            return snapshot.epoch
        return UNDEFINED_EPOCH

    def _beside_snapshot(self, base: int, position: int, header: BatchHeader) -> WrongEpoch | None:
        """Compare the epoch of a batch with that of the snapshot, if the snapshot has the batch."""
        snapshot, epoch = self._snapshot, header.leader_epoch
        if snapshot is None or header.base_offset >= snapshot.end_offset:
            return None
        is_last = header.next_offset >= snapshot.end_offset
        if epoch == snapshot.epoch or (epoch < snapshot.epoch and not is_last):
            return None
        reason = f"epoch {epoch} in a snapshot of epoch {snapshot.epoch}"
        right = snapshot.epoch if is_last else None
        return WrongEpoch(base, position, header.base_offset, right, reason)

    def end(self) -> WrongEpoch | None:
        """Check the last batch, after all calls of ``check``; return it if its epoch is wrong.

        Raises:
            OSError: the disk failed.
        """
        first = self._first
        if first is None or not first.by_leader or first.known in (first.epoch, first.before):
            return None
        quorum = self._quorum_epoch()
        if first.known < first.before or first.epoch <= quorum != first.known:
            return None  # the checkpoint is wrong, and is written again
        reason = f"epoch {first.epoch}, but {first.known} in {file_names.LEADER_EPOCHS}"
        return WrongEpoch(first.base, first.position, first.offset, first.known, reason)

    def _quorum_epoch(self) -> int:
        try:
            state = read_quorum_state(self._files, self._directory)
        except KafkaStorage:
            return UNDEFINED_EPOCH
        return UNDEFINED_EPOCH if state is None else state.epoch


def _begins_epoch(header: BatchHeader, data: bytes) -> bool:
    if not header.is_control:
        return False
    try:
        first = next(iter_records(data, header), None)
        if first is None:
            return False
        return isinstance(decode_quorum_control(first.key, first.value), LeaderChangeMessage)
    except (CorruptRecord, RecordTooLarge, UnsupportedCompressionType):
        return False  # `metadata_reader` refuses the batch


def _read_epochs(files: Files, directory: str) -> LeaderEpochs:
    """Return the epochs in ``leader-epoch-checkpoint``; none if it is missing or malformed."""
    epochs = LeaderEpochs(files, f"{directory}/{file_names.LEADER_EPOCHS}")
    try:
        epochs.load()
    except (FileNotFoundError, CorruptRecord):
        epochs.cut(0)
    return epochs


def drop_wrong_epochs(
    files: Files, directory: str, entries: list[EpochEntry], *, start: int, end: int
) -> bool:
    """Remove ``leader-epoch-checkpoint`` if it contradicts the log; opening the log rebuilds it.

    Args:
        entries: the epochs of the batches that were read.
        start, end: the file is compared with ``entries`` between these offsets of the log.

    Returns:
        Whether the file was removed.

    Raises:
        OSError: the disk failed.
    """
    path = f"{directory}/{file_names.LEADER_EPOCHS}"
    if not entries or not files.exists(path):
        return False
    known = _read_epochs(files, directory)
    # The segments before the first entry were not read, but the file may have their epochs.
    begin = max(start, entries[0].start_offset)
    right = max(one for one in entries if one.start_offset <= begin).epoch
    if known.epoch_for_offset(begin) == right and [
        one for one in known.entries if begin < one.start_offset < end
    ] == [one for one in entries if begin < one.start_offset]:
        return False
    files.remove(path)
    return True
