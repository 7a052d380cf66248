"""Router: partitions that can be used, and limits of topics as arguments for the pool."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

import aiokq
from aiokq import PartitionInfo, TopicInfo
from aiokq.errors import Closed
from aiokq.fastpath.gateway import BAD_TOPIC, Pool
from aiokq.gateway import GatewaySettings
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.bruce.engine import _max_message_bytes
from aiokq.gateway.bruce.options import BruceOptions
from aiokq.gateway.client import encode
from aiokq.gateway.engine import TopicState
from aiokq.gateway.producer_engine import RECORD_OVERHEAD, _producer_options
from aiokq.gateway.router import (
    NO_LIMIT_MS,
    PARTITION_BYTES,
    TOPIC_BYTES,
    Router,
    _set_limits,
)
from aiokq.wire import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def router(settings: GatewaySettings | None = None, metadata: object = None) -> Router:
    pool = Pool(1_000_000)
    cluster: Any = SimpleNamespace(metadata=metadata)
    return Router(
        cluster,
        pool,
        Accounting(pool),
        settings or GatewaySettings(),
        max_message_bytes=1_000_000,
        spawn=lambda coro, name: coro.close(),
        on_topic=lambda topic: None,
    )


def topic(settings: GatewaySettings | None = None) -> TopicState:
    return TopicState("orders", (settings or GatewaySettings()).of_topic("orders"))


def test_only_the_partition_without_a_leader_is_skipped_and_the_count_stays():
    """Otherwise an outage would move all keys to other partitions."""
    one = topic()
    one.set_leaders({0: 5, 1: -1, 2: 7})
    assert (one.partitions, one.usable) == (3, b"\1\0\1")
    one.set_leaders({0: 5, 1: 5, 2: 7})
    assert (one.partitions, one.usable) == (3, None)
    one.set_leaders({0: -1, 1: -1})
    assert (one.partitions, one.usable) == (2, None)  # no better choice than the key's own


def test_metadata_of_the_cluster_replaces_that_of_the_lookup():
    """The Cluster follows the leaders of topics that are written to."""
    parts = {0: PartitionInfo(0, leader=1), 1: PartitionInfo(1, leader=-1)}
    info = TopicInfo("orders", partitions=parts)
    metadata = aiokq.ClusterMetadata(topics={"orders": info})
    one = topic()
    routes = router(metadata=metadata)
    routes.update(one)
    assert (one.partitions, one.usable, one.seen) == (2, b"\1\0", info)


def test_limits_of_a_topic_are_those_of_kafka_and_of_the_configuration():
    """The smallest size counts; a compressed batch may be smaller than its messages."""
    plain, packed = GatewaySettings(), GatewaySettings.checked({"compression": {"type": "zstd"}})
    for settings, expected in ((plain, 10_000 - 68), (packed, 1_000_000)):
        one = topic(settings)
        one.max_batch_bytes = 10_000
        limits = router(settings)._limits(one)
        assert limits["max_message_bytes"] == expected
        assert (limits["batch_ms"], limits["batch_bytes"]) == (10, 131072)
    own = GatewaySettings.checked(
        {
            "batching": {"mode": "off"},
            "rate_limit": {"interval_ms": 10, "max_messages": 3},
            "topics": {"orders": {"max_message_bytes": 100}},
        }
    )
    limits = router(own)._limits(topic(own))
    assert limits == {"max_message_bytes": 100, "rate_interval_ms": 10, "rate_max_messages": 3}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("3600000", "1000", (3_600_000, 1000)),
        (str(2**63 - 1), str(NO_LIMIT_MS), (None, None)),
        ("x", None, (None, None)),
    ],
)
def test_limits_of_timestamps(
    before: str, after: str | None, expected: tuple[int | None, int | None]
):
    """Kafka's default is the largest long, which means no limit."""
    one = topic()
    values = {
        "max.message.bytes": "1048588",
        "message.timestamp.before.max.ms": before,
        "message.timestamp.after.max.ms": after,
    }
    configs = [
        DescribeConfigsResourceResult(name=name, value=value) for name, value in values.items()
    ]
    _set_limits(one, DescribeConfigsResult(resource_name="orders", configs=configs))
    assert (one.earliest_ms, one.latest_ms) == expected
    assert one.max_batch_bytes == 1_048_588


@pytest.mark.parametrize(
    ("delivery", "kafka"),
    [({"engine": "bruce", "message_max_bytes": 20}, {}), ({}, {"max_request_size": 20})],
)
def test_a_limit_below_the_overhead_of_a_message_makes_all_too_long(
    delivery: dict[str, Any], kafka: dict[str, Any]
):
    """Regression: the limit was negative, and the first message ended the gateway."""
    settings = GatewaySettings.checked({"delivery": delivery, "kafka": kafka})
    if delivery:
        most = _max_message_bytes(BruceOptions.of(settings))
    else:
        most = _producer_options(settings)["max_request_size"] - RECORD_OVERHEAD
    routes = router(settings)
    routes.configure(settings, most)
    slot = routes._pool.register(b"orders", **routes._limits(topic(settings)))
    routes._pool.feed(encode("orders", b"v"))
    assert routes._pool.counts_of(slot).too_long == 1


