"""Commits: which offsets of a consumer are to be committed, when, and one commit after the other.

How a commit is asked for, and what its errors mean, is group/offsets.py's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from aiokq.consumer.commit_queue import CommitQueue, CommitTurn
from aiokq.consumer.subscription import checked_partition
from aiokq.core import limits
from aiokq.core.errors import (
    Closed,
    CommitFailed,
    ConfigError,
    KafkaError,
    RequestTimeout,
    UnknownMemberId,
    copy_error,
)
from aiokq.core.types import OffsetAndMetadata, TopicPartition
from aiokq.group.offsets import topic_replaced

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.consumer.acknowledgements import Acknowledgements
    from aiokq.consumer.positions import PartitionState, Positions
    from aiokq.consumer.record_source import RecordSource
    from aiokq.consumer.values import ConsumerValues
    from aiokq.core.outages import Outages
    from aiokq.group.offsets import GroupOffsets

__all__ = ["Commits", "checked_offsets"]

logger = logging.getLogger("aiokq.consumer")

TROUBLE: Final = "commit failed"

P = TypeVar("P", bound=tuple[str, int])


class _Gone(NamedTuple):
    """A partition that was lost amid its records: who hands over, and how far that was then."""

    source: RecordSource
    progress: tuple[int, int]
    behind: OffsetAndMetadata


class _Claim(NamedTuple):
    """What a partition was when its commit was asked for: given anew, it is another one."""

    owner: PartitionState | _Gone | None
    incarnation: int
    topic_id: UUID
    """Of the topic that the offset belongs to; zeros where it is not known."""


class Commits:
    """Commits for one consumer.

    They go out one after the other, so that an older one never overtakes a newer one.

    Args:
        stored: the group's offsets.
        acks: what is being worked on, where records are acknowledged.
        allowed: whether a commit has a chance now; the automatic ones wait for it.
        topic_id: of the topic that a partition's offsets belong to.
        spawn: starts a task of the consumer.

    Attributes:
        error: why the last automatic commit failed; None after a success.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        positions: Positions,
        stored: GroupOffsets,
        acks: Acknowledgements | None,
        outages: Outages,
        *,
        allowed: Callable[[], bool],
        topic_id: Callable[[TopicPartition], UUID],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._settings = settings
        self._positions = positions
        self._stored = stored
        self._acks = acks
        self._outages = outages
        self._allowed = allowed
        self._topic_id = topic_id
        self._spawn = spawn
        self._queue = CommitQueue()
        self._known: dict[TopicPartition, int] = {}
        self._gone: dict[TopicPartition, _Gone] = {}
        self.error: KafkaError | None = None

    # -- what there is to commit

    def finished(self, state: PartitionState) -> int:
        """Offset up to which the partition's records are finished; -1 while there is none."""
        if self._acks is not None:
            first = self._acks.first_open(state.tp)
            return state.position if first is None else first
        return state.source.finished(state)

    def in_work(self, state: PartitionState, by: asyncio.Task[Any] | None = None) -> bool:
        """Whether a record of the partition is being worked on, and may yet be finished.

        Args:
            by: not by this task, which finishes nothing at the moment.
        """
        if self._acks is not None:
            return self._acks.first_open(state.tp) is not None
        return state.source.unfinished(state) and not state.source.worked_on_by(by)

    @property
    def pending(self) -> int:
        """Partitions with finished records that are not committed."""
        return sum(1 for _ in self._changed())

    def _changed(self) -> Iterable[tuple[PartitionState, int]]:
        for state in self._positions:
            offset = self.finished(state)
            if offset >= 0 and self._known.get(state.tp) != offset:
                yield state, offset

    def all_finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is finished and not committed yet."""
        return {state.tp: _behind(state, offset) for state, offset in self._changed()}

    def handed_over(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind every record that was handed over, or up to the first that is not acknowledged."""
        if self._acks is not None:
            offsets = ((state, self.finished(state)) for state in self._positions)
        else:
            offsets = ((state, state.position) for state in self._positions)
        gone = {tp: gone.behind for tp, gone in self._gone.items() if self._is_gone(tp)}
        return gone | {state.tp: _behind(state, offset) for state, offset in offsets if offset >= 0}

    def found(self, tp: TopicPartition, offset: int) -> None:
        """This is committed already."""
        self._known[tp] = offset

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not read any more: others may commit for it."""
        self._known.pop(tp, None)

    def replaced(self, state: PartitionState) -> None:
        """Another topic takes the partition's name: offsets of the old one are not committed."""
        offset, known = self.finished(state), self._known.pop(state.tp, None)
        if self._settings.auto_commit and offset >= 0 and offset != known:
            logger.warning(
                "offset of a deleted topic is not committed: group=%s partition=%s offset=%d",
                self._settings.group_id,
                state.tp,
                offset,
            )

    def gone(self, states: Iterable[PartitionState]) -> None:
        """User code works on records of these, and another member has them by now.

        Until it asks for more it may commit them, not knowing: that is refused, also where the
        partitions have come back since, by a membership that goes on without user code.
        """
        for state in states:
            behind = OffsetAndMetadata(max(0, state.position))
            self._gone[state.tp] = _Gone(state.source, state.source.progress, behind)

    def _is_gone(self, tp: TopicPartition) -> bool:
        gone = self._gone.get(tp)
        return gone is not None and gone.source.progress == gone.progress and not gone.source.closed

    # -- committing

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None
    ) -> None:
        """Commit these; returns when it is done.

        Raises:
            CommitFailed: some were refused, and whether they are lost.
            RequestTimeout: not in time, the turn of earlier commits included.
        """
        await self._in_turn(self._queue.join(), offsets, self._claims(offsets), timeout)

    async def _in_turn(
        self,
        turn: CommitTurn,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        claims: Mapping[TopicPartition, _Claim],
        timeout: float | None,
    ) -> None:
        seconds = self._settings.default_api_timeout if timeout is None else timeout
        try:
            # A limit around the commit itself would end it without a word about the cause.
            left = await turn.wait(seconds, _overdue)
            await self._send(offsets, claims, left)
        finally:
            turn.end()

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> asyncio.Future[None]:
        """The same without waiting; a failure is logged, and raised to who awaits the result."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Here, not in the task: a commit that is awaited next must not go first.
        turn = self._queue.join()

        def ended(_: object) -> None:
            turn.end()  # a task that is cancelled before its first step ends nothing itself
            if not done.done():
                _fail(
                    done,
                    Closed(
                        "the consumer was closed before its commit was answered: ask committed()"
                    ),
                )

        try:
            task = self._spawn(
                self._in_background(turn, offsets, self._claims(offsets), done), "commit"
            )
        except BaseException:
            turn.end()
            raise
        task.add_done_callback(ended)
        return done

    async def settle(self, seconds: float) -> None:
        """Until all that were begun before are done, or nobody can wait any longer."""
        turn = self._queue.join()
        try:
            await turn.wait(seconds, _overdue)
        except RequestTimeout:
            logger.warning(
                "commits not waited for: group=%s waited=%.3gs", self._settings.group_id, seconds
            )
        finally:
            turn.end()

    async def commit_finished(self, timeout: float) -> bool:
        """Commit what is finished; a failure is logged and kept, not raised.

        What was read of a topic that was deleted and created again meanwhile is left out.

        Returns whether all of it is committed.
        """
        turn = self._queue.join()
        claims: dict[TopicPartition, _Claim] = {}
        try:
            left = await turn.wait(timeout, _overdue)
            offsets = self.all_finished()  # as of now that it is its turn
            claims = {tp: self._claim(tp, self._positions.get(tp)) for tp in offsets}
            await self._send(offsets, claims, left)
        except Closed:
            raise
        except CommitFailed as error:
            if not all(self._is_replaced(tp, claims[tp]) for tp in error.errors):
                self._failed(error)
                return False
        except KafkaError as error:
            self._failed(error)
            return False
        finally:
            turn.end()
        self._succeeded()
        return True

    async def run(self) -> None:
        """Commit what is finished every ``auto_commit_interval_ms``, for ever."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.auto_commit_interval)
            if self._allowed():
                await self.commit_finished(settings.default_api_timeout)

    def _claims(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, _Claim]:
        return {
            tp: self._claim(tp, self._gone[tp] if self._is_gone(tp) else self._positions.get(tp))
            for tp in partitions
        }

    def _claim(self, tp: TopicPartition, owner: PartitionState | _Gone | None) -> _Claim:
        state = self._positions.get(tp)
        return _Claim(owner, 0 if state is None else state.incarnation, self._topic_id(tp))

    def _refusal(self, tp: TopicPartition, claim: _Claim) -> KafkaError | None:
        """Why its offset must not be committed any more, if so."""
        if self._positions.get(tp) is not claim.owner:
            return UnknownMemberId(topic_partition=tp)
        return topic_replaced(tp) if self._is_replaced(tp, claim) else None

    def _is_replaced(self, tp: TopicPartition, claim: _Claim) -> bool:
        """Whether it is read on, and belongs to another topic since."""
        state = self._positions.get(tp)
        return state is not None and state is claim.owner and state.incarnation != claim.incarnation

    async def _send(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        claims: Mapping[TopicPartition, _Claim],
        seconds: float,
    ) -> None:
        if not offsets:
            return
        try:
            await self._stored.commit(
                offsets,
                timeout=seconds,
                topic_ids={tp: claim.topic_id for tp, claim in claims.items()},
                refusal=lambda tp: self._refusal(tp, claims[tp]),
            )
        except CommitFailed as error:
            self._note({tp: at for tp, at in offsets.items() if tp not in error.errors}, claims)
            raise
        self._note(offsets, claims)

    def _note(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        claims: Mapping[TopicPartition, _Claim],
    ) -> None:
        for tp, stored in offsets.items():
            if tp in self._positions and not self._is_replaced(tp, claims[tp]):
                self._known[tp] = stored.offset

    async def _in_background(
        self,
        turn: CommitTurn,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        claims: Mapping[TopicPartition, _Claim],
        done: asyncio.Future[None],
    ) -> None:
        try:
            await self._in_turn(turn, offsets, claims, None)
        except KafkaError as error:
            self._failed(error)
            if not done.done():
                _fail(done, copy_error(error))
        else:
            self._succeeded()
            if not done.done():
                done.set_result(None)

    def _failed(self, error: KafkaError) -> None:
        self.error = error
        group_id = self._settings.group_id
        self._outages.failed(TROUBLE, group_id, error, where={"group": group_id})

    def _succeeded(self) -> None:
        self.error = None
        self._outages.ended(TROUBLE, self._settings.group_id)


