"""The time of a shutdown of the gateway, in virtual time: whatever does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.errors import ConfigError
from tests.sim.gateway_world import GatewayWorld, with_gateway

BUDGET = 5.0


def options(engine: str, servers: str) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap_servers": servers, "client_id": "first"},
        "delivery": {"engine": engine, "shutdown_max_delay_ms": int(1000 * BUDGET)},
        "dead_letters": {"topic": "dead", "reasons": ["shutdown", "bad_topic", "too_long"]},
        "limits": {"max_message_bytes": 1000},
    }


@pytest.mark.parametrize("reload", ["none", "kafka", "engine"])
@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("engine", ["producer", "bruce"])
def test_a_shutdown_takes_at_most_its_budget(engine: str, spool: bool, reload: str) -> None:
    """Brokers do not answer, dead letters wait, and a reload waits for messages in flight."""

    async def body(w: GatewayWorld) -> None:
        values = options(engine, w.kafka.bootstrap_servers)
        if spool:
            values["spool"] = {"path": f"{w.path}/spool"}
        made = GatewayWorld(w.simulation, w.kafka, w.path, values)
        loop = asyncio.get_running_loop()
        await made.gateway.start()
        made.feed(("t", b"v"))
        await asyncio.sleep(1)
        assert made.gateway.snapshot().total.acked == 1
        w.kafka.delays[1] = 3600.0
        for n in range(50):
            made.feed(("t", b"%d" % n), ("u", bytes(2000)), ("missing", b"v"))
            await asyncio.sleep(0.01)
        reloading = None
        if reload == "kafka":
            values["kafka"]["client_id"] = "second"
        elif reload == "engine":
            values["delivery"]["engine"] = "bruce" if engine == "producer" else "producer"
        if reload != "none":
            made.write(**values)
            reloading = asyncio.ensure_future(made.gateway.reload())
            await asyncio.sleep(0.5)
            assert not reloading.done()
        began = loop.time()
        final = await made.gateway.close()
        assert loop.time() - began <= BUDGET
        total = final.total
        outcomes = total.acked + sum(total.discarded) + total.dead_lettered + total.in_flight
        assert outcomes == total.received == 151
        assert bool(total.in_flight) == spool
        if reloading is not None:
            with pytest.raises(ConfigError, match="were not delivered within"):
                await reloading

    with_gateway(body)
