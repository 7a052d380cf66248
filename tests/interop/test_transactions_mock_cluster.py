"""aiokq's transactional producer against librdkafka's mock cluster, which knows version 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aiokq import TransactionOutcome
from aiokq.core.errors import BrokerError, KafkaError, ProducerFenced, TransactionAborted
from aiokq.producer.producer import Producer
from tests.peers.mock_cluster import MockCluster, mock_cluster

pytest.importorskip("confluent_kafka")

ADD_PARTITIONS, ADD_OFFSETS, END, OFFSETS, INIT = 24, 25, 26, 28, 22


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with mock_cluster(brokers=3) as servers:
        yield servers


def producer(mock: MockCluster, name: str) -> Producer:
    return Producer(str(mock), transactional_id=name, max_block_ms=15_000, retry_backoff_ms=50)


async def one_transaction(p: Producer, topic: str) -> Any:
    async with p.transaction() as txn:
        await p.send(topic, b"v")
        await txn.send_offsets({(topic, 0): 1}, "group")
    return txn


async def test_commit_abort_and_nothing(mock: MockCluster, topic: str) -> None:
    """The requests of version 1 in their versions, as librdkafka's own producer sends them."""
    async with producer(mock, topic) as p:
        for _ in range(3):
            txn = await one_transaction(p, topic)
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            with pytest.raises(ZeroDivisionError):
                async with p.transaction() as txn:
                    await p.send(topic, b"aborted")
                    raise ZeroDivisionError
            assert await txn.outcome() is TransactionOutcome.ABORTED
            async with p.transaction():
                pass


@pytest.mark.parametrize("code", [14, 15, 16, 51, MockCluster.TRANSPORT])
@pytest.mark.parametrize("api", [INIT, ADD_PARTITIONS, ADD_OFFSETS, OFFSETS, END])
async def test_requests_are_repeated(mock: MockCluster, topic: str, api: int, code: int) -> None:
    """The coordinator loads, moves, is busy, or the connection breaks: twice each."""
    mock.push_errors(api, code, code)
    try:
        async with producer(mock, topic) as p:
            txn = await one_transaction(p, topic)
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            await one_transaction(p, topic)
    finally:
        mock.clear_errors(api)


@pytest.mark.parametrize(
    ("api", "code", "error"),
    [
        (ADD_PARTITIONS, 29, TransactionAborted),
        (ADD_OFFSETS, 30, TransactionAborted),
        (OFFSETS, 22, TransactionAborted),
        (END, 90, ProducerFenced),
        (END, 53, BrokerError),
        (ADD_OFFSETS, 49, ProducerFenced),
    ],
)
async def test_refusals(
    mock: MockCluster, topic: str, api: int, code: int, error: type[KafkaError]
) -> None:
    """Each kind of refusal: the producer goes on after TransactionAborted only."""
    mock.push_errors(api, code)
    try:
        async with producer(mock, topic) as p:
            with pytest.raises(error):
                async with p.transaction() as txn:
                    p.send_nowait(topic, b"v")
                    await txn.send_offsets({(topic, 0): 1}, "group")
            assert await txn.outcome() is TransactionOutcome.ABORTED
            if error is TransactionAborted:
                await one_transaction(p, topic)
            else:
                with pytest.raises(error):
                    await p.begin_transaction()
    finally:
        mock.clear_errors(api)
