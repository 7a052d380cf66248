"""RecordTaker: takes several buffered records in one call, and deserializes them if necessary."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, cast

from aiokq.core.errors import KafkaError
from aiokq.core.user_errors import INTERRUPTS

if TYPE_CHECKING:
    from aiokq.consumer.buffers import Chunk
    from aiokq.consumer.chunk_queue import ChunkQueue
    from aiokq.consumer.partition_rotation import PartitionRotation
    from aiokq.consumer.positions import PartitionState
    from aiokq.consumer.unfinished_records import UnfinishedRecords
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Cursor, Record

__all__ = ["RecordTaker"]


class RecordTaker:
    """Takes records from the partitions of one record source.

    Args:
        read: called with the size in bytes of each chunk that was read to its end.
    """

    __slots__ = ("_chunks", "_read", "_rotation", "_unfinished")

    def __init__(
        self,
        chunks: ChunkQueue,
        rotation: PartitionRotation,
        unfinished: UnfinishedRecords,
        read: Callable[[int], None],
    ) -> None:
        self._chunks = chunks
        self._rotation = rotation
        self._unfinished = unfinished
        self._read = read

    def take(
        self,
        limit: int,
        wanted: Collection[TopicPartition],
        deserialize: Callable[[Record], object] | None,
        handed: Callable[[Record], None] | None,
    ) -> dict[TopicPartition, list[Record]]:
        """Return buffered records by partition, at most `limit` in all; see `RecordSource.take`."""
        taken: dict[TopicPartition, list[Record]] = {}
        for state in list(self._rotation):
            if limit <= 0:
                break
            if not state.readable or (wanted and state.tp not in wanted):
                continue
            if deserialize is None:
                records, complete = self._take(state, limit, first=not taken)
            else:
                records, complete = self._take_deserialized(
                    state, limit, deserialize, handed, first=not taken
                )
            limit = limit - len(records) if complete else 0
            if records:
                taken[state.tp] = records
                self._rotation.move_to_end(state)
            if not state.chunks:
                self._rotation.discard(state)
        if handed is not None:
            for records in taken.values():
                for record in records:
                    handed(record)
        return taken

    def _take(self, state: PartitionState, limit: int, *, first: bool) -> tuple[list[Record], bool]:
        """Return at most `limit` records of a partition, and whether to read other partitions.

        Args:
            first: whether other partitions gave no record. An error is raised only while no record
                was taken at all. Otherwise the call of `take` that begins at the unreadable data
                raises the error.
        """
        before = state.position
        records: list[Record] = []
        while len(records) < limit and state.chunks:
            cursor = state.chunks[0].cursor
            try:
                some = cursor.take(limit - len(records))
            except KafkaError as error:
                self._meet(state, error, raises=first and not records)
                return records, False
            if some:
                self._unfinished.hold(state, before)
                records += some
            if cursor.exhausted or not some:
                self._end_chunk(state)
        return records, True

    def _take_deserialized(
        self,
        state: PartitionState,
        limit: int,
        deserialize: Callable[[Record], object],
        handed: Callable[[Record], None] | None,
        *,
        first: bool,
    ) -> tuple[list[Record], bool]:
        """Return records as `_take` does, but deserialize each record when it is taken."""
        before = state.position
        records: list[Record] = []
        start: tuple[Chunk, Cursor, int] | None = None
        while len(records) < limit and state.chunks:
            chunk = state.chunks[0]
            try:
                if start is None or start[0] is not chunk:
                    chunk.cursor.more()  # opens the batch, which the fork then shares
                    start = chunk, chunk.cursor.fork(), len(records)
                some = chunk.cursor.take(1)
            except KafkaError as error:
                self._meet(state, error, raises=first and not records)
                return records, False
            if some:
                self._unfinished.hold(state, before)
                (record,) = some
                try:
                    records.append(_deserialized(chunk, record, deserialize))
                except INTERRUPTS:
                    self._unfinished.fetch_again()
                    raise
                except BaseException as error:
                    if first and not records:
                        self._rotation.move_to_end(state)
                        if handed is not None:
                            handed(record)
                        raise
                    # The call of `take` that begins with this record raises the error. The position
                    # stays before the record, so the record does not count as delivered.
                    _, chunk.cursor, earlier = start
                    chunk.cursor.take(len(records) - earlier)
                    chunk.failed = record.offset, error
                    if not records:
                        self._unfinished.forget(state)
                    return records, False
            if chunk.cursor.exhausted or not some:
                self._end_chunk(state)
        return records, True

    def _meet(self, state: PartitionState, error: KafkaError, *, raises: bool) -> None:
        """Raise a cursor's error if `raises` is true.

        Otherwise, renew the cursor at its position, so that the next read raises the error again.
        """
        if raises:
            raise self._chunks.give_up(state, error) from None
        self._chunks.skip_to(state, state.chunks[0].cursor.position)

    def _end_chunk(self, state: PartitionState) -> None:
        self._read(state.chunks[0].size)
        self._chunks.drop_first(state)


def _deserialized(chunk: Chunk, record: Record, deserialize: Callable[[Record], object]) -> Record:
    """Return the deserialized record, or raise its error that an earlier call has stored."""
    failed, chunk.failed = chunk.failed, None
    if failed is None or failed[0] != record.offset:
        return cast("Record", deserialize(record))
    try:
        raise failed[1]
    finally:
        del failed  # breaks a cycle: the traceback refers to this frame
