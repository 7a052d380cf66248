"""Fuzzing of all six kinds of listeners at a time, before and after authentication.

Each is fuzzed for 20 seconds, which makes two minutes of fuzzing in all.

`make torture FAULTS=fuzz HOURS=2` goes on for hours; see `tests/fault/fuzz`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.fuzz.__main__ import fuzz_client
from tests.fault.fuzz.forbidden import is_forbidden
from tests.fault.fuzz.plans import KINDS, make_plan
from tests.fault.fuzz.round import run_round

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

SECONDS = 20.0
"""For each of six kinds of listeners, side by side."""

LEAST = 100
"""Number of connections of each kind; on a busy machine they take longer than `SECONDS`.

One of ten connections with a login fails to log in.
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
    connections = outcome.numbers["connections"]
    assert all(connections[kind] >= LEAST for kind in KINDS)
    assert outcome.numbers["apis"] > 40
    assert outcome.numbers["logins"] > 20
    assert outcome.numbers["failed_logins"] > 10


@pytest.mark.timeout(300)
def test_clients_of_a_hostile_broker_end_in_time_with_typed_errors() -> None:
    outcome = fuzz_client(12.0, 18)
    print(outcome.numbers)
    assert outcome.violations == []
    assert len(outcome.numbers["errors"]) > 3
