"""InternalErrors: logs unexpected exceptions, and fails the batches that they concern."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiokq.core.errors import InternalError, KafkaError
from aiokq.core.log_lines import log_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokq.fastpath.produce import QueuedBatch
    from aiokq.producer.partition_queue import PartitionQueue

__all__ = ["InternalErrors"]

logger = logging.getLogger("aiokq.producer")


class InternalErrors:
    """Reporter of unexpected exceptions from aiokq's own code.

    The first exception of each type at each place is logged at ERROR. Later exceptions are logged
    at DEBUG, because they may occur with every batch.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[str, type]] = set()

    def report(self, where: str, error: BaseException, topic: str = "") -> KafkaError:
        """Log an exception, and return the error for the records that the exception concerns.

        Args:
            where: name of the place where the exception was raised; the message of an
                InternalError begins with this name.
            topic: topic to name in the message; it does not affect the level of the log line.

        Returns:
            An InternalError with the exception as its cause, or `error` itself if it is a
            KafkaError.
        """
        kind = where, type(error)
        level = logging.DEBUG if kind in self._seen else logging.ERROR
        self._seen.add(kind)
        if topic:
            where = f"{where} of {topic}"
        text = "internal error: where=%s error=%r"
        log_line(logger, level, text, where, error, exc_info=error)
        if isinstance(error, KafkaError):
            return error
        failure = InternalError(f"{where} failed: {error!r}")
        failure.__cause__ = error
        return failure

    def fail_batch(self, queued: QueuedBatch, where: str, error: BaseException) -> None:
        """Log `error`, and fail the batch that was being processed when it was raised."""
        queued.queue.give_up(queued, self.report(where, error))

    def fail_queue(self, queue: PartitionQueue, where: str, error: BaseException) -> None:
        """Log `error`, and fail all batches of the queue that was being processed."""
        queue.give_up_all(self.report(where, error))

    def call_each(
        self, queues: Iterable[PartitionQueue], where: str, call: Callable[[PartitionQueue], None]
    ) -> None:
        """Call `call` with each queue; an exception fails that queue's batches only."""
        for queue in queues:
            try:
                call(queue)
            except Exception as error:  # noqa: BLE001  logged by fail_queue()
                self.fail_queue(queue, where, error)
