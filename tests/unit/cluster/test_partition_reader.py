"""Cluster.fetch and read: exact ranges, leader changes, and read_committed."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.core.errors import (
    ConfigError,
    CorruptRecord,
    OffsetOutOfRange,
    RequestTimeout,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import ScriptedCluster, make_engine, simulate
from tests.unit.cluster.scripted_log import ScriptedLogs

TP = TopicPartition("t", 0)


def prepare(cluster: ScriptedCluster, batches: int = 4, size: int = 5) -> ScriptedLogs:
    cluster.add_topic("t", [1])
    logs = ScriptedLogs(cluster)
    for _ in range(batches):
        log = logs.log("t", 0)
        log.append(*(b"v%d" % (log.end + n) for n in range(size)))
    return logs


def test_fetch_returns_records_and_the_next_offset():
    """One fetch from one offset, as the old SimpleConsumer did."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        got = await engine.reader.fetch(TP, 7, 1)
        assert [(r.offset, r.value) for r in got] == [(7, b"v7"), (8, b"v8"), (9, b"v9")]
        assert (got.next_offset, got.high_watermark, got.log_start_offset) == (10, 20, 0)
        assert (got.topic, got.partition, got.offset, len(got)) == ("t", 0, 7, 3)
        end = await engine.reader.fetch(TP, 20)
        assert (len(end), end.next_offset) == (0, 20)
        await engine.close()

    simulate(main)


def test_fetched_batches_name_their_producer():
    """The producer is known for each batch, even if records before the requested offset are
    skipped.
    """

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster, batches=3)
        engine = make_engine(cluster)
        await engine.start()
        got = await engine.reader.fetch(TP, 7)
        assert got.producer_ids() == [(10, -1), (15, -1)]
        await engine.close()

    simulate(main)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 18])
def test_every_version_of_fetch_works(version: int):
    """Version 12 and older use topic names, version 13 and newer topic ids."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.FetchRequest] = version
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        assert len(await engine.reader.fetch(TP, 0)) == 20
        await engine.close()

    simulate(main)


def test_without_topic_ids_names_are_used():
    """A broker may support Fetch 13 although the metadata has no topic ids (before version 10)."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.MetadataRequest] = 9
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        assert len(await engine.reader.fetch(TP, 0)) == 20
        served = [s.version for s in cluster.served if isinstance(s.request, wire.FetchRequest)]
        assert served == [12]
        await engine.close()

    simulate(main)


@pytest.mark.parametrize(("start", "stop"), [(0, 20), (3, 12), (5, 10), (7, 8), (19, 20)])
def test_read_gives_exactly_the_range(start: int, stop: int):
    """The range may begin and end inside a batch (kafka4net 12 to 14)."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        batches = [batch async for batch in engine.reader.read(TP, start, stop, max_bytes=1)]
        assert [r.offset for batch in batches for r in batch] == list(range(start, stop))
        assert batches[-1].next_offset == stop
        assert [b.offset for b in batches[1:]] == [b.next_offset for b in batches[:-1]]
        await engine.close()

    simulate(main)


def test_an_empty_range_ends_at_once():
    """start = stop asks for nothing (kafka4net 15)."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        assert [b async for b in engine.reader.read(TP, 5, 5)] == []
        assert not cluster.requests(wire.FetchRequest)
        await engine.close()

    simulate(main)


def test_read_without_stop_ends_at_the_log_end_offset_at_its_start():
    """Records appended while reading are not included."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        offsets = []
        async for batch in engine.reader.read(TP, "earliest", max_bytes=1):
            logs.log("t", 0).append(b"later")
            offsets += [record.offset for record in batch]
        assert offsets == list(range(20))
        await engine.close()

    simulate(main)


def test_read_takes_kafkas_numbers_for_the_ends():
    """Other clients use -2 (earliest) and -1 (latest)."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        batches = [batch async for batch in engine.reader.read(TP, -2, -1)]
        assert [r.offset for batch in batches for r in batch] == list(range(20))
        await engine.close()

    simulate(main)


def test_read_waits_for_a_stop_beyond_the_end():
    """The records of the range have not been written yet."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        asyncio.get_running_loop().call_later(2, lambda: logs.log("t", 0).append(b"a", b"b", b"c"))
        offsets = [r.offset async for batch in engine.reader.read(TP, 18, 22) for r in batch]
        assert offsets == [18, 19, 20, 21]
        assert 2 < engine.now() < 2.2
        await engine.close()

    simulate(main)


def test_read_fetches_ahead_and_stops_when_its_loop_is_left():
    """The next fetch is in flight while the caller decodes; leaving the loop ends its task."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        batches = engine.reader.read(TP, 0, 20, max_bytes=1)
        await anext(batches)
        await asyncio.sleep(1)
        assert len(cluster.requests(wire.FetchRequest)) == 2
        await batches.aclose()
        await asyncio.sleep(0)
        assert not [t for t in asyncio.all_tasks() if "read" in t.get_name()]
        await engine.close()

    simulate(main)


