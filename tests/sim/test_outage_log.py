"""An outage in the log: a line at its beginning, one per minute, and one at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.core.errors import KafkaError, RequestTimeout
from tests.sim import group_world, producer_world
from tests.sim.producer_world import CLIENT, Close
from tests.sim.test_whole_system import BROKER, SERVERS

MINUTE = 60.0
SERVER_FILES = ("server.py", "accepted_connection.py")


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    """Return the client's log lines, without those of the broker in the same process."""
    return [
        f"{record.name} {record.levelname} {record.getMessage()}"
        for record in caplog.records
        if record.levelno >= level
        and not record.name.startswith("aiokq.broker")
        and Path(record.pathname).name not in SERVER_FILES
    ]


def stages(found: list[str]) -> list[str]:
    """Return the stages of the lines about nodes."""
    marks = {
        "unreachable: ": "began",
        "unreachable, still: ": "still",
        "unreachable, over: ": "over",
    }
    return [name for line in found for mark, name in marks.items() if mark in line]


def assert_one_outage(found: list[str], minutes: int, *, node: str = "0") -> None:
    assert stages(found) == ["began", *["still"] * minutes, "over"], "\n".join(found)
    assert all(line.startswith("aiokq.cluster WARNING node unreachable") for line in found)
    assert all(f" node={node} " in line for line in found)
    assert all(" cause=" in line for line in found)
    assert all(" error=" in line for line in found[:-1])
    assert re.search(r" lasted=\d+s times=\d+ cause=", found[-1])


