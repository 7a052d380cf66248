"""`max.connections.per.ip.overrides` with host names, as in Kafka."""

from __future__ import annotations

import asyncio

import pytest

import aiokq
from aiokq.broker.config.settings import broker_settings
from aiokq.errors import ConfigError
from tests.unit.broker.harness import until

OVERRIDES = "max.connections.per.ip.overrides"
ALL = aiokq.ConfigResource(aiokq.ConfigResourceType.BROKER, "")
UNKNOWN = "a..b"
"""No name server knows an empty label, and none is asked."""


def limit_of(kafka: aiokq.EmbeddedCluster) -> int | None:
    """Return the limit of connections of this machine."""
    assert kafka.node is not None
    counts = kafka.node.servers._counts
    assert counts is not None
    return counts._limits.max_connections_of_host.get("127.0.0.1")


async def limited(kafka: aiokq.EmbeddedCluster, limit: int | None) -> None:
    await until(lambda: limit_of(kafka) == limit)


async def test_the_limit_of_a_host_name_holds_from_the_start_and_after_a_change(
    tmp_path, caplog
) -> None:
    """Names are looked up beside other work; a change to an unknown one is warned of."""

    def cluster() -> aiokq.EmbeddedCluster:
        return aiokq.EmbeddedCluster(settings={OVERRIDES: "localhost:50"}, data_dir=tmp_path / "d")

    async with cluster() as kafka:
        assert limit_of(kafka) == 50
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:

            async def change(text: str) -> None:
                await admin.alter_configs({ALL: {OVERRIDES: text}}, raise_errors=True)

            await change(f"{UNKNOWN}:5")
            await limited(kafka, None)
            await change(f"localhost:60,{UNKNOWN}:5")
            await limited(kafka, 60)
            assert f"host is unknown: setting={OVERRIDES} host={UNKNOWN}" in caplog.text
            await change("localhost:60,127.0.0.1:70")
            await limited(kafka, 70)
            await change("localhost:80")
            await limited(kafka, 80)
    async with cluster() as kafka:  # the stored value comes before that of the start
        await limited(kafka, 80)


async def test_a_slow_name_server_does_not_undo_what_was_found_meanwhile() -> None:
    """Regression: the lookup that ended last kept only the hosts that it had begun with."""

    class Names:
        """An offload whose lookups end when the test says."""

        def __init__(self) -> None:
            self.may_end = [asyncio.Event(), asyncio.Event()]
            self.begun = 0

        async def run(self, function, names):
            number, self.begun = self.begun, self.begun + 1
            await self.may_end[number].wait()
            return {name: [f"192.0.2.{len(name)}"] for name in names}

    async with aiokq.EmbeddedCluster() as kafka:
        assert kafka.node is not None
        servers, names = kafka.node.servers, Names()
        assert servers.limit_connections(broker_settings({OVERRIDES: "a:5"}))
        slow = asyncio.create_task(servers.find_hosts(names))
        await asyncio.sleep(0)
        assert servers.limit_connections(broker_settings({OVERRIDES: "a:5,bb:6"}))
        fast = asyncio.create_task(servers.find_hosts(names))
        await asyncio.sleep(0)
        for gate, lookup in ((names.may_end[1], fast), (names.may_end[0], slow)):
            gate.set()
            await lookup
        assert servers._counts is not None
        found = servers._counts._limits.max_connections_of_host
        assert found == {"192.0.2.1": 5, "192.0.2.2": 6}


async def test_an_unknown_host_ends_the_start() -> None:
    """As in Kafka: its limit could not be kept."""
    with pytest.raises(ConfigError, match=rf"the host {UNKNOWN} is unknown"):
        async with aiokq.EmbeddedCluster(settings={OVERRIDES: f"{UNKNOWN}:5"}):
            pass