def test_a_compacted_range_ends_at_its_stop():
    """No records remain before `stop`; the next batch begins after it."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster, batches=1)
        logs.log("t", 0).append(b"x", at=50)
        engine = make_engine(cluster)
        await engine.start()
        batches = [batch async for batch in engine.reader.read(TP, 0, 30, max_bytes=1)]
        assert [r.offset for batch in batches for r in batch] == [0, 1, 2, 3, 4]
        assert batches[-1].next_offset == 30
        await engine.close()

    simulate(main)


def test_read_committed_leaves_out_aborted_records():
    """The position advances past aborted records and markers, and stops at open transactions."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster, batches=0)
        log = logs.log("t", 0)
        log.append(b"plain")
        log.append(b"aborted", b"aborted", producer_id=7)
        log.abort(7, 1)
        log.append(b"plain")
        log.append(b"open", producer_id=8)
        log.last_stable = 5
        engine = make_engine(cluster)
        await engine.start()
        committed = await engine.reader.fetch(TP, 0, isolation_level="read_committed")
        assert [(r.offset, r.value) for r in committed] == [(0, b"plain"), (4, b"plain")]
        assert (committed.next_offset, committed.last_stable_offset) == (5, 5)
        everything = await engine.reader.fetch(TP, 0)
        assert [r.offset for r in everything] == [0, 1, 2, 4, 5]
        with pytest.raises(ConfigError, match="read_committed"):
            await engine.reader.fetch(TP, 0, isolation_level="committed")  # type: ignore[arg-type]
        await engine.close()

    simulate(main)


def test_compressed_batches_are_read():
    """read() supports the same codecs as the consumer."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster, batches=0)
        for codec in range(5):
            logs.log("t", 0).append(b"v" * 100, codec=codec)
        engine = make_engine(cluster)
        await engine.start()
        assert [r.value for r in await engine.reader.fetch(TP, 0)] == [b"v" * 100] * 5
        await engine.close()

    simulate(main)


def test_a_damaged_batch_is_an_error_with_its_offset():
    """Damaged data must not be returned as a record."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        log = logs.log("t", 0)
        first, after, data = log.batches[1]
        log.batches[1] = (first, after, data[:-1] + b"\xff")
        engine = make_engine(cluster)
        await engine.start()
        got = await engine.reader.fetch(TP, 0)
        assert got.next_offset == 20
        with pytest.raises(CorruptRecord, match="5"):
            list(got)
        await engine.close()

    simulate(main)


def test_a_leader_change_neither_loses_nor_repeats_records():
    """The old leader responds with NOT_LEADER_OR_FOLLOWER; reading continues at the new one."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        offsets = []
        async for batch in engine.reader.read(TP, 0, 20, max_bytes=1):
            if batch.offset == 0:
                cluster.move("t", 0, 2)
            offsets += [record.offset for record in batch]
        assert offsets == list(range(20))
        assert engine.now() < 1
        await engine.close()

    simulate(main)


def test_a_hint_saves_the_metadata_request():
    """The response of the former leader names the new leader (KIP-951)."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster).hints = True
        engine = make_engine(cluster)
        await engine.start()
        await engine.reader.fetch(TP, 0)
        count = len(cluster.requests(wire.MetadataRequest))
        cluster.move("t", 0, 3)
        assert len(await engine.reader.fetch(TP, 0)) == 20
        assert engine.metadata.leader(TP) == 3
        assert len(cluster.requests(wire.MetadataRequest)) == count
        await engine.close()

    simulate(main)


def test_a_dead_leader_is_waited_for_within_the_timeout():
    """The leader dies between two fetches, and another broker takes over."""

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        await engine.reader.fetch(TP, 0)
        cluster.brokers[1].die()
        with pytest.raises(RequestTimeout, match="refused"):
            await engine.reader.fetch(TP, 0, timeout=2)
        cluster.brokers[1].fence()
        cluster.move("t", 0, 2)
        assert len(await engine.reader.fetch(TP, 0, timeout=5)) == 20
        await engine.close()

    simulate(main)


def test_missing_offsets_partitions_and_topics_have_errors_of_their_own():
    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(OffsetOutOfRange, match="offset 99 is not in the log"):
            await engine.reader.fetch(TP, 99)
        before = engine.now()
        with pytest.raises(UnknownTopicOrPartition, match=r"has 1 partition .*no partition 5"):
            await engine.reader.fetch(TopicPartition("t", 5), 0)
        assert engine.now() - before < 1
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await engine.reader.fetch(TopicPartition("nope", 0), 0, timeout=1)
        await engine.close()

    simulate(main)


def recreate(cluster: ScriptedCluster, logs: ScriptedLogs) -> None:
    cluster.add_topic("t", [1])
    logs.logs.clear()
    logs.log("t", 0).append(*[b"new"] * 40)


def test_a_read_ends_with_an_error_when_its_topic_is_recreated():
    """The new topic has records at the same offsets, but they belong to a different log."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        values = []

        async def read() -> None:
            async for batch in engine.reader.read(TP, 0, 20, max_bytes=1):
                if batch.offset == 0:
                    recreate(cluster, logs)
                values.extend(record.value for record in batch)

        with pytest.raises(UnknownTopicId, match="t was deleted and created again") as caught:
            await read()
        assert values
        assert b"new" not in values
        assert not caught.value.retriable
        assert engine.now() < 5
        await engine.close()

    simulate(main)


def test_a_read_that_begins_after_the_recreation_reads_the_new_topic():
    """The cached metadata may still describe the old topic."""

    async def main(cluster: ScriptedCluster) -> None:
        logs = prepare(cluster)
        engine = make_engine(cluster)
        await engine.start()
        await engine.reader.fetch(TP, 0)
        recreate(cluster, logs)
        batches = [batch async for batch in engine.reader.read(TP, 0, 20)]
        assert [record.value for batch in batches for record in batch] == [b"new"] * 20
        await engine.close()

    simulate(main)


def test_records_become_arrow():
    """The Spark source reads columns."""
    pytest.importorskip("pyarrow")

    async def main(cluster: ScriptedCluster) -> None:
        prepare(cluster, batches=1)
        engine = make_engine(cluster)
        await engine.start()
        got = await engine.reader.fetch(TP, 2)
        table = got.to_arrow(["offset", "value"])
        assert table.to_pydict() == {"value": [b"v2", b"v3", b"v4"], "offset": [2, 3, 4]}
        await engine.close()

    simulate(main)
