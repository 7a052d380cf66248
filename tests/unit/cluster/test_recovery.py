"""The recovery monitor: failures are published at once, recoveries when confirmed."""

from __future__ import annotations

import asyncio
import random

from aiokq import wire
from aiokq.cluster.events import BrokerDown, BrokerUp, LeaderChanged, PartitionRecovered
from aiokq.cluster.recovery import RecoveryMonitor
from aiokq.cluster.reducer_inputs import LeaderHint
from aiokq.core.errors import Closed, ConnectionLost, NotLeaderOrFollower
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import Mood, ScriptedCluster, make_engine, simulate

TP = TopicPartition("t", 0)


def drain(events: object) -> list[str]:
    names = []
    while (event := events.get_nowait()) is not None:  # type: ignore[attr-defined]
        names.append(type(event).__name__)
    return names


def test_a_failure_is_published_at_once_and_recovered():
    """The producer received NOT_LEADER_OR_FOLLOWER; the leader has moved in the meantime."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1, 2])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        events = engine.events()
        drain(events)
        cluster.move("t", 0, 3)
        engine.partition_failed(TP, NotLeaderOrFollower(), leader_epoch=0)
        assert drain(events) == ["PartitionFailed"]
        assert engine.failed(TP)
        _, event = await engine.changes.wait_for(
            lambda key, event: isinstance(event, PartitionRecovered)
        )
        assert event == PartitionRecovered("t", 0, 3, 1)
        assert engine.now() < 0.1
        assert drain(events) == ["LeaderChanged", "PartitionRecovered"]
        await engine.close()

    simulate(main)


def test_a_partition_recovers_only_when_its_leader_confirms():
    """Metadata names node 3 as leader before node 3 knows."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        cluster.move("t", 0, 3)

        def metadata(broker: object, request: wire.MetadataRequest, version: int) -> object:
            response = cluster.metadata(request)
            if broker.node_id == 3 and cluster.loop.time() < 5:  # type: ignore[attr-defined]
                for topic in response.topics:
                    topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 1, 0
            return response

        cluster.handlers[wire.MetadataRequest] = metadata
        engine.partition_failed(TP, NotLeaderOrFollower(), leader_epoch=0)
        await asyncio.sleep(4.9)
        assert engine.failed(TP)
        await asyncio.sleep(2)
        assert not engine.failed(TP)
        await engine.close()

    simulate(main)


def test_a_dead_leader_recovers_on_another_broker():
    """When the broker is killed, its partitions fail at once and recover when they have a leader
    again.
    """

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1, 2, 1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        node = engine.leader_node(TP)
        assert node is not None
        await node.request(wire.MetadataRequest(topics=[]))
        events = engine.events()
        drain(events)
        cluster.brokers[1].die()
        await asyncio.sleep(0.01)
        seen = drain(events)
        assert seen[:3] == ["BrokerDown", "PartitionFailed", "PartitionFailed"]
        assert not engine.failed(TopicPartition("t", 1))
        await asyncio.sleep(3)
        cluster.brokers[1].listed = False
        cluster.move("t", 0, 2)
        cluster.move("t", 2, 3)
        await asyncio.sleep(2)
        assert not engine.state.failed
        assert sorted(drain(events)) == [
            "LeaderChanged",
            "LeaderChanged",
            "PartitionRecovered",
            "PartitionRecovered",
        ]
        await engine.close()

    simulate(main)


def test_a_silent_leader_does_not_delay_the_recovery_of_others():
    """Two leaders are asked; one never responds."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1, 2])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        cluster.brokers[1].mood = Mood.SILENT
        for partition in (0, 1):
            engine.partition_failed(TopicPartition("t", partition), NotLeaderOrFollower())
        await asyncio.sleep(3)
        assert set(engine.state.failed) == {TP}
        await engine.close()

    simulate(main)


def test_a_broker_that_comes_back_is_noticed_without_traffic():
    """The broker leads no partition, so no request is sent to it."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        await engine.node(2).request(wire.MetadataRequest(topics=[]))
        events = engine.events()
        drain(events)
        cluster.brokers[2].die()
        await asyncio.sleep(5)
        assert 2 in engine.state.down
        cluster.brokers[2].revive()
        await asyncio.sleep(3)
        assert drain(events) == ["BrokerDown", "BrokerUp"]
        await engine.close()

    simulate(main)


