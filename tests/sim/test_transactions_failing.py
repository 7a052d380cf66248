"""Transactions that fail: records, requests and the body of the block."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.cluster.targets import CoordinatorKind
from aiokq.core.errors import (
    BrokerError,
    Closed,
    CommitOutcomeUnknown,
    KafkaError,
    ProducerFenced,
    TransactionAborted,
    error_for,
)
from aiokq.producer.transactions.phases import MOVES, Phase
from aiokq.producer.transactions.transaction import TransactionOutcome, forbid_commit
from aiokq.producer.transactions.transaction_state import TransactionState
from tests.sim.group_world import until
from tests.sim.transaction_world import (
    ID,
    Close,
    Delay,
    Silence,
    TransactionalKafka,
    offsets_answer,
    partitions_answer,
    producer,
    simulate,
    times,
)

LEVELS = [1, 2]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("observed", [True, False])
def test_a_failed_record_fails_the_commit_observed_or_not(level: int, observed: bool) -> None:
    """A program that ignores the delivery of one record would commit without it."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.faults.append(times(1, 87))
            with pytest.raises(TransactionAborted, match="INVALID_RECORD") as raised:
                async with p.transaction() as txn:
                    delivery = p.send_nowait("orders", b"a", partition=0)
                    if observed:
                        with pytest.raises(BrokerError):
                            await delivery
                        with pytest.raises(TransactionAborted, match="abort it"):
                            await p.send("orders", b"b")
                        with pytest.raises(TransactionAborted):
                            await txn.send_offsets({("in", 0): 1}, "g")
                    else:
                        p.send_nowait("orders", b"b", partition=1)
            assert isinstance(raised.value.__cause__, BrokerError)
            assert await txn.outcome() is TransactionOutcome.ABORTED
            await p.flush()  # the commit has reported the failure
            async with p.transaction():
                await p.send("orders", b"c")
        assert kafka.committed("orders") == [b"c"]

    simulate(body, level=level, topics=2)


@pytest.mark.parametrize("level", LEVELS)
def test_records_behind_a_failed_one_fail_before_the_abort(level: int) -> None:
    """Whoever awaits them need not wait until the program leaves the block."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=200) as p:
            kafka.faults.append(times(1, 87))
            await p.begin_transaction()
            first = p.send_nowait("orders", b"a", partition=0)
            await asyncio.sleep(0.19)
            second = p.send_nowait("orders", b"b", partition=1)
            unknown = p.send_nowait("new", b"c")
            with pytest.raises(BrokerError):
                await first
            began = world.loop.time()
            for delivery in (second, unknown):
                with pytest.raises(TransactionAborted):
                    await delivery
            assert world.loop.time() - began < 0.01
            await p.abort_transaction()

    simulate(body, level=level, topics=2)


@pytest.mark.parametrize("level", LEVELS)
def test_the_error_of_the_body_wins_over_that_of_the_abort(level: int) -> None:
    """The abort's error is a note, because the program asks for the first cause."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=90))
            with pytest.raises(ZeroDivisionError) as raised:
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
                    raise ZeroDivisionError
            (note,) = raised.value.__notes__
            assert "could not be aborted" in note
            assert "PRODUCER_FENCED" in note
            assert await txn.outcome() is TransactionOutcome.ABORTED
            for call in (p.begin_transaction, p.commit_transaction, p.abort_transaction):
                with pytest.raises(ProducerFenced, match="create a new producer"):
                    await call()

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_an_abort_waits_for_the_batches_in_flight(level: int) -> None:
    """A batch that arrives behind the marker would hang, or belong to the next transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.delays[1] = 1.0
            await p.begin_transaction()
            delivery = p.send_nowait("orders", b"a")
            await asyncio.sleep(0.5)
            await p.abort_transaction()
            assert delivery.offset == 0, "it was appended, and is aborted"
        assert kafka.values("orders") == [b"a"]
        assert kafka.committed("orders") == []
        assert [committed for committed, _, _ in kafka.ended] == [False]

    simulate(body, level=level)


@pytest.mark.parametrize("code", [19, 6, 7])
def test_an_abort_does_not_wait_for_retries(code: int) -> None:
    """A batch whose broker says "later" is not sent again once the transaction is aborted."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0, retry_backoff_ms=5000) as p:
            kafka.faults.append(times(100, Delay(0.2, Close()), when=lambda a: code == 6))
            kafka.faults.append(times(100, code))
            await p.begin_transaction()
            delivery = p.send_nowait("orders", b"a")
            await asyncio.sleep(0.1)
            began = world.loop.time()
            await p.abort_transaction()
            assert world.loop.time() - began < 1
            assert isinstance(delivery.exception(), TransactionAborted)

    simulate(body)


