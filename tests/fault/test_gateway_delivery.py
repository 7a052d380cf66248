"""What happens to messages while Kafka refuses some of them, stops, or is slow."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import pytest

import aiokq
from aiokq.broker.log.appending import Appendable
from aiokq.broker.log.partition_log import AppendResult
from aiokq.broker.replica.partition import Partition
from aiokq.errors import InvalidRecord, LeaderNotAvailable, NotEnoughReplicas
from aiokq.fastpath.gateway import REASONS
from aiokq.gateway import Gateway, GatewaySettings
from aiokq.gateway.accounting import Discard
from tests.fault.gateway_support import (
    Rig,
    balanced,
    configuration,
    directory,
    discarded,
    message,
    now_ms,
    records_of,
    rig,
    topic_bytes,
    values_of,
)

HOUR_MS = 3_600_000
MANY = 10_000


def without_limits(r: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the gateway not read the limits of topics, as where it is not authorized to."""

    async def refused(topics: object) -> bool:
        return False

    monkeypatch.setattr(r.gateway.router, "_learn_limits", refused)


POISON: dict[str, tuple[Mapping[str, str], bytes, str]] = {
    "too large": (
        {"max_message_bytes": "20000"},
        message("victim", bytes(30_000), b"k"),
        "too_long",
    ),
    "without a key": ({"cleanup_policy": "compact"}, message("victim", b"poison"), "error_ack"),
}
"""Configs of the topic, the poisoned message, and the reason for which it is discarded."""


@pytest.mark.parametrize("engine", ["producer", "bruce"])
@pytest.mark.parametrize("limits", [True, False], ids=["limits known", "limits unknown"])
@pytest.mark.parametrize("kind", POISON)
async def test_one_poisoned_message_costs_no_other_message(
    kind: str, limits: bool, engine: str, monkeypatch: pytest.MonkeyPatch
):
    configs, poison, reason = POISON[kind]
    if engine == "bruce" and not limits:
        reason = "error_ack"  # as its error tables say
    async with rig({"delivery": {"engine": engine}}) as r:
        if not limits:
            without_limits(r, monkeypatch)
        await r.create("victim", **configs)
        good = [b"%d" % n for n in range(MANY)]
        messages = [message("victim", value, b"key") for value in good]
        messages[MANY // 2 : MANY // 2] = [poison]
        noted: list[Discard] = []
        r.gateway.accounting.on_discard.append(noted.append)
        await r.send(*messages)
        snapshot = await r.settled(MANY + 1)
        assert discarded(snapshot) == {reason: 1}
        assert snapshot.total.possible_duplicates == 0
        found = values_of(await r.records("victim"))
        assert found == good if engine == "producer" else sorted(found) == sorted(good)
        if noted:
            assert (REASONS[noted[0].reason], noted[0].messages) == (reason, 1)


@pytest.mark.parametrize("engine", ["producer", "bruce"])
@pytest.mark.parametrize("limits", [True, False], ids=["limits known", "limits unknown"])
@pytest.mark.parametrize("off_by", [-(2**62), -2 * HOUR_MS, 2 * HOUR_MS, 2**62])
async def test_a_timestamp_that_the_topic_refuses_becomes_a_header(
    off_by: int, limits: bool, engine: str, monkeypatch: pytest.MonkeyPatch
):
    values = {"batching": {"time_ms": 50}, "delivery": {"engine": engine}}
    async with rig(values) as r:
        if not limits:
            without_limits(r, monkeypatch)
        await r.create(
            "victim",
            message_timestamp_before_max_ms=str(HOUR_MS),
            message_timestamp_after_max_ms=str(HOUR_MS),
        )
        began = now_ms()
        good = [b"%d" % n for n in range(MANY)]
        messages = [message("victim", value) for value in good]
        stamp = began + off_by
        messages[MANY // 2 : MANY // 2] = [message("victim", b"poison", timestamp_ms=stamp)]
        await r.send(*messages)
        snapshot = await r.settled(MANY + 1)
        assert snapshot.total.acked == MANY + 1
        records = await r.records("victim")
        (poisoned,) = (record for record in records if record.value == b"poison")
        assert list(poisoned.headers) == [("aiokq.timestamp", b"%d" % stamp)]
        assert began <= poisoned.timestamp_ms <= now_ms()
        others = [record for record in records if record.value != b"poison"]
        found = values_of(others)
        assert found == good if engine == "producer" else sorted(found) == sorted(good)
        assert not any(record.headers for record in others)


@pytest.mark.parametrize("stamp", [-1, -(2**63), 2**63 - 1])
async def test_an_impossible_timestamp_becomes_a_header(stamp: int):
    async with rig() as r:
        await r.send(message("orders", b"v", timestamp_ms=stamp))
        await r.settled(1)
        (record,) = await r.records("orders")
        assert list(record.headers) == [("aiokq.timestamp", b"%d" % stamp)]


async def test_an_empty_key_is_null_and_an_empty_value_empty_unless_the_topic_says_otherwise():
    values = {"topics": {"other": {"empty_key": "empty", "empty_value": "null"}}}
    async with rig(values, topics={"orders": 1, "other": 1}) as r:
        for topic in ("orders", "other"):
            await r.send(message(topic, b""), message(topic, b"v", b"k"))
        await r.settled(4)
        found = [(record.key, record.value) for record in await r.records("orders")]
        assert found == [(None, b""), (b"k", b"v")]
        found = [(record.key, record.value) for record in await r.records("other")]
        assert found == [(b"", None), (b"k", b"v")]


@contextlib.asynccontextmanager
async def restartable(values: Mapping[str, Any] | None = None) -> AsyncIterator[_Restartable]:
    with directory() as path:
        kafka = aiokq.EmbeddedCluster(data_dir=path / "data")
        await kafka.start()
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 3)])
        servers = kafka.bootstrap_servers
        settings = GatewaySettings.of(configuration(path, values), bootstrap_servers=servers)
        async with Gateway(settings) as gateway:
            made = _Restartable(Rig(kafka, None, gateway, path), servers)  # type: ignore[arg-type]
            try:
                yield made
                await made.rig.settled(made.rig.gateway.snapshot().total.received)
            finally:
                made.rig.close()
        await made.rig.kafka.close()


