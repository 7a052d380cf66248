"""Transactions by `transaction.version`: what is sent, epochs, and a level that changes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from aiokq import wire
from aiokq.core.errors import KafkaError, TransactionAborted, UnsupportedVersion
from aiokq.producer.transactions.transaction import TransactionOutcome
from tests.sim.transaction_world import (
    ID,
    Attempt,
    Close,
    Delay,
    Silence,
    TransactionalKafka,
    partitions_answer,
    producer,
    simulate,
    times,
)

V1 = [0, 1]

UNCERTAIN = [-1, 7, 14, 15, 16]
"""Answers of a coordinator that may have carried out the request."""


async def one(p: Any, value: bytes) -> None:
    """Commit a transaction of one record."""
    async with p.transaction():
        await p.send("orders", value)


def epochs(kafka: TransactionalKafka) -> list[int]:
    """Return the epochs of the EndTxn requests in order."""
    return [seen.request.producer_epoch for seen in kafka.seen(wire.EndTxnRequest)]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_versions_of_requests_follow_the_finalized_level(level: int) -> None:
    """Produce 12 and EndTxn 5 mean version 2 of transactions, whatever ranges the broker names."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p, p.transaction() as txn:
            await p.send("orders", b"a")
            await txn.send_offsets({("in", 0): 1}, "g")
        newest = {
            api: max(seen.version for seen in kafka.seen(api))
            for api in (wire.ProduceRequest, wire.TxnOffsetCommitRequest, wire.EndTxnRequest)
        }
        if level >= 2:
            assert newest[wire.ProduceRequest] >= 12
            assert newest[wire.TxnOffsetCommitRequest] >= 5
            assert newest[wire.EndTxnRequest] >= 5
            assert not kafka.seen(wire.AddPartitionsToTxnRequest)
        else:
            assert list(newest.values()) == [11, 4, 4]
            assert len(kafka.seen(wire.AddPartitionsToTxnRequest)) == 1
        assert all(seen.request.transactional_id == ID for seen in kafka.seen(wire.ProduceRequest))

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
def test_partitions_are_added_together_and_once(level: int) -> None:
    """One request per partition and transaction would cost as much as the records."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            for _ in range(2):
                async with p.transaction():
                    for n in range(5):
                        p.send_nowait("orders", b"a", partition=n)
                    await p.flush()
                    for n in range(5):
                        p.send_nowait("orders", b"b", partition=n)
        assert len(kafka.seen(wire.AddPartitionsToTxnRequest)) <= 4
        assert len(kafka.committed("orders")) == 20
        assert epochs(kafka) == [0, 0], "below version 2 the epoch stays"
        sequences = [a.header.base_sequence for a in kafka.attempts if a.partition == 0]
        assert sequences == [0, 1, 2, 3], "and the sequence numbers continue"

    simulate(body, level=level, topics=5)


def test_each_transaction_of_version_2_has_an_epoch_of_its_own() -> None:
    """EndTxn gives the next epoch, in which the sequence numbers begin at 0."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            for n in range(3):
                async with p.transaction():
                    await p.send("orders", b"%d" % n)
                    await p.send("orders", b"%d" % n)
        assert epochs(kafka) == [0, 1, 2]
        assert [a.header.producer_epoch for a in kafka.attempts] == [0, 0, 1, 1, 2, 2]
        assert [a.header.base_sequence for a in kafka.attempts] == [0, 1] * 3
        assert len(kafka.seen(wire.InitProducerIdRequest)) == 1

    simulate(body)


def test_a_producer_id_is_replaced_when_its_epochs_are_used_up() -> None:
    """After 32,766 transactions the coordinator gives another id; a day's work at one a second."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.first_epoch = 32764
        async with producer(world, kafka) as p:
            for n in range(5):
                async with p.transaction():
                    await p.send("orders", b"%d" % n)
        stamps = [(a.header.producer_id, a.header.producer_epoch) for a in kafka.attempts]
        assert stamps == [(1000, 32764), (1000, 32765), (1000, 32766), (1001, 0), (1001, 1)]
        assert kafka.committed("orders") == [b"%d" % n for n in range(5)]

    simulate(body)


def test_a_lost_answer_at_the_rotation_is_repeated() -> None:
    """The coordinator recognizes the old id, and gives the new one again."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.first_epoch = 32766
        async with producer(world, kafka) as p:
            kafka.lost(wire.EndTxnRequest)
            async with p.transaction():
                await p.send("orders", b"a")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b"]
        assert [c for c, _, _ in kafka.ended] == [True, True]
        assert kafka.ids[ID].producer_id == 1001

    simulate(body)


