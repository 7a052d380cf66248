"""Memory for requests is bounded across all connections, and one connection can always proceed."""

from __future__ import annotations

import pytest

from aiokq.connection.server_limits import FrameBudget, LoginBudget, RequestBudgets

MIB = 1024 * 1024


def test_below_the_limit_no_connection_waits() -> None:
    budget = FrameBudget(100)
    budget.charge(80)
    assert budget.may_take("a", 20, never)
    assert budget.may_take("b", 20, never)


def test_above_the_limit_one_connection_proceeds_at_a_time() -> None:
    """When half-received requests use up all memory, one connection at a time may complete its
    request.
    """
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(90)
    assert budget.may_take("a", 20, never)
    assert budget.may_take("a", 40, never)
    assert not budget.may_take("b", 20, lambda: resumed.append("b"))
    assert not budget.may_take("c", 20, lambda: resumed.append("c"))
    budget.settle("a")
    assert resumed == ["b"]
    assert budget.may_take("b", 40, never)
    budget.settle("b")
    assert resumed == ["b", "c"]


def test_an_answered_request_frees_memory_and_ends_its_overdraft() -> None:
    """The next waiter may overdraw, and waiters that fit into the freed memory proceed as well."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(120)
    assert budget.may_take("a", 1, never)
    assert not budget.may_take("b", 200, lambda: resumed.append("b"))
    assert not budget.may_take("c", 30, lambda: resumed.append("c"))
    budget.answered("other", 10)
    assert (budget.used, resumed) == (110, [])
    budget.answered("a", 60)
    assert (budget.used, resumed) == (50, ["b", "c"])


def test_the_budget_is_ample_while_more_than_half_is_free() -> None:
    """While the budget is ample, frames are received ahead without asking."""
    assert not FrameBudget(0).ample
    budget = FrameBudget(100)
    assert budget.ample
    budget.charge(50)
    assert not budget.ample
    budget.charge(-1)
    assert budget.ample
    budget.charge(11)
    budget.answered("a", 20)
    assert budget.ample


def test_freed_memory_goes_to_the_longest_waiting_connections() -> None:
    """As many waiters proceed as fit, in their order."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(100)
    budget.may_take("a", 10, never)
    budget.may_take("b", 20, lambda: resumed.append("b"))
    budget.may_take("c", 60, lambda: resumed.append("c"))
    budget.may_take("d", 10, lambda: resumed.append("d"))
    budget.charge(-50)
    assert resumed == ["b"]
    budget.charge(-20)
    assert resumed == ["b", "c", "d"]


def test_a_closed_connection_gives_up_its_overdraft() -> None:
    """The connection that overdrew is reset: the next one must not wait for it."""
    budget = FrameBudget(100)
    resumed: list[str] = []
    budget.charge(120)
    budget.may_take("a", 1, never)
    budget.may_take("b", 1, lambda: resumed.append("b"))
    budget.may_take("c", 1, lambda: resumed.append("c"))
    budget.forget("b")
    budget.forget("a")
    assert resumed == ["c"]


def never() -> None:
    raise AssertionError("it did not have to wait")


@pytest.mark.parametrize(
    ("limit", "frames", "logins"),
    [
        (512 * MIB, 480 * MIB, 32 * MIB),
        (80 * MIB, 70 * MIB, 10 * MIB),
        (4 * MIB, 3 * MIB, MIB),
        (1, 0, MIB),
        (2**63 - 1, 2**63 - 1 - 32 * MIB, 32 * MIB),
    ],
)
def test_connections_before_their_login_get_an_eighth(limit: int, frames: int, logins: int) -> None:
    """At least enough for some logins, and without a limit at most 32 MiB."""
    divided = RequestBudgets.divided(limit, has_logins=True)
    assert (divided.frames.limit, divided.logins.limit) == (frames, logins)
    assert RequestBudgets.divided(limit, has_logins=False).frames.limit == limit


def test_nobody_waits_for_the_memory_of_logins_or_exceeds_it() -> None:
    budget = LoginBudget(100)
    budget.charge(60)
    assert budget.may_take("a", 40, never)
    assert not budget.may_take("a", 41, never)
    budget.charge(-60)
    assert budget.may_take("b", 41, never)
