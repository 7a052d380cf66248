"""Two static members with one group_instance_id: the older one is told, at once and by name."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.core.errors import CommitFailed, FencedInstanceId
from aiokq.core.types import TopicPartition
from tests.sim.group_world import World, simulate, until

T0 = TopicPartition("t", 0)


def test_a_fenced_static_member_is_told_at_its_next_commit_not_at_its_next_heartbeat() -> None:
    """The commit was repeated until a heartbeat had learned the same, and then said "unknown"."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(3), 1)
        options = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 9_000}
        async with w.member("t", group_instance_id="a", **options) as first:
            await first.getone()
            async with w.member("t", group_instance_id="a", **options) as second:
                await until(lambda: second.assignment() == {T0})
                before = asyncio.get_running_loop().time()
                with pytest.raises(CommitFailed) as caught:
                    await first.commit()
                assert asyncio.get_running_loop().time() - before < 1
                assert isinstance(caught.value.errors[T0], FencedInstanceId)
                assert caught.value.lost == {T0}
                await second.getone()
                await second.commit()
                assert await second.committed(T0) == 1

    simulate(body)