async def test_the_books_of_a_deleted_topic_have_what_arrives_meanwhile():
    """The inputs receive in threads of their own, at any step of the router."""
    routes = router()
    pool, accounting = routes._pool, routes._accounting
    for step in ("counts", "forget", "take"):
        one = topic()
        one.slot = pool.register(b"orders")
        routes.topics[one.slot] = routes._by_name["orders"] = one
        accounting.registered(one)
        pool.feed(encode("orders", b"before", timestamp_ms=1))
        routes._pool = accounting._pool = FedBefore(pool, step)  # type: ignore[assignment]
        routes.gone(one)
        routes._pool = accounting._pool = pool
        while (taken := pool.take_unresolved(b"orders")) is not None:
            accounting.discarded(one, taken, range(taken.count), BAD_TOPIC, taken.charge)
            accounting._of("orders").received += taken.count  # the topic is not registered
        totals = accounting.snapshot().topics["orders"]
        assert (step, totals.in_flight) == (step, 0)
    assert accounting.snapshot().total.in_flight == 0


async def test_a_topic_is_charged_for_what_it_uses_beside_its_messages(
    monkeypatch: pytest.MonkeyPatch,
):
    """All of them together at most a fourth of the pool; a topic that is gone is not charged."""

    async def learn(topics: list[TopicState]) -> bool:
        return True

    routes = router()
    monkeypatch.setattr(routes, "_learn_limits", learn)
    pool, used = routes._pool, []
    for count in (1, 3, 50, 300, 1):
        name = f"topic-{len(used)}"
        pool.feed(encode(name, b"v", timestamp_ms=1))
        parts = [MetadataResponsePartition(partition_index=n, leader_id=1) for n in range(count)]
        before = pool.used_bytes()
        await routes._register([MetadataResponseTopic(name=name, partitions=parts)])
        used.append(pool.used_bytes() - before + pool.TOPIC_OVERHEAD + len(name))
    expected = [TOPIC_BYTES + count * PARTITION_BYTES for count in (1, 3, 50)]
    assert used == [*expected, 250_000 - sum(expected), 0]
    topics = list(routes.topics.values())
    for one in topics:
        routes.gone(one)
    assert pool.used_bytes() == 0
    assert routes._room == 250_000


class FedBefore:
    """A pool that receives a message before each call of a method."""

    def __init__(self, pool: Pool, method: str) -> None:
        self._pool = pool
        self._method = method

    def __getattr__(self, name: str) -> Any:
        if name == self._method:
            self._pool.feed(encode("orders", b"meanwhile", timestamp_ms=1))
        return getattr(self._pool, name)


async def test_the_creation_of_topics_holds_up_no_other_new_topic():
    """Brokers may take seconds to create a topic; at most four requests are under way."""
    settings = GatewaySettings.checked(
        {"delivery": {"autocreate": True, "autocreate_with": "create_topics"}}
    )
    brokers = Brokers()
    routes = router(settings)
    tasks: list[asyncio.Task[None]] = []
    routes._cluster = brokers  # type: ignore[assignment]
    routes._spawn = lambda coro, name: tasks.append(asyncio.create_task(coro, name=name))
    routes.start()
    pool = routes._pool
    for n in range(6):
        pool.feed(encode(f"new-{n}", b"v", timestamp_ms=1))
        routes.notice()
        async with asyncio.timeout(10):
            while len(brokers.creations) < min(n + 1, 4):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
    pool.feed(encode("orders", b"v", timestamp_ms=1))
    routes.notice()
    async with asyncio.timeout(10):
        while not routes.topics:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert [topic.name for topic in routes.topics.values()] == ["orders"]
    assert brokers.creations == [["new-0"], ["new-1"], ["new-2"], ["new-3"]]
    brokers.go_on.set()
    async with asyncio.timeout(10):
        while len(routes.topics) < 7:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert brokers.creations[4:] == [["new-4", "new-5"]]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


NEW = GatewaySettings.checked(
    {
        "batching": {"mode": "off"},
        "rate_limit": {"interval_ms": 1000, "max_messages": 3},
        "empty_value": "null",
    }
)


async def test_a_reload_during_a_lookup_reaches_the_new_topic():
    routes = router()
    answer = asyncio.Event()
    routes._cluster = Slow(answer)  # type: ignore[assignment]
    registered = asyncio.ensure_future(routes._register([found("orders")]))
    await asyncio.sleep(0)
    routes.configure(NEW, 1000)
    answer.set()
    await registered
    assert routes._by_name["orders"].rules == NEW.of_topic("orders")
    assert routes._limits(routes._by_name["orders"])["max_message_bytes"] == 1000


