"""Two static members with one group_instance_id: the older one gets a specific error at once."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokq.core.errors import CommitFailed, FencedInstanceId
from aiokq.core.types import TopicPartition
from tests.sim.group_world import World, simulate, until

T0 = TopicPartition("t", 0)


def test_a_fenced_static_member_gets_the_error_at_its_next_commit() -> None:
    """The commit was retried until a heartbeat failed too; the error was "unknown member"."""

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


def test_health_has_the_reason_why_a_member_is_not_in_its_group() -> None:
    """A static member that waits for its instance id was shown as merely joining."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        options = {"group_instance_id": "a", "protocol": "consumer"}
        async with w.member("t", **options) as first:
            await until(lambda: first.assignment() == {T0})
            second = w.member("t", **options)
            async with second:
                await until(lambda: second.health().group.error is not None)
                health = second.health()
                assert not health.ok
                assert "UNRELEASED_INSTANCE_ID" in str(health.group and health.group.error)
            assert first.health().group.error is None

    simulate(body)


def test_falling_back_to_the_classic_protocol_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With `auto` and a classic group, "membership ended" was logged although it continued."""

    async def body(w: World) -> None:
        await w.topic("t", 2)
        async with w.member("t") as first:
            await until(lambda: len(first.assignment()) == 2)
            async with w.member("t", protocol="auto") as second:
                await until(lambda: len(second.assignment()) == 1)
                assert second.health().group.error is None

    with caplog.at_level(logging.ERROR, "aiokq.group"):
        simulate(body, settings={"group.consumer.migration.policy": "disabled"})
    assert "membership ended" not in caplog.text