class _Restartable:
    def __init__(self, r: Rig, servers: str) -> None:
        self.rig = r
        self.servers = servers

    async def stop(self) -> None:
        await self.rig.kafka.close()

    async def start(self) -> None:
        port = int(self.servers.rpartition(":")[2])
        self.rig.kafka = aiokq.EmbeddedCluster(data_dir=self.rig.path / "data", port=port)
        await self.rig.kafka.start()


async def test_a_restart_of_kafka_loses_doubles_and_reorders_nothing():
    """Three senders with a partition each; the broker stops twice meanwhile."""
    async with restartable() as kafka:
        r = kafka.rig

        async def sender(n: int, kind: str) -> None:
            opened = r.socket(kind)
            for start in range(0, 6000, 100):
                data = [
                    message("orders", b"%d" % i, partition_key=n) for i in range(start, start + 100)
                ]
                await asyncio.to_thread(lambda data=data: [opened.sendall(one) for one in data])
                await asyncio.sleep(0.02)

        async def restarts() -> None:
            for _ in range(2):
                await asyncio.sleep(0.4)
                await kafka.stop()
                await asyncio.sleep(0.3)
                await kafka.start()

        kinds = ("unix_datagram", "unix_stream", "tcp")
        await asyncio.gather(restarts(), *(sender(n, kind) for n, kind in enumerate(kinds)))
        snapshot = await r.settled(18_000)
        assert snapshot.total.acked == 18_000
        records = await records_of(kafka.servers, "orders")
        for partition in range(3):
            found = [record.value for record in records if record.partition == partition]
            assert found == [b"%d" % i for i in range(6000)]


@pytest.mark.parametrize(("engine", "missing"), [("producer", 0), ("producer", 1.5), ("bruce", 0)])
async def test_a_topic_with_fewer_partitions_after_an_outage_gets_what_waits(
    engine: str, missing: float
):
    """Kafka comes back without its data. Messages for partitions that the topic does not have any
    more were sent again for ever, and after some of them all messages of the topic waited.

    The topic may be missing for a while, so that the gateway learns of its deletion first.
    """
    quick = {"pause_initial_ms": 100, "min_pause_ms": 50} if engine == "bruce" else {}
    async with restartable({"delivery": {"engine": engine, **quick}}) as s:
        r = s.rig
        await r.send(*(message("orders", b"a", partition_key=n) for n in range(3)))
        await r.settled(3)
        await s.stop()
        waiting = [b"%d" % n for n in range(30)]
        await r.send(*(message("orders", v, partition_key=n) for n, v in enumerate(waiting)))
        await asyncio.sleep(0.3)
        shutil.rmtree(r.path / "data")
        await s.start()
        await asyncio.sleep(missing)
        async with aiokq.Admin(s.servers) as admin:
            await admin.create_topics([aiokq.NewTopic("orders", 1)])
        snapshot = await r.settled(33)
        assert (snapshot.total.acked, discarded(snapshot)) == (33, {})
        assert set(values_of(await records_of(s.servers, "orders"))) == set(waiting)


