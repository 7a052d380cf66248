"""Transactions of a producer: what is accepted when, and what becomes visible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.core.errors import (
    Closed,
    ConfigError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
)
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.errors import IllegalGeneration
from aiokq.producer.interceptors import Interceptor
from aiokq.producer.producer import send_accepted
from aiokq.producer.transactions.transaction import (
    Transaction,
    TransactionOutcome,
    commit_with_offsets,
)
from tests.sim.transaction_world import (
    CLIENT,
    Answer,
    Close,
    Delay,
    Silence,
    TransactionalKafka,
    offsets_answer,
    producer,
    simulate,
    times,
)

TP = TopicPartition("in", 0)
VERSIONS = [0, 1, 2]


@pytest.mark.parametrize("level", VERSIONS)
def test_committed_records_become_visible_and_aborted_ones_do_not(level: int) -> None:
    """The records of an exception's block would otherwise be read as if nothing had happened."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction() as txn:
                await p.send("orders", b"a", partition=0)
                await p.send("orders", b"b", partition=1)
                assert kafka.committed("orders") == []
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            assert kafka.committed("orders") == [b"a", b"b"]
            with pytest.raises(ZeroDivisionError):
                async with p.transaction() as txn:
                    await p.send("orders", b"c", partition=0)
                    raise ZeroDivisionError
            assert await txn.outcome() is TransactionOutcome.ABORTED
            async with p.transaction():
                await p.send("orders", b"d", partition=0)
            assert p._engine.counters.transactions_ended == {"committed": 2, "aborted": 1}
        assert kafka.committed("orders") == [b"a", b"d", b"b"]
        assert [committed for committed, _, _ in kafka.ended] == [True, False, True]

    simulate(body, level=level, topics=2)


def test_begin_commit_and_abort_can_be_called_apart() -> None:
    """A framework with callbacks has no block to put the transaction into."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            txn = await p.begin_transaction()
            with pytest.raises(ConfigError, match="commit or abort it first"):
                await txn.outcome()
            delivery = p.send_nowait("orders", b"a")
            await p.commit_transaction()
            assert delivery.done()
            assert await txn.outcome() is TransactionOutcome.COMMITTED
            await p.begin_transaction()
            await p.send("orders", b"b")
            await p.abort_transaction()
            with pytest.raises(ConfigError, match="no open transaction"):
                await p.abort_transaction()
            with pytest.raises(ConfigError, match="no open transaction"):
                await p.commit_transaction()
        assert kafka.committed("orders") == [b"a"]

    simulate(body)


def test_a_block_may_end_its_transaction_itself() -> None:
    """A loop decides inside of the block that there is nothing to commit."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction() as txn:
                await p.send("orders", b"a")
                await p.abort_transaction()
            assert await txn.outcome() is TransactionOutcome.ABORTED
            with pytest.raises(ZeroDivisionError) as raised:
                async with p.transaction() as txn:
                    await p.send("orders", b"b")
                    await p.commit_transaction()
                    raise ZeroDivisionError
            assert not hasattr(raised.value, "__notes__")
            assert await txn.outcome() is TransactionOutcome.COMMITTED

    simulate(body)


@pytest.mark.parametrize("hooks", [False, True], ids=["plain", "with hooks"])
def test_records_are_refused_outside_of_a_transaction(hooks: bool) -> None:
    """Each way to send: also a method that was kept from the last transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kept: Any = None
        seen = []

        class Watch(Interceptor):
            def on_enqueue(self, record: Any) -> Any:
                seen.append(record.value)
                return record

        settings: Any = {"interceptors": [Watch()]} if hooks else {}
        async with producer(world, kafka, **settings) as p:
            for phase in ("before", "after"):
                full = p.create_batch()
                full.append(b"x")
                ways = [
                    lambda: p.send("orders", b"x"),
                    lambda: p.enqueue("orders", b"x"),
                    lambda: p.send_many("orders", [(None, b"x")]),
                    lambda full=full: p.send_batch(full, "orders", partition=0),
                ]
                for way in ways:
                    with pytest.raises(ConfigError, match="no transaction is open"):
                        await way()
                with pytest.raises(ConfigError, match="no transaction is open"):
                    p.send_nowait("orders", b"x")
                if phase == "before":
                    async with p.transaction():
                        kept = p.send_nowait
                        kept("orders", b"a")
                else:
                    with pytest.raises(ConfigError, match="no transaction is open"):
                        kept("orders", b"x")
            async with p.transaction():
                pass
        assert kafka.values("orders") == [b"a"]
        assert seen == ([b"a"] if hooks else [])

    simulate(body)


def test_records_are_refused_while_the_transaction_is_committed() -> None:
    """A task that goes on sending would put its record into the next transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=50) as p:
            await p.begin_transaction()
            delivery = p.send_nowait("orders", b"a")
            commit = asyncio.create_task(p.commit_transaction())
            await asyncio.sleep(0)
            with pytest.raises(ConfigError, match="is being committed"):
                p.send_nowait("orders", b"late")
            with pytest.raises(ConfigError, match="is being committed"):
                await p.send("orders", b"late")
            with pytest.raises(ConfigError, match="is being committed"):
                await p.abort_transaction()
            assert not commit.done()
            await p.commit_transaction()  # a second caller waits for the same commit
            await commit
            assert delivery.offset == 0
        assert kafka.committed("orders") == [b"a"]

    simulate(body)


