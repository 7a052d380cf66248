"""`in_flight` is a difference of counts: here it is compared with what each part holds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from aiokq.broker.log.appending import Appendable
from aiokq.broker.log.partition_log import AppendResult
from aiokq.broker.replica.partition import Partition
from aiokq.errors import BrokerError, NotEnoughReplicas, PolicyViolation
from aiokq.gateway import Gateway
from tests.fault.gateway_support import (
    Rig,
    configuration,
    cross_checked,
    directory,
    discarded,
    message,
    rig,
)


class Moods:
    """What the broker says to batches of each topic, for some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused: dict[str, type[BrokerError]] = {}
        append = Partition.append_prepared

        def moody(partition: Partition, prepared: Appendable) -> AppendResult:
            error = self.refused.get(partition.name.topic)
            if error is not None:
                raise error
            return append(partition, prepared)

        monkeypatch.setattr(Partition, "append_prepared", moody)


@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("letters", [False, True], ids=["discards", "dead letters"])
@pytest.mark.parametrize("engine", ["producer", "bruce"])
async def test_in_flight_is_what_the_parts_hold_at_any_moment(
    engine: str, letters: bool, spool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of all kinds, while the broker refuses them for a time, and a topic is deleted."""
    moods = Moods(monkeypatch)
    delivery: dict[str, Any] = {"engine": engine}
    if engine == "bruce":
        delivery |= {"pause_initial_ms": 50, "min_pause_ms": 20}
    values: dict[str, Any] = {
        "delivery": delivery,
        "batching": {"time_ms": 3},
        "limits": {"max_message_bytes": 2000},
        "topics": {"limited": {"rate_limit": {"interval_ms": 1000, "max_messages": 5}}},
        "pool": {"max_bytes": "256 KiB"},
        **({"dead_letters": {"topic": "dead"}} if letters else {}),
    }
    topics = {"orders": 3, "refused": 1, "limited": 1, "doomed": 1, "dead": 1}
    async with rig(values, topics=topics, spool=spool) as r:
        kinds = [
            message("orders", b"v" * 300),
            message("refused", b"v" * 100),
            message("limited", b"v"),
            message("doomed", b"v"),
            message("missing", b"v"),
            message("no/name", b"v"),
            message("orders", bytes(3000)),
            message("orders", b"v")[:-1],
            message("orders", b"keyed", partition_key=5),
        ]
        stream = [one for one in kinds if one is not kinds[7]]

        async def send(kind: str) -> None:
            for _ in range(12):
                given = kinds if kind == "unix_datagram" else stream
                await r.send(*given * 10, kind=kind)
                await asyncio.sleep(0.02)

        async def change() -> None:
            for error in (NotEnoughReplicas, PolicyViolation):
                moods.refused = {"refused": error}
                await asyncio.sleep(0.15)
            moods.refused = {"orders": NotEnoughReplicas, "dead": NotEnoughReplicas}
            await asyncio.sleep(0.15)
            moods.refused = {}
            await r.admin.delete_topics(["doomed"])

        work = asyncio.gather(
            *(send(kind) for kind in ("unix_datagram", "unix_stream", "tcp")), change()
        )
        checks = 0
        while not work.done():
            cross_checked(r.gateway)
            queues = r.gateway.reports.queues()
            assert queues.in_flight <= cross_checked(r.gateway).total.in_flight
            checks += 1
            await asyncio.sleep(0)
        await work
        assert checks > 100
        sent = 12 * 10 * (9 + 8 + 8)
        snapshot = await r.settled(sent)
        assert snapshot.total.acked > 0
        reasons = discarded(snapshot)
        assert reasons["malformed"] == 120
        assert reasons["rate_limit"] > 0
        if letters:
            assert snapshot.total.dead_lettered > 0
        assert r.gateway.reports.queues() == (0, [], 0)


async def test_each_datagram_that_the_system_took_at_the_end_is_counted() -> None:
    """Regression: the socket stayed open until the messages were delivered, and ten more datagrams
    were taken that nobody read.
    """
    with directory() as path:
        values = {"delivery": {"shutdown_max_delay_ms": 1000}}
        gateway = Gateway(configuration(path, values))
        await gateway.start()
        sent = 0

        def send() -> None:
            nonlocal sent
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
                opened.connect(f"{path}/datagram")
                with contextlib.suppress(OSError):
                    while True:
                        opened.send(message("orders", b"v"))
                        sent += 1

        sending = asyncio.ensure_future(asyncio.to_thread(send))
        await asyncio.sleep(0.2)
        final = await gateway.close()
        await sending
        assert final.total.received == sent > 0


async def test_no_connection_is_taken_while_the_rest_is_delivered() -> None:
    """Regression: programs wrote to TCP connections that nobody accepted, for up to 30 seconds."""
    with directory() as path:
        values = {"delivery": {"shutdown_max_delay_ms": 1000}, "http": {"port": 0}}
        gateway = Gateway(configuration(path, values))
        await gateway.start()
        r = Rig(None, None, gateway, path)  # type: ignore[arg-type]
        await r.send(message("orders", b"v"))
        await r.until(lambda: gateway.snapshot().total.received == 1)
        (tcp,) = (one for one in gateway.inputs if one.type == "tcp")
        where, port = tcp.where, tcp.socket.port
        closing = asyncio.create_task(gateway.close())
        await r.until(lambda: tcp.socket.socket.fileno() < 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert not closing.done()
        assert where in [one.where for one in gateway.inputs]  # for the reports
        assert (await closing).total.document()["discarded"] == {"shutdown": 1}
