"""The workload of aiokq.testing on Apache Kafka and on our broker: nothing is condemned."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import aiokq
from aiokq.testing import EndTransaction, Outcome, Poll, Recorder, Report, Send, Workload, check
from tests.interop.apache.test_transactions import set_level
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent

RECORDS = 200
PATIENCE = 60.0


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
