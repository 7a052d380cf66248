"""Shared by all tests: Hypothesis profiles, marks of builds and of long runs, order of the files.

AIOKQ_HYPOTHESIS_PROFILE=torture selects the profile of the long runs.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from aiokq.core.background import FAIL_ON_BUGS
from tests.thinning import mark_cases_of_the_long_run

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
    "property/connection",
    "property/core",
    "property/test_assignors",
    "property/test_columns_parity",
    "property/test_core_parity",
    "property/test_gateway_parity",
    "property/test_group_shard",
    "property/test_log_directory",
    "property/test_metadata",
    "property/test_registration",
    "property/test_stickiness",
    "property/wire",
    "sim/test_gate",
    "sim/test_group",
    "sim/test_harness",
    "sim/test_listeners",
    "sim/test_numbers",
    "sim/test_outage_log",
    "sim/test_process_rebalances",
    "sim/test_registry",
    "sim/test_reset",
    "sim/test_retention",
    "unit/admin",
    "unit/assign",
    "unit/broker/config",
    "unit/broker/coordinator",
    "unit/broker/inspection",
    "unit/broker/log/test_cleaner",
    "unit/broker/log/test_descriptors",
    "unit/broker/metadata/configs",
    "unit/broker/metadata/controller",
    "unit/broker/metadata/earlier",
    "unit/broker/metadata/image",
    "unit/broker/metadata/publisher",
    "unit/broker/metadata/start/test_found_partitions",
    "unit/broker/metadata/start/test_metadata_start",
    "unit/broker/metadata/start/test_missing_directories",
    "unit/broker/metadata/start/test_node_file",
    "unit/broker/metadata/stopped_broker",
    "unit/broker/metadata/test_",
    "unit/broker/test_",
    "unit/cli",
    "unit/client",
    "unit/cluster",
    "unit/connection",
    "unit/core",
    "unit/fastpath/test_build",
    "unit/gateway/client",
    "unit/group",
    "unit/spark/exporting",
    "unit/spark/loading",
    "unit/spark/test_exports",
    "unit/spark/test_planning",
    "unit/testing",
    "unit/test_annotations",
    "unit/test_architecture",
    "unit/test_design_document",
    "unit/test_documentation",
    "unit/test_fault_scenarios",
    "unit/test_longest_first",
    "unit/test_metrics",
    "unit/test_thinning",
    "unit/wire",
)
"""Beginnings of paths of tests whose result does not depend on the build of aiokq.fastpath.

These tests test no part of aiokq.fastpath, or both builds of it in one process. Many of them use
the core, because records pass through it. The tests of producers, consumers, logs, the broker's
handlers and fastpath itself show what the build changes.
"""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import modules all of whose tests the second build leaves out."""
    if "not build_independent" not in config.option.markexpr or collection_path.is_dir():
        return None
    return is_build_independent(collection_path) or None


def is_build_independent(path: Path) -> bool:
    return path.is_relative_to(HERE) and path.relative_to(HERE).as_posix().startswith(
        BUILD_INDEPENDENT
    )


def is_about_the_compiled_core(item: pytest.Item) -> bool:
    """Whether a test is given the compiled core: it would be the same test in the second build."""
    callspec = getattr(item, "callspec", None)
    core = None if callspec is None else callspec.params.get("core")
    return core == "compiled" or getattr(core, "COMPILED", None) is True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what the second build and what a short run leave out."""
    named = [(item.path.relative_to(HERE).as_posix(), item) for item in items]
    for path, item in named:
        if path.startswith(BUILD_INDEPENDENT) or is_about_the_compiled_core(item):
            item.add_marker(pytest.mark.build_independent)
    mark_cases_of_the_long_run([(f"{path}::{item.name}", item) for path, item in named])


def pytest_collection_finish() -> None:
    """Freeze the objects of collected tests, which are never garbage: collections skip them then.

    Simulations and tests of memory collect hundreds of times; each took 70 ms for the heap of
    pytest itself, more than the tests.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Name the cause of failures after an edit: the compiled core was not built again.

    `aiokq.fastpath` does not look for itself: to read its sources takes longer than its import.
    """
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the core is missing was said before
        from aiokq import fastpath

        if fastpath.stale():
            terminalreporter.write_line(
                "the compiled core was built from other sources than these: run `make setup`",
                red=True,
            )


@pytest.fixture
def own_process_state() -> Iterator[None]:
    """For tests that run `aiokq broker` in this process: it sets logging and signals for good."""
    root, audit = logging.getLogger(), logging.getLogger("aiokq.audit")
    handlers, level, of_audit = root.handlers[:], root.level, audit.level
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    audit.setLevel(of_audit)
    for number, handler in signals.items():
        signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail a test that leaves a handler of SIGTERM: later tests of that signal would not end."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        pytest.fail(f"the test has left a handler of SIGTERM: {handler}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.longest_first import LongestFirst

    return LongestFirst(config, log)