def test_an_abort_is_sent_although_no_batch_was_acknowledged() -> None:
    """The batch may be in the log, where readers of committed records would wait behind it."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0, delivery_timeout_ms=3100) as p:
            kafka.after_append.append(times(9, Silence()))
            with pytest.raises(TransactionAborted):
                async with p.transaction():
                    p.send_nowait("orders", b"a")
        assert kafka.values("orders") == [b"a"]
        assert [committed for committed, _, _ in kafka.ended] == [False]

    simulate(body)


@pytest.mark.parametrize("code", [15, 16, 14, 51])
@pytest.mark.parametrize("level", LEVELS)
def test_requests_are_repeated_when_the_coordinator_moves_or_loads(level: int, code: int) -> None:
    """Each request meets the error once."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.script(wire.InitProducerIdRequest, wire.InitProducerIdResponse(error_code=code))
        kafka.script(wire.AddPartitionsToTxnRequest, lambda r, c: partitions_answer(r, code))
        kafka.script(wire.AddOffsetsToTxnRequest, wire.AddOffsetsToTxnResponse(error_code=code))
        kafka.script(wire.TxnOffsetCommitRequest, lambda r, c: offsets_answer(r, code))
        kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=code))
        async with producer(world, kafka) as p, p.transaction() as txn:
            await p.send("orders", b"a")
            await txn.send_offsets({("in", 0): 1}, "g")
        assert kafka.committed("orders") == [b"a"]
        assert kafka.offsets == {("g", "in", 0): 1}
        assert kafka[1].scripted(wire.EndTxnRequest) == 0

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_lost_answers_of_each_request_are_asked_for_again(level: int) -> None:
    """Each request is carried out, and its answer lost with the connection."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            for api in (
                wire.AddPartitionsToTxnRequest,
                wire.AddOffsetsToTxnRequest,
                wire.TxnOffsetCommitRequest,
                wire.EndTxnRequest,
            ):
                kafka.lost(api)
            async with p.transaction() as txn:
                await p.send("orders", b"a")
                await txn.send_offsets({("in", 0): 1}, "g")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b"]
        assert kafka.offsets == {("g", "in", 0): 1}

    simulate(body, level=level)


@pytest.mark.parametrize("code", [22, 25, 82, 30])
@pytest.mark.parametrize("level", LEVELS)
def test_offsets_that_the_group_refuses_end_the_transaction_only(level: int, code: int) -> None:
    """The member was expelled: its transaction is aborted, and the producer goes on."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.TxnOffsetCommitRequest, lambda r, c: offsets_answer(r, code))
            with pytest.raises(TransactionAborted) as raised:
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
                    await txn.send_offsets({("in", 0): 1}, "g")
            assert getattr(raised.value.__cause__, "code", 0) == code
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]
        assert kafka.offsets == {}

    simulate(body, level=level)


def test_a_refusal_of_one_partition_is_not_hidden_by_the_retry_of_another() -> None:
    """The offsets of two partitions: one "later", one "never"."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        def mixed(request: Any, call: Any) -> Any:
            answer: Any = offsets_answer(request, 14)
            answer.topics[0].partitions[1].error_code = 25
            return answer

        async with producer(world, kafka) as p:
            kafka.script(wire.TxnOffsetCommitRequest, *[mixed] * 100)
            began = world.loop.time()
            with pytest.raises(TransactionAborted, match="UNKNOWN_MEMBER_ID"):
                async with p.transaction() as txn:
                    await txn.send_offsets({("in", 0): 1, ("in", 1): 1}, "g")
            assert world.loop.time() - began < 1

    simulate(body)


def test_an_abortable_answer_to_the_commit_aborts_and_goes_on() -> None:
    """TRANSACTION_ABORTABLE (KIP-890): the producer stays usable."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=120))
            with pytest.raises(TransactionAborted, match="TRANSACTION_ABORTABLE"):
                async with p.transaction():
                    await p.send("orders", b"a")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]

    simulate(body)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("code", [59, 120])