def test_transactions_are_not_nested() -> None:
    """The inner commit would commit the half of the outer transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction() as txn:
                await p.send("orders", b"a")
                with pytest.raises(ConfigError, match="cannot be nested"):
                    async with p.transaction():
                        pass
                with pytest.raises(ConfigError, match="cannot be nested"):
                    await p.begin_transaction()
                await p.send("orders", b"b")
            with pytest.raises(ConfigError, match="begins once"):
                async with txn:
                    pass
        assert kafka.committed("orders") == [b"a", b"b"]

    simulate(body)


@pytest.mark.parametrize("level", VERSIONS)
def test_an_empty_transaction_sends_nothing(level: int) -> None:
    """A consumer loop that found nothing must not cost a round trip."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction():
                pass
            await p.begin_transaction()
            await p.abort_transaction()
            async with p.transaction() as txn:
                await txn.send_offsets({}, "group")
        assert kafka.seen(wire.EndTxnRequest) == []
        assert len(kafka.seen(wire.InitProducerIdRequest)) == 1

    simulate(body, level=level)


@pytest.mark.parametrize("level", VERSIONS)
def test_offsets_are_committed_with_the_transaction(level: int) -> None:
    """Otherwise the input would be processed again, or lost, when the program restarts."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            async with p.transaction() as txn:
                await txn.send_offsets({("in", 0): 5, ("in", 1): 7}, "billing")
                assert kafka.offsets == {}
            with pytest.raises(ZeroDivisionError):
                async with p.transaction() as txn:
                    await txn.send_offsets({("in", 0): 6}, "billing")
                    raise ZeroDivisionError
            with pytest.raises(TypeError, match="group_metadata"):
                async with p.transaction() as txn:
                    await txn.send_offsets({("in", 0): 6})
        assert kafka.offsets == {("billing", "in", 0): 5, ("billing", "in", 1): 7}
        versions = {seen.version for seen in kafka.seen(wire.TxnOffsetCommitRequest)}
        assert (max(versions) >= 5) is (level >= 2)
        assert bool(kafka.seen(wire.AddOffsetsToTxnRequest)) is (level < 2)

    simulate(body, level=level)


@pytest.mark.parametrize("level", VERSIONS)
def test_offsets_are_sent_after_the_records_before_them(level: int) -> None:
    """Regression: Apache Kafka refused one of two additions at a time, and retries took 100 ms."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async def slowly(request: Any, call: Any) -> Answer:
            answer = await kafka._produce(request, call)
            assert isinstance(answer, wire.ProduceResponse)
            return Delay(0.5, answer)

        async with producer(world, kafka) as p:
            overlaps = level == 2
            for end in (Transaction.send_offsets, *([] if overlaps else [commit_with_offsets])):
                kafka.script(wire.ProduceRequest, slowly)
                txn = await p.begin_transaction()
                p.send_nowait("orders", b"a")
                began = world.loop.time()
                await end(txn, {TP: OffsetAndMetadata(5)}, GroupMetadata("billing"))
                offsets = kafka.seen(wire.TxnOffsetCommitRequest)[-1]
                assert 0.5 <= offsets.at - began < 0.6
                if end is not commit_with_offsets:
                    await p.commit_transaction()
        assert set(kafka.committed("orders")) == {b"a"}

    simulate(body, level=level)


