"""A reload of the gateway in virtual time, while messages arrive that nothing can deliver."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.gateway_world import GatewayWorld, with_gateway


@pytest.mark.parametrize("change", ["kafka", "engine"])
@pytest.mark.parametrize("engine", ["producer", "bruce"])
def test_a_reload_does_not_wait_until_no_more_dead_letters_come(engine: str, change: str) -> None:
    """Regression: it failed while programs sent to topics that do not exist."""

    async def body(w: GatewayWorld) -> None:
        values = {
            "kafka": {"bootstrap_servers": w.kafka.bootstrap_servers, "client_id": "first"},
            "delivery": {"engine": engine, "shutdown_max_delay_ms": 5000},
            "dead_letters": {"topic": "dead"},
        }
        made = GatewayWorld(w.simulation, w.kafka, w.path, values)
        w.kafka.delays[1] = 0.1  # so that there is always a letter without an answer
        await made.gateway.start()

        async def send() -> None:
            while True:
                made.feed(("no/name", b"v"))
                await asyncio.sleep(0.01)

        sending = asyncio.ensure_future(send())
        await asyncio.sleep(1)
        assert made.gateway.dead_letters.sending
        if change == "kafka":
            values["kafka"]["client_id"] = "second"
        else:
            values["delivery"]["engine"] = "bruce" if engine == "producer" else "producer"
        made.write(**values)
        assert await made.gateway.reload()
        await asyncio.sleep(1)
        sending.cancel()
        final = await made.gateway.close()
        assert final.total.received == made.sent == final.total.dead_lettered
        assert len(w.kafka.values("dead")) == made.sent

    with_gateway(body)
