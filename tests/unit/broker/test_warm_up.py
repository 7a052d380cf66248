"""aiokq.broker.warm_up: soon after its start the broker has imported all it may need later."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import aiokq.broker
from aiokq.broker import warm_up
from aiokq.broker.handlers import APIS
from aiokq.broker.warm_up import MODULES, OPTIONAL
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from tests.sim.harness.simulation import Simulation, run

NOT_OF_A_RUNNING_BROKER = (
    "aiokq.broker.embedded",  # is there already where it is used
    "aiokq.broker.loop_thread",
    "aiokq.broker.process",
    "aiokq.broker.kraft.",  # takes over Kafka's directory, at a start
    "aiokq.broker.log.inspection",  # for `aiokq log`
)


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


IMPORTED_ONE_BY_ONE = """
import importlib, json, sys
from aiokq.broker import node, warm_up
steps = []
for name in warm_up.MODULES:
    before = set(sys.modules)
    try:
        importlib.import_module(name)
    except ImportError:
        if name not in warm_up.OPTIONAL:
            raise
    steps.append((name, sorted(set(sys.modules) - before)))
print(json.dumps(steps))
"""


def test_every_module_of_the_broker_is_imported_by_the_start_or_soon_after() -> None:
    """Also one that was added yesterday."""
    every = {
        module.name
        for module in pkgutil.walk_packages(aiokq.broker.__path__, "aiokq.broker.")
        if not module.name.startswith(NOT_OF_A_RUNNING_BROKER)
    }
    code = "import aiokq.broker.node, aiokq.connection.network, json, sys\n"
    at_start = set(json.loads(fresh(code + "print(json.dumps(sorted(sys.modules)))")))
    assert every - at_start - set(MODULES) <= {"aiokq.broker.kraft"}
    for api in APIS.values():
        assert f"aiokq.broker.handlers.{api.module}" in MODULES


def test_one_module_is_imported_at_a_time() -> None:
    """Each stands after those that it needs, so that the loop has its turns in between."""
    for name, imported in json.loads(fresh(IMPORTED_ONE_BY_ONE)):
        ours = {module for module in imported if module.startswith("aiokq.")}
        assert ours <= {name}, f"before {name}: {ours - {name}}"


def test_the_loop_goes_on_between_two_modules_and_all_are_there_in_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In imagined time, in which an import takes none."""
    imported: list[tuple[str, float]] = []

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(
            warm_up.importlib, "import_module", lambda name: imported.append((name, loop.time()))
        )
        await warm_up.warm_up(BackgroundWork(BrokerCounters(), loop.time))

    run(1, main)
    times = [at for _, at in imported]
    assert len(set(times)) == len(times)
    assert times[-1] < 2.5


def test_a_module_that_cannot_be_read_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There was no descriptor for it."""
    failures = [OSError(24, "Too many open files")] * 3
    imported: list[str] = []
    counters = BrokerCounters()

    def import_module(name: str) -> None:
        if name == MODULES[5] and failures:
            raise failures.pop()
        imported.append(name)

    async def main(world: Simulation) -> None:
        monkeypatch.setattr(warm_up.importlib, "import_module", import_module)
        await warm_up.warm_up(BackgroundWork(counters, world.clock.monotonic))

    run(1, main)
    assert [name for name in MODULES if name not in OPTIONAL] == [
        name for name in imported if name not in OPTIONAL
    ]
    assert counters.background_failures == {"import modules": 3}
    assert "Too many open files" in caplog.text


def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regular expressions of groups are matched by re2 where it is there."""
    imported: list[str] = []

    async def main(world: Simulation) -> None:
        monkeypatch.setattr(warm_up.importlib, "import_module", imported.append)
        monkeypatch.setattr(warm_up.importlib.util, "find_spec", lambda name: None)
        await warm_up.warm_up(BackgroundWork(BrokerCounters(), world.clock.monotonic))

    run(1, main)
    assert "re2" not in imported
    assert len(imported) == len(MODULES) - len(OPTIONAL)


def test_the_list_has_nothing_that_is_gone() -> None:
    """A module that was renamed would be tried again for ever."""
    for name in MODULES:
        if name not in OPTIONAL:
            assert importlib.util.find_spec(name) is not None, name
    assert len(set(MODULES)) == len(MODULES)
    assert Path(warm_up.__file__).name == "warm_up.py"
