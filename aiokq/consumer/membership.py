"""Member: adds and removes the partitions that the group assigns, and calls rebalance handlers.

The driver (group/member_driver.py) sends the requests to the coordinator. The pipeline
(fetch_pipeline.py) reads the partitions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from aiokq.assign.assignor import resolve
from aiokq.cluster.events import Assigned, Lost, Revoked, member_key
from aiokq.core.errors import FencedInstanceId, KafkaError, copy_error
from aiokq.core.types import OWN_MEMBER_PREFIX, GroupMetadata, TopicPartition
from aiokq.group.classic_member import ClassicMember
from aiokq.group.consumer_member import ConsumerMember
from aiokq.group.member_driver import MemberDriver
from aiokq.group.member_state import OUTSIDE, MemberConfig, MemberState

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.commits import Commits
    from aiokq.consumer.fetch_pipeline import FetchPipeline
    from aiokq.consumer.positions import PartitionState
    from aiokq.consumer.rebalance_handlers import RebalanceHandlers
    from aiokq.consumer.subscription import Subscription
    from aiokq.consumer.values import ConsumerValues

__all__ = ["Member"]

logger = logging.getLogger("aiokq.consumer")

SHARE: Final = 1 / 3
"""The fraction of the rebalance timeout that one step of a rebalance may take.

