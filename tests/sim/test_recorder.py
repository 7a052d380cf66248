"""The recorder of aiokq.testing: what the client does not know is recorded as unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.client.cluster import Cluster
from aiokq.core.errors import CommitOutcomeUnknown, ConfigError, TransactionAborted
from aiokq.testing import (
    AnomalyKind,
    EndTransaction,
    Isolation,
    LastStable,
    Offset,
    Offsets,
    Outcome,
    Poll,
    Recorder,
    Seek,
    Send,
    Workload,
    check,
)
from tests.sim import group_world
from tests.sim.transaction_world import Silence, TransactionalKafka, producer, simulate


def outcomes(recorder: Recorder) -> list[tuple[str, Outcome]]:
    """Return what was recorded, with the value of a send, or what a transaction was asked to do."""
    found = []
    for each in recorder.history:
        if isinstance(each, Send):
            found.append((each.value, each.outcome))
        elif isinstance(each, EndTransaction):
            found.append(("commit" if each.commit else "abort", each.outcome))
    return found


def test_commits_and_aborts_are_recorded_as_they_ended() -> None:
    """The checker condemns records of aborted transactions that are read."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            async with recorded.transaction():
                await recorded.send("orders", b"a")
            with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block of a transaction
                async with recorded.transaction():
                    await recorded.send("orders", b"b")
                    raise ZeroDivisionError
        assert outcomes(recorder) == [
            ("a", Outcome.OK),
            ("commit", Outcome.OK),
            ("b", Outcome.OK),
            ("abort", Outcome.OK),
        ]
        sends = [each for each in recorder.history if isinstance(each, Send)]
        ends = [each for each in recorder.history if isinstance(each, EndTransaction)]
        assert [each.txn for each in sends] == [each.txn for each in ends]
        assert ends[0].txn != ends[1].txn

    simulate(body)


def test_a_commit_without_an_answer_is_unknown() -> None:
    """Recorded as failed, it would condemn a cluster that carried it out."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            kafka.lost(wire.EndTxnRequest)
            kafka.script(wire.EndTxnRequest, wire.EndTxnResponse(error_code=120))
            with pytest.raises(CommitOutcomeUnknown):
                async with recorded.transaction():
                    await recorded.send("orders", b"a")
        assert outcomes(recorder) == [("a", Outcome.OK), ("commit", Outcome.UNKNOWN)]

    simulate(body)


def test_a_cancelled_send_is_unknown_and_a_refused_one_has_failed() -> None:
    """The record of a cancelled send is delivered all the same."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=500) as p:
            recorded = recorder.producer(p, "p")
            with pytest.raises(ConfigError):
                await recorded.send("orders", b"outside")
            async with recorded.transaction():
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await recorded.send("orders", b"a")
        assert outcomes(recorder) == [
            ("outside", Outcome.FAILED),
            ("a", Outcome.UNKNOWN),
            ("commit", Outcome.OK),
        ]
        assert kafka.committed("orders") == [b"a"]

    simulate(body)


def test_every_way_to_send_is_recorded() -> None:
    """Values that were not recorded are called unsent when they are read."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, transactional_id=None, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            await recorded.send("orders", b"a", b"key", headers=[("h", b"v")])
            await (await recorded.enqueue("orders", b"b"))
            await recorded.send_nowait("orders", b"c", partition=0)
            await (await recorded.send_many("orders", [(None, b"d"), (b"key", b"e")]))
            await p.flush()
        sends = [each for each in recorder.history if isinstance(each, Send)]
        assert sorted(
            (each.value, each.outcome, each.partition, each.offset) for each in sends
        ) == [(value, Outcome.OK, 0, offset) for offset, value in enumerate("abcde")]

    simulate(body)


def test_a_record_that_is_not_accepted_has_failed_and_a_lost_one_is_unknown() -> None:
    """What was never accepted is certainly in no log."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            with pytest.raises(ConfigError):
                recorded.send_nowait("orders", b"outside")
            with pytest.raises(ConfigError):
                await recorded.enqueue("orders", b"outside too")
            await recorded.begin_transaction()
            delivery = recorded.send_nowait("orders", b"aborted")
            await recorded.abort_transaction()
            with pytest.raises(TransactionAborted):
                await delivery
            await asyncio.sleep(0)
        assert outcomes(recorder) == [
            ("outside", Outcome.FAILED),
            ("outside too", Outcome.FAILED),
            ("aborted", Outcome.UNKNOWN),
            ("abort", Outcome.OK),
        ]

    simulate(body)


