"""Request routing: which node receives a request, which requests are retried, and quotas."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.cluster.events import Throttled
from aiokq.cluster.targets import ANY, CONTROLLER, Coordinator, CoordinatorKind, Leader
from aiokq.core.errors import (
    ConnectionLost,
    RequestTimeout,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce.suspended import Suspended
from aiokq.wire import FieldNotSupported
from tests.unit.cluster.scripted import Mood, ScriptedBroker, ScriptedCluster, make_engine, simulate


def answer_with_own_id(cluster: ScriptedCluster) -> None:
    """Let each broker return its own node id as controller id in DescribeCluster."""

    def describe(
        broker: ScriptedBroker, request: wire.DescribeClusterRequest, version: int
    ) -> wire.DescribeClusterResponse:
        return wire.DescribeClusterResponse(cluster_id="c", controller_id=broker.node_id)

    cluster.handlers[wire.DescribeClusterRequest] = describe


WHO = wire.DescribeClusterRequest()


def test_each_target_finds_its_node():
    """Targets are a node id, the controller, a partition's leader and a group's coordinator."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        cluster.controller_id = 2
        cluster.add_topic("t", [3])
        cluster.handlers[wire.FindCoordinatorRequest] = lambda b, r, v: (
            wire.FindCoordinatorResponse(
                coordinators=[wire.Coordinator(key="g", node_id=1, host="broker1", port=9092)]
            )
        )
        engine = make_engine(cluster)
        await engine.start()
        for target, node_id in (
            (3, 3),
            (CONTROLLER, 2),
            (Leader(TopicPartition("t", 0)), 3),
            (Coordinator(CoordinatorKind.GROUP, "g"), 1),
        ):
            assert (await engine.request(WHO, node=target)).controller_id == node_id
        assert (await engine.request(WHO, node=ANY)).controller_id in (1, 2, 3)
        await engine.close()

    simulate(main)


def test_a_request_to_a_connected_coordinator_is_sent_without_waiting():
    """EndTxn is sent as soon as the last record of a transaction is acknowledged."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        cluster.handlers[wire.FindCoordinatorRequest] = lambda b, r, v: (
            wire.FindCoordinatorResponse(
                coordinators=[wire.Coordinator(key="g", node_id=1, host="broker1", port=9092)]
            )
        )
        engine = make_engine(cluster)
        await engine.start()
        target = Coordinator(CoordinatorKind.GROUP, "g")
        for connected in (False, True):
            call = engine.router.request(
                lambda _: WHO, wire.DescribeClusterRequest, target, timeout=60
            )
            waiting = call.send(None)
            assert engine.node(1).in_flight == connected
            assert (await Suspended(call, waiting)).controller_id == 1  # type: ignore[attr-defined]
        await engine.close()

    simulate(main)


def test_any_avoids_busy_and_dead_nodes():
    """The request goes to the least loaded node that is believed to be up."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        engine = make_engine(cluster, bootstrap_servers="broker1:9092")
        await engine.start()
        for node in (1, 2, 3):
            await engine.request(WHO, node=node)
        cluster.brokers[1].die()
        cluster.brokers[2].mood = Mood.SILENT
        await asyncio.sleep(0.001)
        stuck = asyncio.create_task(engine.request(WHO, node=2, timeout=5))
        await asyncio.sleep(0.001)
        for _ in range(10):
            assert engine.any_node().node_id == 3
        with pytest.raises(RequestTimeout):
            await stuck
        await engine.close()

    simulate(main)


def test_any_goes_to_another_node_when_one_cannot_be_reached():
    """A request that was not sent can safely be sent elsewhere."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        engine = make_engine(cluster)
        await engine.start()
        for node in (1, 2):
            cluster.brokers[node].die()
        assert (await engine.request(WHO)).controller_id == 3
        assert engine.now() < 1
        await engine.close()

    simulate(main)


def test_a_named_node_that_cannot_be_reached_fails_at_once():
    """A request for a given node is not sent to another one."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        cluster.brokers[2].die()
        with pytest.raises(ConnectionLost, match="broker2") as caught:
            await engine.request(WHO, node=2)
        assert not caught.value.may_have_been_written
        with pytest.raises(ConnectionLost, match="lists no broker 9"):
            await engine.request(WHO, node=9)
        await engine.close()

    simulate(main)


def test_a_request_waits_for_the_election_of_a_leader():
    """The partition has no leader when the request is made."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        cluster.add_topic("t", [-1])
        engine = make_engine(cluster)
        await engine.start()
        asyncio.get_running_loop().call_later(1, lambda: cluster.move("t", 0, 2))
        response = await engine.request(WHO, node=Leader(TopicPartition("t", 0)), timeout=10)
        assert response.controller_id == 2
        assert engine.now() < 3
        await engine.close()

    simulate(main)


def test_an_unknown_topic_has_no_leader():
    """The error names the topic, not a connection."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(UnknownTopicOrPartition, match="nope"):
            await engine.request(WHO, node=Leader(TopicPartition("nope", 0)), timeout=1)
        await engine.close()

    simulate(main)