async def test_answers_of_another_cluster_are_dropped():
    """A topic may exist on the new cluster, with other limits."""
    settings = GatewaySettings()
    routes = router(settings)
    one = topic(settings)
    one.max_batch_bytes, one.earliest_ms, one.latest_ms = 10_000, 1, 2
    one.slot = routes._pool.register(b"orders", **routes._limits(one))
    routes.topics[one.slot] = routes._by_name["orders"] = one
    answer = asyncio.Event()
    old: Any = Slow(answer)
    routes._cluster = old
    routes._pool.feed(encode("new", b"v"))
    routes.notice()
    routes._missing["new"].since = -1000.0
    routes._missing["new"].requested = True
    routes._to_create.append("new")
    waiting = [
        asyncio.ensure_future(routes._register([found("new")])),
        asyncio.ensure_future(routes._learn_limits([one])),
        asyncio.ensure_future(routes._create(["new"])),
    ]
    await asyncio.sleep(0)
    routes.use(Slow(answer), 5000)  # type: ignore[arg-type]
    assert (one.max_batch_bytes, one.earliest_ms, one.latest_ms) == (None, None, None)
    assert routes._limits(one)["max_message_bytes"] == 5000
    answer.set()
    await asyncio.gather(*waiting)
    assert one.max_batch_bytes is None
    assert list(routes._by_name) == ["orders"]
    missing = routes._missing["new"]
    assert (missing.since, missing.requested, list(routes._to_create)) == (None, False, [])
    assert routes._pool.waits(b"new")


async def test_the_limits_of_another_cluster_are_requested_at_once():
    routes = router()
    tasks: list[asyncio.Task[None]] = []
    routes._spawn = lambda coro, name: tasks.append(asyncio.create_task(coro, name=name))
    one = topic()
    one.slot = routes._pool.register(b"orders")
    routes.topics[one.slot] = routes._by_name["orders"] = one
    routes.start()
    await asyncio.sleep(0)
    answer = asyncio.Event()
    answer.set()
    routes.use(Slow(answer), 1_000_000)  # type: ignore[arg-type]
    async with asyncio.timeout(10):
        while one.max_batch_bytes is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert one.max_batch_bytes == 2000
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lookup_that_another_cluster_has_answered_decides_nothing():
    """Otherwise a topic of the new cluster would be a bad topic."""
    routes = router()
    tasks: list[asyncio.Task[None]] = []
    routes._spawn = lambda coro, name: tasks.append(asyncio.create_task(coro, name=name))
    answer = asyncio.Event()
    old: Any = Slow(answer, code=17)  # InvalidTopic, which ends a name at once
    routes._cluster = old
    routes._pool.feed(encode("new", b"v"))
    routes.notice()
    routes.start()
    while not old.requests:  # noqa: ASYNC110
        await asyncio.sleep(0)
    routes.use(Brokers(), 1_000_000)  # type: ignore[arg-type]
    routes._cluster.topics.add("new")  # type: ignore[attr-defined]
    answer.set()
    async with asyncio.timeout(10):
        while "new" not in routes._by_name:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert sum(routes._pool.counts().discarded) == 0
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lookup_of_a_cluster_that_a_reload_has_closed_is_no_trouble(
    caplog: pytest.LogCaptureFixture,
):
    """It was logged as a warning, and the next lookup waited."""
    routes = router()
    tasks: list[asyncio.Task[None]] = []
    routes._spawn = lambda coro, name: tasks.append(asyncio.create_task(coro, name=name))
    answer = asyncio.Event()
    old: Any = Slow(answer, error=Closed("the cluster was closed during the call"))
    routes._cluster = old
    routes._pool.feed(encode("orders", b"v"))
    routes.notice()
    routes.start()
    while not old.requests:  # noqa: ASYNC110
        await asyncio.sleep(0)
    routes.use(Brokers(), 1_000_000)  # type: ignore[arg-type]
    answer.set()
    async with asyncio.timeout(10):
        while "orders" not in routes._by_name:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert "looked up" not in caplog.text
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def found(name: str) -> MetadataResponseTopic:
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=1)]
    return MetadataResponseTopic(name=name, partitions=partitions)