@pytest.mark.parametrize("refused", [None, wire.TxnOffsetCommitRequest, wire.ProduceRequest])
def test_offsets_travel_while_the_records_of_a_commit_are_delivered(refused: Any) -> None:
    """Until a broker refuses one of the two, as Apache Kafka does: then after the records."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async def slowly(request: Any, call: Any) -> Answer:
            answer = await kafka._produce(request, call)
            assert isinstance(answer, wire.ProduceResponse)
            return Delay(0.5, answer)

        async def sent_after(p: Any) -> float:
            kafka.script(wire.ProduceRequest, slowly)
            txn = await p.begin_transaction()
            p.send_nowait("orders", b"a")
            began = world.loop.time()
            await commit_with_offsets(txn, {TP: OffsetAndMetadata(5)}, GroupMetadata("billing"))
            return float(kafka.seen(wire.TxnOffsetCommitRequest)[-1].at) - began

        async with producer(world, kafka, linger_ms=5_000) as p:
            assert await sent_after(p) < 0.1
            if refused is wire.TxnOffsetCommitRequest:
                kafka.script(refused, lambda r, c: offsets_answer(r, 51))
            elif refused is wire.ProduceRequest:
                codes = [51]
                kafka.faults.append(lambda attempt: codes.pop() if codes else None)
            if refused is not None:
                await sent_after(p)
            for _ in range(2):
                seconds = await sent_after(p)
                assert seconds < 0.1 if refused is None else 0.5 <= seconds < 0.6
        assert kafka.committed("orders") == [b"a"] * (3 if refused is None else 4)

    simulate(body, level=2)


@pytest.mark.parametrize("level", VERSIONS)
def test_offsets_are_not_sent_if_the_records_before_them_fail(level: int) -> None:
    """The transaction can only be aborted; the call gets the error of the abort."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, max_block_ms=3000) as p:
            kafka.script(wire.ProduceRequest, *[Silence()] * 100)
            txn = await p.begin_transaction()
            p.send_nowait("orders", b"a")
            began = world.loop.time()
            with pytest.raises(TransactionAborted) as raised:
                await txn.send_offsets({TP: 5}, "billing")
            assert isinstance(raised.value.__cause__, RequestTimeout)
            assert 2.9 < world.loop.time() - began < 3.1
            kafka[1]._scripts.clear()
            await p.abort_transaction()
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.seen(wire.TxnOffsetCommitRequest) == []
        assert kafka.offsets == {}
        assert kafka.committed("orders") == [b"b"]

    simulate(body, level=level)


def test_offsets_do_not_wait_for_the_linger_time() -> None:
    """The records before them are sent at once; those after them linger as usual."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=60_000) as p, p.transaction() as txn:
            p.send_nowait("orders", b"a")
            await txn.send_offsets({TP: 5}, "billing")
            assert world.loop.time() < 1
            p.send_nowait("orders", b"b")
            await asyncio.sleep(5)
            assert len(kafka.seen(wire.ProduceRequest)) == 1
        assert kafka.committed("orders") == [b"a", b"b"]

    simulate(body)


def test_accepted_records_can_be_sent_without_lingering() -> None:
    """As process() does before it prepares a commit; records after the call linger as usual."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=60_000) as p:
            async with p.transaction():  # connects
                p.send_nowait("orders", b"a")
            await p.begin_transaction()
            p.send_nowait("orders", b"b")
            send_accepted(p)
            p.send_nowait("orders", b"c")
            await asyncio.sleep(5)
            assert len(kafka.seen(wire.ProduceRequest)) == 2
            await p.commit_transaction()
        assert kafka.committed("orders") == [b"a", b"b", b"c"]

    simulate(body)


def test_one_producer_per_transactional_id_and_cluster() -> None:
    """The second would fence the first, whose error would name the wrong cause."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with Cluster(
            kafka.bootstrap_servers, _environment=world.environment(CLIENT)
        ) as cluster:
            async with cluster.producer(transactional_id="a") as first:
                with pytest.raises(ConfigError, match="has an open producer"):
                    async with cluster.producer(transactional_id="a"):
                        pass
                other = cluster.producer(transactional_id="b")
                async with other, first.transaction(), other.transaction():
                    await first.send("orders", b"first")
                    await other.send("orders", b"other")
            async with cluster.producer(transactional_id="a") as again, again.transaction():
                await again.send("orders", b"again")
        assert kafka.committed("orders") == [b"first", b"other", b"again"]

    simulate(body)


def test_the_methods_of_transactions_need_a_transactional_producer() -> None:
    """An ordinary producer names the setting."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        with pytest.raises(Closed, match="not started"):
            await p.begin_transaction()
        with pytest.raises(Closed, match="not started"):
            async with p.transaction():
                pass
        async with producer(world, kafka, transactional_id=None) as plain:
            with pytest.raises(ConfigError, match="transactional_id="):
                plain.transaction()
            with pytest.raises(ConfigError, match="transactional_id="):
                await plain.commit_transaction()

    simulate(body)


