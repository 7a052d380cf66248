"""RecordedConsumer: a consumer of aiokq that records what it reads, commits and seeks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from aiokq.testing.history import Assign, Isolation, Offsets, Outcome, Poll, Polled, Seek
from aiokq.testing.recording import Recording, recorded_offsets

if TYPE_CHECKING:
    from aiokq import Consumer, OffsetAndMetadata, Record

P = TypeVar("P", bound=tuple[str, int])

__all__ = ["RecordedConsumer"]


class RecordedConsumer:
    """A consumer of aiokq whose polls, commits and seeks are recorded.

    `async for` yields records as with `Consumer`; each record is recorded as a poll of its own.
    """

    def __init__(
        self,
        recorder: Recording,
        consumer: Consumer,
        process: str,
        isolation: Isolation,
        group: str | None,
    ) -> None:
        self._recorder = recorder
        self._consumer = consumer
        self._process = process
        self._isolation = isolation
        self._group = group

    async def poll(
        self, timeout: float = 1.0, *, max_records: int | None = None, txn: str | None = None
    ) -> list[Record]:
        """Return records as `Consumer.getmany` does, in one list, and record them.

        Args:
            timeout: seconds to wait for the first record.
            max_records: the maximum number of records.
            txn: name of the transaction that consumes the records; None outside of a transaction.
        """
        start = self._recorder.clock()
        found = await self._consumer.getmany(timeout=timeout, max_records=max_records)
        records = [record for each in found.values() for record in each]
        if records:
            self._add_poll(records, txn, start)
        return records

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        start = self._recorder.clock()
        record = await self._consumer.__anext__()
        self._add_poll([record], None, start)
        return record

    def _add_poll(self, records: list[Record], txn: str | None, start: float) -> None:
        polled = tuple(
            Polled(r.topic, r.partition, r.offset, _text(r.value or b"")) for r in records
        )
        now = self._recorder.clock()
        self._recorder.add(
            Poll(self._process, polled, self._isolation, self._group, txn, start, now)
        )

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Set the position of a partition as `Consumer.seek` does, and record the seek.

        `check` also finds records that the consumer skips after the seek.
        """
        self._consumer.seek(partition, offset)
        self._add_seek(partition, offset)

    async def seek_to_beginning(
        self, *partitions: tuple[str, int], timeout: float | None = None
    ) -> None:
        """Seek to the log start as `Consumer.seek_to_beginning` does, and record the seek."""
        try:
            await self._consumer.seek_to_beginning(*partitions, timeout=timeout)
        finally:
            self._add_seeks(partitions)

    async def seek_to_end(self, *partitions: tuple[str, int], timeout: float | None = None) -> None:
        """Seek to the end as `Consumer.seek_to_end` does, and record the seek."""
        try:
            await self._consumer.seek_to_end(*partitions, timeout=timeout)
        finally:
            self._add_seeks(partitions)

    async def seek_to_committed(
        self, *partitions: tuple[str, int], timeout: float | None = None
    ) -> None:
        """Seek to the committed offsets as `Consumer.seek_to_committed` does.

        The call is recorded as an assignment, because a consumer also continues at the committed
        offsets after an assignment.
        """
        try:
            await self._consumer.seek_to_committed(*partitions, timeout=timeout)
        finally:
            now = self._recorder.clock()
            listed = tuple((topic, number) for topic, number in partitions)
            self._recorder.add(Assign(self._process, listed, now, now))

    def _add_seeks(self, partitions: tuple[tuple[str, int], ...]) -> None:
        for each in partitions or sorted(self._consumer.assignment()):
            self._add_seek(each, None)

    def _add_seek(self, partition: tuple[str, int], offset: int | None) -> None:
        (topic, number), now = partition, self._recorder.clock()
        self._recorder.add(Seek(self._process, topic, number, offset, now, now))

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets as `Consumer.commit` does, and record the commit.

        Without `offsets`, the call raises ConfigError unless the consumer has
        ``enable_auto_commit=False``, because automatic commits are not recorded.
        """
        if offsets is None:
            # The offsets are requested once, so that the recorded offsets are the committed
            # offsets.
            listed, _ = self._consumer.offsets_for_transaction()
            await self._commit(listed, timeout)
        else:
            await self._commit(offsets, timeout)

    async def _commit(
        self, offsets: Mapping[P, int | OffsetAndMetadata], timeout: float | None
    ) -> None:
        start, outcome = self._recorder.clock(), Outcome.UNKNOWN
        group = self._consumer.group_metadata().group_id
        try:
            await self._consumer.commit(offsets, timeout=timeout)
            outcome = Outcome.OK
        finally:
            committed, now = recorded_offsets(offsets), self._recorder.clock()
            self._recorder.add(Offsets(self._process, group, committed, outcome, None, start, now))


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
