"""Commits and aborts whose caller is cancelled, or that nobody answers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aiokq import wire
from aiokq.cluster.targets import CoordinatorKind
from aiokq.core.errors import (
    CommitOutcomeUnknown,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
    WrongLoop,
)
from aiokq.producer.transactions.transaction import TransactionOutcome
from tests.sim.transaction_world import (
    ID,
    Close,
    Delay,
    Silence,
    TransactionalKafka,
    producer,
    simulate,
    times,
)

LEVELS = [1, 2]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("after", [0.0, 0.0005, 0.05, 0.3, 0.5, 0.7])
def test_a_cancelled_end_ends_that_wait_and_goes_on(
    level: int, commits: bool, after: float
) -> None:
    """The records take 0.4 s and EndTxn takes 0.4 s: the cancellation comes at every stage."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        loop = world.loop
        kafka.delays[1] = 0.4
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.script(wire.EndTxnRequest, lambda r, c: Delay(0.4, kafka._end(r, c)))
            txn = await p.begin_transaction()
            p.send_nowait("orders", b"a")
            await asyncio.sleep(0.05)
            began = loop.time()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(after):
                    await (p.commit_transaction() if commits else p.abort_transaction())
            assert loop.time() - began <= after + 0.001, "the wait ends at once"
            async with p.transaction():  # waits for the end
                assert txn.outcome_now is not None
                await p.send("orders", b"b")
            expected = TransactionOutcome.COMMITTED if commits else TransactionOutcome.ABORTED
            assert await txn.outcome() is expected
        assert kafka.committed("orders") == ([b"a", b"b"] if commits else [b"b"])

    simulate(body, level=level)


@pytest.mark.parametrize("open_next", [False, True], ids=["between", "at once"])
def test_the_task_of_the_ends_is_replaced_if_it_was_cancelled(open_next: bool) -> None:
    """One task ends all transactions. A commit that a cancelled task would get does not hang."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            for value in (b"a", b"b"):
                async with p.transaction():
                    p.send_nowait("orders", value)
            [ends] = [task for task in asyncio.all_tasks() if "ends of" in task.get_name()]
            if open_next:
                txn = await p.begin_transaction()
                p.send_nowait("orders", b"lost")
                commit = asyncio.create_task(p.commit_transaction())
                await asyncio.sleep(0)  # the task was woken, and has not run
                ends.cancel()
                with pytest.raises(TransactionAborted):
                    await commit
                assert txn.outcome_now is TransactionOutcome.ABORTED
                return
            ends.cancel()
            await asyncio.sleep(0.01)
            async with p.transaction():
                p.send_nowait("orders", b"c")
        assert kafka.committed("orders") == [b"a", b"b", b"c"]

    simulate(body)


@pytest.mark.parametrize("level", LEVELS)
def test_the_outcome_waits_for_an_end_that_was_cancelled(level: int) -> None:
    """A request handler with a deadline hands the question to someone who has time."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, lambda r, c: Delay(2, kafka._end(r, c)))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1), p.transaction() as txn:
                    await p.send("orders", b"a")
            assert txn.outcome_now is None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await txn.outcome()
            assert await txn.outcome() is TransactionOutcome.COMMITTED

    simulate(body, level=level)


