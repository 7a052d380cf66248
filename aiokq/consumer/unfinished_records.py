"""UnfinishedRecords: partitions with delivered records that are still being processed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.consumer.chunk_queue import ChunkQueue
    from aiokq.consumer.partition_rotation import PartitionRotation
    from aiokq.consumer.positions import PartitionState
    from aiokq.core.types import TopicPartition

__all__ = ["UnfinishedRecords"]


class UnfinishedRecords:
    """The partitions of one record source that have unfinished records.

    The last record of the source's stream is not included, because the source itself tracks it.

    Args:
        finished: called when records are finished.
        taken_back: called with a partition, the base offset of a batch that a reader did not read
            completely, and the position from which records are delivered again.
    """

    __slots__ = ("_chunks", "_finished", "_rotation", "_states", "_taken_back")

    def __init__(
        self,
        chunks: ChunkQueue,
        rotation: PartitionRotation,
        finished: Callable[[], None],
        taken_back: Callable[[TopicPartition, int, int], None],
    ) -> None:
        self._chunks = chunks
        self._rotation = rotation
        self._finished = finished
        self._taken_back = taken_back
        self._states: list[PartitionState] = []

    def hold(self, state: PartitionState, offset: int) -> None:
        """Store the first unfinished offset of a partition, if none is stored."""
        if state.held is None:
            state.held = offset
            self._states.append(state)

    def finish_all(self) -> None:
        """Finish all records; queue the unread records of unfinished batches."""
        if self._states:
            states, self._states = self._states, []
            for state in states:
                state.held = None
                self._take_back(state)
            self._finished()

    def release(self, state: PartitionState) -> None:
        """Finish the records of a partition that leaves the source; queue its unread records."""
        if state.held is not None:
            self.forget(state)
            self._take_back(state)

    def abandon(self, state: PartitionState) -> None:
        """Finish the records of a partition whose chunks were discarded."""
        if state.held is not None:
            self.forget(state)
            self._finished()

    def forget(self, state: PartitionState) -> None:
        """Remove the partition without calling `finished`."""
        self._states.remove(state)
        state.held = None

    def fetch_again(self) -> None:
        """Treat all unfinished records as not delivered, and fetch them again."""
        for state in list(self._states):
            assert state.held is not None
            position = state.held
            self.forget(state)
            self._chunks.drop_all(state)
            self._chunks.refetch_from(state, position)

    def _take_back(self, state: PartitionState) -> None:
        """Queue the undelivered records of a batch; stop the fetching at undecodable data."""
        batch, state.batch = state.batch, None
        rest = None if batch is None else batch.progress.close()
        if batch is None or rest is None:
            return
        self._taken_back(state.tp, batch.position, rest.position)
        if rest.unreadable is not None:
            self._chunks.drop_all(state)
            state.fetch_offset = rest.unreadable.offset
            self._chunks.park(state, rest.unreadable.error)
        if rest.pieces:
            self._chunks.put_back(state, batch, rest.pieces)
        self._rotation.discard(state)
        if state.readable:
            self._rotation.add(state, first=True)
