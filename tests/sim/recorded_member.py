"""Members of groups whose polls, assignments, seeks and commits are recorded.

The tests read in all forms, so the consumer itself is recorded, not a wrapper with calls of its
own as `aiokq.testing.RecordedConsumer` is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Any

from aiokq.consumer.consumer import Consumer
from aiokq.consumer.positions import PartitionState
from aiokq.core.errors import CommitFailed
from aiokq.core.types import TopicPartition
from aiokq.testing import Assign, Isolation, Offset, Offsets, Outcome, Poll, Polled, Recorder, Seek

__all__ = ["RecordedMember"]


class RecordedMember(Consumer):
    """A consumer that records what it does.

    `batches()` are not recorded, because reading a batch changes the position; a partition of which
    a batch was read counts as assigned anew. So does one whose position was reset.
    """

    def __init__(self, recorder: Recorder, name: str, *topics: Any, **settings: Any) -> None:
        super().__init__(*topics, **settings)
        self._recorder = recorder
        self._name = name
        self._level = Isolation(self._settings.isolation_level)
        self._known: dict[TopicPartition, tuple[PartitionState | None, int]] = {}
        if self._group is not None:
            commit, group = self._group.stored.commit, self._settings.group_id

            async def recorded(
                offsets: Mapping[TopicPartition, Any], *args: Any, **options: Any
            ) -> None:
                await self._commit(str(group), commit, offsets, *args, **options)

            self._group.stored.commit = recorded  # type: ignore[method-assign]

    # -- reading

    def __aiter__(self) -> AsyncIterator[Any]:
        return _Reads(super().__aiter__(), self)

    def __anext__(self) -> Awaitable[Any]:
        return self._read(super().__anext__())

    async def getone(self, *partitions: Any) -> Any:
        return await self._read(super().getone(*partitions))

    async def getmany(self, *partitions: Any, **options: Any) -> Any:
        start = self._recorder.clock()
        found = await super().getmany(*partitions, **options)
        self.polled([record for records in found.values() for record in records], start)
        return found

    def batches(self) -> Any:
        return _Batches(super().batches(), self)

    def streams(self, count: int) -> Any:
        return [_Stream(stream, self) for stream in super().streams(count)]

    def seek(self, partition: Any, offset: int) -> None:
        super().seek(partition, offset)
        tp, now = TopicPartition(*partition), self._recorder.clock()
        self._known[tp] = self._state(tp)
        self._recorder.add(Seek(self._name, *tp, offset, now, now))

    async def _read(self, reading: Awaitable[Any]) -> Any:
        start = self._recorder.clock()
        record = await reading
        self.polled([record], start)
        return record

    def polled(self, records: list[Any], start: float) -> None:
        """Record delivered records, and before them new assignments of their partitions."""
        now = self._recorder.clock()
        for tp in dict.fromkeys(TopicPartition(r.topic, r.partition) for r in records):
            state = self._state(tp)
            if self._known.get(tp) != state:
                self._known[tp] = state
                self._recorder.add(Assign(self._name, (tp,), now, now))
        polled = tuple(Polled(r.topic, r.partition, r.offset, _text(r.value)) for r in records)
        if polled:
            group = self._settings.group_id
            self._recorder.add(Poll(self._name, polled, self._level, group, None, start, now))

    def skipped(self, topic: str, partition: int) -> None:
        """Record that records were delivered which are not in the history."""
        now = self._recorder.clock()
        self._recorder.add(Assign(self._name, ((topic, partition),), now, now))

    def _state(self, tp: TopicPartition) -> tuple[PartitionState | None, int]:
        state = self._positions.get(tp)
        return state, -1 if state is None else state.generation

    # -- commits

    async def _commit(
        self,
        group: str,
        commit: Any,
        offsets: Mapping[TopicPartition, Any],
        *args: Any,
        **options: Any,
    ) -> None:
        """Commit; an offset that was refused may have been committed by an earlier attempt."""
        start = self._recorder.clock()
        done: Iterable[TopicPartition] = ()
        try:
            await commit(offsets, *args, **options)
            done = offsets
        except CommitFailed as error:
            done = offsets.keys() - error.errors.keys()
            raise
        finally:
            now = self._recorder.clock()
            for tp, offset in offsets.items():
                outcome = Outcome.OK if tp in done else Outcome.UNKNOWN
                committed = (Offset(*tp, offset.offset),)
                self._recorder.add(Offsets(self._name, group, committed, outcome, None, start, now))


class _Reads:
    """An iterator over records that records them."""

    def __init__(self, inner: Any, member: RecordedMember) -> None:
        self._inner = inner
        self._member = member

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> Any:
        return self

    def __anext__(self) -> Awaitable[Any]:
        return self._member._read(self._inner.__anext__())


class _Batches(_Reads):
    async def __anext__(self) -> Any:
        batch = await self._inner.__anext__()
        self._member.skipped(batch.topic, batch.partition)
        return batch


class _Stream:
    """A stream of a member that records its records."""

    def __init__(self, inner: Any, member: RecordedMember) -> None:
        self._inner = inner
        self._member = member

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> Any:
        return _Reads(aiter(self._inner), self._member)

    def batches(self) -> Any:
        return _Batches(self._inner.batches(), self._member)

    async def getone(self) -> Any:
        return await self._member._read(self._inner.getone())

    async def __aenter__(self) -> Any:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)