def test_the_outcome_is_asked_for_on_the_loop_of_the_producer() -> None:
    """The wait for a future of another loop would fail with an error of asyncio, or hang."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, Silence())
            txn = await p.begin_transaction()
            await p.send("orders", b"a")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await p.commit_transaction()
            found: list[Any] = []

            def elsewhere() -> None:
                try:
                    found.append(asyncio.run(txn.outcome()))
                except BaseException as error:
                    found.append(error)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            assert isinstance(found[0], WrongLoop)
            assert await txn.outcome() is TransactionOutcome.COMMITTED

    simulate(body)


@pytest.mark.parametrize("level", LEVELS)
def test_a_cancelled_block_is_aborted(level: int) -> None:
    """`asyncio.timeout` around the block: half of the records must not become visible."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5), p.transaction() as txn:
                    await p.send("orders", b"a")
                    await asyncio.sleep(10)
            assert await txn.outcome() is TransactionOutcome.ABORTED
        assert kafka.committed("orders") == []
        assert [committed for committed, _, _ in kafka.ended] == [False]

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("carried_out", [True, False], ids=["done", "not done"])
def test_a_commit_that_nobody_answers_can_be_committed_again(level: int, carried_out: bool) -> None:
    """Whether the broker had carried it out or not, the records become visible once."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000) as p:
            txn = await p.begin_transaction()
            await p.send("orders", b"a")
            if carried_out:
                kafka.lost(wire.EndTxnRequest, 100, Silence())
            else:
                kafka.script(wire.EndTxnRequest, *[Silence()] * 100)
            began = world.loop.time()
            with pytest.raises(CommitOutcomeUnknown, match="commit it again"):
                await p.commit_transaction()
            assert 3.9 < world.loop.time() - began < 4.5
            assert await txn.outcome() is TransactionOutcome.UNKNOWN
            for refused in (
                p.begin_transaction,
                lambda: p.send("orders", b"x"),
                lambda: txn.send_offsets({("in", 0): 1}, "g"),
            ):
                with pytest.raises(CommitOutcomeUnknown):
                    await refused()
            with pytest.raises(CommitOutcomeUnknown, match="commit it again, or close"):
                await p.abort_transaction()  # it may be committed already
            assert await txn.outcome() is TransactionOutcome.UNKNOWN
            kafka[1]._scripts.clear()
            assert p._engine.counters.transactions_ended == {"unknown": 1}
            await p.commit_transaction()
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            async with p.transaction():
                await p.send("orders", b"b")
            assert p._engine.counters.transactions_ended == {"unknown": 1, "committed": 2}
        assert kafka.committed("orders") == [b"a", b"b"]
        assert all(committed for committed, _, _ in kafka.ended)

    simulate(body, level=level)


def test_whoever_waits_for_a_commit_gets_the_unknown_outcome() -> None:
    """The caller, a second caller, the next begin and outcome()."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka, max_block_ms=4000)
        await p.start()
        txn = await p.begin_transaction()
        await p.send("orders", b"a")
        kafka.script(wire.EndTxnRequest, *[Silence()] * 100)
        waits = [
            asyncio.create_task(p.commit_transaction()),
            asyncio.create_task(p.commit_transaction()),
        ]
        await asyncio.sleep(0.1)
        waits.append(asyncio.create_task(p.begin_transaction()))
        outcome = asyncio.create_task(txn.outcome())
        found = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(error) for error in found] == [CommitOutcomeUnknown] * 3
        assert len({id(error) for error in found}) == 3, "each gets its own error"
        assert await outcome is TransactionOutcome.UNKNOWN
        began = world.loop.time()
        await p.close()
        assert world.loop.time() - began < 1
        assert txn.outcome_now is TransactionOutcome.UNKNOWN

    simulate(body)


