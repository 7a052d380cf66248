"""Which parametrized tests run a sample of their cases in CI; all cases are in the long run.

A test with hundreds of cases that differ little costs more than the last hundred of them show. The
sample depends on the name of the test only, so that a failure comes back.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict

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
    "unit/broker/metadata/earlier/test_migration.py": 2,
    "unit/broker/metadata/publisher/test_creation_on_a_full_disk.py": 2,
    "unit/broker/test_gate.py::test_a_throttle_time_is_in_every_answer_whose_version_has_the": 4,
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
        sample = set(random.Random(name).sample(range(len(found)), size))
        for number, item in enumerate(found):
            if number not in sample:
                item.add_marker(pytest.mark.torture)
