"""Coordinator lookups: by type and key, batched, retried and cached."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.cluster.targets import Coordinator, CoordinatorKind
from aiokq.core.errors import Closed, GroupAuthorization, KafkaError, RequestTimeout
from aiokq.wire import FieldNotSupported
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster, make_engine, simulate

GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION


class Directory:
    """The coordinators that the brokers report: (type, key) to node id or error code."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.answers: dict[tuple[int, str], int] = {}
        self.errors: dict[tuple[int, str], int] = {}
        cluster.handlers[wire.FindCoordinatorRequest] = self.find

    def find(
        self, broker: ScriptedBroker, request: wire.FindCoordinatorRequest, version: int
    ) -> wire.FindCoordinatorResponse:
        keys = request.coordinator_keys if version >= 4 else [request.key]
        found = [self._one(request.key_type, key) for key in keys]
        if version >= 4:
            return wire.FindCoordinatorResponse(coordinators=found)
        (one,) = found
        return wire.FindCoordinatorResponse(
            error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port
        )

    def _one(self, kind: int, key: str) -> wire.Coordinator:
        code = self.errors.get((kind, key), 0)
        if code:
            return wire.Coordinator(key=key, error_code=code, node_id=-1, port=-1)
        node = self.answers.get((kind, key), 1)
        broker = self.cluster.brokers[node]
        return wire.Coordinator(key=key, node_id=node, host=broker.host, port=broker.port)

    @property
    def requests(self) -> list[wire.FindCoordinatorRequest]:
        return self.cluster.requests(wire.FindCoordinatorRequest)


def test_kind_and_key_tell_coordinators_apart():
    """aiokafka had one coordinator per type, so group B's offsets went to group A's coordinator."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.answers = {(0, "a"): 1, (0, "b"): 2, (1, "a"): 3}
        engine = make_engine(cluster)
        await engine.start()
        assert await engine.coordinator(GROUP, "a") == 1
        assert await engine.coordinator(GROUP, "b") == 2
        assert await engine.coordinator(TRANSACTION, "a") == 3
        assert len(directory.requests) == 3
        assert await engine.coordinator(GROUP, "a") == 1
        assert len(directory.requests) == 3, "remembered"
        await engine.close()

    simulate(main)


def test_lookups_made_together_share_a_request():
    """A hundred groups looked up at start need one FindCoordinator request (KIP-699)."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        engine = make_engine(cluster)
        await engine.start()
        keys = [f"g{n}" for n in range(100)]
        await asyncio.gather(
            *(engine.coordinator(GROUP, key) for key in keys), engine.coordinator(GROUP, "g0")
        )
        assert [len(request.coordinator_keys) for request in directory.requests] == [100]
        await engine.close()

    simulate(main)


def test_old_brokers_are_asked_key_by_key():
    """Before version 4 a request has one key; a failing lookup does not stop the others."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.FindCoordinatorRequest] = 3
        directory = Directory(cluster)
        directory.answers = {(0, "b"): 2, (0, "c"): 3}
        directory.errors = {(0, "a"): 15}
        engine = make_engine(cluster)
        await engine.start()
        first = asyncio.create_task(engine.coordinator(GROUP, "a", timeout=10))
        found = await asyncio.gather(
            engine.coordinator(GROUP, "b", timeout=5), engine.coordinator(GROUP, "c", timeout=5)
        )
        assert found == [2, 3]
        directory.errors.clear()
        assert await first == 1
        await engine.close()

    simulate(main)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_a_coordinator_on_the_move_is_waited_for(code: int):
    """COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR are retried."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.errors = {(0, "g"): code}
        engine = make_engine(cluster)
        await engine.start()
        asyncio.get_running_loop().call_later(2, directory.errors.clear)
        assert await engine.coordinator(GROUP, "g", timeout=10) == 1
        assert 2 < engine.now() < 3.5
        assert len(directory.requests) < 10
        await engine.close()

    simulate(main)


