"""Which parametrized tests run a sample of their cases in CI; all cases are in the long run.

A test with hundreds of cases that differ little costs more than the last hundred of them show. The
sample depends on the test and its cases only, so that a failure comes back. It has each value of
each parameter at least once, except for parameters with more values than it has cases: seeds.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import pytest

ONE_OF = {
    "fault/test_gateway_delivery.py": 2,
    "fault/test_gateway_points.py": 2,
    "property/core/test_settings_parity.py::test_each_setting_alone_gives_the_same_answer": 3,
    "property/wire/test_codec.py": 2,
    "property/wire/test_hostile_bytes.py": 3,
    "sim/test_group_chaos.py": 3,
    "sim/test_group_machines.py": 4,
    "sim/test_group_migration.py": 2,
    "sim/test_group_recreated_topics.py": 3,
    "sim/test_group_rewind_foreign.py": 2,
    "sim/test_numbers.py": 3,
    "sim/test_process_rebalances.py": 3,
    "sim/test_reading_errors.py": 4,
    "sim/test_transactions_system.py::test_transactions_are_atomic_under_faults": 5,
    "sim/test_whole_system.py": 2,
    "unit/broker/metadata/earlier/test_golden_migration.py::test_a_first_start_may_end": 2,
    "unit/broker/metadata/earlier/test_golden_migration.py::test_a_power_cut_may_leave": 2,
    "unit/broker/metadata/earlier/test_migration.py": 2,
    "unit/broker/metadata/log/test_failing_disk.py": 2,
    "unit/broker/metadata/publisher/test_creation_on_a_full_disk.py": 2,
    "unit/broker/test_gate.py::test_a_throttle_time_is_in_every_answer_whose_version_has_the": 4,
    "unit/broker/security/test_caller_authorizer.py::test_a_coroutine": 3,
    "unit/broker/test_long_requests.py::test_a_request_of_many_names": 2,
    "unit/broker/test_long_requests.py::test_a_request_of_many_partitions": 2,
    "unit/spark/loading/test_batches.py::test_a_load_that_dies_at_any_moment_goes_on": 2,
}
"""The beginning of a test's name: one of so many cases of the test is in the sample."""

SMALL = 6
"""A test with at most so many cases runs all of them."""


def mark_cases_of_the_long_run(items: list[tuple[str, pytest.Item]]) -> None:
    """Mark what is not in a sample as `torture`; items have their paths below `tests`."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for name, item in items:
        cases[name.partition("[")[0]].append(item)
    for name, found in cases.items():
        step = next((n for start, n in ONE_OF.items() if name.startswith(start)), 1)
        if step == 1 or len(found) <= SMALL:
            continue
        size = max(SMALL, math.ceil(len(found) / step))
        chosen = sample([parameters_of(item) for item in found], size, name)
        for number, item in enumerate(found):
            if number not in chosen:
                item.add_marker(pytest.mark.torture)


def sample(cases: list[dict[str, Hashable]], size: int, seed: str) -> set[int]:
    """Choose cases by their numbers: so many, or more if all values need them."""
    values: dict[str, set[Hashable]] = defaultdict(set)
    for case in cases:
        for parameter, value in case.items():
            values[parameter].add(value)
    missing = {
        (parameter, value)
        for parameter, found in values.items()
        if len(found) <= size
        for value in found
    }
    order = random.Random(seed).sample(range(len(cases)), len(cases))
    chosen = set()
    for number in order:
        if not missing.isdisjoint(cases[number].items()):
            missing.difference_update(cases[number].items())
            chosen.add(number)
    others = [number for number in order if number not in chosen]
    return chosen.union(others[: max(0, size - len(chosen))])


def parameters_of(item: pytest.Item) -> dict[str, Hashable]:
    """Return the parameters of a case, those that are one tuple, such as (API, version), apart.

    A value without a hash is as good as its text.
    """
    given: dict[str, Any] = item.callspec.params  # type: ignore[attr-defined]
    parts = {
        f"{parameter}.{number}": part
        for parameter, value in given.items()
        for number, part in enumerate(value if isinstance(value, tuple) else (value,))
    }
    return {
        parameter: value if isinstance(value, Hashable) else repr(value)
        for parameter, value in parts.items()
    }
