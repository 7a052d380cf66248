"""aiokq.broker.warm_up: imports of modules soon after the start."""

from __future__ import annotations

import asyncio
import errno
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import aiokq.broker
from aiokq.broker import warm_up
from aiokq.broker.handlers import APIS
from aiokq.broker.warm_up import MODULES, OPTIONAL
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from tests.sim.harness.simulation import Simulation, run

NOT_OF_A_RUNNING_BROKER = (
    "aiokq.broker.embedded",  # imported already where it is used
    "aiokq.broker.embedded_arguments",
    "aiokq.broker.loop_thread",
    "aiokq.broker.option_parser",
    "aiokq.broker.options",
    "aiokq.broker.process",
    "aiokq.broker.process_errors",
    "aiokq.broker.process_settings",
    "aiokq.broker.config.roles",
    "aiokq.broker.inspection",  # for `aiokq log`
    "aiokq.broker.log.locked_directories",  # for commands on a stopped node
    "aiokq.broker.metadata.stopped_broker",  # for commands on a stopped node
    # for starts with TLS or SASL, before clients are accepted
    "aiokq.broker.config.listener_security",
    "aiokq.broker.config.login_settings",
    "aiokq.broker.security.authentication",
    "aiokq.broker.security.authorization",  # with an authorizer, before clients are accepted
    "aiokq.broker.certificates",  # for `aiokq broker --secure`
    "aiokq.broker.secure_directory",
    # for some starts, before the node is open
    "aiokq.broker.metadata.start.found_partitions",
    "aiokq.broker.metadata.earlier",
    "aiokq.broker.metadata.log.covered_segments",
)


def fresh(code: str) -> str:
    """Run code in a new interpreter; return its output."""
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
    """A new module has to be in the list, too."""
    every = {
        module.name
        for module in pkgutil.walk_packages(aiokq.broker.__path__, "aiokq.broker.")
        if not module.name.startswith(NOT_OF_A_RUNNING_BROKER)
    }
    code = "import aiokq.broker.node, aiokq.connection.network, json, sys\n"
    at_start = set(json.loads(fresh(code + "print(json.dumps(sorted(sys.modules)))")))
    of_type_checkers = {
        "aiokq.broker.handlers.areas",
        "aiokq.broker.replica.leadership_listener",
    }
    assert every - at_start - set(MODULES) - of_type_checkers == set()
    for api in APIS.values():
        assert f"aiokq.broker.handlers.{api.module}" in MODULES


def test_one_module_is_imported_at_a_time() -> None:
    """The list has a module after its imports, so the loop runs between any two of them."""
    for name, imported in json.loads(fresh(IMPORTED_ONE_BY_ONE)):
        ours = {module for module in imported if module.startswith("aiokq.")}
        if name == "aiokq.fastpath.broker":  # with its parts, compiled or not
            ours = {module for module in ours if not module.startswith(f"{name}.")}
        assert ours <= {name}, f"before {name}: {ours - {name}}"


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unload the modules, as in a new process."""
    monkeypatch.setattr(warm_up, "sys", SimpleNamespace(modules={}))


@pytest.mark.usefixtures("nothing_loaded")
def test_the_loop_goes_on_between_two_modules_and_all_are_there_in_five_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Imports take no virtual time."""
    imported: list[tuple[str, float]] = []

    async def main(world: Simulation) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(
            warm_up.importlib, "import_module", lambda name: imported.append((name, loop.time()))
        )
        await warm_up.warm_up(BackgroundWork(BrokerCounters(), loop.time), fatal=unexpected)

    run(1, main)
    times = [at for _, at in imported]
    assert len(set(times)) == len(times)
    assert times[-1] < 3


def unexpected(error: ImportError) -> None:
    raise AssertionError(error)


class Imports:
    """Records imports; some modules fail a given number of times."""

    def __init__(self, **failing: list[Exception]) -> None:
        self.failing = failing
        self.imported: list[str] = []
        self.counters = BrokerCounters()
        self.fatal: list[ImportError] = []

    def import_module(self, name: str) -> None:
        failures = self.failing.get(name.replace(".", "_"))
        if failures:
            raise failures.pop()
        self.imported.append(name)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> float:
        """Run warm_up; return the seconds that it took."""

        async def main(world: Simulation) -> None:
            nonlocal seconds
            monkeypatch.setattr(warm_up.importlib, "import_module", self.import_module)
            background = BackgroundWork(self.counters, world.clock.monotonic)
            await warm_up.warm_up(background, fatal=self.fatal.append)
            seconds = world.loop.time()

        seconds = 0.0
        run(1, main)
        return seconds