def test_a_timeout_says_why():
    """'Timed out' alone does not tell a loading coordinator from an unreachable one."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.errors = {(0, "g"): 15}
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(RequestTimeout, match="COORDINATOR_NOT_AVAILABLE"):
            await engine.coordinator(GROUP, "g", timeout=1)
        assert engine.now() == pytest.approx(1, abs=0.01)
        count = len(directory.requests)
        await asyncio.sleep(10)
        assert len(directory.requests) <= count + 1, "nobody waits any more"
        await engine.close()

    simulate(main)


def test_a_refusal_is_raised_at_once_to_its_own_waiters():
    """One group is not authorized; another group in the same request is found."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.errors = {(0, "secret"): 30}
        engine = make_engine(cluster)
        await engine.start()
        refused, found = await asyncio.gather(
            engine.coordinator(GROUP, "secret"),
            engine.coordinator(GROUP, "mine"),
            return_exceptions=True,
        )
        assert isinstance(refused, GroupAuthorization)
        assert found == 1
        assert engine.now() < 1
        await engine.close()

    simulate(main)


def test_a_failed_coordinator_is_looked_up_again():
    """The coordinator responded with NOT_COORDINATOR, or its broker died."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.answers = {(0, "g"): 2}
        engine = make_engine(cluster)
        await engine.start()
        assert await engine.coordinator(GROUP, "g") == 2
        directory.answers = {(0, "g"): 3}
        engine.coordinator_failed(GROUP, "g")
        assert await engine.coordinator(GROUP, "g") == 3
        await engine.node(3).request(wire.MetadataRequest(topics=[]))
        cluster.brokers[3].die()
        await asyncio.sleep(0.01)
        directory.answers = {(0, "g"): 1}
        assert await engine.coordinator(GROUP, "g") == 1
        await engine.close()

    simulate(main)


def test_a_coordinator_that_metadata_lacks_is_usable():
    """The FindCoordinator response contains the coordinator's address."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.answers = {(0, "g"): 3}
        cluster.brokers[3].listed = False
        engine = make_engine(cluster, bootstrap_servers="broker1:9092")
        await engine.start()
        assert 3 not in engine.metadata.brokers
        node = engine.node(await engine.coordinator(GROUP, "g"))
        await node.request(wire.MetadataRequest(topics=[]))
        await engine.close()

    simulate(main)


def test_a_cancelled_lookup_leaves_the_others():
    """Two consumers of a group share a lookup; one of them is cancelled."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.errors = {(0, "g"): 14}
        engine = make_engine(cluster)
        await engine.start()
        first = asyncio.create_task(engine.coordinator(GROUP, "g"))
        second = asyncio.create_task(engine.coordinator(GROUP, "g"))
        await asyncio.sleep(0.5)
        first.cancel()
        directory.errors.clear()
        assert await second == 1
        await engine.close()

    simulate(main)


def test_closing_ends_lookups():
    """Pending lookups must not outlive the cluster."""

    async def main(cluster: ScriptedCluster) -> None:
        Directory(cluster).errors = {(0, "g"): 14}
        engine = make_engine(cluster)
        await engine.start()
        waiting = asyncio.create_task(engine.coordinator(GROUP, "g"))
        await asyncio.sleep(0.5)
        await engine.close()
        with pytest.raises(Closed):
            await waiting

    simulate(main)


@pytest.mark.parametrize("version", range(7))
def test_every_version_of_the_lookup_works(version: int):
    """From 0.8 brokers, which support only groups, to batched lookups and share groups."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.FindCoordinatorRequest] = version
        directory = Directory(cluster)
        directory.answers = {(0, "g"): 2, (1, "t"): 3}
        engine = make_engine(cluster)
        await engine.start()
        assert await engine.coordinator(GROUP, "g") == 2
        if version:
            assert await engine.coordinator(TRANSACTION, "t") == 3
        else:
            with pytest.raises(FieldNotSupported, match="key_type"):
                await engine.coordinator(TRANSACTION, "t")
        await engine.close()

    simulate(main)


