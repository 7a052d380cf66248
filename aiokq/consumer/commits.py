"""Commits: decides which offsets a consumer commits, and when; sends one commit at a time.

The commit requests, and the handling of their errors, are in group/offsets.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokq.consumer.commit_queue import CommitQueue, CommitTurn
from aiokq.core.errors import (
    Closed,
    CommitFailed,
    KafkaError,
    RequestTimeout,
    UnknownMemberId,
    copy_error,
)
from aiokq.core.named_tuple import NamedTuple
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

__all__ = ["Commits"]

logger = logging.getLogger("aiokq.consumer")

TROUBLE: Final = "commit failed"

P = TypeVar("P", bound=tuple[str, int])


class _Gone(NamedTuple):
    """A lost or revoked partition; user code may still be processing its records."""

    source: RecordSource
    progress: tuple[int, int]
    behind: OffsetAndMetadata


class _Claim(NamedTuple):
    """The identity of a partition when its commit was requested.

    If the partition is reassigned or its topic is recreated, the identity changes.
    """

    owner: PartitionState | _Gone | None
    incarnation: int
    topic_id: UUID
    """The topic to which the offset belongs; zeros if unknown."""


class Commits:
    """The commits of one consumer, sent one at a time, in order.

    Args:
        stored: the group's offsets.
        acks: the unacknowledged records; None unless ``ack_mode="explicit"``.
        allowed: returns whether a commit can succeed now; if not, `run` sends no commit.
        topic_id: returns the id of the topic to which a partition's offsets belong.
        spawn: starts a task of the consumer.

    Attributes:
        error: why the last automatic or background commit failed; None after a success.
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

    def finished(self, state: PartitionState) -> int:
        """Return the offset up to which a partition's records are finished; -1 if unknown."""
        if self._acks is not None:
            first = self._acks.first_open(state.tp)
            return state.settled_position if first is None else first
        return state.source.finished(state)

    def in_work(self, state: PartitionState, by: asyncio.Task[Any] | None = None) -> bool:
        """Whether a record of the partition is being worked on and may still be finished.

        Args:
            by: a task that waits until no record is being worked on. Its own records are ignored,
                except with ``ack_mode="explicit"``.
        """
        if self._acks is not None:
            return self._acks.first_open(state.tp) is not None
        return state.source.unfinished(state) and not state.source.worked_on_by(by)

    @property
    def pending(self) -> int:
        """The number of partitions with finished records that are not committed.

        Context: any thread.
        """
        return sum(1 for _ in self._changed())

    def _changed(self) -> Iterable[tuple[PartitionState, int]]:
        for state in tuple(self._positions):  # another thread may read `pending`
            offset = self.finished(state)
            if offset >= 0 and self._known.get(state.tp) != offset:
                yield state, offset

    def all_finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return for each partition the offset after its finished records, if not committed yet."""
        return {state.tp: _behind(state, offset) for state, offset in self._changed()}

    def handed_over(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset after the last delivered record of each partition.

        With ``ack_mode="explicit"``, the offset of the first unacknowledged record is returned, if
        there is one. The partitions in `lost` are included, so that a commit fails for them
        instead of leaving them out.
        """
        if self._acks is not None:
            offsets = ((state, self.finished(state)) for state in self._positions)
        else:
            offsets = ((state, state.settled_position) for state in self._positions)
        gone = {tp: self._gone[tp].behind for tp in self.lost}
        return gone | {state.tp: _behind(state, offset) for state, offset in offsets if offset >= 0}

    def found(self, tp: TopicPartition, offset: int) -> None:
        """Store the committed offset of a partition."""
        self._known[tp] = offset

    def forget(self, tp: TopicPartition) -> None:
        """Forget the committed offset of a partition that other members may read now."""
        self._known.pop(tp, None)

    def replaced(self, state: PartitionState) -> None:
        """Forget the committed offset of a partition whose topic was deleted and created again.

        If automatic commits are enabled, and finished records were not committed, log a warning.
        """
        offset, known = self.finished(state), self._known.pop(state.tp, None)
        if self._settings.auto_commit and offset >= 0 and offset != known:
            logger.warning(
                "offset of a deleted topic is not committed: group=%s partition=%s offset=%d",
                self._settings.group_id,
                state.tp,
                offset,
            )

    def gone(self, states: Iterable[PartitionState]) -> None:
        """Refuse commits for lost or revoked partitions.

        User code may still be processing their records. The commits are refused until the reader
        requests another record or is closed, even if the partition is assigned again.
        """
        for state in states:
            behind = OffsetAndMetadata(max(0, state.position))
            self._gone[state.tp] = _Gone(state.source, state.source.progress, behind)

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """The partitions whose commits are refused because of `gone`."""
        return frozenset(tp for tp in self._gone if self._is_gone(tp))

    def _is_gone(self, tp: TopicPartition) -> bool:
        gone = self._gone.get(tp)
        return gone is not None and gone.source.progress == gone.progress and not gone.source.closed

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None
    ) -> None:
        """Commit these offsets and wait for the result; see `Consumer.commit`."""
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
            # The commit gets the time limit as an argument: a timeout around the call would hide
            # why the commit took so long.
            left = await turn.wait(seconds, _overdue)
            await self._send(offsets, claims, left)
        finally:
            turn.end()

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> asyncio.Future[None]:
        """Commit in the background; see `Consumer.commit_nowait`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The commit takes its place in the queue here and not in the task: a commit that is awaited
        # next must not overtake this one.
        turn = self._queue.join()

        def ended(_: object) -> None:
            turn.end()  # the task does not end the turn if it is cancelled before its first step
            if not done.done():
                _fail(
                    done,
                    Closed(
                        "the consumer was closed before the response to its commit arrived: "
                        "committed() of another consumer of the group returns what was committed"
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
        """Wait at most `seconds` until all commits that were begun before this call have ended."""
        turn = self._queue.join()
        try:
            await turn.wait(seconds, _overdue)
        except RequestTimeout:
            logger.warning(
                "commits still pending, no longer waited for: group=%s waited=%.3gs",
                self._settings.group_id,
                seconds,
            )
        finally:
            turn.end()

    async def commit_finished(self, timeout: float) -> bool:
        """Commit the offsets of finished records. Log a failure, and store it in `error`.

        An offset that is refused because its topic was deleted and created again is not a failure.

        Returns:
            Whether all other offsets are committed.

        Raises:
            Closed: the cluster was closed.
        """
        turn = self._queue.join()
        claims: dict[TopicPartition, _Claim] = {}
        try:
            left = await turn.wait(timeout, _overdue)
            offsets = self.all_finished()  # read only after the earlier commits have ended
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
        """Commit finished records every ``auto_commit_interval_ms`` until cancelled."""
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
        """Return an error if the offset must not be committed any more, else None."""
        if self._positions.get(tp) is not claim.owner:
            return UnknownMemberId(topic_partition=tp)
        return topic_replaced(tp) if self._is_replaced(tp, claim) else None

    def _is_replaced(self, tp: TopicPartition, claim: _Claim) -> bool:
        """Whether the partition is still read, but its topic was deleted and created again."""
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


def _behind(state: PartitionState, offset: int) -> OffsetAndMetadata:
    """Return the offset with the leader epoch of the record before it, if the epoch is known."""
    epoch = -1
    if state.fetch_offset == offset:
        epoch = state.fetch_epoch
    elif state.chunks:
        cursor = state.chunks[0].cursor
        if cursor.position == offset:
            epoch = cursor.leader_epoch
    return OffsetAndMetadata(offset, leader_epoch=epoch if epoch >= 0 else None)


def _fail(done: asyncio.Future[None], error: KafkaError) -> None:
    done.set_exception(error)
    done.exception()  # asyncio must not report the error as never retrieved


def _overdue(waited: float) -> RequestTimeout:
    return RequestTimeout(
        f"the offsets were not committed within {waited:.3g} s: an earlier commit was in progress",
        api="OffsetCommit",
    )
