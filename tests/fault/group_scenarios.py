"""Fault scenarios of consumer groups, one coroutine each, for the embedded broker and Apache Kafka.

Each runs consumers of aiokq beside raw members that fall silent, are late or are out of date.
`test_groups.py` runs them on aiokq's broker, `tests/interop/apache/test_groups.py` on Apache Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import aiokq
from aiokq.errors import KafkaError
from tests.peers.raw_member import RawClassicMember, RawConsumerMember, assigned

FENCED_INSTANCE_ID = 82
ILLEGAL_GENERATION = 22
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
STALE_MEMBER_EPOCH = 113
FENCED_MEMBER_EPOCH = 110
UNKNOWN_MEMBER_ID = 25
UNRELEASED_INSTANCE_ID = 111

_numbers = itertools.count()


async def prepared(servers: str, partitions: int = 2, records: int = 0) -> str:
    """Create a topic whose partitions hold numbered records, round robin; return its name."""
    topic = f"group-faults-{next(_numbers)}"
    async with aiokq.Admin(servers) as admin:
        await admin.create_topics(topic, num_partitions=partitions, raise_errors=True)
    async with aiokq.Producer(servers) as producer:
        for number in range(records):
            await producer.enqueue(topic, b"%d" % number, partition=number % partitions)
    return topic


def member(servers: str, topic: str, **settings: Any) -> aiokq.Consumer:
    """A consumer of aiokq, not started, whose short heartbeat interval shows rebalances early."""
    if settings.get("group_protocol") != "consumer":
        settings = {"heartbeat_interval_ms": 100, "session_timeout_ms": 10_000} | settings
    return aiokq.Consumer(
        topic,
        bootstrap_servers=servers,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        **settings,
    )


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  members have no event for this
            await asyncio.sleep(0.01)


def partitions(consumer: aiokq.Consumer) -> set[int]:
    return {tp.partition for tp in consumer.assignment()}


async def read_for_ever(consumer: aiokq.Consumer) -> None:
    async with asyncio.timeout(20):
        while True:
            await consumer.getmany(timeout=0.1)


@contextlib.asynccontextmanager
async def beating(raw: RawClassicMember | RawConsumerMember) -> AsyncIterator[list[int]]:
    """Send heartbeats of a raw member while the block runs; yield the error codes received."""
    codes: list[int] = []

    async def beat() -> None:
        while True:
            answer = await raw.heartbeat()
            codes.append(answer if isinstance(answer, int) else answer.error_code)
            await asyncio.sleep(0.1)

    task = asyncio.get_running_loop().create_task(beat())
    try:
        yield codes
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def all_assigned(raw: RawConsumerMember) -> None:
    """Join, and send heartbeats until both partitions are assigned to this member.

    The coordinator learns of a new topic with a delay.
    """
    told = assigned(await raw.join())
    async with asyncio.timeout(20):
        while told != {0, 1}:
            await asyncio.sleep(0.05)
            told = assigned(await raw.heartbeat())


async def a_silent_member_is_evicted(servers: str, session_ms: int) -> None:
    """The silent member's partitions go to the others when its session expires, and not before."""
    topic = await prepared(servers)
    async with (
        member(servers, topic) as ours,
        RawClassicMember(servers, f"g-{topic}", topic) as raw,
    ):
        await until(lambda: partitions(ours) == {0, 1})
        await raw.join(session_ms=session_ms)
        began = time.monotonic()
        await until(lambda: len(partitions(ours)) == 1, session_ms / 1000)
        await until(lambda: partitions(ours) == {0, 1})
        assert session_ms / 1000 * 0.7 <= time.monotonic() - began <= session_ms / 1000 + 3
        assert await raw.heartbeat() == UNKNOWN_MEMBER_ID


