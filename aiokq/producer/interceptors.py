"""Interceptors: calls the user's hooks for records and batches, and logs their exceptions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import Buffer
from aiokq.core.user_errors import INTERRUPTS

if TYPE_CHECKING:
    from aiokq.fastpath.produce import QueuedBatch

__all__ = ["BatchInfo", "Interceptor", "Interceptors", "ProducerRecord", "batch_info"]

logger = logging.getLogger("aiokq.producer")

P = ParamSpec("P")


@frozen
class ProducerRecord:
    """One record before serialization.

    Attributes:
        partition: number of the partition; None if the partitioner chooses.
        timestamp_ms: milliseconds since 1970; None for the time of the append.
    """

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, Buffer | None]] | None = None


@frozen
class BatchInfo:
    """The description of a batch for interceptors.

    Attributes:
        count: number of records.
        size: size of the batch in bytes, after compression. If the batch failed before it was
            compressed, or because the producer was closed, this is the size before compression.
        attempt: number of attempts to send the batch, including an attempt that is about to begin.
            If the batch failed before it was sent, or because the producer was closed, this is 0.
        base_offset: offset of the first record; -1 if the batch is not acknowledged, or if the
            broker did not return the offset, as with acks=0.
    """

    topic: str
    partition: int
    count: int
    size: int
    attempt: int
    base_offset: int = -1


class Interceptor:
    """Base class of interceptors: override the hooks you need.

    Hooks run on the event loop and must not block. An exception in a hook is logged and ignored;
    the first exception of each type in a hook is logged at ERROR, later exceptions at DEBUG.
    KeyboardInterrupt and SystemExit propagate. `on_enqueue` runs once per record, except for the
    records of `send_batch` and for dead letters. `on_batch` runs once per attempt to send a batch,
    and either `on_ack` or `on_error` once per batch; if a batch is split, once per part.
    """

    def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send: `record` or another record. Called before serialization."""
        return record

    def on_batch(self, batch: BatchInfo) -> None:
        """Called before each attempt to send a batch."""

    def on_ack(self, batch: BatchInfo) -> None:
        """Called when a batch was acknowledged; with acks=0, when the batch was sent."""

    def on_error(self, batch: BatchInfo, error: KafkaError) -> None:
        """Called when a batch failed for good; its Deliveries raise `error`."""


class Interceptors:
    """Calls the interceptors in order; an exception of one does not stop the other interceptors."""

    __slots__ = ("_chain", "_logged")

    def __init__(self, chain: Sequence[Interceptor]) -> None:
        self._chain = tuple(chain)
        self._logged: set[tuple[str, int, type]] = set()

    def __bool__(self) -> bool:
        return bool(self._chain)

    def enqueue(self, record: ProducerRecord) -> ProducerRecord:
        """Pass the record through all interceptors, and return the result."""
        for interceptor in self._chain:
            try:
                given = interceptor.on_enqueue(record)
                if not isinstance(given, ProducerRecord):
                    raise TypeError(
                        f"on_enqueue returned {given!r}: it must return a ProducerRecord"
                    )
                record = given
            except INTERRUPTS:
                raise
            except BaseException as error:  # noqa: BLE001  logged
                self._log("on_enqueue", interceptor, error)
        return record

    def batch(self, info: BatchInfo) -> None:
        for interceptor in self._chain:
            self._call("on_batch", interceptor, interceptor.on_batch, info)

    def ack(self, info: BatchInfo) -> None:
        for interceptor in self._chain:
            self._call("on_ack", interceptor, interceptor.on_ack, info)

    def error(self, info: BatchInfo, error: KafkaError) -> None:
        for interceptor in self._chain:
            self._call("on_error", interceptor, interceptor.on_error, info, error)

    def _call(
        self,
        stage: str,
        interceptor: Interceptor,
        hook: Callable[P, None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        try:
            hook(*args, **kwargs)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001  logged
            self._log(stage, interceptor, error)

    def _log(self, stage: str, interceptor: Interceptor, error: BaseException) -> None:
        """Log an exception: first at ERROR, later at DEBUG, because each record may raise it."""
        kind = stage, id(interceptor), type(error)
        level = logging.DEBUG if kind in self._logged else logging.ERROR
        self._logged.add(kind)
        logger.log(level, "interceptor failed: stage=%s error=%r", stage, error, exc_info=error)


def batch_info(queued: QueuedBatch, base_offset: int = -1) -> BatchInfo:
    return BatchInfo(
        queued.queue.topic,
        queued.queue.partition,
        queued.batch.count,
        queued.size,
        queued.attempts,
        base_offset,
    )
