"""32,766 transactions use up a producer id of Apache Kafka: the producer goes on with another one.

InitProducerId uses up epochs as transactions do, and several times as fast. The test therefore
sends 32,000 of these requests before a few transactions. One rotation takes half a minute.
"""

from __future__ import annotations

import asyncio

import pytest

import aiokq
from aiokq import wire
from aiokq.testing import Recorder
from tests.interop.apache.support import create_topic
from tests.interop.apache.test_transactions import lose_answers, set_level
from tests.peers.apache_kafka import ApacheKafka
from tests.peers.checked_topics import judged

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LAST_EPOCH = 32_766
"""The epoch with which a producer id is used up."""
TRANSACTIONS = 12


async def use_up(servers: str, transactional_id: str, epoch: int) -> int:
    """Let the coordinator bump the epoch up to `epoch`; return the producer id."""
    find = wire.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    initialize = wire.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    async with aiokq.Cluster(servers) as cluster:
        while True:
            [coordinator] = (await cluster.request(find)).coordinators
            while coordinator.error_code == 0:
                answer = await cluster.request(initialize, node=coordinator.node_id)
                if answer.error_code:
                    break
                if answer.producer_epoch >= epoch:
                    return answer.producer_id
            await asyncio.sleep(0.1)  # the coordinator is not available yet


async def across_the_rotation(servers: str, topic: str, recorder: Recorder) -> list[int]:
    """Commit and abort transactions; return their producer ids, in the order of the log."""
    found: dict[int, None] = {}
    async with aiokq.Cluster(servers) as cluster:
        producer = cluster.producer(transactional_id=topic, max_block_ms=20_000)
        async with producer:
            recorded = recorder.producer(producer, f"producer of {topic}")
            for number in range(TRANSACTIONS):
                await recorded.begin_transaction()
                await recorded.send(topic, b"%d" % number)
                if number % 3 == 1:
                    await recorded.abort_transaction()
                else:
                    await recorded.commit_transaction()
        offset = 0
        while records := await cluster.fetch((topic, 0), offset):
            found.update(dict.fromkeys(number for _, number in records.producer_ids()))
            offset = records.next_offset
    return list(found)


async def test_a_producer_goes_on_with_another_producer_id(
    transactional_node: ApacheKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records on both sides of the rotation are committed or aborted as the producer asked.

    The second producer loses the first answer to each EndTxn, so also the one with its new id.
    """
    servers = transactional_node.bootstrap_servers
    topics = [topic, f"{topic}-lost"]
    await set_level(transactional_node, 2)
    for each in topics:
        await create_topic(transactional_node, each)
    used_up = await asyncio.gather(
        *(use_up(servers, each, LAST_EPOCH - TRANSACTIONS // 2) for each in topics)
    )
    recorder = Recorder()
    for each, first in zip(topics, used_up, strict=True):
        losses = TRANSACTIONS if each.endswith("-lost") else 0
        lost = lose_answers(monkeypatch, *[wire.EndTxnRequest] * losses)
        ids = await across_the_rotation(servers, each, recorder)
        assert len(ids) == 2
        assert ids[0] == first
        assert len(lost) == losses
    report, found = await judged(servers, recorder, topics, partitions=1)
    assert report.ok, str(report)
    for each in topics:
        assert found[each] == [f"{n}" for n in range(TRANSACTIONS) if n % 3 != 1]
