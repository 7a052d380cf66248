"""What a group's offsets are asked for, and what the answers of its coordinator lead to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from aiokq.connection.backoff import Backoff
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.group.offsets import GroupOffsets
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

T0 = TopicPartition("t", 0)


class Engine:
    """A cluster whose coordinator gives the answers of a list, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[OffsetFetchRequest] = []
        self.metadata = SimpleNamespace(
            topics={"t": SimpleNamespace(topic_id=UUID(int=1), name="t")}
        )
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
async def test_a_member_that_is_a_step_behind_asks_for_its_offsets_again(code: int) -> None:
    """It was expelled, or has a new epoch, and learns it by its next heartbeat: that is no error
    of whoever reads."""
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
