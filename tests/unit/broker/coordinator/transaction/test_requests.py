"""The transactional requests of a producer, at each version: answers, fencing and verification."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.broker.permissions import Operation
from aiokq.core.errors import (
    ConcurrentTransactions,
    InvalidPidMapping,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    InvalidTxnTimeout,
    NotEnoughReplicas,
    OutOfOrderSequence,
    PolicyViolation,
    ProducerFenced,
    TopicAuthorization,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from tests.unit.broker.harness import Broker, until
from tests.unit.broker.test_gate import Denying
from tests.unit.broker.transactional_client import TransactionalClient, read_committed, world

FENCED, OLD_FENCED = ProducerFenced.code, InvalidProducerEpoch.code

VERSIONS = pytest.mark.parametrize("version", [0, 2])


def hold_markers(broker: Broker, topic="t", partition=0):
    """Have a partition refuse markers, with too few replicas in sync; return how to end that."""
    found = broker.node.topics.partition(topic, partition)
    found.change_replicas((0, 7), (0,))
    return lambda: found.change_replicas((0,), (0,))


async def initialized(broker, *args, **options):
    client = TransactionalClient(broker, *args, **options)
    assert await client.initialize() == 0
    return client


@VERSIONS
async def test_committed_records_are_read_and_aborted_ones_are_named(version):
    """The markers are written before another request is handled."""
    async with world() as broker:
        await broker.create("t", 2)
        client = await initialized(broker, version=version)
        await client.wrote("t", 2)
        await client.wrote("t", 1, partition=1)
        assert await read_committed(broker, "t") == ([], [])
        assert await client.end() == 0
        assert await read_committed(broker, "t") == ([0, 1, 2], [])
        assert await read_committed(broker, "t", 1) == ([0, 1], [])
        await client.wrote("t", 1)
        assert await client.end(committed=False) == 0
        assert await read_committed(broker, "t") == ([0, 1, 2, 3, 4], [(client.producer_id, 3)])


async def test_each_transaction_of_version_2_has_an_epoch_of_its_own():
    """So a late batch, or a late EndTxn, of an earlier one is refused (Jepsen's hazard)."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        first = client.producer
        await client.wrote("t")
        assert await client.end() == 0
        assert client.producer == (first[0], first[1] + 1)
        await client.wrote("t")
        late = TransactionalClient(broker)
        late.producer_id, late.epoch = first
        assert (await late.send("t", sequence=1)).error_code == OLD_FENCED
        # The epoch is the one before the current, but the transaction is open: no repetition.
        assert await late.end(committed=False) == FENCED
        assert (await client.describe()).transaction_state == "Ongoing"
        assert await client.end() == 0


@pytest.mark.parametrize("committed", [True, False])
@VERSIONS
async def test_a_repeated_end_is_answered_like_the_first(version, committed):
    """Its response was lost. The other outcome is refused: the first one is decided."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=version)
        await client.wrote("t")
        before = client.producer
        assert await client.end(committed) == 0
        after = client.producer
        end = broker.node.topics.partition("t", 0).log.log_end_offset
        client.producer_id, client.epoch = before
        assert await client.end(not committed) == InvalidTxnState.code
        assert await client.end(committed) == 0
        assert client.producer == after
        assert broker.node.topics.partition("t", 0).log.log_end_offset == end


@VERSIONS
async def test_a_commit_without_a_transaction_is_refused(version):
    async with world() as broker:
        client = await initialized(broker, version=version)
        assert await client.end() == InvalidTxnState.code
        before = client.producer
        if version == 0:
            assert await client.end(committed=False) == InvalidTxnState.code
        else:
            # The producer does not know whether its batch arrived; a late one must be refused.
            assert await client.end(committed=False) == 0
            assert client.producer == (before[0], before[1] + 1)
            assert (await client.describe()).transaction_state == "CompleteAbort"


@VERSIONS
async def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(version):
    """Old versions of the requests know only INVALID_PRODUCER_EPOCH."""
    async with world() as broker:
        await broker.create("t")
        old = await initialized(broker, version=version)
        await old.wrote("t")
        new = await initialized(broker, version=version)
        assert new.producer_id == old.producer_id
        assert new.epoch == old.epoch + 2  # one epoch fenced the old producer
        assert await read_committed(broker, "t") == ([0, 1], [(old.producer_id, 0)])
        assert (await old.send("t")).error_code == OLD_FENCED
        assert await old.add("t", version=1) == OLD_FENCED
        assert await old.add("t", version=2) == FENCED
        assert await old.end(version=1) == OLD_FENCED
        assert await old.end(version=4) == FENCED
        assert await old.initialize(version=3, named=True) == OLD_FENCED
        assert await old.initialize(version=4, named=True) == FENCED
        await new.wrote("t")
        assert await new.end() == 0


async def test_an_initialization_that_names_its_producer_may_be_repeated():
    """The response was lost (KIP-360); a new producer in between fences it."""
    async with world() as broker:
        client = await initialized(broker)
        named = client.producer
        assert await client.initialize(named=True) == 0
        bumped = client.producer
        assert bumped == (named[0], named[1] + 1)
        client.producer_id, client.epoch = named
        assert await client.initialize(named=True) == 0
        assert client.producer == bumped
        await initialized(broker)
        client.producer_id, client.epoch = named
        assert await client.initialize(named=True) == FENCED


@pytest.mark.parametrize(
    ("version", "code"),
    [*((n, InvalidTxnState.code) for n in range(3, 11)), (11, TransactionAbortable.code)],
)
async def test_a_batch_outside_the_transaction_is_refused(version, code):
    """Without the check it would hang: the coordinator writes no marker to the partition."""
    async with world() as broker:
        await broker.create("t", 2)
        client = await initialized(broker, version=0)
        assert (await client.send("t", version=version)).error_code == code
        assert await client.add("t", 1) == 0
        assert (await client.send("t", version=version)).error_code == code
        assert (await client.send("t", partition=1, version=version)).error_code == 0
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 0


async def test_without_verification_a_batch_is_appended():
    """As Kafka does with `transaction.partition.verification.enable=false`."""
    async with world(transaction_partition_verification_enable=False) as broker:
        await broker.create("t")
        client = await initialized(broker, version=0)
        assert (await client.send("t", version=3)).error_code == 0


async def test_from_version_12_on_a_batch_adds_its_partition():
    """And a transaction must begin with the first sequence of its epoch."""
    async with world() as broker:
        await broker.create("t", 2)
        client = await initialized(broker)
        late = await client.send("t", sequence=1)
        assert late.error_code == OutOfOrderSequence.code
        assert (await client.send("t", sequence=0)).error_code == 0
        assert (await client.send("t", partition=1, version=13 - 1)).error_code == 0
        [topic] = (await client.describe()).topics
        assert (topic.topic, topic.partitions) == ("t", [0, 1])


@pytest.mark.parametrize("version", [3, 11, 12])
async def test_a_coordinator_that_cannot_be_asked_is_19(version):
    """Clients retry it; they do not expect a coordinator's errors from Produce."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=0 if version < 12 else 2)
        partition = broker.node.topics.partition("__transaction_state", 0)
        broker.node.transaction_coordinator.resigned(partition)
        code = (await client.send("t", version=version)).error_code
        broker.node.transaction_coordinator.elected(partition)
        loading = (await client.send("t", version=version)).error_code
        assert (code, loading) == (NotEnoughReplicas.code, NotEnoughReplicas.code)


async def test_a_producer_of_another_id_is_refused():
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        other = await initialized(broker, "other")
        client.producer_id = other.producer_id
        assert await client.add("t") == InvalidPidMapping.code
        assert (await client.send("t")).error_code == InvalidPidMapping.code
        assert await client.end(committed=False) == InvalidPidMapping.code
        stranger = TransactionalClient(broker, "stranger")
        stranger.producer_id, stranger.epoch = 12345, 0
        assert await stranger.add("t") == InvalidPidMapping.code
        assert await stranger.end(committed=False) == InvalidPidMapping.code


async def test_no_partition_is_added_if_one_is_refused():
    """The others get OPERATION_NOT_ATTEMPTED (55); clients must not touch internal topics."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker, version=0)
        response = await broker.ask(
            wire.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=client.producer_id,
                v3_and_below_producer_epoch=client.epoch,
                v3_and_below_topics=[
                    wire.AddPartitionsToTxnTopic(name="t", partitions=[0, 9]),
                    wire.AddPartitionsToTxnTopic(name="__transaction_state", partitions=[0]),
                ],
            ),
            3,
        )
        codes = {
            (topic.name, result.partition_index): result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        assert codes == {
            ("t", 0): 55,
            ("t", 9): UnknownTopicOrPartition.code,
            ("__transaction_state", 0): TopicAuthorization.code,
        }
        assert (await client.describe()).transaction_state == "Empty"


@VERSIONS
async def test_while_markers_are_missing_the_next_transaction_waits(version):
    """51 says so to whoever asks; the decision stands, and EndTxn was answered."""
    async with world(add_partitions_to_txn_retry_backoff_max_ms=1) as broker:
        await broker.create("t", 2, min_insync_replicas=2)
        client = await initialized(broker, version=version)
        await client.wrote("t")
        release = hold_markers(broker)
        before = client.producer
        assert await client.end() == 0
        concurrent = ConcurrentTransactions.code
        assert (await client.describe()).transaction_state == "PrepareCommit"
        assert await client.add("t", 1) == concurrent
        assert await TransactionalClient(broker).initialize() == concurrent
        code = concurrent if version == 2 else NotEnoughReplicas.code
        assert (await client.send("t", partition=1, sequence=0)).error_code == code
        client.producer_id, client.epoch = before
        assert await client.end() == concurrent
        assert await client.end(committed=False) == InvalidTxnState.code
        assert await read_committed(broker, "t") == ([], [])
        release()
        shard = broker.node.transaction_coordinator.active_shards()[0]
        await until(lambda: shard.transactions["t"].state.is_idle)
        assert await read_committed(broker, "t") == ([0, 1], [])
        assert await client.end() == 0


async def test_a_batch_that_waits_for_markers_is_woken_by_them():
    """It does not poll: it goes on in the turn in which the last marker is written."""
    async with world(add_partitions_to_txn_retry_backoff_max_ms=60_000) as broker:
        await broker.create("t", 2, min_insync_replicas=2)
        client = await initialized(broker)
        await client.wrote("t")
        release = hold_markers(broker)
        assert await client.end() == 0
        waiting = [
            asyncio.ensure_future(client.send("t", partition=1, sequence=0)),
            asyncio.ensure_future(client.send("t", partition=1, sequence=0)),
        ]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        release()
        first, second = await asyncio.gather(*waiting)
        assert (first.error_code, second.error_code) == (0, 0)
        assert first.base_offset == second.base_offset == 0  # the second repeats the first
        assert await client.end() == 0


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 1000, InvalidRequest),
        ("x" * 4097, 1000, InvalidRequest),
        ("x", 0, InvalidTxnTimeout),
        ("x", -1, InvalidTxnTimeout),
        ("x", 900_001, InvalidTxnTimeout),
    ],
)
async def test_an_id_or_a_timeout_out_of_its_limits(name, timeout_ms, error):
    async with world() as broker:
        client = TransactionalClient(broker, name)
        assert await client.initialize(timeout_ms) == error.code


async def test_a_flood_of_ids_is_refused_and_known_ids_go_on():
    """The memory of the broker is bounded by `max.transactional.ids`."""
    async with world(max_transactional_ids=2) as broker:
        await broker.create("t")
        one = await initialized(broker, "one")
        await initialized(broker, "two")
        assert await TransactionalClient(broker, "three").initialize() == PolicyViolation.code
        assert await one.initialize() == 0
        await one.wrote("t")
        assert await one.end() == 0


async def test_producers_that_start_together_do_not_exceed_the_limit_of_ids():
    """Each looked for room before its producer id was reserved, and found it."""
    async with world(max_transactional_ids=2) as broker:
        clients = [TransactionalClient(broker, f"id-{n}") for n in range(10)]
        codes = await asyncio.gather(*(client.initialize() for client in clients))
        assert sorted(codes) == [0] * 2 + [PolicyViolation.code] * 8


@pytest.mark.parametrize("version", range(5))
async def test_add_offsets_adds_the_partition_of_the_group(version):
    async with world() as broker:
        client = await initialized(broker, version=0)
        response = await broker.ask(
            wire.AddOffsetsToTxnRequest(
                transactional_id="t",
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                group_id="g",
            ),
            version,
        )
        assert response.error_code == 0
        [topic] = (await client.describe()).topics
        assert (topic.topic, topic.partitions) == ("__consumer_offsets", [0])


@pytest.mark.parametrize("key_type", ["offsets_topic", "transaction_state_log"])
async def test_segments_smaller_than_topics_may_have_leave_the_coordinator_unavailable(
    key_type, caplog
):
    """As in Apache Kafka 4.2, where the topic is not created either; the reason is logged once."""
    async with world(**{f"{key_type}_segment_bytes": 1_048_575}) as broker:
        for _ in range(3):
            lookup = wire.FindCoordinatorRequest(
                key_type=int(key_type != "offsets_topic"), coordinator_keys=["t"]
            )
            [found] = (await broker.ask(lookup, 4)).coordinators
            assert (found.error_code, found.node_id) == (15, -1)
    [line] = [each for each in caplog.messages if "segment.bytes" in each]
    assert "cannot be created" in line
    async with world(**{f"{key_type}_segment_bytes": 1_048_576}) as broker:
        assert (await broker.ask(lookup, 4)).coordinators[0].error_code == 0


async def between_brokers(broker, version, *transactions):
    """Ask as a broker does; return the error code, and those of the partitions by id."""
    response = await broker.ask(
        wire.AddPartitionsToTxnRequest(
            transactions=[
                wire.AddPartitionsToTxnTransaction(
                    transactional_id=client.transactional_id,
                    producer_id=client.producer_id,
                    producer_epoch=client.epoch,
                    verify_only=verify_only,
                    topics=[wire.AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
                )
                for client, verify_only, partitions in transactions
            ]
        ),
        version,
    )
    return response.error_code, {
        each.transactional_id: {
            result.partition_index: result.partition_error_code
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_ask_about_several_transactions_at_once(version):
    """Each transaction has its own result: added, verified, or refused."""
    async with world() as broker:
        await broker.create("t", 3, min_insync_replicas=2)
        one, two = [await initialized(broker, name) for name in ("one", "two")]
        code, found = await between_brokers(broker, version, (one, True, [0]), (two, False, [0, 2]))
        assert (code, found) == (0, {"one": {0: 120}, "two": {0: 0, 2: 0}})
        assert (await one.describe()).transaction_state == "Empty"
        assert (await two.describe()).transaction_state == "Ongoing"
        _, found = await between_brokers(broker, version, (two, True, [0, 1, 2]))
        assert found == {"two": {0: 0, 1: 120, 2: 0}}
        _, found = await between_brokers(broker, version, (two, False, [1, 3]), (one, False, [1]))
        assert found == {"two": {1: 55, 3: 3}, "one": {1: 0}}  # all or none
        release = hold_markers(broker)
        ended = two.producer
        assert await two.end() == 0
        two.producer_id, two.epoch = ended[0], ended[1] + 1
        for verify_only in (True, False):  # while markers are missing
            _, found = await between_brokers(broker, version, (two, verify_only, [0]))
            assert found == {"two": {0: 51}}
        release()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("verify_only", [True, False])
async def test_brokers_get_the_errors_of_the_coordinator(version, verify_only):
    """49 for another producer id or an unknown transactional id, 90 for another epoch."""
    async with world() as broker:
        await broker.create("t", 2)
        client = await initialized(broker)
        unknown = TransactionalClient(broker, "unknown")
        client.epoch += 1
        _, found = await between_brokers(
            broker, version, (client, verify_only, [0, 1]), (unknown, verify_only, [0])
        )
        assert found == {"t": {0: 90, 1: 90}, "unknown": {0: 49}}
        client.epoch -= 1
        client.producer_id += 1
        _, found = await between_brokers(broker, version, (client, verify_only, [0]))
        assert found == {"t": {0: 49}}


@pytest.mark.parametrize("version", [4, 5])
async def test_while_markers_are_missing_a_wrong_producer_is_told_so(version):
    """As in Kafka 4.2, a verification checks id, epoch and state, and an addition first the state.

    A producer that was fenced would otherwise repeat its batch until the markers are written.
    """
    async with world() as broker:
        await broker.create("t", 1, min_insync_replicas=2)
        client = await initialized(broker)
        await client.wrote("t")
        release = hold_markers(broker)
        ended = client.producer
        assert await client.end() == 0
        following = (ended[0], ended[1] + 1)
        for producer, code in (
            ((following[0] + 1, following[1]), InvalidPidMapping.code),
            (ended, FENCED),
            ((following[0], following[1] + 1), FENCED),
            (following, ConcurrentTransactions.code),
        ):
            client.producer_id, client.epoch = producer
            _, found = await between_brokers(broker, version, (client, True, [0]))
            assert found == {"t": {0: code}}
            _, found = await between_brokers(broker, version, (client, False, [0]))
            assert found == {"t": {0: ConcurrentTransactions.code}}
        release()


@pytest.mark.parametrize("produce_version", [10, 11])
async def test_while_markers_are_missing_a_batch_of_a_fenced_producer_is_refused_as_fenced(
    produce_version,
):
    """Regression: it got the retriable NOT_ENOUGH_REPLICAS, and was sent again and again."""
    async with world() as broker:
        await broker.create("t", 2, min_insync_replicas=2)
        client = await initialized(broker, version=0)
        await client.wrote("t")
        release = hold_markers(broker)
        late = TransactionalClient(broker, version=0)
        late.producer_id, late.epoch = client.producer
        assert (
            await client.initialize()
        ) == ConcurrentTransactions.code  # aborts, with a new epoch
        answer = await late.send("t", partition=1, version=produce_version)
        assert answer.error_code == OLD_FENCED
        release()


@pytest.mark.parametrize("version", [4, 5])
async def test_only_brokers_may_ask_about_several_transactions(version):
    """They need CLUSTER_ACTION, and no permission for the ids and topics."""
    async with world() as broker:
        await broker.create("t")
        client = await initialized(broker)
        denying = broker.node.gate.authorizer = Denying(
            lambda operation, kind, name: operation is Operation.CLUSTER_ACTION
        )
        assert await between_brokers(broker, version, (client, False, [0])) == (31, {})
        denying.denied = lambda operation, kind, name: operation is not Operation.CLUSTER_ACTION
        assert await between_brokers(broker, version, (client, False, [0])) == (0, {"t": {0: 0}})
