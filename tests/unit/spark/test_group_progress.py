"""Commits of a stream's progress for a group, which must not delay or end the query."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Self, cast

import pytest

from aiokq import Cluster, TopicPartition
from aiokq.errors import CoordinatorLoadInProgress, GroupAuthorization, KafkaError
from aiokq.spark import group_progress
from aiokq.spark.group_progress import GroupProgress
from aiokq.spark.offsets import PartitionOffsets
from aiokq.spark.worker import WorkerClient, loop_thread

T0 = TopicPartition("t", 0)
PATIENCE = 20.0


class Group:
    """Simulated cluster with a coordinator whose answers the test chooses."""

    def __init__(self) -> None:
        self.tried: list[int] = []
        self.committed: list[int] = []
        self.error: KafkaError | None = None
        self.silent = False
        self.closed = False

    def admin(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, raise_errors: bool
    ) -> None:
        assert group_id == "g"
        assert raise_errors
        self.tried.append(offsets[T0])
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.committed.append(offsets[T0])


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def progress(group: Group) -> GroupProgress:
    client = WorkerClient(cast("Cluster", group), loop_thread())
    return GroupProgress("g", lambda: client)


def at(offset: int) -> PartitionOffsets:
    return {T0: offset}


def wait_for(found: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_batch_waits_for_its_commit_while_commits_succeed(
    group: Group, progress: GroupProgress
) -> None:
    """Spark kills the process of a query that ends: a commit in flight would be lost."""
    for offset in (1, 2, 3):
        progress.tell(at(offset))
        assert group.committed[-1] == offset


def test_a_coordinator_that_is_silent_holds_up_one_batch_only(
    monkeypatch: pytest.MonkeyPatch, group: Group, progress: GroupProgress
) -> None:
    """Regression: each micro-batch took ten seconds longer, only for monitoring."""
    waits: list[float] = []
    wait = progress._tried.wait
    monkeypatch.setattr(group_progress, "PATIENCE", 0.01)
    monkeypatch.setattr(progress._tried, "wait", lambda s: (waits.append(s), wait(s))[1])
    group.silent = True

    for offset in (1, 2, 3, 4):
        progress.tell(at(offset))

    assert waits == [0.01]
    assert group.tried == [1]


def test_the_newest_positions_are_told_when_the_coordinator_is_back(
    monkeypatch: pytest.MonkeyPatch,
    group: Group,
    progress: GroupProgress,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: without a further batch the group showed a wrong lag; one warning is enough."""
    monkeypatch.setattr(group_progress, "AGAIN", 0.01)
    group.error = CoordinatorLoadInProgress("loading")
    with caplog.at_level(logging.INFO, "aiokq.spark"):
        for offset in (1, 2, 3):
            progress.tell(at(offset))
        tried = len(group.tried)
        wait_for(lambda: len(group.tried) > tried)
        group.error = None
        wait_for(lambda: "committed again" in caplog.text)

    assert group.committed == [3]
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    progress.tell(at(4))
    assert group.committed == [3, 4]


def test_a_refusal_is_not_tried_again_before_the_next_batch(
    monkeypatch: pytest.MonkeyPatch, group: Group, progress: GroupProgress
) -> None:
    """Waiting does not give permission, and the broker must not be asked forever."""
    monkeypatch.setattr(group_progress, "AGAIN", 0.0)
    group.error = GroupAuthorization("not yours")
    progress.tell(at(1))
    wait_for(lambda: not progress._active)
    assert group.tried == [1]

    group.error = None
    progress.tell(at(2))
    wait_for(lambda: group.committed == [2])


def test_the_end_of_a_query_tries_once_more(group: Group, progress: GroupProgress) -> None:
    """Regression: the last positions were not committed, though the coordinator was back."""
    group.error = CoordinatorLoadInProgress("loading")
    progress.tell(at(1))
    progress.tell(at(2))
    group.error = None

    progress.close()
    progress.close()

    assert group.committed == [2]


def test_the_end_of_a_query_does_not_wait_long(
    monkeypatch: pytest.MonkeyPatch,
    group: Group,
    progress: GroupProgress,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It does not raise: stopping a query must not fail because of the group."""
    monkeypatch.setattr(group_progress, "PATIENCE", 0.01)
    monkeypatch.setattr(group_progress, "END_TIMEOUT", 0.01)
    group.silent = True
    progress.tell(at(1))

    progress.close()

    assert "offsets were not committed group_id=g" in caplog.text


def test_the_end_of_a_query_that_told_everything_asks_nothing(
    group: Group, progress: GroupProgress
) -> None:
    """It would disturb the next run."""
    progress.tell(at(1))
    progress.close()
    assert group.tried == [1]
