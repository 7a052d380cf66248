"""When a cluster watches its event loop for stalls; in a simulation it never does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.events import LoopStalled
from aiokq.cluster.values import ClusterValues
from aiokq.connection.network import system_environment
from aiokq.consumer.consumer import Consumer
from aiokq.core.watchdog import Watchdog
from tests.unit.cluster.scripted import ScriptedCluster, simulate


class Observer(Watchdog):
    """A watchdog without a thread."""

    made: list[Observer]

    def __init__(
        self,
        on_stall: Callable[[float, str], object],
        *,
        threshold: float = 0.0,
        interval: float = 0.0,
    ) -> None:
        super().__init__(on_stall, threshold=threshold, interval=interval)
        self.report, self.threshold = on_stall, threshold
        self.state = "made"
        self.made.append(self)

    def start(self) -> None:
        self.state = "watching"

    def stop(self) -> None:
        self.state = "stopped"


def observed(cluster: ScriptedCluster, **overrides: object) -> ClusterEngine:
    """Return an engine with the `Observer` watchdog."""
    Observer.made = []
    environment = dataclasses.replace(cluster.environment, watchdog=Observer)
    values = {"bootstrap_servers": cluster.bootstrap_servers} | overrides
    return ClusterEngine(ClusterValues.given(values), environment)


def test_a_group_member_watches_the_loop_by_default():
    """A handler that blocks the loop for a minute gets the member removed from its group."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = observed(cluster)
        await engine.start()
        assert Observer.made == []
        members = [Consumer(_engine=engine, group_id="g") for _ in range(2)]
        for member in members:
            await member.start()
        (watchdog,) = Observer.made
        assert (watchdog.state, watchdog.threshold) == ("watching", 1.0)
        watchdog.report(2.5, "in handle()")
        stalled = members[0].health().stalled
        assert isinstance(stalled, LoopStalled)
        assert (stalled.stalled_ms, stalled.stack) == (2_500, "in handle()")
        for member in members:
            await member.close()
        await engine.close()
        assert watchdog.state == "stopped"

    simulate(main)


def test_a_cluster_without_members_watches_the_loop_only_if_configured():
    """A blocked loop also makes a producer's deliveries time out."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = observed(cluster, loop_stall_ms=200)
        await engine.start()
        assert [watchdog.threshold for watchdog in Observer.made] == [0.2]
        await engine.close()

    simulate(main)


def test_no_watchdog_runs_when_switched_off_or_simulated():
    """In virtual time the watchdog's thread would report stalls that do not exist."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = observed(cluster, loop_stall_ms=0)
        await engine.start()
        engine.watch_stalls()
        assert Observer.made == []
        await engine.close()
        engine.watch_stalls()
        assert cluster.environment.watchdog is None

    simulate(main)


def test_the_real_environment_brings_a_watchdog():
    """Without the watchdog in the environment, no stall would be reported."""
    assert system_environment().watchdog is Watchdog