def checked_offsets(
    offsets: Mapping[P, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a user wants committed, as values that the protocol can carry.

    Raises:
        TypeError: what is no partition, or no offset.
        ConfigError: an offset that no log has.
    """
    checked = {}
    for partition, offset in offsets.items():
        tp = checked_partition(partition)
        wanted = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if not isinstance(wanted, OffsetAndMetadata) or isinstance(offset, bool):
            raise TypeError(f"an offset is an int or an OffsetAndMetadata, not {offset!r}")
        limits.offset(wanted.offset, f"offset of {tp}", error=ConfigError)
        if wanted.leader_epoch is not None:
            limits.count(wanted.leader_epoch, f"leader_epoch of {tp}", -1, error=ConfigError)
        checked[tp] = wanted
    return checked


def _behind(state: PartitionState, offset: int) -> OffsetAndMetadata:
    """The offset, with the leader epoch of the record before it if that is known."""
    epoch = -1
    if state.chunks:
        cursor = state.chunks[0].cursor
        if cursor.position == offset:
            epoch = cursor.leader_epoch
    elif state.fetch_offset == offset:
        epoch = state.fetch_epoch
    return OffsetAndMetadata(offset, leader_epoch=epoch if epoch >= 0 else None)


def _fail(done: asyncio.Future[None], error: KafkaError) -> None:
    done.set_exception(error)
    done.exception()  # it was logged: asyncio need not say that nobody looked


def _overdue(waited: float) -> RequestTimeout:
    return RequestTimeout(
        f"the offsets were not committed within {waited:.3g} s: an earlier commit was under way",
        api="OffsetCommit",
    )
