"""Fuzzing of all six kinds of listeners at a time, before and after authentication.

Each is fuzzed for 20 seconds, which makes two minutes of fuzzing in all.

`make torture FAULTS=fuzz HOURS=2` goes on for hours; see `tests/fault/fuzz`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fault.fuzz.__main__ import fuzz_client
from tests.fault.fuzz.fixture import FETCH_SESSIONS, Fixture
from tests.fault.fuzz.forbidden import is_forbidden
from tests.fault.fuzz.plans import KINDS, make_plan
from tests.fault.fuzz.round import LONGEST_WAIT, _left, _unserved, run_round
from tests.fault.fuzz.working import WorkingClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SECONDS = 20.0
"""For each of six kinds of listeners, side by side."""

LEAST = 100
"""Number of connections of each kind, and of clients of a hostile broker.

On a busy machine they take longer than the seconds of their tests.

One of ten connections with a login fails to log in.
"""

SOME = LEAST // 10
"""Number of connections of each kind that must come as far as requests after the authentication,
and of those that must not. By their plans, either is a fifth of all connections or more.
"""


def digest(seed: int, kinds: tuple[str, ...] = KINDS, count: int = 40) -> str:
    """Return a hash of the bytes of the first plans of a seed."""
    found = hashlib.sha256()
    for kind in kinds:
        for number in range(count):
            found.update(repr(make_plan(seed, kind, number)).encode())
    return found.hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    code = "from tests.fault.test_fuzz import digest; print(digest(7, count=5))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.strip() == digest(7, count=5) != digest(8, count=5)


def test_plans_have_many_apis_and_nothing_that_is_forbidden() -> None:
    """The keys of whole frames; what super users may not do is left out."""
    keys = set()
    for number in range(150):
        plan = make_plan(1, "plain", number)
        for step in plan.steps:
            if step.do != "send" or len(step.data) < 8:
                continue
            size = int.from_bytes(step.data[:4], "big")
            if size == len(step.data) - 4:
                keys.add(int.from_bytes(step.data[4:6], "big"))
                assert not is_forbidden(step.data[4:], is_super=False)
    assert len(keys) > 20


@pytest.mark.timeout(300)
async def test_fuzzed_listeners_leave_nothing_and_working_clients_are_served(
    tmp_path: Path,
) -> None:
    outcome = await run_round(tmp_path, seed=18, seconds=SECONDS, least=LEAST)
    print(outcome.numbers)
    assert outcome.violations == []
    connections, authenticated = outcome.numbers["connections"], outcome.numbers["authenticated"]
    for kind in KINDS:
        assert connections[kind] >= LEAST
        assert authenticated[kind] >= SOME
        # On the plain listener, every connection is one of the anonymous user.
        assert kind == "plain" or connections[kind] - authenticated[kind] >= SOME
    assert outcome.numbers["apis"] > 40
    assert outcome.numbers["logins"] > 20
    assert outcome.numbers["failed_logins"] > 10
    assert outcome.numbers["logins_again"] > 0


IDLE: dict[str, Any] = {
    "tasks": {"listen": 7},
    "connections": {"PLAIN": 0, "TLS": 0},
    "sockets": 11,
    "descriptors": 35,
    "budget": 0,
    "delayed fetches": 0,
    "fetch sessions": 0,
    "groups with members": 0,
    "open transactions": 0,
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"tasks": {"listen": 8}}, ["8 tasks 'listen' are left, 7 before"]),
        ({"tasks": {"listen": 7, "wait": 1}}, ["1 tasks 'wait' are left, 0 before"]),
        ({"tasks": {"listen": 6}}, []),
        ({"connections": {"PLAIN": 0, "TLS": 2}}, ["2 connections on TLS are left"]),
        ({"sockets": 12}, ["sockets: 12, 11 before"]),
        ({"descriptors": 45, "fetch sessions": FETCH_SESSIONS}, []),
        ({"descriptors": 46}, ["descriptors: 46, 35 before"]),
        ({"budget": 1}, ["budget: 1, 0 before"]),
        ({"delayed fetches": 1}, ["delayed fetches: 1, 0 before"]),
        ({"fetch sessions": 9}, ["fetch sessions: 9, 0 before"]),
        ({"groups with members": 1}, ["groups with members: 1, 0 before"]),
        ({"open transactions": 1}, ["open transactions: 1, 0 before"]),
    ],
)
def test_a_round_tells_what_is_left(changes: dict[str, Any], told: list[str]) -> None:
    assert _left(IDLE | changes, IDLE) == told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"longest": LONGEST_WAIT + 1}, "waited 16.0 s"),
        ({"_since": 0.0}, "waited"),
        ({"failure": "KafkaError()"}, "KafkaError()"),
        ({"count": 0}, "has done nothing"),
    ],
)
def test_a_round_tells_which_client_was_not_served(
    tmp_path: Path, changes: dict[str, Any], told: str | None
) -> None:
    worker = WorkingClient(Fixture(tmp_path), "tls")
    worker.count = 5
    for name, value in changes.items():
        setattr(worker, name, value)
    found = _unserved(worker, has_ended=True)
    assert len(found) == (told is not None)
    assert all(told is not None and told in one for one in found)
    assert len(_unserved(worker, has_ended=False)) == 1


@pytest.mark.timeout(300)
def test_clients_of_a_hostile_broker_end_in_time_with_typed_errors() -> None:
    outcome = fuzz_client(12.0, 18, least=LEAST)
    print(outcome.numbers)
    assert outcome.violations == []
    assert len(outcome.numbers["errors"]) > 3