@contextlib.asynccontextmanager
async def clients(world: Any, **settings: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run a producer, a consumer and two groups of one cluster."""
    environment = world.world.environment("10.0.1.1")

    async def produce(cluster: Cluster) -> None:
        async with cluster.producer(delivery_timeout_ms=3_600_000) as p:
            while True:
                with contextlib.suppress(KafkaError):
                    await p.send("orders", b"v")
                await asyncio.sleep(1)

    async def consume(cluster: Cluster, **options: Any) -> None:
        async with cluster.consumer("orders", auto_offset_reset="earliest", **options) as c:
            async for _ in c:
                pass

    async with Cluster(SERVERS, _environment=environment, **settings) as cluster:
        tasks = [
            asyncio.create_task(produce(cluster)),
            asyncio.create_task(consume(cluster)),
            asyncio.create_task(consume(cluster, group_id="g", **group_world.FAST)),
            asyncio.create_task(consume(cluster, group_id="m", group_protocol="consumer")),
        ]
        try:
            await asyncio.sleep(20)
            yield tasks
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("way", ["refuses", "is silent", "is cut off"])
def test_four_minutes_without_a_broker_are_half_a_dozen_lines(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There were three lines per attempt: for the node, for the metadata and for each client."""

    async def body(world: Any) -> None:
        await world.topic("orders", 3)
        async with clients(world, request_timeout_ms=5_000):
            caplog.clear()
            match way:
                case "refuses":
                    world.broker.kill()
                case "is silent":
                    world.broker.fall_silent()
                case _:
                    world.network.partition(BROKER)
            await asyncio.sleep(4 * MINUTE)
            during = lines(caplog, logging.INFO)
            assert 3 <= stages(during).count("still") <= 4, "\n".join(during)
            assert len(during) == 1 + stages(during).count("still"), "\n".join(during)
            world.network.heal()
            if way != "is cut off":
                await world.broker.start()
            await asyncio.sleep(2 * MINUTE)
            found = lines(caplog)
            outage = [line for line in found if "node unreachable" in line]
            assert_one_outage(outage, stages(outage).count("still"))
            # The failures found when the broker is back have their own lines: group members were
            # away for too long, and partitions have a new leader epoch.
            others = [line for line in found if line not in outage]
            assert all("group" in line or "fetch refused" in line for line in others)
            assert len(others) <= 14, "\n".join(others)

    caplog.set_level(logging.INFO, "aiokq")
    group_world.simulate(body)


def test_a_client_that_never_reached_its_cluster_logs_it_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each bootstrap address counts as a node of its own."""

    async def body(world: Any) -> None:
        world.network.refuse(BROKER)
        environment = world.world.environment("10.0.1.1")
        servers = f"{SERVERS},10.0.0.77:9092"
        async with Cluster(servers, _environment=environment, bootstrap_timeout_ms=0) as cluster:
            await asyncio.sleep(5 * MINUTE)
            world.network.heal()
            await asyncio.sleep(10)
            assert cluster.health().brokers_up
        found = lines(caplog)
        reached = [line for line in found if f"node={SERVERS} " in line]
        assert_one_outage(reached, stages(reached).count("still"), node=SERVERS)
        assert 4 <= stages(reached).count("still") <= 5
        never = [line for line in found if line not in reached]
        assert set(stages(never)) == {"began", "still"}
        assert len(never) <= 6
        assert all("node=10.0.0.77:9092" in line for line in never)

    group_world.simulate(body)


def test_a_flapping_broker_is_four_lines_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker flaps thirty times in three minutes; omitted lines are counted."""

    async def body(world: Any) -> None:
        await world.topic("orders", 1)
        async with clients(world):
            caplog.clear()
            for _ in range(30):
                world.network.refuse(BROKER)
                for wire_ in world.network.connections(BROKER):
                    wire_.cut()
                await asyncio.sleep(3)
                world.network.heal()
                await asyncio.sleep(3)
            await asyncio.sleep(2)
            found = lines(caplog)
            nodes = [line for line in found if "node unreachable" in line]
            assert 4 <= len(nodes) <= 14, "\n".join(nodes)
            assert stages(nodes)[:2] == ["began", "over"]
            assert len(found) - len(nodes) < 20, "\n".join(found)

    group_world.simulate(body)


def test_each_unreachable_broker_has_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Two of three brokers are down for five minutes; the third one has no lines."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2, 3])
        environment = world.environment(CLIENT)
        async with (
            Cluster(kafka.bootstrap_servers, _environment=environment) as cluster,
            cluster.producer(delivery_timeout_ms=3_600_000) as p,
        ):
            for partition in range(3):
                await p.send("orders", b"v", partition=partition)
            for node_id in (2, 3):
                await kafka[node_id].stop()
            waiting = [p.send_nowait("orders", b"w", partition=n) for n in range(3)]
            await asyncio.sleep(5 * MINUTE)
            for node_id in (2, 3):
                await kafka[node_id].start()
            for delivery in waiting:
                await delivery
            await asyncio.sleep(5)
        found = lines(caplog)
        for node_id in (2, 3):
            of_node = [line for line in found if f"node={node_id} " in line]
            if stages(of_node)[:3] == ["began", "over", "began"]:
                # The listener accepted one more connection while the broker stopped.
                del of_node[:2]
            assert_one_outage(of_node, stages(of_node).count("still"), node=str(node_id))
            assert 4 <= stages(of_node).count("still") <= 5
        assert len(found) <= 18, "\n".join(found)
        assert not any("node=1 " in line for line in found)

    producer_world.simulate(body, nodes=3)


def test_an_error_of_a_reachable_broker_has_its_own_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """NOT_ENOUGH_REPLICAS for three minutes in several partitions of one broker."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 5)
        kafka.topic("other", [1])
        kafka.faults.append(
            lambda attempt: 19 if attempt.topic == "orders" and attempt.at < 3 * MINUTE else None
        )
        async with producer_world.producer(world, kafka, delivery_timeout_ms=3_600_000) as p:
            waiting = [p.send_nowait("orders", b"v", partition=n) for n in range(5)]
            while world.loop.time() < 3 * MINUTE:
                await p.send("other", b"v")  # this success does not end the outage
                await asyncio.sleep(1)
            for delivery in waiting:
                await delivery
        first, *still, last = lines(caplog)
        assert "aiokq.cluster WARNING records are sent again: node=1 partition=orders-" in first
        assert "cause=NOT_ENOUGH_REPLICAS error=" in first
        assert len(still) in (2, 3)
        assert all("records are sent again, still: node=1" in line for line in still)
        assert all("partitions=5 cause=NOT_ENOUGH_REPLICAS" in line for line in still)
        assert "records are sent again, over: node=1" in last

    producer_world.simulate(body)


def test_records_lost_in_an_outage_are_one_error_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each batch had its own line: hundreds per second."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer_world.producer(world, kafka, delivery_timeout_ms=5_000) as p:
            await p.send("orders", b"v")
            world.network.partition(producer_world.BROKER)
            failed = 0
            while world.loop.time() < 3 * MINUTE:
                with pytest.raises(RequestTimeout):
                    await p.send("orders", b"v")
                failed += 1
            world.network.heal()
            await p.send("orders", b"v")
        errors = [line for line in lines(caplog) if "records are given up" in line]
        assert 3 <= len(errors) <= 5, "\n".join(errors)
        assert errors[0].startswith("aiokq.cluster ERROR records are given up: partition=orders-0")
        assert f"records={failed} " in errors[-1]
        assert "records are given up, over" in errors[-1]

    producer_world.simulate(body)


def test_a_connection_that_is_closed_after_the_handshake_does_not_end_an_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A SASL listener closes the connection after ApiVersions, so a handshake is not a recovery."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.on(wire.MetadataRequest, Close())
        environment = world.environment(CLIENT)
        async with Cluster(
            kafka.bootstrap_servers, _environment=environment, bootstrap_timeout_ms=0
        ):
            await asyncio.sleep(3 * MINUTE)
        found = lines(caplog)
        assert "over" not in stages(found)
        assert len(found) <= 4, "\n".join(found)
        assert "security_protocol=SASL_PLAINTEXT" in found[0]

    producer_world.simulate(body)


def test_refused_credentials_are_one_line_a_minute_with_their_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They are not an outage, and failures caused by them are not logged again."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.on(wire.SaslHandshakeRequest, wire.SaslHandshakeResponse(mechanisms=["PLAIN"]))
        kafka.on(
            wire.SaslAuthenticateRequest,
            wire.SaslAuthenticateResponse(error_code=58, error_message="wrong password"),
        )
        environment = world.environment(CLIENT)
        async with Cluster(
            kafka.bootstrap_servers,
            _environment=environment,
            bootstrap_timeout_ms=0,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="a",
            sasl_plain_password="b",
        ):
            await asyncio.sleep(3 * MINUTE)
        found = lines(caplog)
        assert 3 <= len(found) <= 4, "\n".join(found)
        assert all("node refuses" in line for line in found)
        assert all("cause=SASL_AUTHENTICATION_FAILED" in line for line in found)

    producer_world.simulate(body)


class PanicError(BaseException):
    """Like the panics of Rust extensions."""


@pytest.mark.parametrize("kind", [ValueError, PanicError, asyncio.CancelledError])
def test_a_log_handler_that_raises_does_not_block_records(
    kind: type[BaseException],
) -> None:
    """The lost or returned connection was logged before the waiting records were handled."""
    raised: list[str] = []
    told: list[BaseException | None] = []

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno >= logging.WARNING and Path(record.pathname).name == "outages.py":
                raised.append(record.getMessage())
                raise kind

    async def body(world: Any) -> None:
        await world.topic("orders", 1)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context.get("exception")))
        environment = world.world.environment("10.0.1.1")
        async with Cluster(SERVERS, _environment=environment) as cluster, cluster.producer() as p:
            await p.send("orders", b"0")
            world.broker.kill()
            deliveries = [p.send_nowait("orders", b"%d" % n) for n in range(5)]
            await asyncio.sleep(1)
            await world.broker.start()
            found = await asyncio.wait_for(asyncio.gather(*deliveries), 20)
            assert [meta.offset for meta in found] == [1, 2, 3, 4, 5]
        loop.set_exception_handler(None)

    handler = Broken()
    logging.getLogger("aiokq").addHandler(handler)
    try:
        group_world.simulate(body)
    finally:
        logging.getLogger("aiokq").removeHandler(handler)
    assert len(raised) >= 2, "began, over"
    assert [type(error) for error in told] == [kind] * len(raised)