async def a_pending_member_is_evicted(servers: str, session_ms: int) -> None:
    """A client that got a member id and never joins with it does not hold up the group for ever."""
    topic = await prepared(servers)
    async with (
        RawClassicMember(servers, f"g-{topic}", topic) as raw,
        member(servers, topic) as first,
    ):
        await until(lambda: partitions(first) == {0, 1})
        response = await raw.ask_to_join(session_ms=session_ms)
        assert response.error_code == MEMBER_ID_REQUIRED
        session = asyncio.get_running_loop().create_task(asyncio.sleep(session_ms / 1000 + 0.5))
        async with member(servers, topic) as second:
            patience = session_ms / 1000 + 5
            await until(lambda: len(partitions(first)) == len(partitions(second)) == 1, patience)
            await session
            late = await raw.ask_to_join(session_ms=session_ms)
            assert late.error_code == UNKNOWN_MEMBER_ID


async def a_member_that_is_late_in_a_rebalance_is_removed(servers: str) -> None:
    """A member that sends heartbeats but does not rejoin is removed from the group."""
    topic = await prepared(servers)
    async with RawClassicMember(servers, f"g-{topic}", topic) as raw:
        await raw.join(session_ms=30_000, rebalance_ms=1_500)
        async with beating(raw) as codes:
            began = time.monotonic()
            options = {"rebalance_timeout_ms": 1_500, "session_timeout_ms": 30_000}
            async with member(servers, topic, **options) as ours:
                await until(lambda: partitions(ours) == {0, 1})
                assert 1.0 <= time.monotonic() - began <= 6
                await until(lambda: codes[-1] == UNKNOWN_MEMBER_ID)
                assert REBALANCE_IN_PROGRESS in codes


async def a_static_member_bounces_unnoticed(servers: str, protocol: str) -> None:
    """A member back within its session gets its partitions; no other member sees a rebalance."""
    topic = await prepared(servers, 4, records=40)
    told: list[tuple[str, int]] = []
    options: dict[str, Any] = {"group_protocol": protocol}
    group = f"g-{topic}"
    async with member(servers, topic, group_instance_id="a", **options) as first:
        other = member(
            servers,
            topic,
            group_instance_id="b",
            on_assigned=lambda tps: told.append(("assigned", len(tps))),
            on_revoked=lambda tps: told.append(("revoked", len(tps))),
            on_lost=lambda tps: told.append(("lost", len(tps))),
            **options,
        )
        async with other:
            await until(lambda: len(partitions(first)) == len(partitions(other)) == 2)
            mine, theirs = partitions(first), partitions(other)
            generation = other.group_metadata().generation
            told.clear()
            await first.close()
            await asyncio.sleep(0.5)
            async with member(servers, topic, group_instance_id="a", **options) as again:
                await until(lambda: partitions(again) == mine)
                await asyncio.sleep(0.5)
                assert partitions(other) == theirs
                assert [each for each in told if each[1]] == []
                if protocol == "classic":
                    assert other.group_metadata().generation == generation
                    assert again.group_metadata().generation == generation
                assert again.group_metadata().group_id == group


async def the_first_of_two_with_one_instance_id_is_fenced(servers: str) -> None:
    """The second member takes over the instance id; the first cannot commit or read any more."""
    topic = await prepared(servers, records=10)
    tp = aiokq.TopicPartition(topic, 0)
    async with member(servers, topic, group_instance_id="a") as first:
        assert await first.getone() is not None
        async with member(servers, topic, group_instance_id="a") as second:
            await until(lambda: partitions(second) == {0, 1})
            with pytest.raises(KafkaError, match="instance"):
                await read_for_ever(first)
            with pytest.raises(KafkaError):
                await first.commit({tp: 1})
            assert await second.committed(tp) is None
            assert partitions(second) == {0, 1}
        raw = RawClassicMember(servers, f"g-{topic}", topic, instance_id="a")
        async with raw, RawClassicMember(servers, f"g-{topic}", topic, instance_id="a") as later:
            await raw.join()
            await later.join()
            assert await raw.heartbeat() == FENCED_INSTANCE_ID
            assert await raw.commit(0, 1) == FENCED_INSTANCE_ID
            assert await later.commit(0, 1) == 0