def test_no_requests_are_sent_while_nothing_has_failed():
    """kafka4net polled every second."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        engine.watch(["t"])
        await engine.topic("t")
        count = len(cluster.served)
        await asyncio.sleep(250)
        assert len(cluster.served) == count
        await engine.close()

    simulate(main)


def test_recovery_sends_requests_at_a_bounded_rate():
    """A partition without a leader for a minute must not cause a thousand requests."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [-1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        count = len(cluster.served)
        for _ in range(600):
            engine.partition_failed(TP, NotLeaderOrFollower())
            await asyncio.sleep(0.1)
        assert 40 < len(cluster.served) - count < 200
        await engine.close()

    simulate(main)


def test_partition_ok_ends_a_failure():
    """The producer's retry succeeds before the monitor has asked the leader."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        engine.partition_failed(TP, ConnectionLost("lost"))
        assert engine.state.failed == {TP: "CONNECTION_LOST"}
        engine.partition_ok(TP)
        assert not engine.state.failed
        await engine.close()

    simulate(main)


def test_a_hint_needs_no_request():
    """With KIP-951 the next Produce request is sent to the new leader at once."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        count = len(cluster.served)
        engine.partition_failed(
            TP, NotLeaderOrFollower(), leader_epoch=0, hint=LeaderHint(2, 1, None)
        )
        node = engine.leader_node(TP)
        assert node is not None
        assert node.node_id == 2
        assert not engine.failed(TP)
        assert len(cluster.served) == count
        await engine.close()

    simulate(main)


def test_late_subscribers_get_the_latest_state_only():
    """A dashboard opened during an outage must show the current state, not its history."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        cluster.brokers[1].fence()
        engine.partition_failed(TP, NotLeaderOrFollower(), leader_epoch=0)
        cluster.move("t", 0, 2)
        await asyncio.sleep(2)
        stream = engine.events()
        events = [stream.get_nowait() for _ in range(len(stream))]
        assert [e for e in events if isinstance(e, BrokerUp | BrokerDown) and e.node_id == 1] == [
            BrokerDown(1, "the cluster no longer lists it")
        ]
        assert [e for e in events if isinstance(e, LeaderChanged)] == [
            LeaderChanged("t", 0, 2, 1, 1)
        ]
        assert [e for e in events if isinstance(e, PartitionRecovered)]
        assert "PartitionFailed" not in [type(e).__name__ for e in events]
        await engine.close()

    simulate(main)


def test_nothing_is_started_once_the_engine_closes():
    """The last client is closed while its broker is down: the refresh ends with Closed."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        engine.partition_failed(TP, NotLeaderOrFollower(), leader_epoch=0)
        refreshes: list[frozenset[str]] = []

        async def refresh(topics: frozenset[str]) -> None:
            refreshes.append(topics)
            raise Closed("this cluster is closed")

        def spawn(coro: object, name: str) -> None:
            raise AssertionError(f"{name} was started on a closed supervisor")

        monitor = RecoveryMonitor(
            engine.settings,
            state=lambda: engine.state,
            apply=lambda _: None,
            refresh=refresh,
            ask_node=engine._ask_node,
            spawn=spawn,
            random=random.Random(1),
        )
        monitor.wake()
        running = asyncio.create_task(monitor.run())
        await asyncio.sleep(0.05)
        assert refreshes
        assert not running.done()
        running.cancel()
        await engine.close()

    simulate(main)