@pytest.mark.parametrize("level", V1)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_late_endtxn_cannot_end_the_next_transaction(level: int, commits: bool) -> None:
    """Jepsen's finding: the first EndTxn hangs in the network and arrives one transaction later."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            late: list[Any] = []

            def keep(request: Any, call: Any) -> Any:
                late.append((request, call))
                return Close()

            kafka.script(wire.EndTxnRequest, keep)
            await p.begin_transaction()
            await p.send("orders", b"a")
            await (p.commit_transaction() if commits else p.abort_transaction())
            await p.begin_transaction()
            await p.send("orders", b"b")
            answer = kafka._end(*late[0])
            assert answer.error_code == 90
            await p.send("orders", b"c")
            await p.abort_transaction()
        assert kafka.committed("orders") == ([b"a"] if commits else [])
        assert kafka.ids[ID].epoch == 1
        assert len(kafka.seen(wire.InitProducerIdRequest)) == 2

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
@pytest.mark.parametrize(
    "lost", [wire.AddPartitionsToTxnRequest, wire.AddOffsetsToTxnRequest], ids=lambda api: api.NAME
)
def test_after_a_lost_addition_the_next_transaction_has_another_epoch(
    level: int, lost: Any
) -> None:
    """A late addition would begin a transaction that nobody ends, and fence the producer later."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.lost(lost)
            async with p.transaction() as txn:
                await p.send("orders", b"a")
                await txn.send_offsets({("in", 0): 1}, "g")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b"]
        # Between them, what a late addition may have begun is aborted.
        assert epochs(kafka) == [0, 0, 1]

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
@pytest.mark.parametrize("code", UNCERTAIN)
@pytest.mark.parametrize("carried_out", [True, False])
def test_after_an_uncertain_answer_to_an_addition_the_next_transaction_has_another_epoch(
    level: int, code: int, carried_out: bool
) -> None:
    """The coordinator appended the partitions, but could not wait for its replicas or moved."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        def uncertain(request: Any, call: Any) -> Any:
            if carried_out:
                kafka._add_partitions(request, call)
            return partitions_answer(request, code)

        async with producer(world, kafka) as p:
            await one(p, b"a")
            kafka.script(wire.AddPartitionsToTxnRequest, uncertain)
            with contextlib.suppress(TransactionAborted):  # -1 aborts, as in Java
                async with p.transaction():
                    await p.send("orders", b"b")
            await one(p, b"c")
        assert kafka.committed("orders")[-1] == b"c"
        assert epochs(kafka)[-1] == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
def test_a_late_addition_does_not_fence_the_producer(level: int) -> None:
    """It begins a transaction behind the end of its own: InitProducerId would abort it with an
    epoch that nobody gets, and the next one of the producer would be fenced.
    """

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        late: list[Any] = []

        def keep(request: Any, call: Any) -> Any:
            late.append((request, call))
            return Close()

        async with producer(world, kafka) as p:
            kafka.script(wire.AddPartitionsToTxnRequest, keep)
            await one(p, b"a")
            kafka._add_partitions(*late[0])
            assert kafka.ids[ID].state == "Ongoing"
            await one(p, b"b")
        assert kafka.committed("orders") == [b"a", b"b"]
        assert [ended[0] for ended in kafka.ended] == [True, False, True]

    simulate(body, level=level)


def test_an_end_without_the_next_epoch_is_followed_by_a_new_one() -> None:
    """The coordinator may answer EndTxn 5 without an epoch, or know only EndTxn 4."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        def old(request: Any, call: Any) -> Any:
            kafka._finish(kafka.ids[ID], committed=request.committed)
            return wire.EndTxnResponse(producer_id=-1, producer_epoch=-1)

        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, old)
            await one(p, b"a")
            await one(p, b"b")
        assert kafka.committed("orders") == [b"a", b"b"]
        assert epochs(kafka) == [0, 1]

    simulate(body)


@pytest.mark.parametrize("level", V1)
@pytest.mark.parametrize("arrives", [True, False])
def test_an_addition_that_nobody_answers_is_aborted_before_the_next_epoch(
    level: int, arrives: bool
) -> None:
    """EndTxn is refused as a wrong state if the addition has not arrived: then there is none."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=2000) as p:
            if arrives:
                kafka.lost(wire.AddPartitionsToTxnRequest, 100, Silence())
            else:
                kafka.script(wire.AddPartitionsToTxnRequest, *[Silence()] * 100)
            with pytest.raises(TransactionAborted):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
            assert await txn.outcome() is TransactionOutcome.ABORTED
            assert kafka.ids[ID].state in ("Empty", "CompleteAbort")
            kafka[1]._scripts.clear()
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]
        assert kafka.values("orders") == [b"b"]

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
def test_a_batch_that_failed_bumps_the_epoch(level: int) -> None:
    """Its sequence number is missing, and it may still arrive."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, delivery_timeout_ms=3500) as p:
            kafka.faults.append(times(100, Silence(), when=lambda a: a.header.producer_epoch == 0))
            with pytest.raises(TransactionAborted):
                async with p.transaction():
                    p.send_nowait("orders", b"a")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]
        last = kafka.attempts[-1].header
        assert (last.producer_epoch, last.base_sequence) == (1, 0)

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
@pytest.mark.parametrize("api", [wire.EndTxnRequest, wire.AddPartitionsToTxnRequest])
def test_an_unknown_producer_id_bumps_the_epoch(api: Any, level: int) -> None:
    """As Java's abortableErrorIfPossible: the coordinator's state of the producer is renewed."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        def unknown(request: Any, call: Any) -> Any:
            if api is wire.EndTxnRequest:
                return wire.EndTxnResponse(error_code=59)
            return partitions_answer(request, 59)

        async with producer(world, kafka) as p:
            kafka.script(api, unknown)
            with pytest.raises(TransactionAborted, match="UNKNOWN_PRODUCER_ID"):
                await one(p, b"a")
            await one(p, b"b")
        assert kafka.committed("orders") == [b"b"]
        assert epochs(kafka)[-1] == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
def test_a_batch_in_flight_that_an_abort_gave_up_bumps_the_epoch(level: int) -> None:
    """The connection breaks while the abort waits: the batch may be in the broker's hands."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.faults.append(times(1, Delay(0.5, Close())))
            await p.begin_transaction()
            delivery = p.send_nowait("orders", b"a")
            await asyncio.sleep(0.1)
            await p.abort_transaction()
            error = delivery.exception()
            assert isinstance(error, TransactionAborted)
            assert error.may_have_been_written
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.values("orders") == [b"b"]
        assert kafka.attempts[-1].header.producer_epoch == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", V1)