LINKER = "/lib/_lz4.so: cannot open shared object file: "


def caused(cause: Exception) -> ImportError:
    error = ImportError("import failed")
    error.__cause__ = cause
    return error


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.ENFILE, "Too many open files in system"),
        ImportError(LINKER + "Too many open files"),
        ImportError(LINKER + "Too many open files in system"),
        caused(OSError(errno.EMFILE, "Too many open files")),
        caused(ImportError(LINKER + "Too many open files")),
        MemoryError(),
    ],
    ids=repr,
)
def test_a_module_that_cannot_be_read_is_tried_again_after_the_others(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a free descriptor; for an extension module Linux says so only in the error's text."""
    imports = Imports(lz4_frame=[failure] * 3)
    assert 8 < imports.run(monkeypatch) < 10  # pauses of 1, 2 and 4 s
    assert imports.imported[-1] == "lz4.frame"
    assert set(imports.imported) | OPTIONAL == set(MODULES)
    assert imports.counters.background_failures == {"import modules": 3}
    assert "and is retried" in caplog.text


@pytest.mark.usefixtures("nothing_loaded")
def test_modules_that_fail_do_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: pauses for each failing module delayed the last module by half a minute."""
    failing = MODULES[:5]
    imports = Imports(**{name.replace(".", "_"): [OSError(errno.EMFILE, "")] for name in failing})
    assert imports.run(monkeypatch) < 5
    assert imports.imported[-5:] == list(failing)
    assert imports.counters.background_failures == {"import modules": 1}


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize(
    "failure",
    [
        ImportError("libc.so.6: version `GLIBC_2.38' not found"),
        ModuleNotFoundError("No module named 'lz4'"),
        caused(OSError(errno.EIO, "Input/output error")),
    ],
    ids=repr,
)
def test_a_module_that_no_attempt_will_import_is_one_line_in_the_log(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A module that fails must not block the modules after it."""
    imports = Imports(lz4_frame=[failure] * 3)
    assert imports.run(monkeypatch) < 3
    assert {*imports.imported, "lz4.frame"} | OPTIONAL == set(MODULES)
    [record] = caplog.records
    assert "module=lz4.frame" in record.getMessage()
    assert imports.fatal == []


@pytest.mark.usefixtures("nothing_loaded")
def test_a_unit_of_the_fast_path_that_cannot_be_imported_is_fatal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the broker ran, and answered no Produce request."""
    mixture = ImportError("aiokq's compiled core is not of one build", name="aiokq.fastpath.broker")
    imports = Imports(aiokq_fastpath_broker=[mixture])
    imports.run(monkeypatch)
    assert imports.fatal == [mixture]
    assert imports.imported == []
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "not of one build" in record.getMessage()


def test_what_is_loaded_already_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second broker of a process finds all modules imported."""
    monkeypatch.setattr(warm_up, "sys", SimpleNamespace(modules=dict.fromkeys(MODULES)))
    imports = Imports()
    assert imports.run(monkeypatch) == 0
    assert imports.imported == []


@pytest.mark.usefixtures("nothing_loaded")
def test_what_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """re2 matches the regular expressions of groups if it is installed."""
    imported: list[str] = []

    async def main(world: Simulation) -> None:
        monkeypatch.setattr(warm_up.importlib, "import_module", imported.append)
        monkeypatch.setattr(warm_up.importlib.util, "find_spec", lambda name: None)
        background = BackgroundWork(BrokerCounters(), world.clock.monotonic)
        await warm_up.warm_up(background, fatal=unexpected)

    run(1, main)
    assert "re2" not in imported
    assert len(imported) == len(MODULES) - len(OPTIONAL)


def test_the_list_has_nothing_that_is_gone() -> None:
    """A module that does not exist must not be retried forever."""
    for name in MODULES:
        if name not in OPTIONAL:
            assert importlib.util.find_spec(name) is not None, name
    assert len(set(MODULES)) == len(MODULES)
    assert Path(warm_up.__file__).name == "warm_up.py"
