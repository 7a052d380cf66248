"""Connecting to a cluster through its bootstrap addresses, and rebootstrapping."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.values import ClusterValues
from aiokq.core.errors import AuthenticationFailed, BootstrapFailed, ConfigError
from tests.unit.cluster.scripted import Mood, ScriptedCluster, make_engine, simulate


def test_start_gives_the_brokers():
    """The metadata is available when start() returns, and only the brokers were requested."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        assert sorted(engine.metadata.brokers) == [1, 2, 3]
        assert engine.metadata.cluster_id == "scripted"
        assert [request.topics for request in cluster.requests(wire.MetadataRequest)] == [[]]
        await engine.close()

    simulate(main)


@pytest.mark.parametrize("mood", [Mood.REFUSING, Mood.BLACK_HOLE, Mood.SILENT, Mood.NOT_KAFKA])
def test_one_dead_seed_never_delays(mood: Mood):
    """The first address in the list is a machine that is down (kafka4net 26, 30)."""

    async def main(cluster: ScriptedCluster) -> None:
        for dead in (1, 2):
            cluster.brokers[dead].listed = False
            cluster.brokers[dead].mood = mood
        engine = make_engine(cluster)
        await engine.start()
        assert sorted(engine.metadata.brokers) == [3]
        assert engine.now() < 0.6
        await engine.close()

    simulate(main)


def test_failure_names_each_address_and_why():
    """'No brokers available' does not say what is wrong with each address."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.environment.network.unknown_hosts.add("broker1")
        cluster.brokers[2].mood = Mood.REFUSING
        cluster.brokers[3].mood = Mood.NOT_KAFKA
        cluster.add_broker(4).mood = Mood.BLACK_HOLE
        engine = make_engine(cluster, bootstrap_timeout_ms=3_000)
        with pytest.raises(BootstrapFailed) as caught:
            await engine.start()
        assert engine.now() == pytest.approx(3, abs=0.01)
        reasons = dict(caught.value.attempts)
        assert "unknown host" in reasons["broker1:9092"]
        assert "Connection refused" in reasons["broker2:9092"]
        assert "Kafka" in reasons["broker3:9092"]
        assert "no answer within 3 s" in reasons["broker4:9092"]
        assert "broker1:9092: unknown host" in str(caught.value)
        assert engine.closed

    simulate(main)


def test_not_kafka_everywhere_fails_at_once():
    """A web server will not turn into a broker in the next ten seconds."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.brokers[1].mood = Mood.NOT_KAFKA
        engine = make_engine(cluster, bootstrap_timeout_ms=10_000)
        with pytest.raises(BootstrapFailed):
            await engine.start()
        assert engine.now() < 1

    simulate(main, brokers=1)


def test_a_broker_that_is_too_old_is_named_as_such():
    """A broker without a supported Metadata version cannot be used at all."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.missing.add(wire.MetadataRequest)
        with pytest.raises(BootstrapFailed, match="older"):
            await make_engine(cluster).start()

    simulate(main, brokers=1)


def test_refused_credentials_are_final_at_once():
    """Further attempts would lock the account, and none can succeed."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.SaslHandshakeRequest] = lambda *_: wire.SaslHandshakeResponse(
            mechanisms=["PLAIN"]
        )
        cluster.handlers[wire.SaslAuthenticateRequest] = lambda *_: wire.SaslAuthenticateResponse(
            error_code=58, error_message="wrong password"
        )
        engine = make_engine(
            cluster,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="me",
            sasl_plain_password="s3cret",
        )
        with pytest.raises(BootstrapFailed, match="wrong password") as caught:
            await engine.start()
        assert isinstance(caught.value.__cause__, AuthenticationFailed)
        assert engine.now() < 0.3
        assert len(cluster.requests(wire.SaslAuthenticateRequest)) == 1
        assert "s3cret" not in str(caught.value)

    simulate(main)


