"""The topic of dead letters: which messages go there, and what becomes of letters that fail."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import aiokq
from aiokq.broker.log.appending import Appendable
from aiokq.broker.log.partition_log import AppendResult
from aiokq.broker.replica.partition import Partition
from aiokq.errors import BrokerError, CorruptRecord, NotEnoughReplicas, PolicyViolation
from aiokq.gateway import Gateway, dead_letters
from aiokq.gateway.accounting import Snapshot
from aiokq.gateway.dead_letters import PREFIX
from tests.fault.gateway_support import (
    LIMIT,
    Rig,
    balanced,
    directory,
    discarded,
    message,
    now_ms,
    records_of,
    rig,
    topic_bytes,
)
from tests.peers.ports import free_ports

ENGINES = ("producer", "bruce")
TOPICS = {"orders": 1, "dead": 1}


def values(engine: str, **dead_letters: Any) -> Mapping[str, Any]:
    return {
        "delivery": {"engine": engine, "shutdown_max_delay_ms": 3000},
        "dead_letters": {"topic": "dead", **dead_letters},
    }


def refuse(
    monkeypatch: pytest.MonkeyPatch, topic: str, error: type[BrokerError]
) -> Callable[[], None]:
    """Let the broker refuse all batches of a topic; return a call that ends this."""
    append = Partition.append_prepared
    refused = True

    def refusing(partition: Partition, prepared: Appendable) -> AppendResult:
        if refused and partition.name.topic == topic:
            raise error
        return append(partition, prepared)

    def end() -> None:
        nonlocal refused
        refused = False

    monkeypatch.setattr(Partition, "append_prepared", refusing)
    return end


def headers_of(record: aiokq.Record) -> dict[str, str]:
    return {name.removeprefix(PREFIX): (value or b"").decode() for name, value in record.headers}


async def watched(r: Rig) -> None:
    """Check the books, again and again."""
    last: Snapshot | None = None
    while True:
        snapshot = r.gateway.snapshot()
        balanced(snapshot)
        if last is not None:
            old, new = last.total, snapshot.total
            assert new.dead_lettered >= old.dead_lettered
            assert sum(new.discarded) >= sum(old.discarded)
        last = snapshot
        await asyncio.sleep(0)


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_dead_letter_names_topic_reason_and_times(engine: str):
    async with rig(values(engine), topics=TOPICS) as r:
        began = now_ms()
        await r.send(
            message("missing", b"v", b"k", timestamp_ms=12_345, partition_key=7),
            message("orders", b"fine"),
        )
        snapshot = await r.settled(2)
        assert (snapshot.total.acked, snapshot.total.dead_lettered) == (1, 1)
        assert discarded(snapshot) == {}
        (record,) = await r.records("dead")
        assert (record.key, record.value) == (b"k", b"v")
        found = headers_of(record)
        assert began <= int(found.pop("arrival_ms")) <= int(found.pop("time_ms")) <= now_ms()
        assert found == {
            "topic": "missing",
            "reason": "bad_topic",
            "attempts": "0",
            "partition_key": "7",
            "timestamp_ms": "12345",
        }
        assert r.gateway.pool.used_bytes() == topic_bytes(r.gateway)


@pytest.mark.parametrize("engine", ENGINES)
async def test_messages_that_the_pool_refuses_become_dead_letters(engine: str):
    """The core knows that a topic has no valid name, and the limit of a known topic."""
    given = {**values(engine), "limits": {"max_message_bytes": 1000}}
    async with rig(given, topics=TOPICS) as r:
        watch = asyncio.ensure_future(watched(r))
        await r.send(message("orders", b"first"))
        await r.settled(1)
        await r.send(
            *(message("orders", bytes(2000), b"k") for _ in range(50)), message("no/name", b"v")
        )
        snapshot = await r.settled(52)
        watch.cancel()
        assert (snapshot.total.acked, snapshot.total.dead_lettered) == (1, 51)
        assert discarded(snapshot) == {}
        orders = snapshot.topics["orders"]
        assert (orders.received, orders.dead_lettered, sum(orders.discarded)) == (51, 50, 0)
        found = sorted(
            (headers_of(record)["topic"], headers_of(record)["reason"])
            for record in await r.records("dead")
        )
        assert found == [("no/name", "bad_topic")] + [("orders", "too_long")] * 50


async def test_a_flood_of_impossible_messages_does_not_hold_up_the_others():
    """Regression: each became a dead letter, which took all the time of the loop for seconds."""
    given = {**values("producer", max_per_s=200), "limits": {"max_message_bytes": 1000}}
    async with rig(given, topics=TOPICS) as r:
        watch = asyncio.ensure_future(watched(r))
        await r.send(message("orders", b"first"))
        await r.settled(1)
        bad = [message("no/name", b"v"), message("orders", bytes(2000)), message("missing", b"v")]
        began = time.monotonic()
        await r.send(*bad * 3000, message("orders", b"last"), kind="unix_stream")
        snapshot = await r.settled(9002)
        watch.cancel()
        total = snapshot.total
        # The pool and the loop count them separately.
        assert 200 <= total.dead_lettered <= 200 * (2 + time.monotonic() - began)
        assert total.acked == 2
        lost = discarded(snapshot)
        assert set(lost) <= {"bad_topic", "too_long"}
        assert sum(lost.values()) == 9000 - total.dead_lettered
        assert len(await r.records("dead")) == total.dead_lettered
        assert r.gateway.pool.used_bytes() == topic_bytes(r.gateway)


@pytest.mark.parametrize("engine", ENGINES)
async def test_messages_that_kafka_refuses_have_its_error(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    refuse(monkeypatch, "orders", PolicyViolation)
    async with rig(values(engine), topics=TOPICS) as r:
        watch = asyncio.ensure_future(watched(r))
        await r.send(*(message("orders", b"%d" % n) for n in range(500)))
        snapshot = await r.settled(500)
        watch.cancel()
        assert snapshot.topics["orders"].dead_lettered == 500
        records = await r.records("dead")
        assert [record.value for record in records] == [b"%d" % n for n in range(500)]
        found = headers_of(records[0])
        assert (found["reason"], found["code"]) == ("error_ack", "44")
        assert int(found["attempts"]) >= 1


async def test_a_message_that_failed_too_often_becomes_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
):
    refuse(monkeypatch, "orders", CorruptRecord)
    given = dict(values("bruce"))
    given["delivery"] = {
        "engine": "bruce",
        "error_table": "seed",
        "max_failed_delivery_attempts": 1,
    }
    async with rig(given, topics=TOPICS) as r:
        await r.send(message("orders", b"v"))
        snapshot = await r.settled(1)
        assert snapshot.total.dead_lettered == 1
        (record,) = await r.records("dead")
        found = headers_of(record)
        assert (found["reason"], found["code"]) == ("attempt_limit", "2")


@pytest.mark.parametrize("engine", ENGINES)
async def test_reasons_that_are_not_chosen_are_discarded(engine: str):
    async with rig(values(engine, reasons=["error_ack"]), topics=TOPICS) as r:
        await r.send(message("missing", b"v"))
        snapshot = await r.settled(1)
        assert discarded(snapshot) == {"bad_topic": 1}
        assert await r.records("dead") == []


@pytest.mark.parametrize("engine", ENGINES)
async def test_without_the_topic_of_dead_letters_messages_are_discarded_with_their_reason(
    engine: str,
):
    async with rig(values(engine), topics={"orders": 1}) as r:
        began = asyncio.get_running_loop().time()
        await r.send(*(message(f"missing-{n}", b"v") for n in range(100)))
        snapshot = await r.settled(100)
        assert discarded(snapshot) == {"bad_topic": 100}
        assert asyncio.get_running_loop().time() - began < 12
        assert r.gateway.pool.used_bytes() == topic_bytes(r.gateway)
        assert r.gateway.dead_letters.held == 0


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_dead_letter_that_is_too_large_costs_no_other_one(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    refuse(monkeypatch, "orders", PolicyViolation)
    async with rig(values(engine), topics={"orders": 1}) as r:
        await r.create("dead", max_message_bytes="2000")
        sizes = [10, 5000, 20]
        await r.send(*(message("orders", bytes(size)) for size in sizes))
        snapshot = await r.settled(3)
        assert discarded(snapshot) == {"error_ack": 1}
        assert snapshot.total.dead_lettered == 2
        assert [len(record.value or b"") for record in await r.records("dead")] == [10, 20]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_message_to_the_topic_of_dead_letters_never_becomes_one(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    refuse(monkeypatch, "dead", PolicyViolation)
    async with rig(values(engine), topics=TOPICS) as r:
        await r.send(message("dead", b"v"), message("missing", b"v"))
        snapshot = await r.settled(2)
        assert discarded(snapshot) == {"error_ack": 1, "bad_topic": 1}
        assert snapshot.total.dead_lettered == 0


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_a_shutdown_does_not_deliver_becomes_dead_letters_within_its_time(
    engine: str, monkeypatch: pytest.MonkeyPatch
):
    refuse(monkeypatch, "orders", NotEnoughReplicas)
    given = dict(values(engine))
    if engine == "bruce":
        given["delivery"] = {**given["delivery"], "max_failed_delivery_attempts": 10**6}
    async with rig(given, topics=TOPICS) as r:
        await r.send(*(message("orders", b"%d" % n) for n in range(300)))
        await r.until(lambda: r.gateway.snapshot().total.received == 300)
        began = asyncio.get_running_loop().time()
        snapshot = await r.gateway.close()
        assert asyncio.get_running_loop().time() - began < 5
        balanced(snapshot)
        assert snapshot.total.dead_lettered == 300
        assert snapshot.total.in_flight == 0
        records = await records_of(r.kafka.bootstrap_servers, "dead")
        assert len(records) == 300
        assert {headers_of(record)["reason"] for record in records} == {"shutdown"}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_shutdown_without_kafka_discards_within_its_time(engine: str):
    async with rig(values(engine), topics=TOPICS) as r:
        await r.send(message("orders", b"first"))
        await r.settled(1)
        await r.kafka.close()
        await r.send(*(message("orders", b"%d" % n) for n in range(300)))
        await r.until(lambda: r.gateway.snapshot().total.received == 301)
        began = asyncio.get_running_loop().time()
        snapshot = await r.gateway.close()
        assert asyncio.get_running_loop().time() - began < 8
        balanced(snapshot)
        assert discarded(snapshot) == {"shutdown": 300}
        assert snapshot.total.in_flight == 0


@contextlib.asynccontextmanager
async def waiting_letter(
    path: Path, servers: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateway]:
    """Start a gateway without a Kafka, with a dead letter that waits.

    The gateway has a topic of dead letters and the file `path / "gateway.toml"`.
    """
    monkeypatch.setattr(dead_letters, "BLOCK_MS", 200)
    write_file(path, servers)
    async with Gateway(path / "gateway.toml") as gateway:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(f"{path}/datagram")
            sender.send(message("no/name", b"v"))
        async with asyncio.timeout(LIMIT):
            while not gateway.dead_letters.held:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # longer than BLOCK_MS
        assert gateway.dead_letters.held == 1
        yield gateway


def write_file(path: Path, servers: str) -> None:
    (path / "gateway.toml").write_text(
        f'''
        [kafka]
        bootstrap_servers = "{servers}"
        reconnect_backoff_max_ms = 100
        [[inputs]]
        type = "unix_datagram"
        path = "{path}/datagram"
        [delivery]
        shutdown_max_delay_ms = 1000
        [dead_letters]
        topic = "dead"
        '''
    )


async def lettered(gateway: Gateway, servers: str) -> None:
    """Wait until the topic of dead letters has the one of `waiting_letter`."""
    async with asyncio.timeout(LIMIT):
        while (snapshot := gateway.snapshot()).total.in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    balanced(snapshot)
    assert snapshot.total.dead_lettered == 1
    assert [record.value for record in await records_of(servers, "dead")] == [b"v"]


async def test_dead_letters_wait_for_a_kafka_that_was_never_there(
    monkeypatch: pytest.MonkeyPatch,
):
    """Regression: they were discarded after three seconds."""
    with directory() as path:
        async with aiokq.EmbeddedCluster(data_dir=path / "data") as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                await admin.create_topics([aiokq.NewTopic("dead", 1)])
        port = int(servers.rpartition(":")[2])
        async with (
            waiting_letter(path, servers, monkeypatch) as gateway,
            aiokq.EmbeddedCluster(data_dir=path / "data", port=port),
        ):
            await lettered(gateway, servers)


async def test_a_topic_that_does_not_exist_is_not_waited_for_when_kafka_comes(
    monkeypatch: pytest.MonkeyPatch,
):
    with directory() as path:
        port = free_ports(1)[0]
        async with (
            waiting_letter(path, f"127.0.0.1:{port}", monkeypatch) as gateway,
            aiokq.EmbeddedCluster(port=port),
        ):
            async with asyncio.timeout(LIMIT):
                while gateway.dead_letters.held:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert discarded(gateway.snapshot()) == {"bad_topic": 1}


async def test_a_shutdown_ends_the_wait_for_kafka_and_discards_the_dead_letters(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with directory() as path:
        async with waiting_letter(path, f"127.0.0.1:{free_ports(1)[0]}", monkeypatch) as gateway:
            # No attempt ends by itself: only the shutdown ends the wait.
            monkeypatch.setattr(dead_letters, "BLOCK_MS", 3_600_000)
            await asyncio.sleep(0.1)
            snapshot = await gateway.close()
            balanced(snapshot)
            assert discarded(snapshot) == {"bad_topic": 1}
            assert snapshot.total.in_flight == 0
            assert "have no outcome" not in caplog.text


async def test_a_reload_gives_dead_letters_that_wait_to_the_new_brokers(
    monkeypatch: pytest.MonkeyPatch,
):
    with directory() as path:
        async with aiokq.EmbeddedCluster() as kafka:
            servers = kafka.bootstrap_servers
            async with aiokq.Admin(servers) as admin:
                await admin.create_topics([aiokq.NewTopic("dead", 1)])
            async with waiting_letter(
                path, f"127.0.0.1:{free_ports(1)[0]}", monkeypatch
            ) as gateway:
                write_file(path, servers)
                assert await gateway.reload() == ["kafka"]
                await lettered(gateway, servers)


async def test_a_message_that_is_refused_while_the_loop_looks_becomes_a_dead_letter_at_once():
    """Regression: the loop emptied the queue of refused messages before it allowed the pool to wake
    it again, so a message in between waited for the next one.
    """
    given = {**values("producer"), "limits": {"max_message_bytes": 100}}
    given["discards"] = {"log_lines": False}  # the lines look at the queue, too
    async with rig(given, topics=TOPICS) as r:
        await r.send(message("orders", b"first"))
        await r.settled(1)
        gateway, opened = r.gateway, r.socket()
        drain, refused = gateway.accounting.drain, False

        def drain_and_refuse() -> int:
            nonlocal refused
            count = drain()
            if not refused:
                refused = True
                opened.send(message("orders", bytes(500)))
                while gateway.pool.counts().received < 3:
                    time.sleep(0.001)
            return count

        gateway.accounting.drain = drain_and_refuse  # type: ignore[method-assign]
        opened.send(message("orders", b"second"))
        async with asyncio.timeout(20):
            # A snapshot of the gateway would look, too.
            while not await r.records("dead"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
