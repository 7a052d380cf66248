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

__all__ = ["GroupOffsets", "topic_replaced"]

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

_NO_IDS: Final[Mapping[TopicPartition, UUID]] = {}

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
        topic_ids: Mapping[TopicPartition, UUID] = _NO_IDS,
        refusal: Callable[[TopicPartition], KafkaError | None] = lambda tp: None,
    ) -> None:
        """Commit, and repeat what may work later, until it did or the time is over.

        Args:
            timeout: seconds, all included.
            topic_ids: of the topics that the offsets belong to. Another topic of the name does not
                get them. Where it is left out, or zeros, the topic that is found first is meant.
            refusal: why a partition must not be committed any more, if so; asked before every
                attempt. One that went and came back is read anew: what was read of it before must
                not be committed in the new membership's name.

        Raises:
            CommitFailed: some were refused; says which, why, and which partitions are lost. It is
                UnknownTopicId for a topic that was deleted and created again.
            RequestTimeout: not answered in time; the cause says why. It may have worked.
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
                # Without a generation it would count as a commit from outside, and a group whose
                # members are all gone takes those.
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

    def _replaced(
        self, tp: TopicPartition, ids: Mapping[TopicPartition, UUID]
    ) -> KafkaError | None:
        """The error, if its offset belongs to another topic than the one of its name.

        A coordinator that takes ids refuses such an offset itself, an older one does not.
        """
        present = self._engine.metadata.topic_id(tp.topic)
        same = present in (ZERO_ID, ids.get(tp, present))
        return None if same else topic_replaced(tp)

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
        ids: dict[TopicPartition, UUID],
        member: GroupMetadata,
        seconds: float,
    ) -> dict[TopicPartition, KafkaError | None]:
        """An outcome per partition.

        Args:
            ids: of the topics that are meant; those that were missing are added.
        """
        deadline = self._engine.now() + seconds
        nameless = frozenset(tp.topic for tp in offsets if tp not in ids)
        found = await self._topic_ids(nameless, seconds) if nameless else {}
        for tp in offsets:
            if tp not in ids and found[tp.topic] != ZERO_ID:
                ids[tp] = found[tp.topic]
        # Those without an id must not take the protection of theirs from the others.
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
        return commit_errors(response, offsets, names=names)

    def _confirmed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, UUID],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Those that may go by name: a topic that is missing may be replaced at any moment.

        What is left out is asked about again when the cluster has the topic, as what a coordinator
        does not know.
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
        if again is not None and _code(again) in UNKNOWN:
            # Another topic may have taken the name.
            await self._refresh(frozenset(tp.topic for tp in wanted), seconds)
        return again

    async def _topic_ids(self, topics: frozenset[str], seconds: float) -> dict[str, UUID]:
        """From the newest versions on, topics go by id: another one of that name is not meant."""
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
    """An offset cannot be committed any more."""
    return UnknownTopicId(
        f"{tp.topic} was deleted and created again: the offset belongs to the old topic",
        topic_partition=tp,
        api="OffsetCommit",
    )


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