def test_a_sent_request_is_not_repeated():
    """The broker may have processed the request; only the caller knows whether a retry is safe."""

    async def main(cluster: ScriptedCluster) -> None:
        calls: list[int] = []

        def die(broker: ScriptedBroker, request: object, version: int) -> None:
            calls.append(broker.node_id)
            broker.die()

        cluster.handlers[wire.DescribeClusterRequest] = die
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(ConnectionLost) as caught:
            await engine.request(WHO)
        assert caught.value.may_have_been_written
        assert len(calls) == 1
        await engine.close()

    simulate(main)


def test_a_request_that_was_not_sent_goes_to_another_node():
    """The connection was lost while the request waited for a throttle; the request failed."""

    async def main(cluster: ScriptedCluster) -> None:
        answer_with_own_id(cluster)
        engine = make_engine(cluster)
        await engine.start()
        first = (await engine.request(WHO)).controller_id
        engine.node(first).throttled(1000)
        second = asyncio.create_task(engine.request(WHO))
        await asyncio.sleep(0.5)
        cluster.brokers[first].die()
        assert (await second).controller_id != first
        await engine.close()

    simulate(main)


def test_an_api_that_the_broker_lacks_has_an_error_of_its_own():
    """Not a timeout or a lost connection."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.missing.add(wire.DescribeClusterRequest)
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(UnsupportedVersion, match="DescribeCluster"):
            await engine.request(WHO)
        await engine.close()

    simulate(main)


def test_a_timeout_covers_everything_and_says_what_was_tried():
    """Connecting, retries and the response share one timeout."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for broker in cluster.brokers.values():
            broker.die()
        with pytest.raises(RequestTimeout, match="refused"):
            await engine.request(WHO, timeout=2)
        assert engine.now() == pytest.approx(2, abs=0.1)
        await engine.close()

    simulate(main)


def test_a_throttle_is_obeyed_and_announced():
    """The broker throttles the client for two seconds; the next request waits (KIP-219)."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.DescribeClusterRequest] = lambda b, r, v: (
            wire.DescribeClusterResponse(cluster_id="c", throttle_time_ms=2_000)
        )
        engine = make_engine(cluster)
        await engine.start()
        await engine.request(WHO, node=1)
        sent = engine.now()
        throttled = [e for e in engine.changes.snapshot().values() if isinstance(e, Throttled)]
        assert [(e.node_id, e.throttle_ms) for e in throttled] == [(1, 2_000)]
        await engine.request(WHO, node=1)
        assert engine.now() - sent >= 2
        assert engine.counters.throttle_seconds >= 2
        await engine.close()

    simulate(main)


def test_a_field_that_ended_with_a_version_is_sent_in_one_that_has_it():
    """FindCoordinator's `key` exists up to version 3, so setting it limits the version."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.handlers[wire.FindCoordinatorRequest] = lambda b, r, v: (
            wire.FindCoordinatorResponse(node_id=1, host="broker1", port=9092)
            if v < 4
            else wire.FindCoordinatorResponse(coordinators=[wire.Coordinator(key="g", node_id=1)])
        )
        engine = make_engine(cluster)
        await engine.start()
        assert (await engine.request(wire.FindCoordinatorRequest(key="g"))).node_id == 1
        batched = wire.FindCoordinatorRequest(coordinator_keys=["g"])
        assert (await engine.request(batched)).coordinators[0].node_id == 1
        versions = [
            s.version for s in cluster.served if isinstance(s.request, wire.FindCoordinatorRequest)
        ]
        assert versions == [3, 6]
        await engine.close()

    simulate(main)


def test_a_field_that_no_common_version_has_is_named():
    """The broker does not support batches of keys; the error names the field and the required
    version.
    """

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.FindCoordinatorRequest] = 2
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(
            FieldNotSupported, match=r"0 to 2.*coordinator_keys \(version 4 or newer"
        ) as e:
            await engine.request(wire.FindCoordinatorRequest(coordinator_keys=["g"]))
        assert e.value.version == 2
        assert e.value.api == "FindCoordinator"
        await engine.close()

    simulate(main)


def test_api_versions_requests_carry_the_client_software_name():
    """A broker returns INVALID_REQUEST to a request without client software name (KIP-511)."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        asked = wire.ApiVersionsRequest()
        named = wire.ApiVersionsRequest(client_software_name="mine")
        for request in (asked, named):
            assert (await engine.request(request, node=1)).api_keys
        names = [
            (s.request.client_software_name, bool(s.request.client_software_version), s.version)
            for s in cluster.served
            if isinstance(s.request, wire.ApiVersionsRequest) and s.node_id == 1
        ]
        assert names[-2:] == [("aiokq", True, 4), ("mine", True, 4)]
        assert asked == wire.ApiVersionsRequest(), "the caller's message is its own"
        await engine.close()

    simulate(main)