@pytest.mark.parametrize("level", VERSIONS)
def test_closing_the_producer_aborts_an_open_transaction(level: int) -> None:
    """Readers of committed records need not wait for the timeout of the transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka, linger_ms=1000)
        await p.start()
        txn = await p.begin_transaction()
        await p.send("orders", b"a")
        unsent = p.send_nowait("orders", b"b")
        await p.close()
        assert isinstance(unsent.exception(), TransactionAborted)
        assert await txn.outcome() is TransactionOutcome.ABORTED
        assert [committed for committed, _, _ in kafka.ended] == [False]
        with pytest.raises(Closed):
            await p.begin_transaction()
        with pytest.raises(Closed):
            await p.commit_transaction()

    simulate(body, level=level)


def test_a_block_whose_producer_was_closed_does_not_end_as_if_it_were_committed() -> None:
    """Its records are not in any log that a reader trusts."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        p = producer(world, kafka)
        await p.start()
        with pytest.raises(TransactionAborted, match="the producer was closed"):
            async with p.transaction():
                await p.send("orders", b"a")
                await p.close()
        assert kafka.committed("orders") == []

    simulate(body)


def test_a_newer_producer_fences_the_older_one() -> None:
    """The older one may be a zombie: nothing of it becomes visible from then on."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as old:
            with pytest.raises(ProducerFenced, match="create a new producer"):
                async with old.transaction() as txn:
                    await old.send("orders", b"old")
                    async with producer(world, kafka) as new, new.transaction():
                        await new.send("orders", b"new")
            assert await txn.outcome() is TransactionOutcome.ABORTED
            with pytest.raises(ProducerFenced):
                await old.begin_transaction()
            with pytest.raises(ProducerFenced):
                await old.send("orders", b"x")
        assert kafka.committed("orders") == [b"new"]

    simulate(body)


def test_a_produce_request_that_the_broker_holds_back_delays_no_other_producer() -> None:
    """A broker answers a connection in order, and may ask the coordinator before it appends."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with Cluster(
            kafka.bootstrap_servers, _environment=world.environment(CLIENT)
        ) as cluster:
            plain = cluster.producer(linger_ms=0)
            held = cluster.producer(transactional_id="held", linger_ms=0)
            other = cluster.producer(transactional_id="other", linger_ms=0)
            async with plain, held, other, held.transaction():
                producer_id = kafka.ids["held"].producer_id
                waits = Delay(5.0, Close())
                kafka.faults.append(
                    times(1, waits, when=lambda a: a.header.producer_id == producer_id)
                )
                delivery = held.send_nowait("orders", b"held")
                await asyncio.sleep(0.1)
                async with asyncio.timeout(1):
                    await plain.send("orders", b"plain")
                    async with other.transaction():
                        await other.send("orders", b"other")
                assert not delivery.done()
                await delivery
        assert kafka.committed("orders") == [b"plain", b"other", b"held"]

    simulate(body)


@pytest.mark.parametrize("level", VERSIONS)
def test_records_keep_their_order_over_transactions_and_retries(level: int) -> None:
    """As those of the ordinary producer: a batch that is repeated stays ahead of the next ones."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.faults.append(times(3, 19, when=lambda a: a.header.base_sequence > 20))
        async with producer(world, kafka, batch_size=200, linger_ms=1) as p:
            for n in range(0, 300, 100):
                async with p.transaction():
                    for k in range(n, n + 100):
                        await p.enqueue("orders", b"%03d" % k)
        assert kafka.committed("orders") == [b"%03d" % n for n in range(300)]
        assert len(kafka.attempts) < 300, "records were batched"

    simulate(body, level=level)


@pytest.mark.parametrize("level", VERSIONS)
def test_refused_offsets_abort_the_commit_that_they_belong_to(level: int) -> None:
    """The records were delivered before, and nobody sees them."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            txn = await p.begin_transaction()
            kafka.script(wire.TxnOffsetCommitRequest, lambda r, c: offsets_answer(r, 22))
            p.send_nowait("orders", b"a")
            with pytest.raises(TransactionAborted) as caught:
                await commit_with_offsets(
                    txn, {TopicPartition("in", 0): OffsetAndMetadata(5)}, GroupMetadata("billing")
                )
            assert isinstance(caught.value.__cause__, IllegalGeneration)
            assert await txn.outcome() is TransactionOutcome.ABORTED
            async with p.transaction():
                await p.send("orders", b"b")
        assert kafka.committed("orders") == [b"b"]

    simulate(body, level=level)
