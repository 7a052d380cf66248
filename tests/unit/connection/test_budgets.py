"""Budgets: one object per client, for a bounded number of clients and a bounded time."""

from __future__ import annotations

from aiokq.connection.budgets import EXPIRY_MS, LONG_NAME, Budgets


def test_each_client_has_its_own() -> None:
    """A user with two client ids has a budget for each, if the quota says so."""
    budgets: Budgets[list[int]] = Budgets(list)
    budgets.get(("alice", None), 0).append(1)
    assert budgets.get(("alice", None), 0) == [1]
    assert budgets.get(("alice", "a"), 0) == []
    assert budgets.get((None, "alice"), 0) == []


def test_an_unused_budget_expires() -> None:
    """After an hour, as in Kafka; others that are used stay."""
    budgets: Budgets[list[int]] = Budgets(list)
    budgets.get(("old",), 0).append(1)
    budgets.get(("used",), 0).append(1)
    budgets.get(("used",), EXPIRY_MS - 1)
    budgets.get(("used",), EXPIRY_MS)
    assert len(budgets) == 1
    assert budgets.get(("used",), EXPIRY_MS) == [1]
    assert budgets.get(("old",), EXPIRY_MS) == []


def test_a_client_that_changes_its_id_forgets_no_more_than_the_longest_unused() -> None:
    """The memory is bounded; a busy client keeps its budget."""
    budgets: Budgets[list[int]] = Budgets(list, most=100)
    for n in range(1000):
        budgets.get(("busy",), n).append(n)
        budgets.get((f"client-{n}",), n)
    assert len(budgets) == 100
    assert len(budgets.get(("busy",), 1000)) == 1000


def test_long_names_are_not_kept() -> None:
    """A client id may have 32 kB; names that begin alike stay apart."""
    budgets: Budgets[list[int]] = Budgets(list)
    long = "x" * LONG_NAME
    budgets.get((long + "a",), 0).append(1)
    assert budgets.get((long + "b",), 0) == []
    assert budgets.get((long + "a",), 0) == [1]
    assert all(len(key[0][0]) == LONG_NAME for key in budgets._budgets)  # type: ignore[index,arg-type]
