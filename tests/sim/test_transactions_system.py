"""Producers, broker and consumer under random faults: transactions stay atomic and none hangs."""

from __future__ import annotations

import os
import random as random_module
from collections import Counter

import pytest

from aiokq.producer.transactions.transaction import TransactionOutcome
from tests.sim.transaction_system import run_once

SEEDS = int(os.environ.get("AIOKQ_TRANSACTION_SEEDS", "100"))
"""Seeds of the short run."""

LONG_RUN = int(os.environ.get("AIOKQ_SYSTEM_SEEDS", "2000"))


@pytest.mark.parametrize("seed", range(SEEDS))
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