async def test_a_topic_that_cannot_be_written_does_not_hold_up_others(
    monkeypatch: pytest.MonkeyPatch,
):
    """The broker refuses one topic with a retriable error: only its messages wait."""
    stuck = True
    append = Partition.append_prepared

    def refusing(partition: Partition, prepared: Appendable) -> AppendResult:
        if stuck and partition.name.topic == "stuck":
            raise NotEnoughReplicas
        return append(partition, prepared)

    monkeypatch.setattr(Partition, "append_prepared", refusing)
    async with rig({"pool": {"max_bytes": "64 MiB"}}, topics={"orders": 1, "stuck": 1}) as r:
        await r.send(*(message("stuck", bytes(10_000)) for _ in range(1500)))
        await r.until(lambda: r.gateway.snapshot().total.received == 1500)
        for n in range(20):
            sent = [message("orders", b"%d-%d" % (n, i)) for i in range(500)]
            began = asyncio.get_running_loop().time()
            await r.send(*sent)
            await r.until(lambda n=n: r.gateway.snapshot().total.acked == 500 * (n + 1))
            assert asyncio.get_running_loop().time() - began < 2
        snapshot = r.gateway.snapshot()
        balanced(snapshot)
        assert snapshot.topics["stuck"].in_flight == 1500
        stuck = False
        snapshot = await r.settled(11_500)
        assert snapshot.total.acked == 11_500
        assert len(await r.records("stuck")) == 1500


def unknown_leaders(r: Rig, topic: str) -> Callable[[], None]:
    """Let lookups find a topic without leaders; return a call that ends this."""
    router = r.gateway.router
    look_up, stuck = router._metadata, True

    async def without(names: Iterable[str]) -> Any:
        found = await look_up(names)
        for one in found:
            if stuck and one.name == topic:
                one.error_code, one.partitions = LeaderNotAvailable.code, []
        return found

    def end() -> None:
        nonlocal stuck
        stuck = False

    router._metadata = without  # type: ignore[method-assign]
    return end


@pytest.mark.parametrize("engine", ["producer", "bruce"])
@pytest.mark.parametrize("kind", ["unix_datagram", "unix_stream"])
async def test_a_topic_that_takes_no_messages_leaves_room_for_others(engine: str, kind: str):
    """Regression: it filled the pool, and the messages of all topics were discarded."""
    values = {"pool": {"max_bytes": "1 MiB"}, "delivery": {"engine": engine}}
    async with rig(values, topics={"orders": 1, "stuck": 1}) as r:
        end = unknown_leaders(r, "stuck")
        await r.send(*(message("stuck", bytes(1000)) for _ in range(2000)), kind=kind)
        await r.until(lambda: r.gateway.snapshot().total.received == 2000)
        lost = discarded(r.gateway.snapshot())["no_memory"]
        assert 1000 < lost < 1200
        for n in range(20):
            sent = [message("orders", b"%d" % n), message("stuck", bytes(1000))] * 50
            await r.send(*sent, kind=kind)
            await r.until(lambda n=n: r.gateway.snapshot().total.acked == 50 * (n + 1))
        snapshot = r.gateway.snapshot()
        balanced(snapshot)
        assert discarded(snapshot) == {"no_memory": lost + 1000}
        assert sum(snapshot.topics["orders"].discarded) == 0
        end()
        snapshot = await r.settled(4000)
        assert snapshot.total.acked == 3000 - lost
        assert snapshot.topics["stuck"].acked == 2000 - lost


