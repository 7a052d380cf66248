"""The recorder of aiokq.testing: what the client does not know is recorded as unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq import wire
from aiokq.core.errors import CommitOutcomeUnknown, ConfigError
from aiokq.testing import EndTransaction, Outcome, Recorder, Send
from tests.sim.transaction_world import TransactionalKafka, producer, simulate


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