@pytest.mark.parametrize("level", LEVELS)
def test_closing_while_a_commit_is_not_answered_leaves_the_outcome_unknown(level: int) -> None:
    """The program ends: nobody waits for ever, and nobody is told that it was aborted."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        await p.start()
        txn = await p.begin_transaction()
        await p.send("orders", b"a")
        kafka.script(wire.EndTxnRequest, *[Silence()] * 100)
        commit = asyncio.create_task(p.commit_transaction())
        await asyncio.sleep(0.1)
        await p.close(timeout=0.5)
        with pytest.raises(CommitOutcomeUnknown):
            await commit
        assert await txn.outcome() is TransactionOutcome.UNKNOWN

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_commit_whose_records_cannot_be_delivered_is_an_abort_after_max_block_ms(
    level: int,
) -> None:
    """EndTxn was not sent: the outcome is known, although the records had two minutes left."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000, delivery_timeout_ms=120_000) as p:
            kafka.faults.append(times(1000, 19))
            txn = await p.begin_transaction()
            delivery = p.send_nowait("orders", b"a")
            began = world.loop.time()
            with pytest.raises(TransactionAborted, match="within max_block_ms") as raised:
                await p.commit_transaction()
            assert 3.9 < world.loop.time() - began < 4.1
            assert isinstance(raised.value.__cause__, RequestTimeout)
            assert await txn.outcome() is TransactionOutcome.ABORTED
            kafka.faults.clear()
            async with p.transaction():
                await p.send("orders", b"b")
            assert isinstance(delivery.exception(), TransactionAborted)
        assert kafka.committed("orders") == [b"b"]
        assert [seen.request.committed for seen in kafka.seen(wire.EndTxnRequest)][-1:] == [True]
        assert sum(seen.request.committed for seen in kafka.seen(wire.EndTxnRequest)) == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("waits", ["outcome", "begin", "abort", "close"])
def test_an_abort_goes_on_after_the_commit_has_said_so(level: int, waits: str) -> None:
    """A batch in flight and EndTxn take longer than the commit may."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=2000, linger_ms=0) as p:
            kafka.faults.append(times(1, Delay(2.5, 19)))
            kafka.script(wire.EndTxnRequest, lambda r, c: Delay(1, kafka._end(r, c)))
            txn = await p.begin_transaction()
            p.send_nowait("orders", b"a")
            began = world.loop.time()
            with pytest.raises(TransactionAborted):
                await p.commit_transaction()
            assert 1.9 < world.loop.time() - began < 2.1
            with pytest.raises(KafkaError, match="being aborted"):
                await p.send("orders", b"x")
            if waits == "abort":
                await p.abort_transaction()
                assert 3.4 < world.loop.time() - began < 3.7
            elif waits == "begin":
                async with p.transaction():
                    assert 3.4 < world.loop.time() - began < 3.7
            elif waits == "close":
                await p.close()
                assert 3.4 < world.loop.time() - began < 3.7
            assert await txn.outcome() is TransactionOutcome.ABORTED
        ends = [seen.request.committed for seen in kafka.seen(wire.EndTxnRequest)]
        assert ends[0] is False
        assert len(ends) == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_commit_that_was_never_sent_is_an_abort(level: int) -> None:
    """The coordinator is not found: nothing can have been committed."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000) as p:
            txn = await p.begin_transaction()
            await p.send("orders", b"a")
            p._engine.coordinator_failed(CoordinatorKind.TRANSACTION, ID)
            kafka.script(wire.FindCoordinatorRequest, *[Silence()] * 100)
            began = world.loop.time()
            with pytest.raises(TransactionAborted):
                await p.commit_transaction()
            assert 3.9 < world.loop.time() - began < 4.1
            assert await txn.outcome() is TransactionOutcome.ABORTED
            await asyncio.sleep(10)  # the abort is not answered either
            kafka[1]._scripts.clear()
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]
        assert [committed for committed, _, _ in kafka.ended] == [False, True]

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_offsets_have_one_deadline(level: int) -> None:
    """Below version 2, two requests are sent for them, one after the other."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000) as p:
            kafka.script(
                wire.AddOffsetsToTxnRequest, lambda r, c: Delay(2.5, kafka._add_offsets(r, c))
            )
            kafka.script(wire.TxnOffsetCommitRequest, *[Silence()] * 100)
            txn = await p.begin_transaction()
            began = world.loop.time()
            with pytest.raises(TransactionAborted) as raised:
                await txn.send_offsets({("in", 0): 1}, "g")
            assert isinstance(raised.value.__cause__, RequestTimeout)
            assert 3.9 < world.loop.time() - began < 4.1
            kafka[1]._scripts.clear()
            await p.abort_transaction()

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_an_abort_that_nobody_answered_is_repeated_by_the_next_begin(level: int) -> None:
    """A loop of `async with producer.transaction()` recovers without a call of its own."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000) as p:
            kafka.script(wire.EndTxnRequest, *[Silence()] * 2)
            with pytest.raises(ZeroDivisionError) as raised:
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
                    raise ZeroDivisionError
            assert "could not be aborted" in raised.value.__notes__[0]
            assert await txn.outcome() is TransactionOutcome.ABORTED
            with pytest.raises(TransactionAborted, match="not aborted yet"):
                await p.send("orders", b"x")
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_an_abort_can_be_called_again_after_its_timeout(level: int) -> None:
    """The first call says that nobody answered."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=4000) as p:
            kafka.script(wire.EndTxnRequest, *[Silence()] * 100)
            await p.begin_transaction()
            await p.send("orders", b"a")
            with pytest.raises(RequestTimeout):
                await p.abort_transaction()
            with pytest.raises(RequestTimeout):
                await p.begin_transaction()
            with pytest.raises(TransactionAborted, match="abort it again"):
                await p.commit_transaction()
            kafka[1]._scripts.clear()
            await p.abort_transaction()
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]

    simulate(body, level=level)


def test_a_commit_that_is_fenced_after_a_lost_answer_is_unknown() -> None:
    """The first attempt may have committed before another producer was started."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, Close(), wire.EndTxnResponse(error_code=90))
            with pytest.raises(CommitOutcomeUnknown):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
            assert await txn.outcome() is TransactionOutcome.UNKNOWN
            with pytest.raises(ProducerFenced):
                await p.begin_transaction()

    simulate(body)