class Slow:
    """A cluster that answers after an event: no topic exists, and each has max.message.bytes.

    Args:
        error: raised in place of an answer.
    """

    def __init__(
        self, answer: asyncio.Event, code: int = 3, error: Exception | None = None
    ) -> None:
        self._answer = answer
        self._code = code
        self._error = error
        self.metadata = SimpleNamespace(topics={})
        self.requests = 0

    async def request(self, request: Any, **options: Any) -> Any:
        self.requests += 1
        await self._answer.wait()
        if self._error is not None:
            raise self._error
        if hasattr(request, "topics"):
            topics = [
                SimpleNamespace(name=one.name, error_code=self._code, partitions=[])
                for one in request.topics
            ]
            return SimpleNamespace(topics=topics)
        size = DescribeConfigsResourceResult(name="max.message.bytes", value="2000")
        return SimpleNamespace(
            results=[
                DescribeConfigsResult(resource_name=one.resource_name, configs=[size])
                for one in request.resources
            ]
        )


class Brokers:
    """A cluster that has the topic `orders`, and creates others when it may."""

    def __init__(self) -> None:
        self.creations: list[list[str]] = []
        self.go_on = asyncio.Event()
        self.topics = {"orders"}

    async def request(self, request: Any, **options: Any) -> Any:
        names = [one.name for one in request.topics] if hasattr(request, "topics") else []
        if type(request).__name__ == "CreateTopicsRequest":
            self.creations.append(names)
            await self.go_on.wait()
            self.topics.update(names)
            return SimpleNamespace(topics=[SimpleNamespace(name=n, error_code=0) for n in names])
        if type(request).__name__ == "MetadataRequest":
            return SimpleNamespace(topics=[self._topic(name) for name in names])
        return SimpleNamespace(results=[])

    def _topic(self, name: str) -> Any:
        known = name in self.topics
        partition = SimpleNamespace(partition_index=0, leader_id=1)
        return SimpleNamespace(
            name=name, error_code=0 if known else 3, partitions=[partition] if known else []
        )


async def test_names_that_the_pool_has_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    """The pool bounds the names that are not known; while Kafka is away, nothing else ends them."""
    monkeypatch.setattr("aiokq.gateway.router.MOST_MISSING", 1000)
    routes = router()
    most = 0
    for n in range(10_000):
        routes._pool.feed(encode(f"made-up-{n}", b"v"))
        if n % 100 == 0:
            routes.notice()
            most = max(most, len(routes._missing))
    routes.notice()
    names = routes._pool.counts().names
    assert names < 400
    assert names <= len(routes._missing) <= most <= 1100


async def test_limits_are_requested_again_soon_after_no_answer(monkeypatch: pytest.MonkeyPatch):
    """A refresh that fails must not leave old limits until the next refresh."""
    monkeypatch.setattr("aiokq.gateway.router.REFRESH_SECONDS", 0.3)
    monkeypatch.setattr("aiokq.gateway.router.RETRY_SECONDS", (0.001, 0.002))
    routes = router()
    one = topic()
    one.slot = routes._pool.register(b"orders", **routes._limits(one))
    routes.topics[one.slot] = one
    times: list[float] = []

    async def no_answer(topics: list[TopicState]) -> bool:
        times.append(asyncio.get_running_loop().time())
        return len(times) in (4, 5)

    monkeypatch.setattr(routes, "_learn_limits", no_answer)
    refreshing = asyncio.ensure_future(routes._refresh_limits())
    try:
        async with asyncio.timeout(30):
            while len(times) < 6:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    finally:
        refreshing.cancel()
    pauses = [later - before for before, later in itertools.pairwise(times[:6])]
    assert all(0.002 * 2**n <= pause for n, pause in enumerate(pauses[:3]))
    assert sum(pauses[:3]) < 0.29
    assert min(pauses[3:]) >= 0.29


async def test_a_limit_that_was_raised_is_noticed_when_messages_are_too_long(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: they were discarded for up to five minutes more."""
    monkeypatch.setattr("aiokq.gateway.router.TOO_LONG_SECONDS", 0.02)
    routes = router()
    small, other = topic(), topic()
    other.name = "other"
    for one in (small, other):
        one.max_batch_bytes = 1000
        one.slot = routes._pool.register(one.name.encode(), **routes._limits(one))
        routes.topics[one.slot] = one
    asked: list[list[str]] = []

    async def learn(topics: list[TopicState]) -> bool:
        asked.append([one.name for one in topics])
        if len(asked) < 3:
            return False  # no broker has answered: the messages above the limit are not forgotten
        for one in topics:
            one.max_batch_bytes = 5000
        return True

    monkeypatch.setattr(routes, "_learn_limits", learn)
    refreshing = asyncio.ensure_future(routes._refresh_limits())
    try:
        await asyncio.sleep(0.1)
        assert asked == []
        routes._pool.feed(encode("orders", bytes(2000)))
        async with asyncio.timeout(10):
            while len(asked) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    finally:
        refreshing.cancel()
    assert asked == [["orders"]] * 3
    routes._pool.feed(encode("orders", bytes(2000)))
    counts = routes._pool.counts(topics=True).topics[small.slot]
    assert (counts.received, counts.too_long) == (2, 1)