@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_an_input_that_waits_for_a_topic_leaves_room_for_other_inputs(engine: str):
    """It waits as long as the topic has its share of the pool, and loses nothing."""
    with directory() as path:
        inputs = [
            {"type": "unix_stream", "path": f"{path}/stream", "when_full": "block"},
            {"type": "unix_datagram", "path": f"{path}/datagram"},
        ]
        values = {
            "pool": {"max_bytes": "1 MiB"},
            "delivery": {"engine": engine},
            "inputs": inputs,
        }
        async with rig(values, topics={"orders": 1, "stuck": 1}) as r:
            end = unknown_leaders(r, "stuck")
            flood = [message("stuck", bytes(1000)) for _ in range(2000)]
            sending = asyncio.ensure_future(r.send(*flood, kind="unix_stream"))
            pool = r.gateway.pool
            await r.until(lambda: pool.used_bytes() > 7 * pool.max_bytes // 8 - 2000)
            for n in range(20):
                await r.send(*[message("orders", b"%d" % n)] * 50)
                await r.until(lambda n=n: r.gateway.snapshot().total.acked == 50 * (n + 1))
            assert not sending.done()
            end()
            await sending
            snapshot = await r.settled(3000)
            assert (snapshot.total.acked, discarded(snapshot)) == (3000, {})


async def test_topics_that_are_made_up_cost_neither_memory_nor_the_messages_of_others():
    async with rig() as r:
        await r.send(message("orders", b"first"))
        await r.settled(1)
        made_up = [message(f"made-up-{n}", b"x") for n in range(20_000)]
        sending = asyncio.ensure_future(r.send(*made_up))
        for n in range(50):
            await r.send(message("orders", b"%d" % n), kind="tcp")
            await asyncio.sleep(0.005)
        await sending
        snapshot = await r.settled(20_051)
        assert snapshot.total.acked == 51
        assert discarded(snapshot) == {"bad_topic": 20_000}
        assert set(snapshot.topics) == {"orders"}
        assert r.gateway.pool.used_bytes() == topic_bytes(r.gateway)
        assert not r.gateway.router._missing
        assert len(r.gateway.pool.samples()) == 25


async def test_a_broker_that_names_no_record_costs_no_other_message(
    monkeypatch: pytest.MonkeyPatch,
):
    """A broker before Produce 8 refuses the whole batch: each record is tried alone."""
    append = Partition.append_prepared

    def refusing(partition: Partition, prepared: Appendable) -> AppendResult:
        if prepared.size > 400:  # the whole batch, or the poisoned record alone
            raise InvalidRecord
        return append(partition, prepared)

    monkeypatch.setattr(Partition, "append_prepared", refusing)
    async with rig({"batching": {"time_ms": 200}}) as r:
        good = [b"%d" % n for n in range(200)]
        messages = [message("orders", value) for value in good]
        messages[100:100] = [message("orders", b"poison" * 100)]
        await r.send(*messages)
        snapshot = await r.settled(201)
        assert discarded(snapshot) == {"error_ack": 1}
        assert values_of(await r.records("orders")) == good


async def test_a_reload_of_the_compression_reorders_nothing():
    """Each compression has a producer of its own; what one of them sends must not be overtaken."""
    async with restartable() as kafka:
        r = kafka.rig
        file = r.path / "gateway.toml"
        text = (
            f'kafka.bootstrap_servers = "{kafka.servers}"\n'
            f'[[inputs]]\ntype = "unix_datagram"\npath = "{r.path}/reloaded"\n'
            "[batching]\ntime_ms = 1\n"
        )
        file.write_text(text)
        async with Gateway(file) as gateway:
            own = Rig(r.kafka, None, gateway, r.path)  # type: ignore[arg-type]
            opened = own.socket()
            for n in range(20):
                codec = ("none", "gzip", "zstd", "lz4")[n % 4]
                file.write_text(f'{text}[compression]\ntype = "{codec}"\n')
                await gateway.reload()
                data = [
                    message("orders", b"%d" % i, partition_key=0)
                    for i in range(n * 100, n * 100 + 100)
                ]
                await asyncio.to_thread(lambda data=data: [opened.sendall(one) for one in data])
            await own.settled(2000)
            own.close()
        records = await records_of(kafka.servers, "orders")
        assert values_of(records) == [b"%d" % i for i in range(2000)]


@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_batches_that_are_larger_than_the_pool_are_sent(engine: str, spool: bool):
    """Regression: without a limit of time they filled the pool, and later messages were lost."""
    values = {
        "delivery": {"engine": engine},
        "pool": {"max_bytes": "64 KiB"},
        "batching": {"messages": 100_000},
    }
    async with rig(values, topics={"orders": 1, "others": 1}, spool=spool) as r:
        for n in range(40):
            sent = [message(topic, b"%d" % n + bytes(200)) for topic in ("orders", "others")]
            await r.send(*sent * 25, kind="unix_stream")
            await asyncio.sleep(0.02)
        await r.until(lambda: r.gateway.snapshot().total.acked > 1000)
        balanced(r.gateway.snapshot())


@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
async def test_batches_of_the_engine_that_are_larger_than_the_pool_are_sent(spool: bool):
    """Regression: if the pool was smaller than the largest message, the engine refused nothing, and
    so did not complete the batches that filled the pool.
    """
    values = {
        "delivery": {"engine": "bruce"},
        "pool": {"max_bytes": "512 KiB"},
        "batching": {"messages": 100_000},
    }
    async with rig(values, spool=spool) as r:
        for n in range(40):
            one = message("orders", b"%d" % n + bytes(200), partition_key=0)
            await r.send(*[one] * 100, kind="unix_stream")
            await asyncio.sleep(0.02)
        await r.until(lambda: r.gateway.snapshot().total.acked > 1000)
        balanced(r.gateway.snapshot())
