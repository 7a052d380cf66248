"""`aiokq transactions`, on a broker in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.cluster.targets import Leader
from aiokq.core.types import TopicPartition
from tests.peers.exact_requests import transactional_batch
from tests.unit.cli.harness import SERVERS, CommandLine

HOUR_MS = 3_600_000


def on_cluster(cli: CommandLine, work: Callable[[Cluster], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with Cluster(SERVERS, _environment=cli.session.environment) as cluster:
            return await work(cluster)

    return cli.session.run(run())


class OpenTransaction:
    """A producer of id `orders-1` with an open transaction of one record in orders-0."""

    def __init__(self, cli: CommandLine) -> None:
        self.cli = cli
        cli("topics", "create", "orders")
        self.cluster = Cluster(SERVERS, _environment=cli.session.environment)
        cli.session.run(self.open())

    async def open(self) -> None:
        await self.cluster.start()
        self.producer = self.cluster.producer(transactional_id="orders-1")
        await self.producer.start()
        await self.producer.begin_transaction()
        await self.producer.send("orders", b"v")

    def end(self, *, commit: bool) -> None:
        producer = self.producer
        end = producer.commit_transaction if commit else producer.abort_transaction
        self.cli.session.run(end())

    def close(self) -> None:
        self.cli.session.run(self.producer.close())
        self.cli.session.run(self.cluster.close())


@pytest.fixture
def opened(cli: CommandLine):
    transaction = OpenTransaction(cli)
    yield transaction
    transaction.close()


def test_an_open_transaction_is_listed_and_described(opened: OpenTransaction) -> None:
    """The columns are those of kafka-transactions."""
    cli = opened.cli
    header, row = cli("transactions", "list").lines
    assert header.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert row.split()[:2] == ["orders-1", "0"]
    assert row.split()[3] == "Ongoing"
    (listed,) = cli("transactions", "list", "--state", "ongoing", "--json").json
    assert (listed["transactional_id"], listed["state"]) == ("orders-1", "Ongoing")
    assert cli("transactions", "list", "--state", "empty", "--json").json == []
    assert cli("transactions", "list", "--duration-filter", "3600000", "--json").json == []
    assert len(cli("transactions", "list", "--duration-filter", "-1", "--json").json) == 1
    assert cli("transactions", "list", "--transactional-id-pattern", "b.*", "--json").json == []
    header, row = cli("transactions", "describe", "orders-1").lines
    assert header.split()[-2:] == ["TransactionDurationMs", "TopicPartitions"]
    assert row.split()[-1] == "orders-0"
    (found,) = cli("transactions", "describe", "orders-1", "--json").json
    assert found["partitions"] == [{"topic": "orders", "partition": 0}]
    assert 0 <= found["duration_ms"] < HOUR_MS
    assert found["state"] == "Ongoing"


def test_the_producers_of_a_partition_are_described(opened: OpenTransaction) -> None:
    """This shows at which offset readers of committed records stand still, and because of whom."""
    cli = opened.cli
    place = ("--topic", "orders", "--partition", "0")
    header, row = cli("transactions", "describe-producers", *place).lines
    assert header.split()[2:] == [
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]
    assert row.split()[2:4] == ["-1", "0"]
    assert row.split()[-1] == "0"
    opened.end(commit=True)
    cli.session.run(_a_second())
    _, row = cli("transactions", "describe-producers", *place, "--broker-id", "0").lines
    assert row.split()[-1] == "None"
    (found,) = cli("transactions", "describe-producers", *place, "--json").json
    assert found["current_transaction_start_offset"] is None
    assert found["coordinator_epoch"] is not None


async def _a_second() -> None:
    import asyncio

    await asyncio.sleep(1)


def test_a_transaction_is_terminated_by_its_id(opened: OpenTransaction) -> None:
    """A transactional id that does not exist is refused; Kafka's tool would create it."""
    cli = opened.cli
    done = cli("transactions", "terminate", "order-1")
    assert done.code == 1
    assert "order-1" in done.complaint
    assert len(cli("transactions", "list", "--json").json) == 1
    assert cli("transactions", "terminate", "orders-1").lines == ["orders-1 terminated"]
    (found,) = cli("transactions", "describe", "orders-1", "--json").json
    assert (found["state"], found["partitions"]) == ("Empty", [])