@pytest.mark.parametrize("code", [-1, 7, 14, 15, 16])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("carried_out", [True, False])
def test_a_commit_that_may_be_in_the_log_is_never_called_aborted(
    code: int, level: int, carried_out: bool
) -> None:
    """The coordinator appended the commit, but could not wait for its replicas, or moved. Then
    another producer is started.
    """

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        def uncertain(request: Any, call: Any) -> Any:
            if carried_out:
                kafka._end(request, call)
            return wire.EndTxnResponse(error_code=code)

        async with producer(world, kafka) as p:
            kafka.script(wire.EndTxnRequest, uncertain, wire.EndTxnResponse(error_code=90))
            with pytest.raises(CommitOutcomeUnknown):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
            assert await txn.outcome() is TransactionOutcome.UNKNOWN
            with pytest.raises(KafkaError):
                await p.begin_transaction()

    simulate(body, level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_cancelled_offsets_can_only_be_aborted(level: int) -> None:
    """Whether they count is not known to the program, so they must not be committed."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.script(
                wire.TxnOffsetCommitRequest, lambda r, c: Delay(1, kafka._commit_offsets(r, c))
            )
            with pytest.raises(TransactionAborted, match="was cancelled"):
                async with p.transaction() as txn:
                    await p.send("orders", b"a")
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.5):
                            await txn.send_offsets({("in", 0): 5}, "g")
                    with pytest.raises(TransactionAborted):
                        await p.send("orders", b"b")
            async with p.transaction() as txn:
                await txn.send_offsets({("in", 0): 6}, "g")
        assert kafka.offsets == {("g", "in", 0): 6}
        assert kafka.committed("orders") == []

    simulate(body, level=level)


@pytest.mark.parametrize("level", [0, 1])
def test_a_cancelled_begin_leaves_no_transaction(level: int) -> None:
    """The begin waits for an epoch after a lost EndTxn; the next begin asks again."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            kafka.lost(wire.EndTxnRequest)
            async with p.transaction():
                await p.send("orders", b"a")
            kafka.lost(wire.InitProducerIdRequest, 1, Silence())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await p.begin_transaction()
            begins = await asyncio.gather(
                p.begin_transaction(), p.begin_transaction(), return_exceptions=True
            )
            assert sum(isinstance(begun, KafkaError) for begun in begins) == 1
            await p.send("orders", b"b")
            await p.commit_transaction()
        assert kafka.committed("orders") == [b"a", b"b"]

    simulate(body, level=level)