The steps are the wait for unfinished records, the commit of finished records, the wait for other
commits, and each call of a handler. If the steps take longer than the rebalance timeout in total,
the group continues without this member.
"""


class Member:
    """The group membership of one consumer; the `Owner` that the driver calls.

    Args:
        commits: commits finished records before partitions are revoked.
        handlers: the rebalance handlers of the user.
        report: raises an error to the reader.
        spawn: starts a task of the consumer.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        engine: ClusterEngine,
        subscription: Subscription,
        pipeline: FetchPipeline,
        commits: Commits,
        handlers: RebalanceHandlers,
        *,
        report: Callable[[KafkaError], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._engine = engine
        self._subscription = subscription
        self._pipeline = pipeline
        self._commits = commits
        self._handlers = handlers
        self._report = report
        self._group_id = settings.group_id
        self._topics: frozenset[str] | None = None
        self._regex: str | None = None
        self._member_id = ""
        self._mine: frozenset[TopicPartition] = frozenset()
        self._stopped: set[PartitionState] = set()
        self._deadline: float | None = None
        self._leaver: asyncio.Task[Any] | None = None
        self._failure: KafkaError | None = None
        self._absent: KafkaError | None = None
        self._config = MemberConfig(
            group_id=settings.group_id,
            instance_id=settings.group_instance_id,
            session_timeout=settings.session_timeout_ms / 1000,
            rebalance_timeout=settings.rebalance_timeout,
            heartbeat_interval=settings.heartbeat_interval_ms / 1000,
            request_timeout=settings.request_timeout,
            rack=settings.client_rack or None,
            remote_assignor=settings.group_remote_assignor,
        )
        self.driver = MemberDriver(
            engine,
            settings.group_id,
            self,
            protocol=settings.group_protocol,
            make_classic=self._make_classic,
            make_consumer=self._make_consumer,
            spawn=spawn,
        )

    def _make_classic(self) -> ClassicMember:
        assignors = resolve(self._settings.partition_assignment_strategy)
        return ClassicMember(self._config, assignors, self._engine.new_backoff())

    def _make_consumer(self) -> ConsumerMember:
        random = self._engine.environment.random
        member_id = f"{OWN_MEMBER_PREFIX}{UUID(int=random.getrandbits(128), version=4)}"
        return ConsumerMember(self._config, member_id, self._engine.new_backoff())

    def subscribed(self, topics: frozenset[str] | None) -> None:
        """Join the group if the subscribed topics changed; leave it if `topics` is None."""
        regex = self._subscription.regex
        if topics is None:
            if self._topics is not None:
                self._topics = self._regex = None
                # The revocation does not wait for records that the unsubscribing task is
                # processing: that task itself may be waiting for the revocation.
                self._leaver = asyncio.current_task()
                self._stopped.update(self._stop_reading())
                self.driver.leave()
            return
        if (topics, regex) != (self._topics, self._regex):
            self._topics, self._regex = topics, regex
            self._failure = self._leaver = self._absent = None
            self._read_on()
            self.driver.subscribe(topics, regex=regex)

    def asked(self) -> None:
        """Handle a read of the consumer: rejoin if the member has left or was refused.

        Raises:
            KafkaError: the membership ended with an error that is fatal, or with FencedInstanceId.
        """
        if self._topics is None or self._deadline is not None:
            return
        state = self.driver.state
        if state is MemberState.OUT or self._absent is not None:
            # Rejoin even while the member is leaving: a waiting reader does not call `asked` again.
            self._absent = None
            self.driver.subscribe(self._topics, regex=self._regex)
        elif state is MemberState.FAILED and self._failure is not None:
            failure, self._failure = self._failure, None
            # FencedInstanceId means that another consumer uses this instance id now. Rejoining
            # would fence that consumer.
            if failure.fatal or isinstance(failure, FencedInstanceId):
                self._failure = failure
                raise copy_error(failure)
            self.driver.subscribe(self._topics, regex=self._regex)

    def leave(self, *, lost: KafkaError | None = None) -> None:
        """Leave the group until the consumer is read from again."""
        self._absent = lost
        if lost is not None:
            logger.warning("leaving the group: group=%s error=%s", self._group_id, lost)
        self._stop_reading()
        self.driver.leave(lost=lost)

    async def left(self, deadline: float) -> None:
        """Leave the group for good, and wait until the member has left.

        Args:
            deadline: loop time after which the member waits neither for commits nor for handlers.
        """
        self._deadline = deadline
        self._topics = None
        self._pipeline.work_changed()  # ends a wait for unfinished records
        self.driver.leave()
        await self.driver.left()

    def _stop_reading(self) -> list[PartitionState]:
        """Stop delivering the group's partitions; return those that this call stopped."""
        stopped = [state for state in self._states(self._mine) if not state.withheld]
        for state in stopped:
            self._pipeline.withhold(state)
        return stopped

    def _read_on(self) -> None:
        """Resume the partitions that an unsubscription stopped.

        Partitions that are being assigned or revoked are not resumed.
        """
        stopped, self._stopped = self._stopped, set()
        for state in stopped:
            self._pipeline.release(state)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions assigned by the group, as announced to user code."""
        return self._mine

    @property
    def metadata(self) -> GroupMetadata:
        """The identity with which the member commits; its generation is -1 outside the group."""
        return self.driver.group_metadata

    @property
    def error(self) -> KafkaError | None:
        """Why the consumer is not a member, or why the coordinator rejects it; None otherwise."""
        return self._absent or self.driver.error

    @property
    def inside(self) -> bool:
        """Whether the consumer is a member of the group, as far as the client can tell."""
        return self.driver.group_metadata.generation != OUTSIDE

    async def take(self, partitions: frozenset[TopicPartition]) -> None:
        pipeline = self._pipeline
        for tp in sorted(partitions):
            known = pipeline.positions.get(tp)
            pipeline.discovery.take(tp)
            state = pipeline.positions.get(tp)
            if state is not None and known is None:
                pipeline.withhold(state)
        self._mine |= partitions
        self._member_id = self.metadata.member_id
        self._announce(Assigned, partitions)
        await self._handlers.assigned(partitions, self._handler_time())
        if self.inside and self._topics is not None:
            for state in self._states(partitions, by_hand=True):
                pipeline.release(state)

    async def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        states = self._states(partitions)
        self._stopped.difference_update(states)
        for state in states:
            self._pipeline.withhold(state)
        if self._deadline is None:  # otherwise, close() has waited if necessary
            await self._drain(states)
        if self._settings.auto_commit and self.inside:
            await self._commits.commit_finished(self._handler_time())
        await self._handlers.revoked(partitions, self._handler_time())
        await self._commits.settle(self._handler_time())  # includes commits begun by user code
        unfinished = [state for state in states if self._commits.in_work(state, self._leaver)]
        self._drop(partitions)
        self._commits.gone(unfinished)
        self._announce(Revoked, partitions)

    async def lose(self, partitions: frozenset[TopicPartition], error: KafkaError) -> None:
        logger.warning(
            "partitions lost: group=%s partitions=%d error=%s",
            self._group_id,
            len(partitions),
            error,
        )
        amid = [state for state in self._states(partitions) if not state.source.reader_waits]
        self._drop(partitions)
        self._commits.gone(amid)
        if partitions:
            self._engine.store.announce(
                Lost(self._group_id, self._member_id, partitions, self._mine, error)
            )
        await self._handlers.lost(partitions, self._handler_time())

    def refused(self, error: KafkaError) -> None:
        """Store `error`, which ended the membership, and report it to the reader.

        If `error` is fatal or FencedInstanceId, the next read raises it again. Otherwise, the next
        read makes the member rejoin.
        """
        self._failure = error
        self._report(error)

    def _states(
        self, partitions: frozenset[TopicPartition], *, by_hand: bool = False
    ) -> list[PartitionState]:
        """Return the states of partitions; with `by_hand`, also of manually assigned partitions."""
        found = (self._pipeline.positions.get(tp) for tp in sorted(partitions))
        kept = () if by_hand else self._subscription.partitions
        return [state for state in found if state is not None and state.tp not in kept]

    def _drop(self, partitions: frozenset[TopicPartition]) -> None:
        for state in self._states(partitions, by_hand=True):
            self._stopped.discard(state)
            if state.withheld or state.tp not in self._subscription.partitions:
                self._pipeline.let_go(state)
                self._commits.forget(state.tp)
        self._mine -= partitions

    async def _drain(self, states: list[PartitionState]) -> None:
        """Wait until all records of these partitions are finished.

        The wait also ends at the time limit, and when `left` is called.
        """
        seconds = self._handler_time()
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                while self._deadline is None and any(
                    self._commits.in_work(state, self._leaver) for state in states
                ):
                    await self._pipeline.work_changes()
        except TimeoutError:
            if not limit.expired():
                raise
            logger.warning(
                "partitions revoked with unfinished records: group=%s partitions=%s waited=%.3gs",
                self._group_id,
                [str(state.tp) for state in states if self._commits.in_work(state)],
                seconds,
            )

    def _handler_time(self) -> float:
        """Return the time limit, in seconds, of one step of a rebalance; see `SHARE`."""
        share = self._settings.rebalance_timeout * SHARE
        if self._deadline is None:
            return share
        return max(0.0, min(share, (self._deadline - self._engine.now()) * SHARE))

    def _announce(
        self,
        event: type[Assigned] | type[Revoked],
        partitions: frozenset[TopicPartition],
    ) -> None:
        if partitions:
            self._engine.store.announce(
                event(self._group_id, self._member_id, partitions, self._mine)
            )

    def forget(self) -> None:
        """Remove this member's latest event, so that new event subscribers do not receive it."""
        self._engine.changes.forget(member_key(self._group_id, self._member_id))