def test_ids_are_also_given_as_kafka_transactions_takes_them(opened: OpenTransaction) -> None:
    """Kafka's describe has --transactional-id, its terminate --transactionalId."""
    cli = opened.cli

    def described(*arguments: str) -> list[tuple[str, str]]:
        found = cli("transactions", "describe", *arguments, "--json").json
        return [(each["transactional_id"], each["state"]) for each in found]

    option = ("--transactional-id", "orders-1")
    assert described(*option) == [("orders-1", "Ongoing")]
    assert described("orders-1", *option) == [("orders-1", "Ongoing")]
    both = described("none", *option)
    assert [name for name, _ in both] == ["none", "orders-1"]
    for command in ("terminate", "forceTerminateTransaction"):
        for spelling in ("--transactional-id", "--transactionalId"):
            done = cli("transactions", command, spelling, "orders-1")
            assert done.lines == ["orders-1 terminated"]
    assert described(*option) == [("orders-1", "Empty")]


def test_a_transaction_that_its_coordinator_knows_does_not_hang(opened: OpenTransaction) -> None:
    """However old it is: its timeout, or its producer, will end it."""
    cli = opened.cli
    cli.session.run(_a_second())
    wanted = ("--topic", "orders", "--max-transaction-timeout", "0")
    assert cli("transactions", "find-hanging", *wanted, "--json").json == []
    assert cli("transactions", "find-hanging", *wanted).lines == [
        "Topic  Partition  ProducerId  ProducerEpoch  CoordinatorEpoch  StartOffset  "
        "LastTimestamp  Duration(min)"
    ]


def test_a_hanging_transaction_is_found_and_aborted(cli: CommandLine) -> None:
    """A late batch of a broker without verification opens a transaction that nobody ends."""
    cli("topics", "create", "orders")
    off = cli("cluster", "alter", "--set", "transaction.partition.verification.enable=false")
    assert off.code == 0, off.err
    hour_ago = cli.session.now_ms() - HOUR_MS
    data = transactional_batch(4711, 3, 0, b"late", timestamp_ms=hour_ago)

    async def late(cluster: Cluster) -> None:
        await cluster.refresh("orders")

        def make(version: int) -> wire.ProduceRequest:
            partition = wire.PartitionProduceData(index=0, records=data)
            return wire.ProduceRequest(
                transactional_id="orders-1",
                acks=-1,
                timeout_ms=1000,
                topic_data=[wire.TopicProduceData(name="orders", partition_data=[partition])],
            )

        target = Leader(TopicPartition("orders", 0))
        response = await cluster._engine.router.request(
            make, wire.ProduceRequest, target, timeout=10, newest=10
        )
        assert response.responses[0].partition_responses[0].error_code == 0

    on_cluster(cli, late)
    for scope in (("--topic", "orders"), ("--broker-id", "0")):
        _, row = cli("transactions", "find-hanging", *scope).lines
        assert row.split() == ["orders", "0", "4711", "3", "-1", "0", str(hour_ago), "60"]
    (found,) = cli("transactions", "find-hanging", "--topic", "orders", "--json").json
    assert (found["producer_id"], found["start_offset"]) == (4711, 0)
    place = ("--topic", "orders", "--partition", "0")
    done = cli("transactions", "abort", *place, "--start-offset", "1")
    assert (done.code, done.complaint) == (
        1,
        "aiokq: orders-0: no open transaction starts at offset 1",
    )
    done = cli("transactions", "abort", *place, "--start-offset", "0")
    assert done.lines == ["orders-0: transaction of producer 4711 aborted"]
    assert cli("transactions", "find-hanging", "--topic", "orders", "--json").json == []
    older = ("--producer-id", "4711", "--producer-epoch", "3", "--coordinator-epoch", "-1")
    assert cli("transactions", "abort", *place, *older, "--json").json["aborted"] is True
    assert cli("consume", "orders", "--until-end", "--read-committed").lines == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["find-hanging"], "give --topic or --broker-id"),
        (["find-hanging", "--broker-id", "1", "--partition", "0"], "--partition needs --topic"),
        (["abort", "--topic", "t", "--partition", "0"], "by --start-offset"),
        (
            ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
            "--producer-id needs --producer-epoch",
        ),
        (["describe"], "give a TRANSACTIONAL_ID, or --transactional-id ID"),
        (["terminate"], "give a TRANSACTIONAL_ID, or --transactional-id ID"),
        (
            ["terminate", "x", "--transactional-id", "y"],
            "give one transactional id, not x and y",
        ),
    ],
)
def test_incomplete_options_are_refused(
    alone: CommandLine, arguments: list[str], complaint: str
) -> None:
    """As kafka-transactions refuses them, before a cluster is asked."""
    done = alone("transactions", *arguments)
    assert done.code == 2
    assert complaint in done.complaint


def test_what_does_not_exist_is_a_complaint(cli: CommandLine) -> None:
    """The exit code tells scripts."""
    done = cli("transactions", "describe", "nobody")
    assert done.code == 1
    assert "nobody" in done.complaint
    done = cli("transactions", "describe-producers", "--topic", "none", "--partition", "0")
    assert done.code == 1
    assert "none" in done.complaint