def test_an_abortable_answer_to_the_abort_ends_the_producer(code: int, level: int) -> None:
    """It would be aborted again and again.

    After TRANSACTION_ABORTABLE, Java's producer is in its state FATAL_ERROR. After
    UNKNOWN_PRODUCER_ID it stays in ABORTING_TRANSACTION, where it refuses every call but close().
    """

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=code))
            await p.begin_transaction()
            await p.send("orders", b"a")
            with pytest.raises(BrokerError, match=error_for(code).name) as raised:
                await p.abort_transaction()
            assert "create a new producer" in raised.value.__notes__[0]
            for call in (p.begin_transaction, p.abort_transaction, p.commit_transaction):
                with pytest.raises(BrokerError) as refused:
                    await call()
                assert "create a new producer" in refused.value.__notes__[0]
        async with producer(world, kafka) as p, p.transaction():
            await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]

    simulate(body)


def test_an_abortable_answer_after_a_lost_commit_is_unknown() -> None:
    """The lost EndTxn may have committed before; the abort is then refused."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.lost(wire.EndTxnRequest)
            kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=120))
            with pytest.raises(CommitOutcomeUnknown):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
            assert await txn.outcome() is TransactionOutcome.UNKNOWN
        assert kafka.committed("orders") == [b"a"]

    simulate(body)


@pytest.mark.parametrize("code", [45, 59, 47])
@pytest.mark.parametrize("level", LEVELS)
def test_a_disputed_sequence_aborts_instead_of_a_new_epoch(level: int, code: int) -> None:
    """Only the coordinator gives a transactional producer an epoch."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.faults.append(times(1, code))
            with pytest.raises(TransactionAborted):
                async with p.transaction():
                    p.send_nowait("orders", b"a")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]
        epochs = [a.header.producer_epoch for a in kafka.attempts]
        assert epochs == [0, 1]

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_topic_that_is_created_again_keeps_the_numbers_of_the_epoch(level: int) -> None:
    """A new epoch would be refused by the coordinator; a new log takes any first number."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0, metadata_max_age_ms=200) as p:
            await p.begin_transaction()
            await p.send("orders", b"a")
            kafka.logs.clear()
            kafka.topic("orders", [1])
            await asyncio.sleep(1)
            await p.send("orders", b"b")
            await p.commit_transaction()
        assert kafka.committed("orders") == [b"b"]
        assert {a.header.producer_epoch for a in kafka.attempts} == {0}

    simulate(body, level=level)


def test_a_start_that_is_refused_closes_the_producer_and_frees_the_id() -> None:
    """The program corrects the timeout and starts another producer on the same Cluster."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.script(wire.InitProducerIdRequest, wire.InitProducerIdResponse(error_code=50))
        p = producer(world, kafka)
        with pytest.raises(BrokerError, match="INVALID_TRANSACTION_TIMEOUT") as refused:
            await p.start()
        assert "Lower transaction_timeout_ms" in "".join(refused.value.__notes__)
        with pytest.raises(KafkaError, match="closed"):
            await p.start()

    simulate(body)


def test_each_phase_can_be_left_or_is_the_last() -> None:
    """A phase without a way out would make the producer hang."""
    assert set(MOVES) == set(Phase)
    reached = {to for moves in MOVES.values() for to in moves}
    assert reached == set(Phase) - {Phase.NEW}
    assert [phase for phase in Phase if not MOVES[phase]] == [Phase.FINISHED]
    assert all(Phase.FINISHED in MOVES[phase] for phase in Phase if phase is not Phase.FINISHED)
    state = TransactionState.__new__(TransactionState)
    state.phase = Phase.NEW
    with pytest.raises(AssertionError, match="NEW to OPEN"):
        state.move(Phase.OPEN)


def test_offsets_whose_task_cannot_be_started_do_not_hold_the_end_up() -> None:
    """The end of the transaction would wait for them until max_block_ms."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            transactions = p._delivery.transactions
            assert transactions is not None
            spawn = transactions._offsets._spawn

            def refused(coro: Any, name: str) -> Any:
                coro.close()
                raise Closed("the supervisor is closed")

            with pytest.raises(Closed):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
                    transactions._offsets._spawn = refused
                    try:
                        await txn.send_offsets({("in", 0): 1}, "g")
                    finally:
                        transactions._offsets._spawn = spawn
            assert await txn.outcome() is TransactionOutcome.ABORTED
            assert asyncio.get_running_loop().time() < 1

    simulate(body)


def test_a_bug_while_records_are_delivered_does_not_commit() -> None:
    """The transaction would be committed without the records that the bug left behind."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        await p.start()
        transactions = p._delivery.transactions
        assert transactions is not None

        async def broken(deadline: float) -> bool:
            raise LookupError("a bug")

        txn = await p.begin_transaction()
        p.send_nowait("orders", b"a")
        transactions._state.progress = broken  # type: ignore[method-assign]
        with pytest.raises(TransactionAborted, match="a bug"):
            await p.commit_transaction()
        assert await txn.outcome() is TransactionOutcome.ABORTED
        assert not kafka.seen(wire.EndTxnRequest)
        await p.close()

    simulate(body)


