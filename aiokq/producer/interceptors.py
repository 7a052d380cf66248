"""Owns the hooks of a producer's stages and their isolation; not the stages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec

from aiokq.core.errors import KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import Buffer
from aiokq.core.user_errors import INTERRUPTS

if TYPE_CHECKING:
    from aiokq.producer.queued_batch import QueuedBatch

__all__ = ["BatchInfo", "Interceptor", "Interceptors", "ProducerRecord", "batch_info"]

logger = logging.getLogger("aiokq.producer")

P = ParamSpec("P")


@frozen
class ProducerRecord:
    """One record on its way in, before serialization.

    Attributes:
        partition: None lets the partitioner choose.
        timestamp_ms: None takes the time of the append.
    """

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, Buffer | None]] | None = None


@frozen
class BatchInfo:
    """One batch as interceptors see it.

    Attributes:
        count: records in it.
        size: bytes as it is sent, compressed.
        attempt: how often it was sent; 0 if it failed before that.
        base_offset: of its first record; -1 until acknowledged, and with acks=0.
    """

    topic: str
    partition: int
    count: int
    size: int
    attempt: int
    base_offset: int = -1


class Interceptor:
    """Base class of interceptors: override what you need.

    They run on the event loop and must not block. What they raise is logged, the first time as an
    error and then at DEBUG, and the producer goes on as if they were not there; KeyboardInterrupt
    and SystemExit end it. `on_enqueue` runs per record, the others per batch.
    """

    def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        """Before a record is serialized and put in; returns it, or another in its place."""
        return record

    def on_batch(self, batch: BatchInfo) -> None:
        """A batch is about to be sent, for the first time or again."""

    def on_ack(self, batch: BatchInfo) -> None:
        """A batch was acknowledged."""

    def on_error(self, batch: BatchInfo, error: KafkaError) -> None:
        """A batch failed for good; its Deliveries raise this error."""


class Interceptors:
    """Calls several interceptors in order; an exception in one does not reach the others."""

    __slots__ = ("_chain", "_logged")

    def __init__(self, chain: Sequence[Interceptor]) -> None:
        self._chain = tuple(chain)
        self._logged: set[tuple[str, int, type]] = set()

    def __bool__(self) -> bool:
        return bool(self._chain)

    def enqueue(self, record: ProducerRecord) -> ProducerRecord:
        """The record that comes out at the end of the chain."""
        for interceptor in self._chain:
            try:
                given = interceptor.on_enqueue(record)
                if not isinstance(given, ProducerRecord):
                    raise TypeError(f"on_enqueue gave {given!r}: it has to return the record")
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
        """An error is logged once with its traceback: the next one may come with every record."""
        kind = stage, id(interceptor), type(error)
        level = logging.DEBUG if kind in self._logged else logging.ERROR
        self._logged.add(kind)
        logger.log(level, "interceptor failed: stage=%s error=%r", stage, error, exc_info=error)


def batch_info(queued: QueuedBatch, base_offset: int = -1) -> BatchInfo:
    """Return what interceptors see of a batch."""
    return BatchInfo(
        queued.queue.topic,
        queued.queue.partition,
        queued.batch.count,
        queued.size,
        queued.attempts,
        base_offset,
    )
