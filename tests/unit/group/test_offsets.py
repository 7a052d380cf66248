"""OffsetFetch and OffsetCommit requests of a group, and the handling of their errors."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aiokq.cluster.group_offsets import NEWEST_WITH_NAMES
from aiokq.cluster.metadata import ZERO_ID, ClusterMetadata, PartitionInfo, TopicInfo
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import CommitFailed, UnknownTopicId
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.group.offsets import GroupOffsets
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
OLD, NEW = UUID(int=1), UUID(int=2)


def metadata(**topics: UUID) -> ClusterMetadata:
    return ClusterMetadata(
        topics={
            name: TopicInfo(name, topic_id, partitions={0: PartitionInfo(0, 1)})
            for name, topic_id in topics.items()
        }
    )


class Engine:
    """A cluster whose coordinator returns the responses of a list, in order."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[OffsetFetchRequest] = []
        self.metadata = metadata(t=OLD)
        self.settings = SimpleNamespace(request_timeout=1.0)
        self.counters = SimpleNamespace(retries=Counter())
        self.router = self

    async def request(
        self, make: Any, kind: Any, target: Any, *, timeout: float, newest: int | None = None
    ) -> Any:
        self.asked.append(make(9))
        return self.answers.pop(0)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def new_backoff(self) -> Backoff:
        return Backoff(0.0, 0.0, random.Random(1))

    def coordinator_failed(self, kind: Any, key: str) -> None:
        pass


def fetched(code: int = 0) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="")
    topics = [OffsetFetchResponseTopics(name="t", partitions=[partition])]
    group = OffsetFetchResponseGroup(group_id="g", topics=[] if code else topics, error_code=code)
    return OffsetFetchResponse(groups=[group])


@pytest.mark.parametrize("code", [25, 113])
async def test_a_member_with_a_stale_epoch_fetches_its_offsets_again(code: int) -> None:
    """The member learns of its removal or new epoch by heartbeat, so readers get no error."""
    engine = Engine(fetched(code), fetched())
    members = [GroupMetadata("g", 1, "m"), GroupMetadata("g", 2, "m")]
    stored = GroupOffsets(
        engine,  # type: ignore[arg-type]
        "g",
        member=lambda: members.pop(0),
        owned=lambda: frozenset({T0}),
    )
    found = await stored.committed([T0], timeout=5.0)
    assert found == {T0: OffsetAndMetadata(7)}
    assert [request.groups[0].member_epoch for request in engine.asked] == [1, 2]


class Coordinator(Engine):
    """A coordinator that identifies topics by id, or only by name.

    Attributes:
        topics: its topics; commits to others are refused.
        version: version of OffsetCommit.
        commits: the requests received, each with its version.
        learned: the metadata of the next refreshes.
    """

    def __init__(self, version: int, **topics: UUID) -> None:
        super().__init__()
        self.version = version
        self.topics = topics
        self.metadata = metadata(**topics)
        self.commits: list[tuple[int, OffsetCommitRequest]] = []
        self.committed: dict[UUID, int] = {}
        self.learned: list[ClusterMetadata] = []
        self.refreshed = 0

    async def request(
        self, make: Any, kind: Any, target: Any, *, timeout: float, newest: int | None = None
    ) -> Any:
        version = self.version if newest is None else min(self.version, newest)
        request = make(version)
        self.commits.append((version, request))
        response = OffsetCommitResponse()
        for topic in request.topics:
            if version > NEWEST_WITH_NAMES:
                found = topic.topic_id if topic.topic_id in self.topics.values() else None
            else:
                found = self.topics.get(topic.name)
            answer = OffsetCommitResponseTopic(
                name="" if version > NEWEST_WITH_NAMES else topic.name, topic_id=topic.topic_id
            )
            for partition in topic.partitions:
                code = 0
                if found is None:
                    code = 100 if version > NEWEST_WITH_NAMES else 3
                else:
                    self.committed[found] = partition.committed_offset
                answer.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            response.topics.append(answer)
        return response

    async def refresh(self, topics: Any) -> None:
        self.refreshed += 1
        if self.learned:
            self.metadata = self.learned.pop(0)


