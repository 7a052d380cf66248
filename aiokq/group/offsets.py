"""Committing and finding a group's offsets: OffsetCommit and OffsetFetch, asked until they work.

Owns the two requests, what their errors mean, and how often they are repeated. What is to be
committed is the consumer's to know. They go over the cluster's shared connection: the member's own
may be busy with a join.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokq.cluster.group_offsets import (
    NEWEST_WITH_NAMES,
    commit_errors,
    commit_request,
    fetch_request,
    fetched_offsets,
)
from aiokq.cluster.metadata import ZERO_ID
from aiokq.cluster.targets import Coordinator, CoordinatorKind
from aiokq.core.errors import (
    BrokerError,
    CommitFailed,
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    NotCoordinator,
    RebalanceInProgress,
    RequestTimeout,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.wire.offset_commit import OffsetCommitRequest
from aiokq.wire.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.backoff import Backoff

__all__ = ["GroupOffsets"]

logger = logging.getLogger("aiokq.group")

MOVED: Final = frozenset((CoordinatorNotAvailable.code, NotCoordinator.code, RequestTimeout.code))

FENCED: Final = frozenset(
    error.code
    for error in (UnknownMemberId, IllegalGeneration, FencedInstanceId, FencedMemberEpoch)
)
"""Whoever commits is not, or not in this generation, a member."""

UNKNOWN: Final = frozenset((UnknownTopicOrPartition.code, UnknownTopicId.code))

NEW_FOR: Final = 5.0
"""Seconds after which every broker knows a new topic."""

LATER: Final = frozenset((RebalanceInProgress.code, StaleMemberEpoch.code))
"""The member is a step behind its group: the same commit works once it has caught up."""


class GroupOffsets:
    """The offsets of one group.

    Args:
        member: who commits, asked anew for every attempt, as a rebalance may come between two;
            None while a member of the group has been expelled from it.
        owned: the partitions that this member owns now.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        group_id: str,
        *,
        member: Callable[[], GroupMetadata | None],
        owned: Callable[[], frozenset[TopicPartition]],
    ) -> None:
        self._engine = engine
        self._group_id = group_id
        self._target = Coordinator(CoordinatorKind.GROUP, group_id)
        self._member = member
        self._owned = owned

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        timeout: float,
        kept: Callable[[TopicPartition], bool] = lambda tp: True,
    ) -> None:
        """Commit, and repeat what may work later, until it did or the time is over.

        Args:
            timeout: seconds, all included.
            kept: whether a partition was this member's all the time since; asked before every
                attempt. One that went and came back is read anew: what was read of it before must
                not be committed in the new membership's name.

        Raises:
            CommitFailed: some were refused; says which, why, and which partitions are lost.
            RequestTimeout: not answered in time; the cause says why. It may have worked.
        """
        left = dict(offsets)
        refused: dict[TopicPartition, KafkaError] = {}
        since: dict[TopicPartition, float] = {}
        engine = self._engine
        deadline = engine.now() + timeout

        async def attempt(seconds: float) -> KafkaError | None:
            member = self._member()
            for tp in [tp for tp in left if not kept(tp)]:
                refused[tp] = UnknownMemberId(topic_partition=tp)
                del left[tp]
            if not left:
                return None
            if member is None:
                # Without a generation it would count as a commit from outside, and a group whose
                # members are all gone takes those.
                refused.update((tp, UnknownMemberId(topic_partition=tp)) for tp in left)
                return None
            again: KafkaError | None = None
            unknown: dict[TopicPartition, KafkaError] = {}
            for tp, error in (await self._ask_to_commit(left, member, seconds)).items():
                if error is None:
                    del left[tp]
                elif _code(error) in UNKNOWN:
                    unknown[tp] = again = error
                elif self._later(error, tp):
                    again = error
                else:
                    refused[tp] = error
                    del left[tp]
            if unknown:
                for tp in await self._missing(unknown, since, deadline - engine.now()):
                    refused[tp] = unknown[tp]
                    del left[tp]
            return again if left else None

        await self._repeat(attempt, "OffsetCommit", timeout)
        if refused:
            # Who asked for the commit is told, and says what came of it.
            logger.debug(
                "commit refused: group=%s partitions=%d error=%s",
                self._group_id,
                len(refused),
                next(iter(refused.values())),
            )
            fenced = {tp for tp, error in refused.items() if _code(error) in FENCED}
            raise CommitFailed(refused, frozenset(fenced), api="OffsetCommit")

    async def _missing(
        self,
        unknown: Iterable[TopicPartition],
        since: dict[TopicPartition, float],
        seconds: float,
    ) -> list[TopicPartition]:
        """Of those that the coordinator does not know, the ones that do not exist.

        A new topic is not known to all brokers at once, so that Kafka's own consumer asks again
        until its time is over, also for a topic that was deleted. Here the cluster's metadata
        decides, once it has been without the partition for `NEW_FOR`.

        Args:
            since: when each was found missing first.
        """
        await self._refresh(frozenset(tp.topic for tp in unknown), seconds)
        now = self._engine.now()
        gone = []
        for tp in unknown:
            if self._engine.metadata.partition(tp) is not None:
                since.pop(tp, None)
            elif now - since.setdefault(tp, now) >= NEW_FOR:
                gone.append(tp)
        return gone

    def _later(self, error: KafkaError, tp: TopicPartition) -> bool:
        """Whether the same commit may work later."""
        code = _code(error)
        # The group went on to its next generation, and this member with it: it has not lost what
        # it still owns. If it was expelled, it will know before the next attempt or soon after.
        # Not if another has its instance id: that never mends.
        behind = code in FENCED and code != FencedInstanceId.code
        return error.retriable or code in LATER or (behind and tp in self._owned())

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group last committed; None where it never did.

        Args:
            timeout: seconds, all included.
            require_stable: wait for open transactions that commit offsets here (KIP-447).

        Raises:
            RequestTimeout: not answered in time; the cause says why.
            BrokerError: refused, GroupAuthorization for one.
        """
        wanted = dict.fromkeys(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        async def attempt(seconds: float) -> KafkaError | None:
            missing = [tp for tp in wanted if tp not in found]
            return await self._ask_for(missing, require_stable, found, seconds)

        if wanted:
            await self._repeat(attempt, "OffsetFetch", timeout)
        return {tp: found.get(tp) for tp in wanted}

    # -- asking

    async def _repeat(
        self,
        attempt: Callable[[float], Awaitable[KafkaError | None]],
        api: str,
        timeout: float,
    ) -> None:
        """Until an attempt returns None, with pauses; errors that no repeating mends are raised.

        Args:
            attempt: called with the seconds that are left; takes no longer.
        """
        engine = self._engine
        deadline = engine.now() + timeout
        backoff: Backoff | None = None
        left = timeout
        while True:
            try:
                last = await attempt(left)
            except KafkaError as error:
                if not error.retriable:
                    raise
                last = error
                self._forget_coordinator()
            if last is None:
                return
            if _code(last) in MOVED:
                self._forget_coordinator()
            engine.counters.retries[api] += 1
            backoff = backoff or engine.new_backoff()
            pause = backoff.next()
            left = deadline - engine.now() - pause
            if left <= 0:
                await asyncio.sleep(left + pause)
                raise RequestTimeout(
                    f"{api} of group {self._group_id!r} did not succeed within {timeout:.3g} s: "
                    f"{last}",
                    api=api,
                ) from last
            await asyncio.sleep(pause)

    def _forget_coordinator(self) -> None:
        self._engine.coordinator_failed(self._target.kind, self._target.key)

    async def _ask_to_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
        seconds: float,
    ) -> dict[TopicPartition, KafkaError | None]:
        ids = await self._topic_ids(frozenset(tp.topic for tp in offsets), seconds)
        response = await self._engine.router.request(
            lambda version: commit_request(self._group_id, offsets, member=member, topic_ids=ids),
            OffsetCommitRequest,
            self._target,
            timeout=seconds,
            newest=_newest(ids),
        )
        return commit_errors(response, offsets, names=_names(ids))

    async def _ask_for(
        self,
        partitions: Iterable[TopicPartition],
        require_stable: bool,
        found: dict[TopicPartition, OffsetAndMetadata | None],
        seconds: float,
    ) -> KafkaError | None:
        """Note what is answered; an error after which the rest is to be asked for again.

        Raises:
            BrokerError: of a kind that asking again does not mend.
        """
        wanted = list(partitions)
        ids = await self._topic_ids(frozenset(tp.topic for tp in wanted), seconds)
        member = self._member()
        engine = self._engine
        response = await engine.router.request(
            lambda version: fetch_request(
                version,
                {self._group_id: wanted},
                require_stable=require_stable,
                member=member,
                topic_ids=ids,
            ),
            OffsetFetchRequest,
            self._target,
            timeout=min(seconds, engine.settings.request_timeout),
            newest=_newest(ids),
        )
        again: KafkaError | None = None
        for answer in fetched_offsets(response, [self._group_id], names=_names(ids)).values():
            if answer.error is not None:
                return _raised_unless_later(answer.error)
            found |= answer.offsets
            for error in answer.errors.values():
                again = _raised_unless_later(error)
        return again

    async def _topic_ids(self, topics: frozenset[str], seconds: float) -> dict[str, UUID]:
        """From the newest versions on, topics go by id: another one of that name is not meant."""
        engine = self._engine
        missing = topics - engine.metadata.topics.keys()
        if missing:
            await self._refresh(missing, seconds)
        found = engine.metadata.topics
        return {t: found[t].topic_id if t in found else ZERO_ID for t in topics}

    async def _refresh(self, topics: Collection[str], seconds: float) -> None:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._engine.refresh(topics)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimeout(
                f"no metadata of {', '.join(sorted(topics))} within {seconds:.3g} s"
            ) from (self._engine.last_error or error)


def _newest(ids: Mapping[str, UUID]) -> int | None:
    """A topic that the metadata does not have can be asked about by its name only."""
    return NEWEST_WITH_NAMES if ZERO_ID in ids.values() else None


def _names(ids: Mapping[str, UUID]) -> dict[UUID, str]:
    return {topic_id: topic for topic, topic_id in ids.items()}


def _raised_unless_later(error: KafkaError) -> KafkaError:
    # Who was expelled learns it by a heartbeat, and then asks for what it has been given since, or
    # for nothing: only members of the consumer protocol are told here.
    if not error.retriable and _code(error) not in LATER | FENCED:
        raise error
    return error


def _code(error: KafkaError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None
