"""WriteTxnMarkers, DescribeProducers, DescribeTransactions, ListTransactions."""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.core.errors import (
    ClusterAuthorization,
    InvalidProducerEpoch,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTopic,
    NotLeaderOrFollower,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from tests.unit.broker.harness import NOW_MS, Broker, batch
from tests.unit.broker.transactional_client import TransactionalClient, read_committed, world

ABORT, COMMIT = False, True


def marker(producer, *partitions, outcome=ABORT, coordinator_epoch=0, version=0):
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return wire.WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=outcome,
        topics=[
            wire.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


async def write(broker: Broker, *markers, version=2):
    """Write markers; return the error codes by producer id and partition."""
    response = await broker.ask(wire.WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        (result.producer_id, topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }


async def producers(broker: Broker, topic, index=0):
    response = await broker.ask(
        wire.DescribeProducersRequest(
            topics=[wire.DescribeProducersTopicRequest(name=topic, partition_indexes=[index])]
        ),
        0,
    )
    [answered] = response.topics
    [partition] = answered.partitions
    return partition


async def listed(broker: Broker, version=2, **filters):
    return await broker.ask(wire.ListTransactionsRequest(**filters), version)


def ids(response):
    assert response.error_code == 0
    return sorted(state.transactional_id for state in response.transaction_states)


@pytest.mark.parametrize("version", [1, 2])
async def test_an_administrator_aborts_a_hanging_transaction(version):
    """The transaction coordinator knows nothing of it: only the partition holds readers back."""
    async with world() as broker:
        await broker.create("t")
        client = TransactionalClient(broker, version=0)
        assert await client.initialize() == 0
        await client.wrote("t", 2)
        assert await read_committed(broker, "t") == ([], [])
        # As `kafka-transactions abort` does, with the epoch that DescribeProducers tells.
        [found] = (await producers(broker, "t")).active_producers
        assert (found.coordinator_epoch, found.current_txn_start_offset) == (-1, 0)
        codes = await write(
            broker,
            marker(
                (found.producer_id, found.producer_epoch),
                ("t", 0),
                coordinator_epoch=found.coordinator_epoch,
            ),
            version=version,
        )
        assert codes == {(client.producer_id, "t", 0): 0}
        assert await read_committed(broker, "t") == ([0, 1, 2], [(client.producer_id, 0)])
        [after] = (await producers(broker, "t")).active_producers
        assert after.current_txn_start_offset == -1


async def test_markers_of_several_producers_are_answered_by_producer_and_partition():
    """A partition that does not exist does not stop the others."""
    async with world() as broker:
        await broker.create("t", 2)
        one, two = TransactionalClient(broker, "one"), TransactionalClient(broker, "two")
        for client in (one, two):
            assert await client.initialize() == 0
            await client.wrote("t", partition=0)
            await client.wrote("t", partition=1)
        codes = await write(
            broker,
            marker(one.producer, ("t", 0), ("t", 1), ("missing", 0), outcome=COMMIT),
            marker(two.producer, ("t", 0)),
            marker(two.producer, ("t", 1), ("t", 7)),
        )
        missing = UnknownTopicOrPartition.code
        assert codes == {
            (one.producer_id, "t", 0): 0,
            (one.producer_id, "t", 1): 0,
            (one.producer_id, "missing", 0): missing,
            (two.producer_id, "t", 0): 0,
            (two.producer_id, "t", 1): 0,
            (two.producer_id, "t", 7): missing,
        }
        assert await read_committed(broker, "t") == ([0, 1, 2, 3], [(two.producer_id, 1)])


async def test_a_marker_of_an_older_epoch_or_coordinator_is_refused():
    """A coordinator that was replaced must not end the transaction of its successor."""
    async with world() as broker:
        await broker.create("t")
        producer_id = 5
        assert await write(broker, marker((producer_id, 3), ("t", 0), coordinator_epoch=4)) == {
            (producer_id, "t", 0): 0
        }
        older_epoch = await write(broker, marker((producer_id, 2), ("t", 0), coordinator_epoch=4))
        older_coordinator = await write(
            broker, marker((producer_id, 3), ("t", 0), coordinator_epoch=3)
        )
        assert older_epoch == {(producer_id, "t", 0): InvalidProducerEpoch.code}
        assert older_coordinator == {(producer_id, "t", 0): TransactionCoordinatorFenced.code}


async def test_a_delayed_marker_of_version_2_does_not_end_the_next_transaction():
    """It has the epoch of the transaction that is open now. A repeated one does no harm
    (KAFKA-19999)."""
    async with world() as broker:
        await broker.create("t")
        client = TransactionalClient(broker)
        assert await client.initialize() == 0
        await client.wrote("t")
        assert await client.end() == 0
        repeated = marker(client.producer, ("t", 0), outcome=COMMIT, version=2)
        key = (client.producer_id, "t", 0)
        assert await write(broker, repeated) == {key: 0}
        await client.wrote("t")
        assert await write(broker, repeated) == {key: InvalidProducerEpoch.code}
        assert (await client.describe()).transaction_state == "Ongoing"


async def test_a_marker_without_a_producer_is_refused():
    """It would leave a producer with the id -1 in the state of the partition."""
    async with world() as broker:
        await broker.create("t")
        for producer in ((-1, 0), (1, -1)):
            codes = await write(broker, marker(producer, ("t", 0)))
            assert codes == {(producer[0], "t", 0): InvalidRequest.code}
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 0


async def test_a_marker_for_groups_that_are_not_loaded_is_to_be_sent_again():
    """Kafka's coordinator retries after 6, and knows none of the group coordinator's errors."""
    async with world() as broker:
        assert (await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)).error_code == 0
        partition = broker.node.topics.partition("__consumer_offsets", 0)
        broker.node.group_coordinator.resigned(partition)
        codes = await write(broker, marker((1, 0), ("__consumer_offsets", 0)))
        assert codes == {(1, "__consumer_offsets", 0): NotLeaderOrFollower.code}
        broker.node.group_coordinator.elected(partition)


async def test_markers_need_alter_or_cluster_action():
    """Kafka takes either: ALTER of an administrator, CLUSTER_ACTION of a broker."""
    from aiokq.broker.permissions import Operation
    from tests.unit.broker.test_gate import Denying

    async with world() as broker:
        await broker.create("t")
        for allowed in ({Operation.ALTER}, {Operation.CLUSTER_ACTION}, set()):
            broker.node.gate.authorizer = Denying(
                lambda operation, kind, name, allowed=allowed: operation not in allowed
            )
            code = 0 if allowed else ClusterAuthorization.code
            assert await write(broker, marker((1, 0), ("t", 0))) == {(1, "t", 0): code}
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 2


async def test_producers_are_described_with_their_open_transaction():
    """An idempotent producer has none, and no coordinator epoch."""
    async with world() as broker:
        await broker.create("t")
        header = {"producer_id": 900, "producer_epoch": 2, "base_sequence": 0}
        assert (await broker.produce("t", batch(3, **header))).error_code == 0
        client = TransactionalClient(broker)
        assert await client.initialize() == 0
        await client.wrote("t", 2)
        found = {each.producer_id: each for each in (await producers(broker, "t")).active_producers}
        idempotent, open_one = found[900], found[client.producer_id]
        assert (idempotent.producer_epoch, idempotent.last_sequence) == (2, 2)
        assert (idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (-1, -1)
        assert idempotent.last_timestamp == NOW_MS + 2
        assert (open_one.last_sequence, open_one.current_txn_start_offset) == (1, 3)
        assert await client.end() == 0
        found = {each.producer_id: each for each in (await producers(broker, "t")).active_producers}
        ended = found[client.producer_id]
        # The marker's epoch is the next one, and the batches before it count no more.
        assert (ended.producer_epoch, ended.last_sequence) == (client.epoch, -1)
        assert (ended.coordinator_epoch, ended.current_txn_start_offset) == (0, -1)


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("missing", 0, UnknownTopicOrPartition),
        ("t", 7, UnknownTopicOrPartition),
        ("no/topic", 0, InvalidTopic),
    ],
)
async def test_the_producers_of_a_partition_that_is_not_there(topic, index, error):
    async with world() as broker:
        await broker.create("t")
        assert (await producers(broker, topic, index)).error_code == error.code


async def test_a_transaction_is_described_in_each_of_its_states():
    async with world() as broker:
        await broker.create("t", 2)
        client = TransactionalClient(broker)
        assert (await client.describe()).error_code in (15, 16)  # no coordinator yet
        assert await client.initialize(timeout_ms=1234) == 0
        empty = await client.describe()
        assert (empty.error_code, empty.transaction_state, empty.topics) == (0, "Empty", [])
        assert (empty.producer_id, empty.producer_epoch) == client.producer
        assert (empty.transaction_timeout_ms, empty.transaction_start_time_ms) == (1234, -1)
        await client.wrote("t", partition=1)
        await client.wrote("t", partition=0)
        ongoing = await client.describe()
        assert (ongoing.transaction_state, ongoing.transaction_start_time_ms) == ("Ongoing", NOW_MS)
        assert [(topic.topic, topic.partitions) for topic in ongoing.topics] == [("t", [0, 1])]
        assert await client.end() == 0
        assert (await client.describe()).transaction_state == "CompleteCommit"
        await client.wrote("t")
        assert await client.end(committed=False) == 0
        assert (await client.describe()).transaction_state == "CompleteAbort"


@pytest.mark.parametrize(("name", "error"), [("", InvalidRequest), ("x", TransactionalIdNotFound)])
async def test_a_transactional_id_that_is_not_there(name, error):
    async with world() as broker:
        await TransactionalClient(broker).initialize()
        assert (await TransactionalClient(broker, name).describe()).error_code == error.code


async def test_transactions_are_listed_by_state_producer_duration_and_pattern():
    pytest.importorskip("re2")
    async with world() as broker:
        await broker.create("t")
        empty, open_one, done = (
            TransactionalClient(broker, name) for name in ("empty", "open-1", "done-1")
        )
        for client in (empty, open_one, done):
            assert await client.initialize() == 0
        await done.wrote("t")
        assert await done.end() == 0
        await open_one.wrote("t")
        broker.clock.now_ms += 5000
        everyone = ["done-1", "empty", "open-1"]
        assert ids(await listed(broker, 0)) == everyone
        assert ids(await listed(broker, state_filters=["Ongoing"])) == ["open-1"]
        odd = await listed(broker, state_filters=["Odd", "CompleteCommit", "Odd"])
        assert (ids(odd), odd.unknown_state_filters) == (["done-1"], ["Odd"])
        assert ids(await listed(broker, state_filters=["Odd"])) == []
        assert ids(await listed(broker, producer_id_filters=[empty.producer_id])) == ["empty"]
        assert ids(await listed(broker, duration_filter=4999)) == everyone
        # As in Kafka, an id that never had a transaction passes every duration.
        assert ids(await listed(broker, duration_filter=5000)) == ["empty"]
        assert ids(await listed(broker, transactional_id_pattern=".*-1")) == ["done-1", "open-1"]
        assert ids(await listed(broker, transactional_id_pattern="open")) == []
        assert ids(await listed(broker, transactional_id_pattern="")) == everyone
        bad = await listed(broker, transactional_id_pattern="a(")
        assert bad.error_code == InvalidRegularExpression.code


async def test_transactions_that_the_client_may_not_describe_are_not_listed():
    from tests.unit.broker.test_gate import Denying

    async with world() as broker:
        for name in ("mine", "theirs"):
            assert await TransactionalClient(broker, name).initialize() == 0
        broker.node.gate.authorizer = Denying(lambda operation, kind, name: name == "theirs")
        assert ids(await listed(broker)) == ["mine"]
