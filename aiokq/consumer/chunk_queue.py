"""ChunkQueue: adds and removes the buffered chunks of partitions, and counts delivered records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.consumer.batch_checks import corrupt_batch
from aiokq.core.errors import copy_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.consumer.batch_progress import TakenChunk
    from aiokq.consumer.buffers import Buffers
    from aiokq.consumer.partition_rotation import PartitionRotation
    from aiokq.consumer.positions import PartitionState
    from aiokq.core.errors import KafkaError

__all__ = ["ChunkQueue"]

logger = logging.getLogger("aiokq.consumer")


class ChunkQueue:
    """The chunks that partitions have buffered (`PartitionState.chunks`), oldest first.

    Args:
        buffers: the buffers of the consumer.
        consumed: called with a partition that has less data buffered than before, is fetched from
            another offset, or is not fetched any more because of an error.
        counted: called with the number of records that were delivered from a chunk.
        opened: called when the buffers have room again.
        rotation: the rotation, from which a partition is removed when all its chunks are dropped.
    """

    __slots__ = ("_buffers", "_consumed", "_counted", "_opened", "_rotation")

    def __init__(
        self,
        buffers: Buffers,
        consumed: Callable[[PartitionState], None],
        counted: Callable[[int], None],
        opened: Callable[[], None],
        rotation: PartitionRotation,
    ) -> None:
        self._buffers = buffers
        self._rotation = rotation
        self._consumed = consumed
        self._counted = counted
        self._opened = opened

    def drop_first(self, state: PartitionState) -> None:
        """Remove the oldest chunk, which was read or is no longer valid."""
        chunk = state.chunks.popleft()
        state.queued_bytes -= chunk.size
        if not state.chunks:
            # Offsets that the cursor skipped after the last record are treated as read.
            state.fetch_offset = max(state.fetch_offset, chunk.cursor.position)
        if received := chunk.received:
            self._counted(received)
        if self._buffers.release(chunk):
            self._opened()
        self._consumed(state)

    def drop_all(self, state: PartitionState) -> None:
        """Remove all chunks; fetching resumes at the position of the partition."""
        position = state.position
        state.batch = None
        while state.chunks:
            self.drop_first(state)
        state.fetch_offset = position
        self._rotation.discard(state)

    def skip_to(self, state: PartitionState, position: int) -> None:
        """Continue reading the oldest chunk at `position`, with a new cursor."""
        self._counted(self._buffers.move(state.chunks[0], position))

    def put_back(
        self, state: PartitionState, batch: TakenChunk, pieces: Sequence[tuple[int, int]]
    ) -> None:
        """Queue the unread parts of a delivered batch before all other chunks.

        Args:
            pieces: first offset and end offset of each part.
        """
        chunks = self._buffers.take_back(batch, pieces)
        state.chunks.extendleft(reversed(chunks))
        state.queued_bytes += sum(chunk.size for chunk in chunks)

    def refetch_from(self, state: PartitionState, position: int) -> None:
        """Fetch the partition from `position` on; it must have no chunks."""
        state.fetch_offset = position
        self._consumed(state)

    def give_up(self, state: PartitionState, error: KafkaError) -> KafkaError:
        """Park the partition at the batch where its cursor stopped, and return the error to raise.

        If the batch has a wrong checksum, the error names the offset after the batch.
        """
        chunk = state.chunks[0]
        good = self._buffers.sound_prefix(chunk)
        if good.beyond >= 0 and good.next_offset == chunk.cursor.position:
            error = corrupt_batch(state.tp, good.next_offset, good.beyond)
        self.drop_all(state)
        self.park(state, error)
        return copy_error(error)

    def park(self, state: PartitionState, error: KafkaError) -> None:
        """Stop reading the partition until its position is set or reset."""
        state.park(error)
        self._consumed(state)
        logger.error("batch cannot be read: partition=%s error=%s", state.tp, error)