def test_a_refusal_by_the_only_address_is_the_cause():
    """The caller must be able to tell a wrong password from a broker that is down."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.SaslHandshakeRequest] = lambda *_: wire.SaslHandshakeResponse(
            mechanisms=["PLAIN"]
        )
        cluster.handlers[wire.SaslAuthenticateRequest] = lambda *_: wire.SaslAuthenticateResponse(
            error_code=58, error_message="wrong password"
        )
        engine = make_engine(
            cluster,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="me",
            sasl_plain_password="s3cret",
        )
        with pytest.raises(BootstrapFailed, match="wrong password; check the cred") as caught:
            await engine.start()
        assert isinstance(caught.value.__cause__, AuthenticationFailed)

    simulate(main, brokers=1)


def test_no_address_is_a_mistake_in_the_settings():
    """Without an address, connecting could only end in an uninformative timeout."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = ClusterEngine(ClusterValues.given({}), cluster.environment)
        with pytest.raises(ConfigError, match="bootstrap_servers is not set"):
            await engine.start()

    simulate(main)


def test_a_broker_that_starts_late_is_waited_for():
    """The service and the broker are started together, and the broker takes longer."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.brokers[1].mood = Mood.REFUSING
        asyncio.get_running_loop().call_later(4, cluster.brokers[1].revive)
        engine = make_engine(cluster)
        await engine.start()
        assert 4 <= engine.now() < 5.5
        await engine.close()

    simulate(main, brokers=1)


def test_without_bootstrap_timeout_start_does_not_wait():
    """With bootstrap_timeout_ms=0, each call waits within its own timeout instead."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        cluster.brokers[1].mood = Mood.REFUSING
        asyncio.get_running_loop().call_later(2, cluster.brokers[1].revive)
        engine = make_engine(cluster, bootstrap_timeout_ms=0)
        await engine.start()
        assert engine.now() == 0
        info = await engine.topic("t", timeout=5)
        assert info.partitions[0].leader == 1
        await engine.close()

    simulate(main, brokers=1)


def test_a_metadata_response_without_brokers_is_ignored():
    """A broker that is still starting returns Metadata without brokers."""

    async def main(cluster: ScriptedCluster) -> None:
        empty = wire.MetadataResponse(cluster_id="scripted", controller_id=-1)

        def metadata(broker: object, request: wire.MetadataRequest, version: int) -> object:
            return empty if cluster.loop.time() < 1 else cluster.metadata(request)

        cluster.handlers[wire.MetadataRequest] = metadata
        engine = make_engine(cluster)
        await engine.start()
        assert 1 <= engine.now() < 2.2
        assert len(engine.metadata.brokers) == 3
        await engine.close()

    simulate(main)


def test_a_moved_cluster_is_found_by_its_bootstrap_addresses():
    """All brokers have new addresses; the bootstrap host name resolves to them (KIP-899)."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for broker in list(cluster.brokers.values()):
            broker.fence()
            broker.host = "gone"
        replacement = cluster.add_broker(9)
        replacement.host, replacement.port = "broker1", 9092
        await engine.refresh()
        assert sorted(engine.metadata.brokers) == [9]
        await engine.close()

    simulate(main)


def test_strategy_none_asks_known_brokers_only():
    """With metadata_recovery_strategy=none the bootstrap addresses are not used again."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.brokers[2].listed = False
        engine = make_engine(
            cluster, metadata_recovery_strategy="none", bootstrap_servers="broker2:9092"
        )
        await engine.start()
        cluster.brokers[1].die()
        cluster.brokers[3].die()
        cluster.brokers[2].listed = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await engine.refresh()
        assert sorted(engine.metadata.brokers) == [1, 3]
        await engine.close()

    simulate(main)


def test_told_to_rebootstrap_the_client_does():
    """Error 129 (REBOOTSTRAP_REQUIRED) in a Metadata response tells the client to bootstrap again
    (KIP-1102).
    """

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster, bootstrap_servers="broker2:9092")
        cluster.brokers[2].listed = False
        await engine.start()
        asked: list[int] = []

        def metadata(broker: object, request: wire.MetadataRequest, version: int) -> object:
            asked.append(broker.node_id)  # type: ignore[attr-defined]
            if broker.node_id != 2:  # type: ignore[attr-defined]
                return wire.MetadataResponse(error_code=129)
            return cluster.metadata(request)

        cluster.handlers[wire.MetadataRequest] = metadata
        await engine.refresh()
        assert asked[-1] == 2
        await engine.close()

    simulate(main)
