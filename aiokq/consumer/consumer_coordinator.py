"""ConsumerCoordinator: the parts that only a consumer with a `group_id` has.

It connects membership (membership.py), commits (commits.py), acknowledgements
(acknowledgements.py) and the supervision of `max_poll_interval_ms` (poll_interval.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiokq.cluster.metadata import ZERO_ID
from aiokq.cluster.partition_arguments import checked_offsets
from aiokq.consumer.acknowledgements import Acknowledgements
from aiokq.consumer.commits import Commits
from aiokq.consumer.health import GroupHealth
from aiokq.consumer.membership import Member
from aiokq.consumer.poll_interval import PollIntervalMonitor
from aiokq.consumer.rebalance_handlers import RebalanceHandlers
from aiokq.core.errors import Closed, CommitFailed, ConfigError, KafkaError, UnknownMemberId
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.group.member_state import MemberState
from aiokq.group.offsets import GroupOffsets

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.batch import RecordBatch
    from aiokq.consumer.fetch_pipeline import FetchPipeline
    from aiokq.consumer.record_source import RecordSource
    from aiokq.consumer.subscription import Subscription
    from aiokq.consumer.values import ConsumerValues
    from aiokq.core.supervisor import Supervisor
    from aiokq.fastpath.consume import Record

__all__ = ["ConsumerCoordinator"]

logger = logging.getLogger("aiokq.consumer")

P = TypeVar("P", bound=tuple[str, int])

SHARE = 1 / 3
"""The fraction of the close timeout that each step before leaving the group may take."""


class ConsumerCoordinator:
    """Membership, commits and acknowledgements of one consumer.

    Args:
        supervisor: the supervisor of the consumer's tasks.

    Attributes:
        stored: the offsets of the group.
        acks: the unacknowledged records with ``ack_mode="explicit"``; else None.
        handlers: the rebalance handlers of the user.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        subscription: Subscription,
        supervisor: Supervisor,
    ) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._engine = engine
        self._subscription = subscription
        self._supervisor = supervisor
        self._group_id = settings.group_id
        self._pipeline: FetchPipeline | None = None
        self._commits: Commits | None = None
        self._member: Member | None = None
        self.acks: Acknowledgements | None = None
        if settings.ack_mode == "explicit":
            self.acks = Acknowledgements(self._work_changed, self._topic_id)
        self.handlers = RebalanceHandlers(self._handler_failed)
        self.stored = GroupOffsets(
            engine,
            settings.group_id,
            member=self._committer,
            owned=lambda: frozenset() if self._member is None else self._member.driver.owned,
        )

    def start(self, pipeline: FetchPipeline) -> None:
        """Start the membership, which assigns partitions to `pipeline`."""
        self._pipeline = pipeline
        self._engine.watch_stalls()
        self._commits = Commits(
            self._settings,
            pipeline.positions,
            self.stored,
            self.acks,
            self._engine.outages,
            allowed=lambda: self._committer() is not None,
            topic_id=self._topic_id,
            spawn=self._spawn,
        )
        pipeline.committed_at = self._commits.found
        pipeline.replaced = self._commits.replaced
        pipeline.starved = self._asked
        self._member = Member(
            self._settings,
            self._engine,
            self._subscription,
            pipeline,
            self._commits,
            self.handlers,
            report=pipeline.sources.report,
            spawn=self._spawn,
        )
        pipeline.start(self._member.subscribed)
        self._spawn(self._member.driver.run(), "group")
        liveness = PollIntervalMonitor(
            self._settings,
            lambda: pipeline.sources.open,
            member=lambda: self.member.inside,
            exceeded=lambda error: self.member.leave(lost=error),
        )
        self._spawn(liveness.run(), "readers")
        if self._settings.auto_commit:
            self._spawn(self._commits.run(), "auto commit")

    @property
    def member(self) -> Member:
        """The membership of this consumer; available after `start`."""
        assert self._member is not None
        return self._member

    @property
    def commits(self) -> Commits:
        """The object that sends this consumer's commits; available after `start`."""
        assert self._commits is not None
        return self._commits

    async def close(self, timeout: float, *, normal: bool, by: asyncio.Task[Any] | None) -> None:
        """Leave the group within `timeout` seconds, as `Consumer.close` describes.

        Reading must have ended.

        Args:
            normal: whether `close` is called while no exception is being handled. If so, the last
                records delivered to `by`, and to tasks that have ended without an error, count as
                finished.
            by: the task that calls `close`; its records are not waited for.
        """
        pipeline = self._pipeline
        if pipeline is None:
            return
        now = self._engine.now()
        deadline = now + timeout
        try:
            await self._bounded(
                "unfinished records", self._drain(pipeline, normal, by), timeout * SHARE
            )
            if self._settings.auto_commit and self._committer() is not None:
                limit = min(timeout * SHARE, deadline - self._engine.now())
                await self.commits.commit_finished(max(0.0, limit))
            limit = min(timeout * SHARE, deadline - self._engine.now())
            await self.commits.settle(max(0.0, limit))
            left = max(0.0, deadline - self._engine.now())
            await self._bounded("leaving the group", self.member.left(deadline), left)
        except Closed as error:
            # The cluster or this consumer has ended, so nothing more can be sent.
            logger.debug("group not left: group=%s error=%s", self._group_id, error)

    async def disconnect(self) -> None:
        """Stop watching topics and close the coordinator connection, without leaving the group."""
        if self._member is not None:
            self._member.forget()
            await self._member.driver.close()

    async def _drain(
        self, pipeline: FetchPipeline, normal: bool, by: asyncio.Task[Any] | None
    ) -> None:
        for source in (pipeline.sources.main, *pipeline.sources.open):
            reader = source.reader_guard.reader
            if normal and (reader is None or reader is by or _ended_well(reader)):
                source.finish()
        if self.acks is not None:
            return  # do not wait: unacknowledged records are delivered again
        while any(self.commits.in_work(state, by) for state in pipeline.positions):
            await pipeline.work_changes()

    async def _bounded(self, what: str, step: Coroutine[Any, Any, None], seconds: float) -> None:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await step
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning(
                "no longer waiting: group=%s step=%s waited=%.3gs",
                self._group_id,
                what,
                seconds,
            )

    def asked(self) -> None:
        """Rejoin the group if necessary, because the consumer is being read.

        Raises:
            KafkaError: the membership ended with this error.
        """
        if self._member is not None:
            self._member.asked()

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None,
        timeout: float | None,
    ) -> None:
        """See `Consumer.commit`."""
        await self.commits.commit(self._wanted(offsets), timeout)

    def begin_commit(
        self, offsets: Mapping[P, int | OffsetAndMetadata] | None
    ) -> asyncio.Future[None]:
        """See `Consumer.commit_nowait`."""
        return self.commits.begin(self._wanted(offsets))

    def offsets_for_transaction(
        self,
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """See `Consumer.offsets_for_transaction`."""
        offsets, lost = self.commits.handed_over(), self.commits.lost
        member = self._committer()
        # The broker accepts transactional offsets from any client if they have no generation
        # (KIP-447). Without this check, a consumer that has lost its membership would overwrite the
        # offsets of the new owner.
        refused = lost if member is not None else offsets.keys()
        if refused:
            errors = {tp: UnknownMemberId(topic_partition=tp) for tp in refused}
            raise CommitFailed(errors, frozenset(errors), api="TxnOffsetCommit")
        return offsets, self.metadata

    def ack(self, item: Record | RecordBatch[Record]) -> None:
        """See `Consumer.ack`."""
        if self.acks is None:
            raise ConfigError(
                "ack() needs ack_mode='explicit': with 'implicit' a record is finished when the "
                "next record is requested"
            )
        self.acks.done(item)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of these partitions."""
        seconds = self._settings.default_api_timeout if timeout is None else timeout
        return await self.stored.committed(partitions, timeout=seconds)

    @property
    def metadata(self) -> GroupMetadata:
        """The identity with which offsets are committed."""
        if self._member is None or not self._subscribed:
            return GroupMetadata(self._group_id, group_instance_id=self._settings.group_instance_id)
        return self._member.metadata

    def group_metadata(self) -> GroupMetadata:
        """See `Consumer.group_metadata`."""
        metadata = self.metadata
        if self._committer() is None:
            metadata = dataclasses.replace(metadata, outside_group=True)
        return metadata

    def health(self) -> GroupHealth:
        """Return the state of the membership and of the commits."""
        driver = self.member.driver
        metadata = self.metadata
        beat = driver.heartbeat_at
        ago = None if beat is None else self._engine.now() - beat
        # A classic member sends no heartbeats while its join or sync waits for the other members.
        waits = driver.state in (MemberState.JOINING, MemberState.SYNCING)
        silent = ago is not None and not waits and ago > self._settings.session_timeout_ms / 1000
        error = self.commits.error
        return GroupHealth(
            group_id=self._group_id,
            member_id=metadata.member_id,
            generation=metadata.generation,
            state=driver.state.name.lower(),
            joined=not self._subscribed
            or (self.member.inside and driver.state is not MemberState.FAILED and not silent),
            heartbeat_ago=ago,
            pending_commits=self.commits.pending,
            commit_error=None if error is None else str(error),
            error=None if self.member.error is None else str(self.member.error),
        )

    @property
    def _subscribed(self) -> bool:
        """Whether the consumer is a member or has subscribed; False if it only assigns manually."""
        return bool(self._subscription.topics_wanted) or (
            self._member is not None and self._member.driver.state is not MemberState.OUT
        )

    def _committer(self) -> GroupMetadata | None:
        """Return the identity for commits; None while a subscribed consumer is not a member."""
        metadata = self.metadata
        if self._subscribed and not (self._member is not None and self._member.inside):
            return None
        return metadata

    def _wanted(
        self, offsets: Mapping[P, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.commits.handed_over() if offsets is None else checked_offsets(offsets)

    def _topic_id(self, tp: TopicPartition) -> UUID:
        """Return the topic id of an assigned partition; if unknown, the id in the metadata."""
        state = None if self._pipeline is None else self._pipeline.positions.get(tp)
        if state is not None and state.topic_id != ZERO_ID:
            return state.topic_id
        return self._engine.metadata.topic_id(tp.topic)

    def _asked(self) -> None:
        try:
            self.asked()
        except KafkaError as error:
            assert self._pipeline is not None
            self._pipeline.sources.report(error)

    def _handler_failed(self, error: BaseException) -> None:
        if self._pipeline is not None:
            sources: list[RecordSource] = self._pipeline.sources.open
            sources[0].add_error(None, error)

    def _work_changed(self) -> None:
        if self._pipeline is not None:
            self._pipeline.work_changed()

    def _spawn(self, coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._supervisor.spawn(coro, name=name)


def _ended_well(task: asyncio.Task[Any]) -> bool:
    """Whether a task ended without an error.

    `Task.exception()` is not called, because it would mark the error as retrieved, and asyncio
    would then not report the error.
    """
    return task.done() and not task.cancelled() and getattr(task, "_exception", None) is None