def offsets_of(engine: Engine) -> GroupOffsets:
    return GroupOffsets(
        engine,  # type: ignore[arg-type]
        "g",
        member=lambda: GroupMetadata("g", 1, "m"),
        owned=lambda: frozenset({T0}),
    )


@pytest.mark.parametrize("version", [9, 10])
async def test_an_offset_is_never_committed_to_a_recreated_topic(version: int) -> None:
    """The client may learn of the new topic before it commits."""
    engine = Coordinator(version, t=NEW, u=UUID(int=3))
    with pytest.raises(CommitFailed) as failure:
        await offsets_of(engine).commit(
            {T0: OffsetAndMetadata(7), U0: OffsetAndMetadata(8)},
            timeout=5.0,
            topic_ids={T0: OLD, U0: UUID(int=3)},
        )
    assert isinstance(failure.value.errors[T0], UnknownTopicId)
    assert failure.value.errors.keys() == {T0}
    assert not failure.value.lost
    assert engine.committed == {UUID(int=3): 8}


async def test_the_coordinator_refuses_the_offset_of_a_topic_deleted_meanwhile() -> None:
    """The request carries the id of the topic from which the records were read."""
    engine = Coordinator(10, t=NEW)
    engine.metadata, engine.learned = metadata(t=OLD), [metadata(t=NEW)]
    with pytest.raises(CommitFailed) as failure:
        await offsets_of(engine).commit(
            {T0: OffsetAndMetadata(7)}, timeout=5.0, topic_ids={T0: OLD}
        )
    assert isinstance(failure.value.errors[T0], UnknownTopicId)
    assert (engine.committed, len(engine.commits)) == ({}, 1)


async def test_an_offset_of_a_missing_topic_is_not_committed_by_name() -> None:
    """The retry would go to a topic that was created with the same name meanwhile."""
    engine = Coordinator(9)
    engine.metadata = metadata(t=OLD)
    engine.learned = [metadata()]

    async def refresh(topics: Any) -> None:
        await Coordinator.refresh(engine, topics)
        engine.topics = {"t": NEW}
        if engine.refreshed == 3:
            engine.metadata = metadata(t=NEW)

    engine.refresh = refresh  # type: ignore[method-assign]
    with pytest.raises(CommitFailed):
        await offsets_of(engine).commit(
            {T0: OffsetAndMetadata(7)}, timeout=5.0, topic_ids={T0: OLD}
        )
    assert (engine.committed, engine.refreshed) == ({}, 3)


async def test_a_commit_is_retried_until_the_coordinator_knows_the_topic() -> None:
    """The coordinator still has the old topic, or none."""
    engine = Coordinator(10, t=OLD)
    engine.metadata = metadata(t=NEW)

    async def refresh(topics: Any) -> None:
        engine.refreshed += 1
        if engine.refreshed == 3:
            engine.topics = {"t": NEW}

    engine.refresh = refresh  # type: ignore[method-assign]
    await offsets_of(engine).commit({T0: OffsetAndMetadata(7)}, timeout=5.0, topic_ids={T0: NEW})
    assert engine.committed == {NEW: 7}


async def test_a_topic_without_an_id_does_not_make_the_others_use_names() -> None:
    """Without ids the coordinator could not check them."""
    engine = Coordinator(10, t=OLD, u=ZERO_ID)
    await offsets_of(engine).commit(
        {T0: OffsetAndMetadata(7), U0: OffsetAndMetadata(8)}, timeout=5.0, topic_ids={T0: OLD}
    )
    assert [
        (version, [topic.name for topic in request.topics]) for version, request in engine.commits
    ] == [(10, ["t"]), (9, ["u"])]
    assert engine.committed == {OLD: 7, ZERO_ID: 8}


@pytest.mark.parametrize("version", [9, 10])
async def test_an_offset_without_a_topic_id_belongs_to_the_topic_found_first(version: int) -> None:
    """The user means the current topic; a retry must not commit to a recreated one."""
    engine = Coordinator(version)
    engine.metadata = metadata()
    engine.learned = [metadata(t=OLD), metadata(t=NEW)]

    with pytest.raises(CommitFailed) as failure:
        await offsets_of(engine).commit({T0: OffsetAndMetadata(7)}, timeout=5.0)
    assert isinstance(failure.value.errors[T0], UnknownTopicId)
    assert engine.commits[0][1].topics[0].topic_id == OLD
