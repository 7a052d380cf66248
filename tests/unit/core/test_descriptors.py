"""aiokq.core.descriptors: how many file descriptors are left."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from aiokq.core import descriptors
from aiokq.core.descriptors import Descriptors, raise_limit

resource = pytest.importorskip("resource")


def limited(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Set the soft limit that `descriptors` sees, but not that of this process."""
    monkeypatch.setattr(
        descriptors,
        "resource",
        SimpleNamespace(
            RLIMIT_NOFILE=resource.RLIMIT_NOFILE,
            RLIM_INFINITY=resource.RLIM_INFINITY,
            getrlimit=lambda which: (limit, limit),
        ),
    )


def using(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(Descriptors, "used", lambda self: count)


@pytest.mark.parametrize("table", [descriptors._TABLE, "/no/such/table"])
def test_opened_and_closed_descriptors_are_counted(
    table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the size of the kernel's table, or by a directory listing if the size is not available."""
    monkeypatch.setattr(descriptors, "_TABLE", table)
    now = 0.0
    count = Descriptors(lambda: now)
    before = count.used()
    assert before > 2
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(7)]
    now += 1
    assert count.used() == before + 7
    for number in opened:
        os.close(number)
    now += 1
    assert count.used() == before


def test_listings_are_rate_limited_and_opened_descriptors_are_added(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A listing of 100,000 descriptors takes about 30 ms, too long for each connection."""
    now = 100.0
    listed = 0

    def listdir(path: str) -> list[str]:
        nonlocal listed, now
        listed += 1
        now += 0.03
        return ["0"] * 1001

    monkeypatch.setattr(descriptors, "_TABLE", "/no/such/table")
    monkeypatch.setattr(os, "listdir", listdir)
    count = Descriptors(lambda: now)
    assert count.used() == 1000
    for _ in range(5):
        count.opened()
    assert count.used() == 1005
    now += 2.9
    assert (count.used(), listed) == (1005, 1)
    now += 0.2
    assert (count.used(), listed) == (1000, 2)


def test_descriptors_closed_meanwhile_are_noticed_before_any_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Short connections were counted as open, and idle connections were closed for them."""
    limited(monkeypatch, 256)
    now, listed = 0.0, 0

    def listdir(path: str) -> list[str]:
        nonlocal listed, now
        listed += 1
        now += 0.0001
        return ["0"] * 101

    monkeypatch.setattr(descriptors, "_TABLE", "/no/such/table")
    monkeypatch.setattr(os, "listdir", listdir)
    count = Descriptors(lambda: now)
    for _ in range(1_000):
        now += 0.0002
        count.opened()
        assert count.missing() == 0
    assert listed < 20


def test_if_the_listing_fails_with_emfile_all_descriptors_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If there is no directory to list, none counts as used."""
    monkeypatch.setattr(descriptors, "_TABLE", "/no/such/table")
    limited(monkeypatch, 256)

    def refuse(path: str) -> list[str]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "listdir", refuse)
    assert Descriptors().used() == 256
    assert Descriptors().missing() == 32

    def absent(path: str) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(os, "listdir", absent)
    assert Descriptors().used() == 0
    assert Descriptors().missing() == 0


@pytest.mark.parametrize(
    ("limit", "reserve"), [(8, 1), (64, 8), (255, 31), (256, 32), (1024, 32), (1 << 20, 32)]
)
def test_the_reserve_is_the_smaller_of_32_and_an_eighth_of_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int, reserve: int
) -> None:
    limited(monkeypatch, limit)
    for used, missing in [
        (0, 0),
        (limit - reserve, 0),
        (limit - reserve + 1, 1),
        (limit, reserve),
        (limit + 10, reserve + 10),  # the limit was lowered
    ]:
        using(monkeypatch, used)
        assert Descriptors().missing() == missing


def test_the_limit_may_change_or_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may raise its limit, and Windows has none."""
    using(monkeypatch, 1000)
    limited(monkeypatch, 1000)
    count = Descriptors()
    assert count.missing() == 32
    limited(monkeypatch, 2000)
    assert count.missing() == 0
    limited(monkeypatch, resource.RLIM_INFINITY)
    assert (count.limit, count.missing()) == (None, 0)
    monkeypatch.setattr(descriptors, "resource", None)
    assert (count.limit, count.missing()) == (None, 0)


def test_it_takes_all_the_descriptors_it_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the usual soft limit of 1024 the thousandth client would be rejected."""
    limits = [(1024, 524_288)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    raise_limit()
    assert limits[-1] == (524_288, 524_288)
    raise_limit()
    assert len(limits) == 2


def test_a_system_that_refuses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS reports "unlimited" but grants 10,240; the broker starts all the same."""

    def refuse(which: int, pair: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()


def test_with_many_free_descriptors_few_calls_look_at_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes as long as accepting a connection."""
    now = [0.0]
    count = Descriptors(lambda: now[0])
    looked = []
    monkeypatch.setattr(Descriptors, "used", lambda _: looked.append(1) or used)  # type: ignore[func-returns-value]
    limited(monkeypatch, 10_000)
    used = 100
    for _ in range(65):
        assert count.missing() == 0
    assert len(looked) == 1
    count.missing()
    assert len(looked) == 2
    now[0] += 0.2
    count.missing()
    assert len(looked) == 3
    limited(monkeypatch, 110)  # the program has lowered the limit
    assert count.missing() > 0
    assert count.missing() > 0
    limited(monkeypatch, 10_000)
    used = 9_950
    for number in range(3):
        assert count.missing() == 0
        assert len(looked) == 6 + number
