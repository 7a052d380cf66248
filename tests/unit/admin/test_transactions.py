"""Admin's calls on transactions with scripted brokers: filters, moves, loading and lost brokers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import wire
from aiokq.admin.client import Admin
from aiokq.admin.transaction_types import (
    AbortTransactionSpec,
    ProducerState,
    TransactionState,
)
from aiokq.core.errors import (
    ConfigError,
    ConnectionLost,
    InvalidProducerEpoch,
    NotLeaderOrFollower,
    ProtocolError,
    TransactionalIdAuthorization,
    TransactionalIdNotFound,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster, simulate

Main = Callable[["Transactions", Admin], Coroutine[Any, Any, None]]

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


class Transactions:
    """Transactional ids and their coordinators, and the markers that partitions have received."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.coordinators: dict[str, int] = {}
        self.codes: dict[str, list[int]] = {}
        self.markers: list[tuple[int, int, Any]] = []
        self.marker_codes: list[int] = []
        self.calls: Counter[str] = Counter()
        self.epochs: Counter[str] = Counter()
        cluster.add_topic("t", [1, 2])
        for request, handler in (
            (wire.FindCoordinatorRequest, self.find),
            (wire.ListTransactionsRequest, self.list),
            (wire.DescribeTransactionsRequest, self.describe),
            (wire.InitProducerIdRequest, self.fence),
            (wire.DescribeProducersRequest, self.producers),
            (wire.WriteTxnMarkersRequest, self.mark),
        ):
            cluster.handlers[request] = handler

    def code(self, broker: ScriptedBroker, name: str) -> int:
        if self.codes.get(name):
            return self.codes[name].pop(0)
        return 0 if self.coordinators.get(name, 1) == broker.node_id else 16

    def find(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        assert request.key_type == 1
        self.calls["find"] += 1
        brokers = self.cluster.brokers
        found = {key: brokers[self.coordinators.get(key, 1)] for key in request.coordinator_keys}
        return wire.FindCoordinatorResponse(
            coordinators=[
                wire.Coordinator(key=key, node_id=b.node_id, host=b.host, port=b.port)
                for key, b in found.items()
            ]
        )

    def list(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.ListTransactionsResponse(
            transaction_states=[
                wire.ListTransactionsTransactionState(
                    transactional_id=name, producer_id=7, transaction_state="Ongoing"
                )
                for name, node in self.coordinators.items()
                if node == broker.node_id
            ]
        )

    def describe(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        self.calls["describe"] += 1
        return wire.DescribeTransactionsResponse(
            transaction_states=[
                wire.DescribeTransactionsTransactionState(
                    error_code=self.code(broker, name) or (0 if name in self.coordinators else 105),
                    transactional_id=name,
                    transaction_state="FromTheFuture",
                    transaction_start_time_ms=-1,
                )
                for name in request.transactional_ids
            ]
        )

    def fence(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        name = request.transactional_id
        assert (request.producer_id, request.producer_epoch) == (-1, -1)
        code = self.code(broker, name)
        self.calls["fence"] += 1
        self.epochs[name] += not code
        return wire.InitProducerIdResponse(
            error_code=code, producer_id=7, producer_epoch=self.epochs[name]
        )

    def producers(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.DescribeProducersResponse(
            topics=[
                wire.DescribeProducersTopicResponse(
                    name=topic.name,
                    partitions=[self._partition(broker, n) for n in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _partition(self, broker: ScriptedBroker, number: int) -> Any:
        leads = self.cluster.topics["t"].partitions[number].leader == broker.node_id
        self.calls[f"producers of {number}"] += 1
        return wire.DescribeProducersPartitionResponse(
            partition_index=number,
            error_code=0 if leads else 6,
            active_producers=[
                wire.ProducerState(
                    producer_id=9 - n,
                    producer_epoch=3,
                    last_sequence=4,
                    last_timestamp=5,
                    coordinator_epoch=-1 + n,
                    current_txn_start_offset=-1 + n,
                )
                for n in range(2)
            ],
        )

    def mark(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        (marker,) = request.markers
        self.markers.append((broker.node_id, version, marker))
        code = self.marker_codes.pop(0) if self.marker_codes else 0
        return wire.WriteTxnMarkersResponse(
            markers=[
                wire.WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        wire.WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                wire.WritableTxnMarkerPartitionResult(
                                    partition_index=n, error_code=code
                                )
                                for n in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
            ]
        )


def with_transactions(main: Main, **limits: int) -> None:
    async def run(cluster: ScriptedCluster) -> None:
        for name, newest in limits.items():
            cluster.limits[getattr(wire, name)] = newest
        transactions = Transactions(cluster)
        async with Admin(cluster.bootstrap_servers, _environment=cluster.environment) as admin:
            await main(transactions, admin)

    simulate(run)


def test_the_listing_has_the_transactional_ids_of_all_brokers() -> None:
    """Each coordinator knows only its own; a broker that is down is named, not hidden."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        transactions.coordinators = {"c": 1, "a": 2, "b": 3}
        found = await admin.list_transactions()
        assert [(each.transactional_id, each.coordinator) for each in found.values()] == [
            ("a", 2),
            ("b", 3),
            ("c", 1),
        ]
        assert found.ok
        transactions.cluster.brokers[2].die()
        found = await admin.list_transactions()
        assert list(found) == ["b", "c"]
        assert isinstance(found.errors[2], ConnectionLost)
        with pytest.raises(ConnectionLost):
            await admin.list_transactions(raise_errors=True)

    with_transactions(main)


def test_a_filter_that_the_broker_lacks_is_an_error() -> None:
    """A listing without the filter would be taken for the filtered one."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        transactions.coordinators = {"a": 1}
        assert list(await admin.list_transactions(states="ongoing", producer_ids=[7])) == ["a"]
        with pytest.raises(UnsupportedVersion, match=r"older than 3\.8"):
            await admin.list_transactions(longer_than_ms=0)
        with pytest.raises(UnsupportedVersion, match=r"older than 4\.1"):
            await admin.list_transactions(pattern="a.*")
        with pytest.raises(ConfigError, match="'open' is not one of Empty, Ongoing"):
            await admin.list_transactions(states=["open"])

    with_transactions(main, ListTransactionsRequest=0)


def test_a_transactional_id_is_described_by_the_coordinator_to_which_it_moved() -> None:
    """NOT_COORDINATOR and loading are retried; a state of a newer broker is UNKNOWN."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        transactions.coordinators = {"moves": 1, "stays": 1}
        await admin.describe_transactions(["moves", "stays"], raise_errors=True)
        assert transactions.calls["describe"] == 1  # one request for all ids of a coordinator
        transactions.coordinators["moves"] = 2
        transactions.codes["stays"] = [14, 14]
        found = await admin.describe_transactions(["moves", "stays", "nobody"])
        assert [each.coordinator for each in found.values()] == [2, 1, -1]
        assert found["moves"].state is TransactionState.UNKNOWN
        assert found["moves"].start_timestamp_ms is None
        assert isinstance(found["nobody"].error, TransactionalIdNotFound)

    with_transactions(main)


def test_fencing_waits_until_the_open_transaction_is_aborted() -> None:
    """The coordinator answers CONCURRENT_TRANSACTIONS until all markers are written."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        transactions.codes = {"open": [51, 51, 51], "forbidden": [53]}
        fenced = await admin.fence_producers(["open", "forbidden", "idle"])
        assert [(each.producer_id, each.producer_epoch) for each in fenced.values()] == [
            (7, 1),
            (-1, -1),
            (7, 1),
        ]
        assert isinstance(fenced["forbidden"].error, TransactionalIdAuthorization)
        transactions.codes = {"forbidden": [53]}
        with pytest.raises(TransactionalIdAuthorization):
            await admin.terminate_transaction("forbidden")
        transactions.codes = {"open": [51]}
        await admin.terminate_transaction("open")
        assert transactions.epochs["open"] == 2

    with_transactions(main)


def test_producers_are_described_by_the_leaders_or_by_one_broker() -> None:
    """The replica of a certain broker may differ from the leader's."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        found = await admin.describe_producers([T0, ("t", 1)], raise_errors=True)
        assert list(found) == [T0, T1]
        assert found[T0].producers == (
            ProducerState(8, 3, 4, 5, 0, 0),
            ProducerState(9, 3, 4, 5, None, None),
        )
        transactions.cluster.move("t", 0, 3)
        assert (await admin.describe_producers([T0]))[T0].error is None
        asked = transactions.calls["producers of 0"]
        found = await admin.describe_producers([T0, T1], node_id=2)
        assert isinstance(found[T0].error, NotLeaderOrFollower)
        assert found[T1].error is None
        assert transactions.calls["producers of 0"] == asked + 1  # not retried

    with_transactions(main)


def test_an_abort_sends_the_marker_of_javas_admin_to_the_leader() -> None:
    """The epoch is that of the batches, which partitions accept only for transaction version 0."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        await admin.describe_producers([T1])
        transactions.cluster.move("t", 1, 3)
        transactions.marker_codes = [6]
        spec = AbortTransactionSpec.of(T1, ProducerState(7, 3, 4, 5, None, 12))
        assert spec == AbortTransactionSpec(T1, 7, 3, 0)
        await admin.abort_transaction(spec)
        assert [node for node, _, _ in transactions.markers] == [2, 3]
        _, version, marker = transactions.markers[-1]
        assert version == 2
        assert marker == wire.WritableTxnMarker(
            producer_id=7,
            producer_epoch=3,
            transaction_result=False,
            topics=[wire.WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
            coordinator_epoch=0,
            transaction_version=0,
        )
        transactions.marker_codes = [47]
        with pytest.raises(InvalidProducerEpoch):
            await admin.abort_transaction(spec)

    with_transactions(main)


def test_a_response_about_another_marker_is_refused() -> None:
    """An abort that is reported as done although nothing was written would be believed."""

    async def main(transactions: Transactions, admin: Admin) -> None:
        transactions.cluster.handlers[wire.WriteTxnMarkersRequest] = (
            lambda broker, request, version: wire.WriteTxnMarkersResponse()
        )
        with pytest.raises(ProtocolError):
            await admin.abort_transaction(AbortTransactionSpec(T0, 7, 3))

    with_transactions(main)


@pytest.mark.parametrize(
    "wrong", [(T0, -1, 0), (T0, 7, 2**15), (T0, 7, 0, -1), (("t", "0"), 7, 0), (T0, "7", 0)]
)
def test_a_spec_with_a_wrong_number_is_refused(wrong: tuple[Any, ...]) -> None:
    """Kafka's encoding would fail later, with an error that names no argument."""
    with pytest.raises((ValueError, TypeError)):
        AbortTransactionSpec(*wrong)
