"""BatchSealer: compresses and seals batches, on the event loop or in the executor."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from aiokq.core.offload import FAST_CODEC_THRESHOLD, GZIP_THRESHOLD
from aiokq.records.compression import GZIP, NONE, codec_id, compress

if TYPE_CHECKING:
    from aiokq.core.offload import Offload
    from aiokq.fastpath.produce import QueuedBatch
    from aiokq.producer.values import ProducerValues

__all__ = ["BatchSealer"]

HEADER_SIZE = 61
"""Size in bytes of the batch header, which is never compressed."""


class BatchSealer:
    """Compresses and seals batches. A sealed batch is complete, except for the batch header.

    A batch is compressed with the codec set for its topic, or else with the producer's codec. It
    is sent uncompressed if its records have fewer than ``compression_min_bytes`` bytes, or if their
    compressed size exceeds their size multiplied by ``compression_max_ratio``.
    Small batches are compressed on the event loop, large batches in the executor of `offload`.
    While a batch is being compressed in the executor, later batches of the same partition wait;
    batches of other partitions do not.

    Args:
        spawn: starts a task that awaits the compression in the executor.
    """

    def __init__(
        self,
        settings: ProducerValues,
        offload: Offload,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._codec = codec_id(settings.compression_type)
        self._by_topic = {
            topic: codec_id(name) for topic, name in settings.compression_type_by_topic.items()
        }
        self._plain = self._codec == NONE and not self._by_topic
        """Whether no topic has a codec."""
        self._level = settings.compression_level
        self._min_bytes = settings.compression_min_bytes
        self._max_ratio = settings.compression_max_ratio
        self._offload = offload
        self._spawn = spawn

    def codec(self, topic: str) -> int:
        """Return the codec id of a topic's batches."""
        return self._by_topic.get(topic, self._codec) if self._by_topic else self._codec

    def seal(
        self,
        queued: QueuedBatch,
        sealed: Callable[[QueuedBatch], None],
        broke: Callable[[QueuedBatch, str, Exception], None],
    ) -> bool:
        """Compress the batch, if it has a codec, and seal it.

        Args:
            sealed: called with the batch after its compression in the executor, unless the batch
                has failed in the meantime, for example because it expired.
            broke: called with the batch, "compression" and the exception, if an exception occurs
                here or in the executor.

        Returns:
            True if the batch is sealed. False if it is being compressed in the executor, or if
            `broke` was called.
        """
        # Hot path, once per batch; measured by benchmarks/micro/producer.py.
        try:
            if not self._plain:
                return self._seal(queued, sealed, broke)
            batch = queued.batch
            batch.seal()
            queued.sealed = True
            queued.size = batch.size
            return True
        except Exception as error:  # noqa: BLE001  logged by `broke`
            broke(queued, "compression", error)
            return False

    def _seal(
        self,
        queued: QueuedBatch,
        sealed: Callable[[QueuedBatch], None],
        broke: Callable[[QueuedBatch, str, Exception], None],
    ) -> bool:
        batch = queued.batch
        codec = self.codec(batch.topic)
        if codec == NONE or batch.size - HEADER_SIZE < self._min_bytes:
            batch.seal()
            _final(queued, batch.size)
            return True
        threshold = GZIP_THRESHOLD if codec == GZIP else FAST_CODEC_THRESHOLD
        if batch.size < threshold:
            self._finish(queued, codec, compress(codec, batch.payload(), self._level(codec)))
            return True
        queued.sealing = True
        outside = self._outside(queued, codec, sealed, broke)
        self._spawn(outside, f"compress for {queued.queue.topic}")
        return False

    async def _outside(
        self,
        queued: QueuedBatch,
        codec: int,
        sealed: Callable[[QueuedBatch], None],
        broke: Callable[[QueuedBatch, str, Exception], None],
    ) -> None:
        batch = queued.batch
        if queued.done:  # the batch failed before this task ran; its records are freed
            queued.sealing = False
            return
        try:
            data = await self._offload.run(compress, codec, batch.payload(), self._level(codec))
            queued.sealing = False
            if queued.done:  # the batch expired during the compression
                return
            self._finish(queued, codec, data)
        except Exception as error:  # noqa: BLE001  logged by `broke`
            queued.sealing = False
            broke(queued, "compression", error)
            return
        sealed(queued)

    def _finish(self, queued: QueuedBatch, codec: int, data: bytes) -> None:
        """Seal the batch with the compressed `data`, or uncompressed if `data` saves too little."""
        batch, ratio = queued.batch, self._max_ratio
        if ratio is not None and len(data) > ratio * (batch.size - HEADER_SIZE):
            batch.seal()
            _final(queued, batch.size)
            return
        batch.seal(codec, data)
        queued.codec = codec
        _final(queued, HEADER_SIZE + len(data))


def _final(queued: QueuedBatch, size: int) -> None:
    queued.sealed = True
    queued.size = size
