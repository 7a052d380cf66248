"""ListOffsets: all leaders concurrently, with a separate result for each partition."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.cluster.offsets import list_offsets, offset_spec
from aiokq.core.errors import (
    ConfigError,
    KafkaError,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.types import OffsetAndTimestamp, TopicPartition
from tests.unit.cluster.scripted import ScriptedCluster, make_engine, simulate
from tests.unit.cluster.scripted_log import ScriptedLogs


def prepare(cluster: ScriptedCluster) -> ScriptedLogs:
    cluster.add_topic("t", [1, 2, 1])
    logs = ScriptedLogs(cluster)
    for partition in range(3):
        logs.log("t", partition).append(*[b"v"] * (10 + partition))
    return logs


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def test_offset_specs_become_kafkas_timestamps():
    """Names stand for the special offsets, numbers for times in milliseconds."""
    assert [offset_spec(s) for s in ("latest", "earliest", "max_timestamp", 5)] == [-1, -2, -3, 5]
    with pytest.raises(ConfigError, match="'earliest'"):
        offset_spec("first")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="use 'earliest' or 'latest'"):
        offset_spec(-7)


def test_kafkas_own_numbers_stand_for_the_special_offsets():
    """Users of other clients write -1 and -2."""
    assert [offset_spec(-n) for n in range(1, 7)] == [-1, -2, -3, -4, -5, -6]
    assert offset_spec("earliest_pending_upload") == -6

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        for number, name in ((-1, "latest"), (-2, "earliest")):
            assert await engine.reader.offsets([tp(0)], number) == await engine.reader.offsets(
                [tp(0)], name
            )
        await engine.close()

    simulate(main)


def test_each_leader_gets_one_request():
    """A thousand partitions need one request per broker."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        found = await engine.reader.offsets([tp(0), tp(1), tp(2)], "latest")
        assert {p.partition: o and o.offset for p, o in found.items()} == {0: 10, 1: 11, 2: 12}
        asked = [
            s.node_id for s in cluster.served if isinstance(s.request, wire.ListOffsetsRequest)
        ]
        assert sorted(asked) == [1, 2]
        await engine.close()

    simulate(main)


def test_times_give_offset_and_timestamp_or_none():
    """A timestamp after the last record gives None, not an error."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        assert await engine.reader.offsets([tp(0)], 4_500) == {
            tp(0): OffsetAndTimestamp(5, 5_000, 0)
        }
        assert await engine.reader.offsets([tp(0)], 99_000) == {tp(0): None}
        assert await engine.reader.offsets([tp(0)], "earliest") == {
            tp(0): OffsetAndTimestamp(0, -1)
        }
        await engine.close()

    simulate(main)


def test_a_moved_partition_is_requested_from_its_new_leader():
    """After NOT_LEADER_OR_FOLLOWER the metadata is refreshed and only that partition is retried."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        cluster.move("t", 0, 3)
        found = await engine.reader.offsets([tp(0), tp(1)], "latest")
        assert found[tp(0)] == OffsetAndTimestamp(10, -1)
        counts = [
            sum(len(t.partitions) for t in request.topics)
            for request in cluster.requests(wire.ListOffsetsRequest)
        ]
        assert sorted(counts) == [1, 1, 1]
        await engine.close()

    simulate(main)


def test_a_missing_topic_does_not_delay_the_others():
    """The result of each partition is available as soon as it arrives."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        logs.errors["t", 1] = [78, 78]
        engine = make_engine(cluster)
        await engine.start()
        task = asyncio.create_task(
            list_offsets(engine, {tp(0): -1, tp(1): -1, tp(9): -1, tp(0, "nope"): -1}, timeout=3)
        )
        await asyncio.sleep(1)
        assert len(cluster.requests(wire.ListOffsetsRequest)) == 4, "the retries did not wait"
        outcomes = await task
        assert engine.now() == pytest.approx(3, abs=0.1)
        assert outcomes[tp(1)] == OffsetAndTimestamp(11, -1)
        missing, beyond = outcomes[tp(0, "nope")], outcomes[tp(9)]
        assert isinstance(missing, UnknownTopicOrPartition)
        assert "no topic 'nope'" in str(missing)
        assert isinstance(beyond, UnknownTopicOrPartition)
        assert "no partition 9" in str(beyond)
        await engine.close()

    simulate(main)


def test_a_final_error_is_not_retried():
    """TOPIC_AUTHORIZATION_FAILED does not go away by retrying."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster).errors["t", 0] = [29]
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await engine.reader.offsets([tp(0)], "latest")
        assert engine.now() < 0.1
        await engine.close()

    simulate(main)


def test_a_timeout_names_the_last_error():
    """The leader responds with NOT_LEADER_OR_FOLLOWER until the timeout."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster).errors["t", 0] = [6] * 1_000
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(RequestTimeout, match="NOT_LEADER_OR_FOLLOWER"):
            await engine.reader.offsets([tp(0)], "latest", timeout=2)
        assert engine.now() == pytest.approx(2, abs=0.1)
        await engine.close()

    simulate(main)


def test_max_timestamp_is_refused_on_old_brokers():
    """max_timestamp needs ListOffsets 7 (KIP-734)."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.ListOffsetsRequest] = 6
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(UnsupportedVersion, match="needs version 7"):
            await engine.reader.offsets([tp(0)], "max_timestamp")
        assert (await engine.reader.offsets([tp(0)], "latest"))[tp(0)] is not None
        await engine.close()

    simulate(main)