async def an_instance_id_in_use_is_not_released(servers: str) -> None:
    """In the consumer protocol the second member is rejected until the first one leaves."""
    topic = await prepared(servers)
    options = {"group_protocol": "consumer", "group_instance_id": "a"}
    first = member(servers, topic, **options)
    async with first:
        await until(lambda: partitions(first) == {0, 1})
        async with RawConsumerMember(servers, f"g-{topic}", topic, instance_id="a") as raw:
            assert (await raw.join()).error_code == UNRELEASED_INSTANCE_ID
            assert partitions(first) == {0, 1}
            await first.close()
            answer = await raw.join()
            assert answer.error_code == 0
            assert assigned(answer) == {0, 1}


async def a_stale_generation_commits_nothing(servers: str, protocol: str) -> None:
    """A commit of a zombie does not overwrite the offset that its successor committed."""
    topic = await prepared(servers)
    kind = RawClassicMember if protocol == "classic" else RawConsumerMember
    async with (
        kind(servers, f"g-{topic}", topic) as raw,
        aiokq.Consumer(
            bootstrap_servers=servers, group_id=f"g-{topic}", enable_auto_commit=False
        ) as outside,
    ):
        await raw.join()
        assert await raw.commit(0, 5) == 0
        refused = await raw.commit(0, 7, generation=raw.generation - 1)
        expected = ILLEGAL_GENERATION if protocol == "classic" else STALE_MEMBER_EPOCH
        assert refused == expected
        assert await outside.committed((topic, 0)) == 5
        assert await raw.commit(0, 6) == 0
        assert await outside.committed((topic, 0)) == 6


async def a_lost_heartbeat_reply_is_made_up_for(servers: str) -> None:
    """A member with the previous epoch is not fenced if it owns only assigned partitions."""
    topic = await prepared(servers)
    async with RawConsumerMember(servers, f"g-{topic}", topic) as raw:
        await all_assigned(raw)
        await raw.heartbeat(owned={0, 1})
        before = raw.generation
        async with RawConsumerMember(servers, f"g-{topic}", topic) as other:
            await other.join()
            async with asyncio.timeout(20):
                told = None
                while told is None:  # until told to revoke one partition
                    told = assigned(await raw.heartbeat())
                assert len(told) == 1
                assert raw.generation == before
                answer = await raw.heartbeat(owned=told)  # advances to the group's epoch
                while raw.generation == before:
                    answer = await raw.heartbeat(owned=told)
            assert answer.error_code == 0
            now = raw.generation
            # The last response counts as lost, so the member still has the previous epoch.
            again = await raw.heartbeat(owned=told, epoch=before, full=True)
            assert again.error_code == 0
            assert again.member_epoch == now
            assert assigned(again) == told
            # Owning revoked partitions at the previous epoch means that it was away for too long.
            fenced = await raw.heartbeat(owned={0, 1}, epoch=before)
            assert fenced.error_code == FENCED_MEMBER_EPOCH


async def a_slow_revoker_shares_nothing(servers: str) -> None:
    """A partition goes to no other member until its owner confirms the revocation."""
    topic = await prepared(servers, records=10)
    async with RawConsumerMember(servers, f"g-{topic}", topic) as raw:
        await all_assigned(raw)
        await raw.heartbeat(owned={0, 1})
        async with member(servers, topic, group_protocol="consumer") as ours:
            told: set[int] | None = None
            began = time.monotonic()
            while time.monotonic() - began < 2:
                told = assigned(await raw.heartbeat(owned={0, 1})) or told
                assert partitions(ours) == set()
                await asyncio.sleep(0.05)
            assert told is not None
            assert len(told) == 1
            await raw.heartbeat(owned=told)
            await until(lambda: partitions(ours) == {0, 1} - told)
            records = await asyncio.wait_for(ours.getmany(timeout=10), 15)
            assert {tp.partition for tp in records} == {0, 1} - told
