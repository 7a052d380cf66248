"""Transactions of Java's clients and tools on `aiokq broker`, at each `transaction.version`."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import aiokq
from aiokq import TopicPartition
from aiokq.cli.transactions import transactions
from aiokq.testing import (
    EndTransaction,
    Outcome,
    Recorder,
    Send,
    transactional_message_copier,
)
from tests.interop.apache.test_transactions import set_level
from tests.peers.apache_kafka import java_command, run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.checked_topics import checked_copy, create_topics, fill, judged
from tests.peers.exact_requests import ExactRequests, transactional_batch

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.timeout(300),
]

LEVELS = [
    pytest.param(0, marks=pytest.mark.full),
    pytest.param(1, marks=pytest.mark.full),
    2,
]
PARTITIONS = 3


@pytest.fixture(scope="module", params=LEVELS)
def broker(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """A broker with one level of `transaction.version`."""
    directory = tmp_path_factory.mktemp("broker")
    with broker_process(directory, "--profile", "dev") as running:
        asyncio.run(set_level(running, request.param))  # type: ignore[arg-type]
        yield running


def tool(broker: BrokerProcess, name: str, *arguments: str) -> list[str]:
    """Run a tool that must succeed; return the lines of its output."""
    done = run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def copier(broker: BrokerProcess, name: str, topic: str) -> subprocess.Popen[str]:
    """Start Java's copier from `TOPIC-in` to `TOPIC-out`."""
    return subprocess.Popen(
        java_command(
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", broker.bootstrap_servers),
            *("--transactional-id", f"{topic}-{name}"),
            *("--consumer-group", f"{topic}-copiers"),
            *("--input-topic", f"{topic}-in", "--input-partition", "-1"),
            *("--output-topic", f"{topic}-out"),
            *("--transaction-size", "50", "--group-mode", "--use-group-metadata"),
            "--enable-random-aborts",
        ),
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("copiers", [1, pytest.param(3, marks=pytest.mark.full)])
async def test_the_transactional_message_copier_copies_each_record_once(
    broker: BrokerProcess, topic: str, copiers: int
) -> None:
    """A third of its transactions is aborted; copiers share a group, which rebalances."""
    servers, recorder = broker.bootstrap_servers, Recorder()
    source, target = f"{topic}-in", f"{topic}-out"
    await create_topics(servers, source, target, partitions=PARTITIONS)
    values = [f"{n}" for n in range(1000 * copiers)]
    await fill(servers, recorder, source, values, partitions=PARTITIONS)
    running = [copier(broker, f"copier-{n}", topic) for n in range(copiers)]
    processed = 0
    for process in running:
        output, _ = await asyncio.to_thread(process.communicate, None, 120)
        assert process.returncode == 0, output
        lines = output.splitlines()
        for operation in transactional_message_copier(lines, source, target):
            recorder.add(operation)
        processed += max(json.loads(line)["totalProcessed"] for line in lines)
    assert processed == len(values)
    await checked_copy(servers, recorder, source, target, values, partitions=PARTITIONS)


async def test_the_performance_tool_of_the_producer_with_a_transactional_id(
    broker: BrokerProcess, topic: str
) -> None:
    """Transactions by duration; each of its values is committed, once and in its order."""
    count = 5000
    await create_topics(broker.bootstrap_servers, topic, partitions=1)
    printed = await asyncio.to_thread(
        tool, broker, "ProducerPerformance", "--topic", topic, "--num-records", str(count),
        "--payload-monotonic", "--throughput", "5000", "--transactional-id", f"perf-{topic}",
        "--transaction-duration-ms", "50",
    )  # fmt: skip
    assert f"{count} records sent" in printed[-1]
    recorder = Recorder()
    for number in range(count):
        recorder.add(Send("java", topic, f"{number}", Outcome.UNKNOWN))
    report, found = await judged(broker.bootstrap_servers, recorder, [topic], partitions=1)
    assert report.ok, report
    assert found[topic] == [f"{n}" for n in range(count)]
    markers = sum(batch.is_control for batch in broker.batches(topic))
    assert 5 < markers < 100


def table(lines: list[str]) -> list[dict[str, str]]:
    """Parse a table of kafka-transactions: the columns are aligned under their names."""
    names = lines[0].split()
    rows = []
    for line in lines[1:]:
        words = line.split()
        # A last column without a value is left out.
        rows.append(dict(zip(names, [*words, ""], strict=False)))
    return rows


async def test_the_transactions_command_lists_and_describes(
    broker: BrokerProcess, topic: str
) -> None:
    """list, describe, describe-producers and forceTerminateTransaction of an open transaction."""

    def run(*arguments: str) -> list[dict[str, str]]:
        return table(tool(broker, "TransactionsCommand", *arguments))

    await create_topics(broker.bootstrap_servers, topic, partitions=2)
    async with aiokq.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        await producer.begin_transaction()
        for partition in range(2):
            await producer.send(topic, b"v", partition=partition)
        listed = {row["TransactionalId"]: row for row in await asyncio.to_thread(run, "list")}
        assert listed[topic]["TransactionState"] == "Ongoing"
        assert listed[topic]["Coordinator"] == "0"
        pattern = ("list", "--transactional-id-pattern", f"{topic}|nothing")
        assert len(await asyncio.to_thread(run, *pattern)) == 1
        long = ("list", "--duration-filter", "3600000")
        assert topic not in str(await asyncio.to_thread(run, *long))
        [described] = await asyncio.to_thread(run, "describe", "--transactional-id", topic)
        assert described["ProducerId"] == listed[topic]["ProducerId"]
        assert described["TransactionState"] == "Ongoing"
        assert described["TransactionTimeoutMs"] == "60000"
        assert sorted(described["TopicPartitions"].split(",")) == [f"{topic}-0", f"{topic}-1"]
        of_partition = ("describe-producers", "--topic", topic, "--partition", "1")
        [state] = await asyncio.to_thread(run, *of_partition)
        assert state["ProducerId"] == listed[topic]["ProducerId"]
        assert state["LastSequence"] == "0"
        assert state["CurrentTransactionStartOffset"] == "0"
        terminate = ("forceTerminateTransaction", "--transactionalId", topic)
        await asyncio.to_thread(tool, broker, "TransactionsCommand", *terminate)
        [described] = await asyncio.to_thread(run, "describe", "--transactional-id", topic)
        assert described["TransactionState"] in ("Empty", "CompleteAbort")
        with pytest.raises(aiokq.ProducerFenced):
            await producer.commit_transaction()
    missing = ("describe", "--transactional-id", f"{topic}-missing")
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    refused = await asyncio.to_thread(run_tool, "TransactionsCommand", *servers, *missing)
    assert refused.returncode == 1


def test_our_command_takes_each_option_of_the_transactions_command() -> None:
    """A line of a script or of Kafka's documentation needs no other spelling."""
    general = {"--help", "--bootstrap-server", "--command-config"}
    ours: Any = typer.main.get_command(transactions)
    for command, first in (
        ("list", "--duration-filter"),
        ("describe", "--transactional-id"),
        ("describe-producers", "--broker-id"),
        ("abort", "--start-offset"),
        ("forceTerminateTransaction", "--transactionalId"),
        ("find-hanging", "--max-transaction-timeout"),
    ):
        servers = ("--bootstrap-server", "127.0.0.1:1")
        shown = run_tool("TransactionsCommand", *servers, command, "--help")
        options = set(re.findall(r"--[A-Za-z-]+", shown.stdout + shown.stderr)) - general
        assert first in options
        known = {name for option in ours.commands[command].params for name in option.opts}
        assert options <= known


async def test_the_transactions_command_finds_and_aborts_a_hanging_transaction(
    broker: BrokerProcess, topic: str
) -> None:
    """Regression of Kafka before KIP-890: a late batch opens a transaction that nobody ends."""
    servers = broker.bootstrap_servers
    await create_topics(servers, topic, partitions=1)
    verification = "transaction.partition.verification.enable"
    entity = ("--entity-type", "brokers", "--entity-default", "--alter")

    def config(*arguments: str) -> None:
        tool(broker, "kafka.admin.ConfigCommand", *entity, *arguments)

    await asyncio.to_thread(config, "--add-config", f"{verification}=false")
    try:
        async with ExactRequests(servers) as exact:
            producer_id, epoch = await exact.init_producer_id(topic)
            hour_ago = time.time_ns() // 1_000_000 - 3_600_000
            data = transactional_batch(producer_id, epoch, 0, b"lost", timestamp_ms=hour_ago)
            assert await exact.produce(topic, data, transactional_id=topic, version=10) == 0
    finally:
        await asyncio.to_thread(config, "--delete-config", verification)

    def run(*arguments: str) -> list[str]:
        return tool(broker, "TransactionsCommand", *arguments)

    hanging = table(await asyncio.to_thread(run, "find-hanging", "--topic", topic))
    assert [(row["ProducerId"], row["StartOffset"]) for row in hanging] == [(str(producer_id), "0")]
    by_broker = await asyncio.to_thread(run, "find-hanging", "--broker-id", "0")
    assert [row["Topic"] for row in table(by_broker)] == [topic]
    abort = ("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    await asyncio.to_thread(run, *abort)
    assert len(await asyncio.to_thread(run, "find-hanging", "--topic", topic)) == 1
    recorder = Recorder()
    recorder.add(Send("exact", topic, "lost", Outcome.OK, 0, 0, "hanging"))
    recorder.add(EndTransaction("tool", "hanging", False, Outcome.OK))
    report, found = await judged(servers, recorder, [topic], partitions=1)
    assert report.ok, report
    assert found[topic] == []
    async with aiokq.Admin(servers) as admin:
        states = await admin.describe_producers([(topic, 0)], raise_errors=True)
        [state] = states[TopicPartition(topic, 0)].producers
        assert state.current_transaction_start_offset is None
