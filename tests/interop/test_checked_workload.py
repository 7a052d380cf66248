"""The workload of aiokq.testing on Apache Kafka and on our broker: nothing is condemned."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

import aiokq
from aiokq.testing import (
    EndTransaction,
    LastStable,
    Outcome,
    Poll,
    Recorder,
    Report,
    Send,
    Workload,
    check,
    read_history,
)
from tests.interop.apache.test_transactions import set_level
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.broker_process import BrokerProcess
from tests.peers.ports import free_ports

RECORDS = 200
PATIENCE = 60.0
TEN_MINUTES = 600.0
SECONDS_BETWEEN_KILLS = (5.0, 20.0)


def sends(recorder: Recorder) -> int:
    return sum(isinstance(each, Send) for each in recorder.history)


async def checked(servers: str, name: str, seed: int) -> tuple[Report, Recorder]:
    """Run the workload until it sent some records, and check its history."""
    recorder = Recorder()
    async with aiokq.Cluster(servers) as cluster:
        async with cluster.admin() as admin:
            topics = [f"{name}-input", f"{name}-output"]
            await admin.create_topics(topics, num_partitions=2, raise_errors=True)
        workload = Workload(cluster, recorder, name=name, partitions=2, seed=seed)
        async with asyncio.TaskGroup() as tasks:
            for process in workload.processes():
                tasks.create_task(process)
            async with asyncio.timeout(PATIENCE):
                while sends(recorder) < RECORDS:  # noqa: ASYNC110 - a history has no event
                    await asyncio.sleep(0.1)
            workload.stop()
        await workload.finish()
    return check(recorder.history), recorder


def assert_clean(report: Report, recorder: Recorder) -> None:
    """Nothing is condemned, and the history has what could be: commits, aborts, reads, copies."""
    assert report.ok, report
    ends = [each for each in recorder.history if isinstance(each, EndTransaction)]
    assert {(each.commit, each.outcome) for each in ends} >= {
        (True, Outcome.OK),
        (False, Outcome.OK),
    }
    assert sends(recorder) >= RECORDS
    stable = {(e.topic, e.partition) for e in recorder.history if isinstance(e, LastStable)}
    assert len(stable) == 4
    read = {r.topic for e in recorder.history if isinstance(e, Poll) for r in e.records}
    assert len(read) == 2


@pytest.mark.kafka
async def test_the_workload_on_apache_kafka_condemns_nothing(
    apache: ApacheKafka, topic: str
) -> None:
    """A checker that condemns Apache Kafka is wrong about Kafka."""
    assert_clean(*await checked(apache.bootstrap_servers, topic, seed=1))


@pytest.fixture(scope="module")
def levelled() -> Iterator[ApacheKafka]:
    """A node of its own, because its `transaction.version` changes."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    with apache_kafka(1) as cluster:
        yield cluster


@pytest.mark.full
@pytest.mark.kafka
@pytest.mark.parametrize("level", [0, 1, 2])
async def test_the_workload_on_apache_kafka_condemns_nothing_at_any_level(
    levelled: ApacheKafka, topic: str, level: int
) -> None:
    """Our clients use the protocol that the level asks for."""
    await set_level(levelled, level)
    assert_clean(*await checked(levelled.bootstrap_servers, topic, seed=level))


@pytest.mark.parametrize("level", [pytest.param(0, marks=pytest.mark.full), 1, 2])
async def test_the_workload_on_our_broker_condemns_nothing(topic: str, level: int) -> None:
    """Our broker keeps what Kafka promises, with each protocol."""
    async with aiokq.EmbeddedCluster() as embedded:
        await set_level(embedded, level)  # type: ignore[arg-type]
        assert_clean(*await checked(embedded.bootstrap_servers, topic, seed=level))


class Killable(NamedTuple):
    """A broker that a test kills and starts again."""

    bootstrap_servers: str
    kill: Callable[[], object]
    start: Callable[[], object]


@pytest.fixture
def killable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killable]:
    """Apache Kafka or our broker, with `transaction.version` 2."""
    if request.param == "apache":
        reason = why_absent()
        if reason is not None:
            pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
        with apache_kafka(1) as apache:
            yield Killable(
                apache.bootstrap_servers,
                lambda: apache.stop_node(1, signal.SIGKILL),
                lambda: apache.start_node(1),
            )
        return
    (port,) = free_ports(1)
    broker = BrokerProcess(tmp_path / "data", "--profile", "dev", port=port)
    broker.start()
    yield Killable(broker.bootstrap_servers, lambda: broker.stop(signal.SIGKILL), broker.start)
    with suppress(ValueError):  # a broker that was killed by a test that failed then
        broker.stop()


async def killing(broker: Killable, seconds: float, seed: int) -> list[float]:
    """Kill the broker again and again; return the seconds of each outage."""
    chance, outages = random.Random(seed), []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(chance.uniform(*SECONDS_BETWEEN_KILLS))
        killed = time.monotonic()
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        outages.append(time.monotonic() - killed)
    return outages


@pytest.mark.parametrize(
    "killable", [pytest.param("apache", marks=pytest.mark.kafka), "ours"], indirect=True
)
@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(30.0, marks=[pytest.mark.full, pytest.mark.timeout(300)]),
        pytest.param(TEN_MINUTES, marks=[pytest.mark.torture, pytest.mark.timeout(1500)]),
    ],
)
async def test_the_workload_under_kills_of_the_broker_condemns_nothing(
    killable: Killable, topic: str, tmp_path: Path, seconds: float
) -> None:
    """SIGKILL every 5 to 20 s: no anomaly on Apache Kafka, so what is found elsewhere is one."""
    history = tmp_path / "history.jsonl"
    with Recorder(history) as recorder:
        async with aiokq.Cluster(killable.bootstrap_servers) as cluster:
            await set_level(killable, 2)  # type: ignore[arg-type]
            async with cluster.admin() as admin:
                topics = [f"{topic}-input", f"{topic}-output"]
                await admin.create_topics(topics, num_partitions=2, raise_errors=True)
            workload = Workload(cluster, recorder, name=topic, partitions=2, seed=1)
            async with asyncio.TaskGroup() as tasks:
                for process in workload.processes():
                    tasks.create_task(process)
                outages = await killing(killable, seconds, seed=1)
                workload.stop()
            await workload.finish()
    started = time.monotonic()
    report = check(history)
    took = time.monotonic() - started
    ends = Counter(
        (each.commit, each.outcome.value)
        for each in read_history(history)
        if isinstance(each, EndTransaction)
    )
    print(
        f"{len(outages)} kills, outages of {min(outages):.1f} to {max(outages):.1f} s, "
        f"{report.operations} operations checked in {took:.1f} s, transactions {dict(ends)}, "
        f"reported { ({str(kind): len(found) for kind, found in report.by_kind().items()}) }"
    )
    assert report.ok, report.text()
    assert ends[True, "ok"] > 10 * len(outages), ends
    assert ends[False, "ok"] > len(outages), ends