def test_transactions_of_single_calls_are_recorded() -> None:
    """Programs in Java's style begin and end with calls."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            first = await recorded.begin_transaction()
            await recorded.send("orders", b"a")
            await recorded.commit_transaction()
            second = await recorded.begin_transaction()
            await recorded.send("orders", b"b")
            await recorded.abort_transaction()
            async with recorded.transaction() as third:
                await recorded.send("orders", b"c")
                await recorded.commit_transaction()
            with pytest.raises(ConfigError):
                await recorded.commit_transaction()
        sends = [each for each in recorder.history if isinstance(each, Send)]
        ends = [each for each in recorder.history if isinstance(each, EndTransaction)]
        assert [each.txn for each in sends] == [first, second, third]
        assert [(each.txn, each.commit, each.outcome) for each in ends] == [
            (first, True, Outcome.OK),
            (second, False, Outcome.OK),
            (third, True, Outcome.OK),
        ]

    simulate(body)


def test_a_commit_that_is_called_again_is_recorded_with_its_outcome() -> None:
    """The transaction is known to be committed in the end."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        recorder = Recorder()
        async with producer(world, kafka, linger_ms=0) as p:
            recorded = recorder.producer(p, "p")
            await recorded.begin_transaction()
            await recorded.send("orders", b"a")
            kafka.script(wire.EndTxnRequest, *[Silence()] * 4)
            with pytest.raises(CommitOutcomeUnknown):
                await recorded.commit_transaction()
            await recorded.commit_transaction()
        assert outcomes(recorder)[1:] == [("commit", Outcome.UNKNOWN), ("commit", Outcome.OK)]

    simulate(body)


def test_a_seek_a_commit_and_an_iteration_are_recorded() -> None:
    """Without its seek, a consumer that goes back would be condemned."""

    async def body(w: group_world.World) -> None:
        recorder = Recorder()
        await w.topic("t", 1)
        await w.produce("t", range(4), 1)
        async with w.member("t", enable_auto_commit=False) as c:
            reader = recorder.consumer(c, "c", isolation=Isolation.READ_UNCOMMITTED, group="g")
            async for record in reader:
                if record.offset == 1:
                    break
            await reader.commit()
            reader.seek(("t", 0), 0)
            assert [record.offset for record in await reader.poll(10)] == [0, 1, 2, 3]
            await reader.commit({("t", 0): 3})
            await reader.seek_to_committed()
            assert [record.offset for record in await reader.poll(10)] == [3]
            await reader.seek_to_beginning()
            assert len(await reader.poll(10)) == 4
            await reader.seek_to_end()
            await recorder.observe_group(c, c.group_metadata().group_id, all_commits=True)
        polled = [[r.offset for r in e.records] for e in recorder.history if isinstance(e, Poll)]
        assert polled == [[0], [1], [0, 1, 2, 3], [3], [0, 1, 2, 3]]
        sought = [each.offset for each in recorder.history if isinstance(each, Seek)]
        assert sought == [0, None, None]
        committed = [each.offsets for each in recorder.history if isinstance(each, Offsets)]
        assert committed == [(Offset("t", 0, 2),), (Offset("t", 0, 3),)]
        report = check(recorder.history)
        assert not report.anomalies, report
        without = [each for each in recorder.history if not isinstance(each, Seek)]
        assert AnomalyKind.NONMONOTONIC_POLL in check(without).by_kind()

    group_world.simulate(body)


def test_the_workload_condemns_nothing_and_its_history_has_what_could_be_condemned() -> None:
    """Several copiers share a group, and the last stable offsets are asked for all the time."""

    async def body(w: group_world.World) -> None:
        recorder = Recorder(clock=asyncio.get_running_loop().time)
        await w.topic("w-input", 3)
        await w.topic("w-output", 3)
        async with Cluster(
            group_world.SERVERS, _environment=w.world.environment("10.0.0.9")
        ) as cluster:
            workload = Workload(cluster, recorder, name="w", partitions=3, copiers=3)
            async with asyncio.TaskGroup() as tasks:
                for process in workload.processes():
                    tasks.create_task(process)
                await asyncio.sleep(0.1)
                workload.stop()
            await workload.finish()
        report = check(recorder.history)
        assert report.ok, report
        assert AnomalyKind.UNSET_OFFSETS not in report.by_kind()
        commits = {
            each.process
            for each in recorder.history
            if isinstance(each, EndTransaction) and each.commit
        }
        assert len(commits) == 2 + 3
        stable = [each for each in recorder.history if isinstance(each, LastStable)]
        assert {(each.topic, each.partition) for each in stable} == {
            (topic, number) for topic in ("w-input", "w-output") for number in range(3)
        }
        # A last stable offset that is asked for after a poll would condemn it.
        poll = next(each for each in recorder.history if isinstance(each, Poll))
        record = poll.records[-1]
        later = next(
            each
            for each in stable
            if (each.topic, each.partition) == record[:2] and each.start > poll.end
        )
        wrong = [
            each._replace(offset=record.offset) if each is later else each
            for each in recorder.history
        ]
        assert AnomalyKind.PAST_LAST_STABLE in check(wrong).by_kind()

    group_world.simulate(body)
