"""aiokq's admin client on transactions of Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import pytest

import aiokq
from aiokq import AbortTransactionSpec, TopicPartition, TransactionState, errors
from aiokq.admin.config_types import ConfigResource, ConfigResourceType
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import ApacheKafka, run_tool
from tests.peers.exact_requests import ExactRequests, transactional_batch

pytestmark = pytest.mark.kafka


@pytest.fixture
async def admin(apache: ApacheKafka) -> AsyncIterator[aiokq.Admin]:
    async with aiokq.Admin(apache.bootstrap_servers) as client:
        yield client


@pytest.fixture
async def producer(apache: ApacheKafka, topic: str) -> AsyncIterator[aiokq.Producer]:
    await create_topic(apache, topic, 2)
    async with aiokq.Producer(
        apache.bootstrap_servers, transactional_id=topic, transaction_timeout_ms=50_000
    ) as client:
        yield client


async def test_a_transaction_is_described_while_it_is_open_and_after_it(admin, producer, topic):
    """The first questions about readers that stand still: what is open, and since when?"""
    before = time.time_ns() // 1_000_000 - 1000
    found = (await admin.describe_transactions(topic, raise_errors=True))[topic]
    assert (found.state, found.start_timestamp_ms) == (TransactionState.EMPTY, None)
    async with producer.transaction():
        for partition in (1, 0):
            await producer.send(topic, b"v", partition=partition)
        found = (await admin.describe_transactions(topic, raise_errors=True))[topic]
        assert (found.state, found.coordinator) == (TransactionState.ONGOING, 1)
        assert found.transaction_timeout_ms == 50_000
        assert found.start_timestamp_ms is not None
        assert found.start_timestamp_ms >= before
        assert found.topic_partitions == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        listed = (await admin.list_transactions(states="ongoing", raise_errors=True))[topic]
        assert (listed.producer_id, listed.coordinator) == (found.producer_id, 1)
        states = await admin.describe_producers([(topic, 0)], raise_errors=True)
        (state,) = states[topic, 0].producers
        assert (state.producer_id, state.producer_epoch) == (
            found.producer_id,
            found.producer_epoch,
        )
        assert (state.coordinator_epoch, state.current_transaction_start_offset) == (None, 0)
        assert state.last_sequence == 0

    async def ended() -> None:
        found = (await admin.describe_transactions(topic, raise_errors=True))[topic]
        assert found.state is TransactionState.COMPLETE_COMMIT
        assert found.topic_partitions == ()
        states = await admin.describe_producers([(topic, 0)], node_id=1, raise_errors=True)
        (state,) = states[topic, 0].producers
        assert state.current_transaction_start_offset is None
        assert state.coordinator_epoch is not None

    await eventually(ended)
    assert topic not in await admin.list_transactions(states=["Ongoing"])


async def test_transactional_ids_are_listed_by_producer_id_duration_and_pattern(
    admin, producer, topic
):
    """In a cluster with thousands of ids, the listing is filtered by the brokers."""
    found = (await admin.describe_transactions(topic, raise_errors=True))[topic]
    assert list(await admin.list_transactions(producer_ids=[found.producer_id])) == [topic]
    assert list(await admin.list_transactions(pattern=f"{topic}|nothing")) == [topic]
    async with producer.transaction():
        await producer.send(topic, b"v")
        await eventually_open(admin, topic)
        assert topic not in await admin.list_transactions(longer_than_ms=3_600_000)
    with pytest.raises(errors.InvalidRegularExpression):
        await admin.list_transactions(pattern="(")


async def eventually_open(admin, topic) -> None:
    """Wait until the transaction is open for longer than no millisecond at all."""

    async def listed() -> None:
        assert topic in await admin.list_transactions(longer_than_ms=0)

    await eventually(listed)


async def test_what_does_not_exist_has_the_brokers_error(admin, producer, topic):
    """One wrong name does not hide the results of the others."""
    found = await admin.describe_transactions([topic, "nobody"])
    assert found[topic].error is None
    assert isinstance(found["nobody"].error, errors.TransactionalIdNotFound)
    described = await admin.describe_producers([(topic, 0), (topic, 9)], timeout=5)
    assert described[topic, 0].error is None
    assert isinstance(described[topic, 9].error, errors.UnknownTopicOrPartition)


async def test_a_terminated_transaction_is_aborted_and_its_producer_fenced(admin, producer, topic):
    """An operator ends a transaction whose program hangs, without waiting for its timeout."""
    await producer.begin_transaction()
    await producer.send(topic, b"v")
    await admin.terminate_transaction(topic)
    found = (await admin.describe_transactions(topic, raise_errors=True))[topic]
    assert found.state in (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT)
    with pytest.raises(errors.ProducerFenced):
        await producer.commit_transaction()


async def test_fencing_returns_a_newer_epoch(admin, producer, topic):
    """Kafka Connect fences its workers before it starts new ones."""
    before = (await admin.describe_transactions(topic, raise_errors=True))[topic]
    fenced = await admin.fence_producers([topic, f"{topic}-new"], raise_errors=True)
    assert fenced[topic].producer_id == before.producer_id
    assert fenced[topic].producer_epoch == before.producer_epoch + 1
    assert fenced[f"{topic}-new"].producer_epoch == 0


async def test_a_hanging_transaction_is_found_and_aborted(
    apache: ApacheKafka, admin: aiokq.Admin, topic: str
):
    """Regression of Kafka before KIP-890: a late batch opens a transaction that nobody ends.

    A broker that verifies partitions refuses it, so the verification is off. The command prints
    what Kafka's tool prints.
    """
    tp = TopicPartition(topic, 0)
    await create_topic(apache, topic)
    cluster = ConfigResource(ConfigResourceType.BROKER, "")
    off = {"transaction.partition.verification.enable": "false"}
    await admin.alter_configs({cluster: off}, raise_errors=True)
    try:
        async with ExactRequests(apache.bootstrap_servers) as exact:
            producer_id, epoch = await exact.init_producer_id(topic)
            hour_ago = time.time_ns() // 1_000_000 - 3_600_000
            data = transactional_batch(producer_id, epoch, 0, b"lost", timestamp_ms=hour_ago)

            async def appended() -> None:
                code = await exact.produce(topic, data, transactional_id=topic, version=10)
                assert code == 0

            await eventually(appended)
    finally:
        await admin.alter_configs({cluster: dict.fromkeys(off)}, raise_errors=True)
    (state,) = (await admin.describe_producers([tp], raise_errors=True))[tp].producers
    assert state.current_transaction_start_offset == 0
    wanted = ("find-hanging", "--topic", topic)
    theirs = run_tool(
        "TransactionsCommand", "--bootstrap-server", apache.bootstrap_servers, *wanted
    )
    ours = _command(apache, *wanted)
    assert [line.split() for line in ours] == [line.split() for line in theirs.stdout.splitlines()]
    assert len(ours) == 2
    (document,) = json.loads("".join(_command(apache, *wanted, "--json")))
    assert (document["producer_id"], document["start_offset"]) == (producer_id, 0)

    await admin.abort_transaction(AbortTransactionSpec.of(tp, state))
    (state,) = (await admin.describe_producers([tp], raise_errors=True))[tp].producers
    assert state.current_transaction_start_offset is None
    ends = await admin.list_offsets({tp: "latest"}, isolation_level="read_committed")
    assert ends[tp].offset == 2  # the record and the marker


def _command(apache: ApacheKafka, *arguments: str) -> list[str]:
    """Run `aiokq transactions` in a process; return the lines of its output."""
    ran = subprocess.run(
        [sys.executable, "-m", "aiokq", "transactions", *arguments, "-b", apache.bootstrap_servers],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()