def test_an_abort_of_unsent_records_needs_no_epoch(level: int) -> None:
    """Nothing was sent, so nothing can arrive late."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=100) as p:
            await p.begin_transaction()
            await p.send("orders", b"a")
            p.send_nowait("orders", b"b")
            await p.abort_transaction()
            async with p.transaction():
                await p.send("orders", b"c")
        assert kafka.committed("orders") == [b"c"]
        assert epochs(kafka) == [0, 0]

    simulate(body, level=level)


def test_a_level_that_rises_counts_from_the_next_transaction() -> None:
    """The open transaction ends by version 1; the first one of version 2 has a new epoch."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction():
                await p.send("orders", b"a")
            await p.begin_transaction()
            await p.send("orders", b"b", partition=0)
            kafka.set_level(2)
            for connection in world.network.connections():
                connection.cut()
            await p.send("orders", b"b", partition=1)
            await p.commit_transaction()
            async with p.transaction():
                await p.send("orders", b"c", partition=0)
        assert kafka.committed("orders").count(b"b") == 2
        assert [seen.version for seen in kafka.seen(wire.EndTxnRequest)][-2:] == [4, 5]
        last = kafka.attempts[-1]
        assert last.version >= 12
        assert last.header.producer_epoch == 1

    simulate(body, level=1, topics=2)


def test_a_level_that_falls_counts_from_the_next_transaction() -> None:
    """An administrator turns version 2 off: the producer adds partitions again."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction():
                await p.send("orders", b"a")
            kafka.set_level(1)
            for connection in world.network.connections():
                connection.cut()
            await asyncio.sleep(1)
            await p.partitions_for("orders")
            await asyncio.sleep(1)
            async with p.transaction():
                pass
            for _ in range(2):
                async with p.transaction():
                    await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b", b"b"]
        assert [seen.version for seen in kafka.seen(wire.EndTxnRequest)] == [5, 4, 4]
        assert epochs(kafka) == [0, 1, 1]

    simulate(body, level=2)


def test_without_a_new_epoch_an_old_broker_ends_the_producer() -> None:
    """Before Kafka 2.5 a fenced producer that asks for an epoch would fence its successor."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka[1].versions[wire.InitProducerIdRequest.API_KEY] = (0, 2)
        async with producer(world, kafka) as p:
            kafka.lost(wire.EndTxnRequest)
            async with p.transaction() as txn:
                await p.send("orders", b"a")
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            with pytest.raises(UnsupportedVersion, match=r"older than 2\.5"):
                await p.begin_transaction()
            with pytest.raises(UnsupportedVersion):
                await p.begin_transaction()

    simulate(body, level=0)


def test_a_refused_epoch_is_asked_for_again() -> None:
    """The permission was missing for a moment: the next begin tries again, as in Java."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.lost(wire.EndTxnRequest)
            async with p.transaction():
                await p.send("orders", b"a")
            kafka.script(wire.InitProducerIdRequest, wire.InitProducerIdResponse(error_code=53))
            with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                await p.begin_transaction()
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b"]

    simulate(body, level=1)


def test_a_second_batch_of_a_new_partition_waits_for_the_addition() -> None:
    """A batch that overtakes AddPartitionsToTxn would be outside of the transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.script(
                wire.AddPartitionsToTxnRequest,
                lambda r, c: Delay(0.5, kafka._add_partitions(r, c)),
                lambda r, c: partitions_answer(r, 51),
            )
            async with p.transaction():
                for n in range(4):
                    p.send_nowait("orders", b"%d" % n, partition=n % 2)
                    await asyncio.sleep(0.2)

            def late(attempt: Attempt) -> bool:
                return attempt.at >= 0.5

            assert all(late(attempt) for attempt in kafka.attempts)
        assert sorted(kafka.committed("orders")) == [b"0", b"1", b"2", b"3"]

    simulate(body, level=1, topics=2)
