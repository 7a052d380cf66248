"""GroupOffsets: OffsetCommit and OffsetFetch of a group, with retries.

The consumer decides which offsets to commit. The requests use the cluster's shared connection,
because the member's own connection may be waiting for a join.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from aiokq.cluster.denials import name_denial
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

__all__ = ["GroupOffsets", "topic_replaced"]

logger = logging.getLogger("aiokq.group")

MOVED: Final = frozenset((CoordinatorNotAvailable.code, NotCoordinator.code, RequestTimeout.code))

FENCED: Final = frozenset(
    error.code
    for error in (UnknownMemberId, IllegalGeneration, FencedInstanceId, FencedMemberEpoch)
)
"""Error codes: the sender of the commit is not a member of the group, or has another generation.

With FencedInstanceId, another member has the instance id of the sender.
"""

UNKNOWN: Final = frozenset((UnknownTopicOrPartition.code, UnknownTopicId.code))

NEW_FOR: Final = 5.0
"""Seconds after which all brokers are assumed to know a new topic."""

_NO_IDS: Final[Mapping[TopicPartition, UUID]] = {}

LATER: Final = frozenset((RebalanceInProgress.code, StaleMemberEpoch.code))
"""Error codes of a rebalance that the member has not completed yet; a retry may succeed."""


class GroupOffsets:
    """The committed offsets of one group.

    Args:
        member: returns the member id and generation (or member epoch) for a request; called before
            every attempt, because a rebalance may happen between attempts. Returns None if the
            consumer has subscribed and is not a member now, for example after it was fenced.
        owned: returns the partitions that this member owns now.
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
        topic_ids: Mapping[TopicPartition, UUID] = _NO_IDS,
        refusal: Callable[[TopicPartition], KafkaError | None] = lambda tp: None,
    ) -> None:
        """Commit, and retry until all offsets are committed or refused, or the timeout expires.

        Args:
            timeout: seconds for all attempts together.
            topic_ids: the ids of the topics to which the offsets belong. An offset without an id,
                or with the id zero, belongs to the topic that has the name at the first attempt.
            refusal: returns an error if a partition must not be committed any more; called before
                every attempt.

        Raises:
            CommitFailed: some offsets were refused; the error contains the reason for each
                partition, and the partitions that are lost. For a topic that was deleted and
                created again, the reason is UnknownTopicId.
            RequestTimeout: some offsets were neither committed nor refused in time; the cause says
                why. The commit may have succeeded.
            KafkaError: an attempt failed as a whole, with an error that is not retriable.
        """
        left = dict(offsets)
        ids = {tp: topic_id for tp, topic_id in topic_ids.items() if topic_id != ZERO_ID}
        refused: dict[TopicPartition, KafkaError] = {}
        since: dict[TopicPartition, float] = {}
        engine = self._engine
        deadline = engine.now() + timeout

        def refuse() -> None:
            for tp in list(left):
                error = refusal(tp) or self._replaced(tp, ids)
                if error is not None:
                    refused[tp] = error
                    del left[tp]

        async def attempt(seconds: float) -> KafkaError | None:
            member = self._member()
            refuse()
            if not left:
                return None
            if member is None:
                # A commit without a generation counts as the commit of a non-member, and a group
                # without members would accept it.
                refused.update((tp, UnknownMemberId(topic_partition=tp)) for tp in left)
                return None
            again: KafkaError | None = None
            unknown: dict[TopicPartition, KafkaError] = {}
            for tp, error in (await self._ask_to_commit(left, ids, member, seconds)).items():
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
                refuse()
            return again if left else None

        await self._repeat(attempt, "OffsetCommit", timeout)
        if refused:
            # The level is debug, because the caller gets the error and reports it.
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
        """Return the partitions in `unknown` that do not exist.

        A partition counts as nonexistent if it has been missing from the cluster's metadata for
        `NEW_FOR` seconds.

        Args:
            since: the time when each partition was first found missing; updated.
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

    def _replaced(
        self, tp: TopicPartition, ids: Mapping[TopicPartition, UUID]
    ) -> KafkaError | None:
        """Return an error if the topic of an offset was deleted and created again, else None.

        A coordinator that supports topic ids refuses such an offset itself; older coordinators do
        not.
        """
        present = self._engine.metadata.topic_id(tp.topic)
        same = present in (ZERO_ID, ids.get(tp, present))
        return None if same else topic_replaced(tp)

    def _later(self, error: KafkaError, tp: TopicPartition) -> bool:
        """Whether a retry of the same commit may succeed."""
        code = _code(error)
        # After an error in FENCED, a retry may succeed for a partition that this member still owns:
        # the group may have moved to its next generation together with this member. If this member
        # was removed instead, its next heartbeat reports the removal. FencedInstanceId is final,
        # because another member has the same instance id.
        behind = code in FENCED and code != FencedInstanceId.code
        return error.retriable or code in LATER or (behind and tp in self._owned())

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float,
        require_stable: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; None for partitions without a committed offset.

        Args:
            timeout: seconds for all attempts together.
            require_stable: wait for open transactions that commit offsets of these partitions
                (KIP-447).

        Raises:
            RequestTimeout: some offsets were not returned in time; the cause says why.
            BrokerError: the coordinator refused the request, for example with GroupAuthorization.
        """
        wanted = dict.fromkeys(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        async def attempt(seconds: float) -> KafkaError | None:
            missing = [tp for tp in wanted if tp not in found]
            return await self._ask_for(missing, require_stable, found, seconds)

        if wanted:
            await self._repeat(attempt, "OffsetFetch", timeout)
        return {tp: found.get(tp) for tp in wanted}

    async def _repeat(
        self,
        attempt: Callable[[float], Awaitable[KafkaError | None]],
        api: str,
        timeout: float,
    ) -> None:
        """Call `attempt` with backoff until it returns None; raise errors that are not retriable.

        Args:
            attempt: makes one attempt within the given number of seconds; returns the error that
                requires another attempt, or None.

        Raises:
            RequestTimeout: the timeout has expired; the cause is the error of the last attempt.
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
        ids: dict[TopicPartition, UUID],
        member: GroupMetadata,
        seconds: float,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Send commit requests once, without retries.

        Args:
            ids: the topic ids of the offsets. For offsets without an id, the ids in the metadata
                are added.

        Returns:
            The error of each partition; None if its offset was committed.
        """
        deadline = self._engine.now() + seconds
        nameless = frozenset(tp.topic for tp in offsets if tp not in ids)
        found = await self._topic_ids(nameless, seconds) if nameless else {}
        for tp in offsets:
            if tp not in ids and found[tp.topic] != ZERO_ID:
                ids[tp] = found[tp.topic]
        # Offsets with a topic id are committed by id if the broker supports that, so that they are
        # not committed for a new topic of the same name.
        by_id = {tp: offset for tp, offset in offsets.items() if tp in ids}
        by_name = {tp: offset for tp, offset in offsets.items() if tp not in ids}
        errors: dict[TopicPartition, KafkaError | None] = {}
        for some, newest in ((by_id, None), (by_name, NEWEST_WITH_NAMES)):
            if some:
                errors |= await self._commit_once(some, ids, member, deadline, newest)
        return errors

    async def _commit_once(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, UUID],
        member: GroupMetadata,
        deadline: float,
        newest: int | None,
    ) -> dict[TopicPartition, KafkaError | None]:
        def request(version: int) -> OffsetCommitRequest:
            some = offsets if version > NEWEST_WITH_NAMES else self._confirmed(offsets, ids)
            return commit_request(self._group_id, some, member=member, topic_ids=ids)

        response = await self._engine.router.request(
            request,
            OffsetCommitRequest,
            self._target,
            timeout=max(0.0, deadline - self._engine.now()),
            newest=newest,
        )
        names = {ids[tp]: tp.topic for tp in offsets if tp in ids}
        errors = commit_errors(response, offsets, names=names)
        for error in errors.values():
            if error is not None:
                name_denial(self._engine, error, self._group_id)
        return errors

    def _confirmed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, UUID],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that may be committed by topic name.

        A topic that the metadata lacks may be created again at any moment, and a commit by name
        would then apply to the new topic. So an offset with the id of such a topic is left out.
        """
        topics = self._engine.metadata.topics
        return {
            tp: offset
            for tp, offset in offsets.items()
            if tp not in ids
            or ((info := topics.get(tp.topic)) is not None and info.error_code not in UNKNOWN)
        }

    async def _ask_for(
        self,
        partitions: Iterable[TopicPartition],
        require_stable: bool,
        found: dict[TopicPartition, OffsetAndMetadata | None],
        seconds: float,
    ) -> KafkaError | None:
        """Request offsets and add them to `found`; return an error if the request must be repeated.

        Raises:
            KafkaError: the request failed, or a partition has an error that is not retriable.
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
            for error in (answer.error, *answer.errors.values()):
                if error is not None:
                    name_denial(engine, error, self._group_id)
            if answer.error is not None:
                return _raised_unless_later(answer.error)
            found |= answer.offsets
            for error in answer.errors.values():
                again = _raised_unless_later(error)
        if again is not None and _code(again) in UNKNOWN:
            # The topic may have been deleted and created again: request its new id.
            await self._refresh(frozenset(tp.topic for tp in wanted), seconds)
        return again

    async def _topic_ids(self, topics: frozenset[str], seconds: float) -> dict[str, UUID]:
        """Return the ids of topics; the id zero for a topic that the metadata lacks."""
        engine = self._engine
        missing = topics - engine.metadata.topics.keys()
        if missing:
            await self._refresh(missing, seconds)
        return {topic: engine.metadata.topic_id(topic) for topic in topics}

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


def topic_replaced(tp: TopicPartition) -> KafkaError:
    """Return the error for an offset of a topic that was deleted and created again."""
    return UnknownTopicId(
        f"{tp.topic} was deleted and created again: the offset belongs to the old topic",
        topic_partition=tp,
        api="OffsetCommit",
    )


def _newest(ids: Mapping[str, UUID]) -> int | None:
    """Return the highest request version to use; None if any version can be used.

    Newer versions need the ids of all topics.
    """
    return NEWEST_WITH_NAMES if ZERO_ID in ids.values() else None


def _names(ids: Mapping[str, UUID]) -> dict[UUID, str]:
    return {topic_id: topic for topic, topic_id in ids.items()}


def _raised_unless_later(error: KafkaError) -> KafkaError:
    # Errors in FENCED are not raised: a removed member learns of its removal from its heartbeat.
    if not error.retriable and _code(error) not in LATER | FENCED:
        raise error
    return error


def _code(error: KafkaError) -> int | None:
    return error.code if isinstance(error, BrokerError) else None
