"""Every tier: hypothesis profiles (AIOKQ_HYPOTHESIS_PROFILE=torture for the long runs)."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from aiokq.core.background import FAIL_ON_BUGS

settings.register_profile(
    "default",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "torture", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("AIOKQ_HYPOTHESIS_PROFILE", "default"))

# A bug in a broker's background work ends the broker, here and in processes that tests start.
os.environ.setdefault(FAIL_ON_BUGS, "1")

HERE = Path(__file__).resolve().parent
BUILD_INDEPENDENT = (
    "unit/assign",
    "unit/broker/log/test_descriptors",
    "unit/broker/test_cancellation",
    "unit/connection",
    "unit/core",
    "unit/spark/exporting",
    "unit/spark/loading",
    "unit/spark/test_exports",
    "unit/spark/test_planning",
    "unit/wire",
    "unit/test_architecture",
    "unit/test_design_document",
    "property/connection",
    "property/core",
    "property/test_assignors",
    "property/test_columns_parity",
    "property/test_stickiness",
    "property/wire",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is not about the compiled core: the second build need not run it again."""
    for item in items:
        if item.path.relative_to(HERE).as_posix().startswith(BUILD_INDEPENDENT):
            item.add_marker(pytest.mark.build_independent)


def pytest_collection_finish() -> None:
    """What thousands of collected tests hold is never garbage: a full collection passes it over.

    Simulations and tests of memory collect hundreds of times; each took 70 ms for the heap of
    pytest itself, more than the tests.
    """
    gc.collect()
    gc.freeze()
