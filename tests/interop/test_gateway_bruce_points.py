"""The acceptance points of the engine `bruce`, through a gateway's socket, each with its number.

The brokers are librdkafka's mock cluster: broker 1 leads 3 and broker 2 leads 7 of the 10
partitions of each topic.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.accounting import Snapshot
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.wire import ProduceRequest
from tests.fault.gateway_support import Rig as FaultRig
from tests.fault.gateway_support import (
    configuration,
    directory,
    discarded,
    message,
    records_of,
    values_of,
)
from tests.peers.mock_cluster import MockCluster, mock_cluster

pytest.importorskip("confluent_kafka")

PRODUCE = ProduceRequest.API_KEY
OFF = {"mode": "off"}
QUICK = {"pause_initial_ms": 200, "min_pause_ms": 100, "dispatcher_restart_max_delay_ms": 1000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster(brokers=2) as running:
        yield running


@pytest.fixture
def kafka(cluster: MockCluster, topic: str) -> Iterator[MockCluster]:
    create(cluster, topic)
    yield cluster
    cluster.clear_errors(PRODUCE)
    for node_id in (1, 2):
        cluster.set_up(node_id)
        cluster.set_rtt(node_id, 0)


def create(cluster: MockCluster, topic: str) -> None:
    cluster.create_topic(topic, 10, 2)
    for partition in range(10):
        cluster.set_leader(topic, partition, 1 if partition < 3 else 2)


class Rig(FaultRig):
    """A gateway in front of the mock cluster.

    Attributes:
        requests: the requests of the engine: node id, and records by topic and partition.
    """

    requests: list[tuple[int, dict[tuple[str, int], list[bytes | None]]]]
    delay = 0.0
    """Seconds by which the engine gets each answer late."""

    def spy(self) -> None:
        """Note the requests from now on."""
        self.requests = []
        produce = self.gateway.cluster.produce

        async def noted(batches: Any, *, node: Any, **options: Any) -> Any:
            content = {
                place: [value for _, value, *_ in batch.records] for place, batch in batches.items()
            }
            self.requests.append((node, content))
            answer = await produce(batches, node=node, **options)
            await asyncio.sleep(self.delay)
            return answer

        self.gateway.cluster.produce = noted  # type: ignore[method-assign]

    async def one(self, *messages: bytes) -> Snapshot:
        """Send messages and wait for their outcome."""
        before = self.gateway.snapshot().total.received
        await self.send(*messages)
        return await self.settled(before + len(messages))


@asynccontextmanager
async def rig(
    kafka: MockCluster, delivery: Mapping[str, Any] | None = None, **tables: Any
) -> AsyncIterator[Rig]:
    values = {
        "delivery": {"engine": "bruce", **QUICK, **(delivery or {})},
        "batching": OFF,
        **tables,
    }
    with directory() as path:
        settings = GatewaySettings.of(configuration(path, values), bootstrap_servers=kafka)
        async with Gateway(settings) as gateway:
            made = Rig(None, None, gateway, path)  # type: ignore[arg-type]
            made.spy()
            try:
                yield made
            finally:
                made.close()


async def test_point_19_batches_go_to_brokers_by_the_partitions_they_lead(
    kafka: MockCluster, topic: str
) -> None:
    """100 batches of three messages: 30 to broker 1, 70 to broker 2."""
    async with rig(kafka, batching={"messages": 3}) as r:
        for n in range(100):
            await r.one(*(message(topic, b"%d.%d" % (n, part)) for part in range(3)))
        assert Counter(node for node, _ in r.requests) == {1: 30, 2: 70}
        for _, content in r.requests:
            assert [len(values) for values in content.values()] == [3]
    records = await records_of(kafka, topic)
    assert Counter(record.partition for record in records) == dict.fromkeys(range(10), 30)


async def test_point_20_a_request_has_one_partition_per_topic(
    kafka: MockCluster, topic: str
) -> None:
    """Messages that wait while five requests are in flight share a partition of their topic.

    PartitionKey messages have theirs, as many as there are.
    """
    other = f"{topic}-other"
    create(kafka, other)
    async with rig(kafka) as r:
        await r.one(message(topic, b"first"), message(other, b"first"))
        r.delay = 0.3
        r.requests.clear()
        for n in range(50):
            await r.send(
                *(message(name, b"any %d" % n) for name in (topic, other)),
                message(topic, b"keyed %d" % n, partition_key=n),
            )
        await r.settled(152)
        used = []
        for _, content in r.requests:
            places = {
                place for place, values in content.items() if any(v[:3] == b"any" for v in values)
            }
            used.append(places)
            names = [name for name, _ in places]
            assert len(names) == len(set(names))
        assert any(len(places) == 2 for places in used)
        assert len(set().union(*used)) > 4
        assert any(len(content) > 2 for _, content in r.requests)


async def test_point_24_a_combined_batch_mixes_topics_and_one_of_a_topic_does_not(
    kafka: MockCluster, topic: str
) -> None:
    """Two topics share a request after the time of combined batches; the third has its own."""
    other, own = f"{topic}-other", f"{topic}-own"
    for name in (other, own):
        create(kafka, name)
    async with rig(
        kafka,
        batching={"mode": "combined"},
        combined={"time_ms": 300},
        topics={own: {"batching": {"mode": "per_topic", "messages": 2}}},
    ) as r:
        await r.one(*(message(name, b"warm", partition_key=9) for name in (topic, other, own, own)))
        r.requests.clear()
        await r.one(
            message(topic, b"a", partition_key=9),
            message(own, b"c", partition_key=8),
            message(other, b"b", partition_key=9),
            message(own, b"d", partition_key=9),
        )
        requests = [content for _, content in r.requests]
        assert requests == [
            {(own, 8): [b"c"], (own, 9): [b"d"]},
            {(topic, 9): [b"a"], (other, 9): [b"b"]},
        ]


async def test_point_25_the_data_of_a_request_is_limited(kafka: MockCluster, topic: str) -> None:
    """At most 1,000 bytes, or a single larger message."""
    async with rig(kafka, {"produce_request_data_limit": 1000}) as r:
        sent = [b"%03d" % n * (1000 if n == 70 else 30) for n in range(100)]
        await r.one(*(message(topic, value, partition_key=0) for value in sent))
        sizes = [
            [len(value or b"") for values in content.values() for value in values]
            for _, content in r.requests
        ]
        assert all(sum(each) <= 1000 or each == [3000] for each in sizes)
        assert [3000] in sizes
    assert values_of(await records_of(kafka, topic)) == sent


@pytest.mark.parametrize("table", ERROR_TABLES)
@pytest.mark.parametrize("code", [5, 6, 7])
async def test_point_32_codes_5_6_and_7_are_redelivered_after_one_pause(
    kafka: MockCluster, topic: str, code: int, table: str
) -> None:
    async with rig(kafka, {"error_table": table}) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        kafka.push_errors(PRODUCE, code)
        snapshot = await r.one(message(topic, b"a", partition_key=0))
        assert (snapshot.total.acked, discarded(snapshot)) == (2, {})
        assert r.gateway.engine.counters.pauses_started == 1  # type: ignore[attr-defined]
    assert set(values_of(await records_of(kafka, topic))) == {b"warm", b"a"}


@pytest.mark.parametrize(
    ("table", "code", "pauses"),
    [
        *(("seed", code, True) for code in (8, 9)),
        *((table, code, False) for table in ("bruce-2016", "dory") for code in (8, 9)),
        ("modern", 8, False),
        ("modern", 9, True),  # it is retriable
    ],
)
async def test_point_34_codes_8_and_9_follow_the_table(
    kafka: MockCluster, topic: str, table: str, code: int, pauses: bool
) -> None:
    async with rig(kafka, {"error_table": table}) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        kafka.push_errors(PRODUCE, code)
        snapshot = await r.one(message(topic, b"a", partition_key=0))
        assert discarded(snapshot) == ({} if pauses else {"error_ack": 1})
        assert r.gateway.engine.counters.pauses_started == int(pauses)  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", ERROR_TABLES)
async def test_point_35_a_discard_leaves_the_next_message_unaffected(
    kafka: MockCluster, topic: str, table: str
) -> None:
    """Codes 10, -1 and 99."""
    async with rig(kafka, {"error_table": table}) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        for code in (10, -1, 99):
            kafka.push_errors(PRODUCE, code)
            await r.one(message(topic, b"bad", partition_key=0))
            snapshot = await r.one(message(topic, b"good", partition_key=0))
        assert (snapshot.total.acked, discarded(snapshot)) == (4, {"error_ack": 3})
        assert r.gateway.engine.counters.pauses_started == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", ERROR_TABLES)
async def test_point_36_the_sixth_failure_discards_at_limit_5(
    kafka: MockCluster, topic: str, table: str
) -> None:
    """Code 2 again and again; five failures are survived."""
    delivery = {"error_table": table, "max_failed_delivery_attempts": 5}
    async with rig(kafka, delivery) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        for failures, discards in ((5, {}), (6, {"attempt_limit": 1})):
            r.requests.clear()
            kafka.push_errors(PRODUCE, *[2] * failures)
            snapshot = await r.one(message(topic, b"a", partition_key=0))
            assert discarded(snapshot) == discards
            assert len(r.requests) == 6


async def test_point_37_a_disconnect_before_the_ack_is_a_possible_duplicate(
    kafka: MockCluster, topic: str
) -> None:
    """Delivered again, duplicate +1."""
    async with rig(kafka) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        kafka.push_errors(PRODUCE, MockCluster.TRANSPORT)
        snapshot = await r.one(message(topic, b"a", partition_key=0))
        assert (snapshot.total.acked, discarded(snapshot)) == (2, {})
        assert snapshot.total.possible_duplicates == 1
    assert set(values_of(await records_of(kafka, topic))) == {b"warm", b"a"}


async def test_point_39_delays_of_repeated_failures_grow(
    kafka: MockCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The floor, then from half to one and a half of 200, 400, 800 and 800 ms.

    How long the engine means to wait is in its log: a busy machine makes it wait longer.
    """
    delivery = {"pause_max_doublings": 2, "max_failed_delivery_attempts": 9}
    loop = asyncio.get_running_loop()
    async with rig(kafka, delivery) as r:
        await r.one(message(topic, b"warm", partition_key=0))
        times: list[float] = []
        produce = r.gateway.cluster.produce

        async def timed(*batches: Any, **options: Any) -> Any:
            times.append(loop.time())
            return await produce(*batches, **options)

        r.gateway.cluster.produce = timed  # type: ignore[method-assign]
        kafka.push_errors(PRODUCE, *[6] * 5)
        snapshot = await r.one(message(topic, b"a", partition_key=0))
        assert snapshot.total.acked == 2
        waits = [second - first for first, second in itertools.pairwise(times)]
        meant = [float(text) for text in re.findall(r"restart_in=([\d.]+)s", caplog.text)]
        assert len(waits) == len(meant) == 5
        assert waits[0] >= meant[0] == 0.1
        for wait, delay, base in zip(waits[1:], meant[1:], (0.2, 0.4, 0.8, 0.8), strict=True):
            assert wait >= max(0.1, 0.45 * base)
            assert 0.1 <= delay <= 1.5 * base