def test_a_bug_in_an_abort_leaves_no_doubt_about_the_outcome() -> None:
    """Nobody commits the transaction: CommitOutcomeUnknown would send the program to look."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        await p.start()
        transactions = p._delivery.transactions
        assert transactions is not None

        async def broken() -> None:
            raise LookupError("a bug")

        txn = await p.begin_transaction()
        p.send_nowait("orders", b"a")
        transactions._state.delivery.answered = broken  # type: ignore[method-assign]
        with pytest.raises(TransactionAborted, match="a bug") as raised:
            await p.abort_transaction()
        assert isinstance(raised.value.__cause__, Closed)
        assert isinstance(raised.value.__cause__.__cause__, LookupError)
        assert await txn.outcome() is TransactionOutcome.ABORTED
        await p.close()

    simulate(body)


def test_a_bug_while_offsets_are_sent_is_the_cause_of_the_error() -> None:
    """The program heard only that the producer was closed."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        await p.start()
        transactions = p._delivery.transactions
        assert transactions is not None

        async def broken(*args: Any, **options: Any) -> None:
            raise LookupError("a bug")

        txn = await p.begin_transaction()
        transactions._offsets._requests.commit_offsets = broken  # type: ignore[method-assign]
        with pytest.raises(Closed, match="a bug") as raised:
            await txn.send_offsets({("in", 0): 1}, "g")
        assert isinstance(raised.value.__cause__, LookupError)
        await p.close()

    simulate(body)


@pytest.mark.parametrize("waits_for", ["delivery", "coordinator"])
def test_a_commit_that_is_forbidden_before_it_is_sent_is_an_abort(waits_for: str) -> None:
    """process() forbids it when partitions are lost: their next owner may be at work already."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction() as txn:
                await p.send("orders", b"a")
            txn = await p.begin_transaction()
            if waits_for == "delivery":
                kafka.faults.append(times(1, 19))
            else:
                p._engine.coordinator_failed(CoordinatorKind.TRANSACTION, ID)
                missing = wire.find_coordinator.Coordinator(key=ID, error_code=15)
                kafka.script(
                    wire.FindCoordinatorRequest,
                    *[wire.FindCoordinatorResponse(coordinators=[missing])] * 3,
                )
            p.send_nowait("orders", b"b")
            committing = asyncio.create_task(p.commit_transaction())
            await asyncio.sleep(0.05)
            forbid_commit(txn, KafkaError("partitions were lost"))
            with pytest.raises(TransactionAborted, match="partitions were lost"):
                await committing
            assert await txn.outcome() is TransactionOutcome.ABORTED
            async with p.transaction():
                await p.send("orders", b"c")
        assert kafka.committed("orders") == [b"a", b"c"]
        ends = [seen.request.committed for seen in kafka.seen(wire.EndTxnRequest)]
        assert ends == [True, False, True]

    simulate(body)


def test_a_commit_that_was_sent_is_not_forbidden_any_more() -> None:
    """Its answer is lost, and it is carried out: only a repetition can tell."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            txn = await p.begin_transaction()
            await p.send("orders", b"a")
            kafka.lost(wire.EndTxnRequest)
            committing = asyncio.create_task(p.commit_transaction())
            await until(lambda: kafka.seen(wire.EndTxnRequest))
            forbid_commit(txn, KafkaError("partitions were lost"))
            await committing
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"a", b"b"]

    simulate(body)


def test_the_records_of_a_finished_producer_are_reported_once() -> None:
    """Its transaction says why it ended: closing the producer does not report them again."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.faults.append(times(1, Delay(0.5, Close())))
            kafka.script(
                wire.TxnOffsetCommitRequest, lambda request, call: offsets_answer(request, 90)
            )
            with pytest.raises(ProducerFenced):
                async with p.transaction() as txn:
                    delivery = p.send_nowait("orders", b"a")
                    await asyncio.sleep(0.1)
                    await txn.send_offsets({("in", 0): 1}, "g")
            assert await txn.outcome() is TransactionOutcome.ABORTED
            assert delivery.done()
            with pytest.raises(ProducerFenced):
                await p.begin_transaction()

    simulate(body)
