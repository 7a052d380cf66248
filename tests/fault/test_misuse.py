"""Rounds of random faults, limits and misuse under load, from fixed seeds.

`make torture FAULTS=misuse HOURS=2` runs as many seeds as fit into the time. The seeds here check
in two minutes that the machinery works. A failure says how to run its seed again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.misuse.__main__ import report_failure, run_round

FIXED = (1, 3, 6, 32, 33)
LONG = range(100, 120)


@pytest.mark.timeout(1300)
@pytest.mark.parametrize(
    "seed", [*FIXED, *(pytest.param(seed, marks=pytest.mark.torture) for seed in LONG)]
)
def test_nothing_acknowledged_is_lost_and_nothing_unseen_is_committed(
    tmp_path: Path, seed: int
) -> None:
    """The plan of the seed decides what is killed, cut, filled up or misused."""
    directory = tmp_path / "round"
    result = run_round(seed, directory)
    if result is None or result["violations"]:
        report_failure(seed, directory, result)
    assert result is not None, "the round crashed or hung: see above"
    assert result["violations"] == []
    assert result["states"]["acknowledged"] > 100
