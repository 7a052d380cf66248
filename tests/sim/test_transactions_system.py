"""Producers, broker and consumer under random faults: transactions stay atomic and none hangs."""

from __future__ import annotations

import asyncio
import os
import random as random_module
from collections import Counter

import pytest

from aiokq.admin.client import Admin
from aiokq.broker.coordinator.transaction.completion import TransactionCompletion
from aiokq.connection.transport import FrameTransport
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction import TransactionOutcome
from tests.sim.harness.simulation import Simulation, run
from tests.sim.test_whole_system import READER, SERVERS, WRITER, Broker
from tests.sim.transaction_system import run_once

SEEDS = int(os.environ.get("AIOKQ_TRANSACTION_SEEDS", "500"))
"""Seeds that are tests of their own; CI runs a sample of them (`tests/thinning.py`)."""

SEEDS_OF_EACH_BUILD = 100
"""Seeds that run with both builds; the others run with the compiled one.

The builds make and read batches differently. The order of requests, answers and faults, of which
each seed has another one, does not depend on the build.
"""

LONG_RUN = int(os.environ.get("AIOKQ_SYSTEM_SEEDS", "2000"))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed, marks=[] if seed < SEEDS_OF_EACH_BUILD else [pytest.mark.build_independent]
        )
        for seed in range(SEEDS)
    ],
)
def test_transactions_are_atomic_under_faults(seed: int) -> None:
    """Connections and power are cut, the broker is killed, calls are cancelled at any await."""
    run_once(seed)


def test_the_world_has_transactions_of_each_outcome() -> None:
    """A world without faults that matter would prove nothing."""
    found: Counter[TransactionOutcome | None] = Counter()
    for seed in range(3):
        found.update(txn.outcome for txn in run_once(seed).value.transactions)
    assert found[TransactionOutcome.COMMITTED] > 20
    assert found[TransactionOutcome.ABORTED] > 5


def test_the_same_seed_gives_the_same_world() -> None:
    """Otherwise a failure that a seed found could not be reproduced."""
    first, second = run_once(3), run_once(3)
    assert str(first.trace) == str(second.trace)


@pytest.mark.torture
@pytest.mark.build_independent
@pytest.mark.parametrize("part", range(4))
def test_thousands_of_seeds(part: int) -> None:
    """The same invariants for many seeds, in parts for two processes."""
    seeds = random_module.Random(LONG_RUN + part)
    for _ in range(LONG_RUN // 4):
        run_once(seeds.randrange(2**32))


def test_the_response_to_a_commit_is_sent_before_its_markers_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Client and broker would wait for each other; the next transaction must not find it open."""
    events: list[str] = []
    push, run_completion = FrameTransport.push, TransactionCompletion.run

    def pushed(transport: FrameTransport) -> None:
        if transport._held:
            events.append("sent")
        push(transport)

    def completed(completion: TransactionCompletion) -> None:
        events.append("markers")
        run_completion(completion)

    async def main(world: Simulation) -> None:
        broker = Broker(world, {})
        await broker.start()
        async with Admin(SERVERS, _environment=world.environment(READER)) as admin:
            await admin.create_topics("t", num_partitions=2, raise_errors=True)
        async with Producer(
            SERVERS, _environment=world.environment(WRITER), transactional_id="a"
        ) as producer:
            for _ in range(3):
                await producer.begin_transaction()
                await producer.send("t", b"v", partition=0)
                with monkeypatch.context() as patch:
                    patch.setattr(FrameTransport, "push", pushed)
                    patch.setattr(TransactionCompletion, "run", completed)
                    events.clear()
                    await producer.commit_transaction()
                assert events == ["sent", "sent", "markers"]  # the request and its response
                began = asyncio.get_running_loop().time()
                await producer.begin_transaction()
                await producer.send("t", b"v", partition=1)
                assert asyncio.get_running_loop().time() - began < 0.02
                await producer.commit_transaction()
        await broker.end()

    run(1, main)
