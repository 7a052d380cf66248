"""RecordedProducer: a producer of aiokq that records its sends and transactions.

An operation is recorded as UNKNOWN if the client does not know its outcome. A send is recorded as
FAILED only if the record was never accepted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aiokq.testing.history import EndTransaction, Offsets, Outcome, Send
from aiokq.testing.recording import Headers, ManyRecord, Recording, recorded_offsets

if TYPE_CHECKING:
    from aiokq import (
        Consumer,
        Deliveries,
        Delivery,
        GroupMetadata,
        OffsetAndMetadata,
        Producer,
        RecordMetadata,
        Transaction,
    )

P = TypeVar("P", bound=tuple[str, int])

__all__ = ["RecordedProducer"]


class RecordedProducer:
    """A producer of aiokq whose sends and transactions are recorded."""

    def __init__(self, recorder: Recording, producer: Producer, process: str) -> None:
        self._recorder = recorder
        self._producer = producer
        self._process = process
        self._transactions = 0
        self._open: tuple[str, Transaction] | None = None

    async def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> RecordMetadata:
        """Send a record as `Producer.send` does, and record its outcome."""
        from aiokq import BufferFull, ConfigError

        start, outcome, metadata, txn = self._recorder.clock(), Outcome.UNKNOWN, None, self._txn
        try:
            metadata = await self._producer.send(
                topic, value, key, partition, timestamp_ms, headers
            )
            outcome = Outcome.OK
            return metadata
        except (BufferFull, ConfigError, TypeError):
            outcome = Outcome.FAILED  # the producer has not accepted the record
            raise
        finally:
            self._add_send(topic, value, partition, txn, start, outcome, metadata)

    def send_nowait(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record as `Producer.send_nowait` does; its outcome is recorded when known."""
        start, txn = self._recorder.clock(), self._txn
        try:
            delivery = self._producer.send_nowait(
                topic, value, key, partition, timestamp_ms, headers
            )
        except BaseException:
            self._add_send(topic, value, partition, txn, start, Outcome.FAILED)
            raise
        self._watch(delivery, topic, value, partition, txn, start)
        return delivery

    async def enqueue(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery:
        """Accept a record as `Producer.enqueue` does; its outcome is recorded when known."""
        start, txn = self._recorder.clock(), self._txn
        try:
            delivery = await self._producer.enqueue(
                topic, value, key, partition, timestamp_ms, headers
            )
        except BaseException:
            self._add_send(topic, value, partition, txn, start, Outcome.FAILED)
            raise
        self._watch(delivery, topic, value, partition, txn, start)
        return delivery

    async def send_many(
        self, topic: str, records: Iterable[ManyRecord], partition: int | None = None
    ) -> Deliveries:
        """Accept records as `Producer.send_many` does; their outcomes are recorded when known."""
        start, txn = self._recorder.clock(), self._txn
        listed = list(records)
        values = [_bytes(record[1]) for record in listed]
        try:
            deliveries = await self._producer.send_many(topic, listed, partition)
        except BaseException:
            for value in values:  # the producer may have accepted some of the records
                self._add_send(topic, value, partition, txn, start, Outcome.UNKNOWN)
            raise
        for number, value in enumerate(values):
            self._watch(deliveries[number], topic, value, partition, txn, start)
        return deliveries

    async def begin_transaction(self) -> str:
        """Begin a transaction as `Producer.begin_transaction` does; return its name.

        Pass the name as `txn` to `RecordedConsumer.poll`.
        """
        return self._began(await self._producer.begin_transaction())

    async def commit_transaction(self) -> None:
        """Commit as `Producer.commit_transaction` does, and record the outcome."""
        await self._end(self._producer.commit_transaction, commit=True)

    async def abort_transaction(self) -> None:
        """Abort as `Producer.abort_transaction` does, and record the outcome."""
        await self._end(self._producer.abort_transaction, commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[str]:
        """Run a transaction as `Producer.transaction` does, and record its outcome.

        `async with` returns the name of the transaction. Pass the name as `txn` to
        `RecordedConsumer.poll`.
        """
        transaction = self._producer.transaction()
        await transaction.__aenter__()
        name = self._began(transaction)
        try:
            yield name
        except BaseException as error:
            leave = partial(transaction.__aexit__, type(error), error, error.__traceback__)
            await self._leave(transaction, leave, commit=False)
            raise
        await self._leave(
            transaction, partial(transaction.__aexit__, None, None, None), commit=True
        )

    async def send_offsets(
        self,
        offsets: Consumer | Mapping[P, int | OffsetAndMetadata],
        group_metadata: GroupMetadata | str | None = None,
        /,
    ) -> None:
        """Commit offsets of a group as `Transaction.send_offsets` does, and record the commit."""
        if not isinstance(offsets, Mapping):
            # The offsets are requested once, so that the recorded offsets are the sent offsets.
            listed, metadata = offsets.offsets_for_transaction()
            await self._send_offsets(listed, metadata)
        else:
            await self._send_offsets(offsets, group_metadata)

    async def _send_offsets(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata],
        metadata: GroupMetadata | str | None,
    ) -> None:
        if self._open is None:
            raise RuntimeError("send_offsets is called inside a transaction")
        txn, transaction = self._open
        start, outcome = self._recorder.clock(), Outcome.UNKNOWN
        try:
            await transaction.send_offsets(offsets, metadata)
            outcome = Outcome.OK
        finally:
            group = metadata if isinstance(metadata, str | None) else metadata.group_id
            committed, now = recorded_offsets(offsets), self._recorder.clock()
            self._recorder.add(
                Offsets(self._process, group or "", committed, outcome, txn, start, now)
            )

    @property
    def _txn(self) -> str | None:
        return None if self._open is None else self._open[0]

    def _began(self, transaction: Transaction) -> str:
        self._transactions += 1
        # The time makes the name unique, even if two processes have the same name.
        name = f"{self._process}/{self._transactions}@{int(self._recorder.clock())}"
        self._open = (name, transaction)
        return name

    async def _leave(
        self, transaction: Transaction, leave: Callable[[], Awaitable[None]], *, commit: bool
    ) -> None:
        if transaction.ended_by_call:
            await leave()  # the call of commit or abort has recorded the end
        else:
            await self._end(leave, commit=commit)

    async def _end(self, call: Callable[[], Awaitable[None]], *, commit: bool) -> None:
        """Call `call`, and record the end of the transaction.

        If the outcome is unknown, the requested end is recorded.
        """
        if self._open is None:
            await call()  # raises an error, because no transaction is open
            return
        name, transaction = self._open
        start = self._recorder.clock()
        try:
            await call()
        finally:
            ended = transaction.outcome_now
            known = {"committed": True, "aborted": False}.get(ended.value if ended else "")
            if known is not None:
                self._open = None
            self._recorder.add(
                EndTransaction(
                    self._process,
                    name,
                    commit if known is None else known,
                    Outcome.UNKNOWN if known is None else Outcome.OK,
                    start,
                    self._recorder.clock(),
                )
            )

    def _watch(
        self,
        delivery: Delivery,
        topic: str,
        value: bytes,
        partition: int | None,
        txn: str | None,
        start: float,
    ) -> None:
        def done(delivery: Delivery) -> None:
            delivered = not delivery.cancelled() and delivery.exception() is None
            self._add_send(
                topic,
                value,
                partition,
                txn,
                start,
                Outcome.OK if delivered else Outcome.UNKNOWN,
                delivery.result() if delivered else None,
            )

        delivery.add_done_callback(done)

    def _add_send(
        self,
        topic: str,
        value: bytes,
        partition: int | None,
        txn: str | None,
        start: float,
        outcome: Outcome,
        metadata: RecordMetadata | None = None,
    ) -> None:
        where = partition if metadata is None else metadata.partition
        offset = None if metadata is None or metadata.offset < 0 else metadata.offset
        text = value.decode(errors="backslashreplace")
        now = self._recorder.clock()
        self._recorder.add(
            Send(self._process, topic, text, outcome, where, offset, txn, start, now)
        )


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a recorded value must be bytes, not {type(value).__name__}")
    return value
