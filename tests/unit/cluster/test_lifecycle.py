"""Starting and closing an engine: one loop, one process, idempotent, and bounded in time."""

from __future__ import annotations

import asyncio
import os

import pytest

from aiokq import wire
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.events import LoopStalled
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.values import ClusterValues
from aiokq.core.errors import Closed, ConnectionLost, WrongLoop
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import Mood, ScriptedCluster, make_engine, simulate
from tests.unit.cluster.scripted_log import ScriptedLogs


def test_the_constructor_touches_no_loop():
    """Client objects are often created at import time, before any loop runs."""
    engine = ClusterEngine(ClusterValues.given({"bootstrap_servers": "localhost:9092"}))
    assert not engine.started
    assert engine.metadata.brokers == {}


def test_use_before_start_is_refused_with_words():
    """Forgetting `async with` is a common mistake."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        with pytest.raises(Closed, match="not started: use `async with`"):
            await engine.topic("t")

    simulate(main)


def test_start_and_close_are_harmless_twice_and_together():
    """Frameworks may close an object twice, and two tasks may do so at once."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        await engine.start()
        await asyncio.gather(engine.close(), engine.close())
        await engine.close()
        with pytest.raises(Closed):
            await engine.start()
        with pytest.raises(Closed):
            engine.events()
        never_started = make_engine(cluster)
        await never_started.close()
        with pytest.raises(Closed):
            await never_started.start()

    simulate(main)


def test_closing_leaves_no_task_and_no_connection():
    """Tasks and connections left open would keep the process from exiting."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1, 2, 3])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        for node in (1, 2, 3):
            await engine.node(node).request(wire.MetadataRequest(topics=[]))
        stream = engine.events()
        await engine.close()
        await asyncio.sleep(0.1)
        assert [event async for event in stream], "what it held"
        names = {task.get_name() for task in asyncio.all_tasks()} - {
            asyncio.current_task().get_name()  # type: ignore[union-attr]
        }
        assert not names
        assert not any(broker.transports for broker in cluster.brokers.values())

    simulate(main)


def test_a_cancelled_close_still_closes():
    """Ctrl-C during shutdown must not leave sockets open."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        await engine.node(1).request(wire.MetadataRequest(topics=[]))
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await engine.close()
        await asyncio.sleep(0.1)
        assert not any(broker.transports for broker in cluster.brokers.values())

    simulate(main)


def test_closing_does_not_wait_for_a_silent_cluster():
    """close() ends whatever the brokers do (kafka-python hung here)."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for broker in cluster.brokers.values():
            broker.mood = Mood.SILENT
        waits = [asyncio.create_task(engine.topic(f"t{n}")) for n in range(3)]
        await asyncio.sleep(1)
        before = engine.now()
        await engine.close()
        assert engine.now() - before < 8
        assert all(
            isinstance(error, Closed)
            for error in await asyncio.gather(*waits, return_exceptions=True)
        )

    simulate(main)


def test_a_cancelled_start_leaves_nothing_behind():
    """A framework cancels its startup hook."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.brokers[1].mood = Mood.BLACK_HOLE
        engine = make_engine(cluster)
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert engine.closed
        assert len(asyncio.all_tasks()) == 1

    simulate(main, brokers=1)


def test_another_loop_is_refused():
    """asyncio.run is called twice with one object; futures of the first loop never complete."""
    engines: list[ClusterEngine] = []

    async def first(cluster: ScriptedCluster) -> None:
        engines.append(make_engine(cluster))
        await engines[0].start()

    async def second(cluster: ScriptedCluster) -> None:
        with pytest.raises(WrongLoop, match="another event loop"):
            await engines[0].topic("t")
        with pytest.raises(WrongLoop):
            await engines[0].close()

    simulate(first)
    simulate(second)
    with pytest.raises(WrongLoop, match="outside any event loop"):
        engines[0].bind()


async def test_after_a_fork_it_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Parent and child would write to the same socket."""
    binding = LoopBinding("this Cluster")
    binding.bind()
    binding.check()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert binding.forked
    with pytest.raises(WrongLoop, match="does not survive a fork"):
        binding.check()


def test_a_bug_in_a_task_closes_the_cluster_and_reaches_all_waiters():
    """A client whose background task failed must report the error instead of hanging."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        waiting = asyncio.create_task(engine.topic("t"))
        await asyncio.sleep(0.5)

        async def bug() -> None:
            raise LookupError("a bug")

        engine.spawn(bug(), "bug")
        with pytest.raises(Closed, match="a bug"):
            await waiting
        with pytest.raises(Closed) as caught:
            await engine.topic("t")
        assert isinstance(caught.value.__cause__, LookupError)
        await engine.close()

    simulate(main)


def test_a_stalled_loop_is_an_event():
    """The watchdog's report is published as LoopStalled, with the stack."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        stream = engine.events()
        engine._stalls.stalled(1.5, "in time.sleep")
        events = [stream.get_nowait() for _ in range(len(stream))]
        (stall,) = (event for event in events if isinstance(event, LoopStalled))
        assert (stall.stalled_ms, stall.stack) == (1_500, "in time.sleep")
        assert engine.counters.loop_stalls == 1
        await engine.close()

    simulate(main)


def test_a_concurrent_start_waits_for_the_first():
    """When two tasks started the engine at once, the second one found no metadata."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.latency = 0.5
        engine = make_engine(cluster)
        seen = []

        async def start() -> None:
            await engine.start()
            seen.append(bool(engine.metadata.brokers))

        await asyncio.gather(start(), start(), start())
        assert seen == [True] * 3
        await engine.close()

    simulate(main)


def test_closing_does_not_cancel_the_tasks_that_wait():
    """A call in progress ended with a CancelledError although nobody had cancelled it."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1, 2])
        logs = ScriptedLogs(cluster)
        for partition in (0, 1):
            logs.log("t", partition).append(*[b"v"] * 10)
        engine = make_engine(cluster)
        await engine.start()
        both = [TopicPartition("t", 0), TopicPartition("t", 1)]
        reading = engine.reader.read(both[0], 0, 20, max_bytes=1)
        assert len(await anext(reading)) > 0

        async def rest() -> None:
            async for _ in reading:
                pass

        for broker in cluster.brokers.values():
            broker.mood = Mood.SILENT
        calls = [
            asyncio.create_task(rest()),
            asyncio.create_task(engine.reader.offsets(both, "latest")),
            asyncio.create_task(engine.request(wire.DescribeClusterRequest())),
        ]
        await asyncio.sleep(1)
        await engine.close()
        await asyncio.wait(calls)
        for call in calls:
            assert not call.cancelled()
            assert isinstance(call.exception(), Closed | ConnectionLost)

    simulate(main)