def test_a_key_that_the_broker_leaves_out_is_asked_for_again():
    """A response without coordinators used to be read as node 0 without an address."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        engine = make_engine(cluster)
        await engine.start()
        cluster.handlers[wire.FindCoordinatorRequest] = lambda b, r, v: (
            wire.FindCoordinatorResponse(
                coordinators=[wire.Coordinator(key="other", node_id=2, host="x", port=1)]
            )
        )
        with pytest.raises(RequestTimeout, match="key not in the response"):
            await engine.coordinator(GROUP, "g", timeout=1)
        assert engine.coordinators.known(GROUP, "other") is None
        cluster.handlers[wire.FindCoordinatorRequest] = directory.find
        assert await engine.coordinator(GROUP, "g", timeout=5) == 1
        await engine.close()

    simulate(main)


def test_a_stale_failure_keeps_a_newer_coordinator():
    """A member reports its old coordinator after another member has already found the new one."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.answers = {(0, "g"): 3}
        engine = make_engine(cluster)
        await engine.start()
        assert await engine.coordinator(GROUP, "g") == 3
        engine.coordinator_failed(GROUP, "g", 2)
        assert await engine.coordinator(GROUP, "g") == 3
        assert len(directory.requests) == 1
        engine.coordinator_failed(GROUP, "g", 3)
        directory.answers = {(0, "g"): 1}
        assert await engine.coordinator(GROUP, "g") == 1
        await engine.close()

    simulate(main)


def test_requests_follow_a_coordinator_to_another_node():
    """The coordinator's broker dies: the request waits for the new one and is sent there."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.answers = {(0, "g"): 2}
        cluster.handlers[wire.HeartbeatRequest] = lambda b, r, v: wire.HeartbeatResponse(
            error_code=14 if engine.now() < 3 else 0, throttle_time_ms=0
        )
        engine = make_engine(cluster)
        await engine.start()
        target = Coordinator(GROUP, "g")
        beat = wire.HeartbeatRequest(group_id="g", member_id="m")

        def answered_by() -> int:
            return [s for s in cluster.served if isinstance(s.request, wire.HeartbeatRequest)][
                -1
            ].node_id

        assert (await engine.request(beat, node=target)).error_code == 14, "the caller's matter"
        assert answered_by() == 2
        cluster.brokers[2].die()

        def take_over() -> None:
            directory.answers = {(0, "g"): 3}

        asyncio.get_running_loop().call_later(2, take_over)
        await engine.request(beat, node=target, timeout=10)
        assert answered_by() == 3
        assert 2 < engine.now() < 4.5
        await engine.close()

    simulate(main)


def test_a_lookup_that_nobody_answers_names_its_cause():
    """All brokers are down; the timeout must say so."""

    async def main(cluster: ScriptedCluster) -> None:
        Directory(cluster)
        engine = make_engine(cluster)
        await engine.start()
        for broker in cluster.brokers.values():
            broker.die()
        for ask in (
            engine.coordinator(GROUP, "g", timeout=2),
            engine.request(
                wire.HeartbeatRequest(group_id="g"), node=Coordinator(GROUP, "g"), timeout=2
            ),
        ):
            with pytest.raises(RequestTimeout, match="refused") as caught:
                await ask
            assert isinstance(caught.value.__cause__, KafkaError)
        await engine.close()

    simulate(main)


def test_the_error_of_an_abandoned_lookup_is_not_kept():
    """When a lookup was abandoned before its response, an error stayed in memory for each group."""

    async def main(cluster: ScriptedCluster) -> None:
        directory = Directory(cluster)
        directory.errors = {(0, "a"): 15}
        cluster.latency = 1.0
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(RequestTimeout):
            await engine.coordinator(GROUP, "a", timeout=0.5)
        await asyncio.sleep(10)
        assert not engine.coordinators._last_error
        await engine.close()

    simulate(main)
