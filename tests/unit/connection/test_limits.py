"""Memory for requests is bounded over all connections, and somebody always gets on."""

from __future__ import annotations

from aiokq.connection.limits import FrameBudget


def test_below_the_limit_everybody_reads() -> None:
    """An ordinary day: no connection ever waits."""
    budget = FrameBudget(100)
    budget.charge(100)
    assert budget.may_read("a", lambda: None)
    assert budget.may_read("b", lambda: None)


def test_above_it_one_reads_on_and_the_others_wait_their_turn() -> None:
    """Hundred half-received requests fill the memory: one finishes, then the next, none starves."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(120)
    assert budget.may_read("a", lambda: resumed.append("a"))
    assert budget.may_read("a", lambda: resumed.append("a"))
    assert not budget.may_read("b", lambda: resumed.append("b"))
    assert not budget.may_read("c", lambda: resumed.append("c"))
    budget.settle("a")
    assert resumed == ["b"]
    assert budget.may_read("b", lambda: None)
    budget.settle("b")
    assert resumed == ["b", "c"]


def test_memory_given_back_lets_all_waiters_read() -> None:
    """Requests were answered: there is room again, whoever overdrew."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(120)
    budget.may_read("a", lambda: None)
    budget.may_read("b", lambda: resumed.append("b"))
    budget.may_read("c", lambda: resumed.append("c"))
    budget.charge(-20)
    assert resumed == ["b", "c"]


def test_one_that_is_gone_gives_up_its_place() -> None:
    """The connection that overdrew is reset: the next one must not wait for it."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(120)
    budget.may_read("a", lambda: None)
    budget.may_read("b", lambda: resumed.append("b"))
    budget.may_read("c", lambda: resumed.append("c"))
    budget.forget("b")
    budget.forget("a")
    assert resumed == ["c"]
