"""The rules of the architecture that a linter of imports cannot see, held by reading the source.

Layers are import-linter's part (`make lint`). Here: who starts tasks, what is handed in
instead of reached for, where heavy packages may be imported, and what `aiokq/__init__` is.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "aiokq"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

FORWARD = ("aiokq/gateway/", "aiokq/spark/", "aiokq/testing/", "aiokq/compat/")
"""Rows above `aiokq/__init__`, which may import it (DESIGN section 3)."""

COMMAND_LINE = ("aiokq/cli/", "aiokq/console/")

STARTS_TASKS = {
    "aiokq/core/supervisor.py": {"create_task", "TaskGroup"},
}
"""Module to what it may call to start a task."""

ENTERS_A_LOOP = {
    "aiokq/broker/process.py": {"Runner"},
    "aiokq/broker/loop_thread.py": {"run", "run_coroutine_threadsafe"},
}
"""Module to how it may start a loop, or reach one from another thread."""

CLOCK_AND_CHANCE = {
    "aiokq/fastpath/produce/accumulator.py": {"time.time_ns", "time.monotonic"},
    "aiokq/connection/network.py": {"random.Random"},
}
"""Outside core: module to what it may reach for. The compiled core reads the system clock in C
unless it is given another; network.py makes the real environment."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(), module)


@cache
def calls(module: str) -> list[tuple[ast.Call, str]]:
    """Every call, with the dotted name of what is called ("" where it has none)."""
    nodes = ast.walk(tree(module))
    return [(node, dotted(node.func)) for node in nodes if isinstance(node, ast.Call)]


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else node.attr
    return ""


def imports(module: str, *, only_on_import: bool = False) -> Iterator[tuple[int, str, list[str]]]:
    """(line, module, names) of each import; `only_on_import` leaves out those in functions and
    those for type checkers."""
    pending: list[ast.AST] = [tree(module)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, []
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            yield node.lineno, node.module or "", [alias.name for alias in node.names]
        if only_on_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if only_on_import and isinstance(node, ast.If) and is_type_checking(node.test):
            pending.extend(node.orelse)
            continue
        pending.extend(ast.iter_child_nodes(node))


def is_type_checking(test: ast.expr) -> bool:
    return dotted(test).endswith("TYPE_CHECKING")


def top(name: str) -> str:
    return name.split(".")[0]


def allowed(table: dict[str, set[str]], module: str) -> set[str]:
    return table.get(module, set())


def test_the_rules_are_held_against_the_whole_package():
    """The package moved, and every rule below holds for no module at all."""
    assert len(MODULES) > 200
    assert {"aiokq/fastpath/shared.py", "aiokq/cli/app.py", *STARTS_TASKS, *ENTERS_A_LOOP} <= {
        *MODULES
    }


def test_only_the_supervisor_starts_tasks():
    """A task that nobody owns fails unseen and outlives close()."""
    for module in MODULES:
        may = allowed(STARTS_TASKS, module)
        for node, name in calls(module):
            last = name.rsplit(".", 1)[-1]
            assert last not in {"create_task", "ensure_future", "TaskGroup"} - may, (
                f"{module}:{node.lineno}: {name}() starts a task: use core.supervisor"
            )
            if last in {"gather", "as_completed", "shield", "wait_for"} and name != f"self.{last}":
                # On coroutines these start tasks behind the caller's back.
                for argument in node.args:
                    argument = argument.value if isinstance(argument, ast.Starred) else argument
                    assert top(name) != "asyncio" or not isinstance(argument, ast.Call), (
                        f"{module}:{node.lineno}: {name}() on a call may start a task"
                    )
        for line, origin, names in imports(module):
            assert origin != "asyncio" or not {"create_task", "ensure_future", "TaskGroup"} & set(
                names
            ), f"{module}:{line}: call them as asyncio.<name>, so that this test sees it"


def test_loops_are_entered_by_entry_points_only():
    """A library that runs a loop of its own cannot be used from one."""
    for module in MODULES:
        if module.startswith((*FORWARD, *COMMAND_LINE)):
            continue
        may = allowed(ENTERS_A_LOOP, module)
        for node, name in calls(module):
            for banned in ("run", "Runner", "run_coroutine_threadsafe", "new_event_loop"):
                assert name != f"asyncio.{banned}" or banned in may, (
                    f"{module}:{node.lineno}: {name}()"
                )
            assert not name.endswith("set_event_loop_policy"), f"{module}:{node.lineno}: {name}()"


def test_clock_and_chance_are_handed_in():
    """What reaches for them cannot be run under a virtual clock with a seed."""
    for module in MODULES:
        if module.startswith(("aiokq/core/", *FORWARD, *COMMAND_LINE)):
            continue
        may = allowed(CLOCK_AND_CHANCE, module)
        imported = {name for _, name, _ in imports(module)}
        for node, name in calls(module):
            first = top(name)
            reaches = (
                (first in ("time", "secrets") and first in imported)
                or (first == "random" and "random" in imported and name != "random")
                or name in ("os.urandom", "uuid.uuid1", "uuid.uuid4")
                or name.endswith(("datetime.now", "datetime.utcnow", "date.today"))
            )
            if reaches and not shadowed(module, node, first):
                assert name in may, (
                    f"{module}:{node.lineno}: {name}(): use environment.clock/.random"
                )
        for line, origin, names in imports(module):
            taken = {"time": {"strftime", "gmtime"}, "random": {"Random"}}.get(origin)
            assert taken is None or set(names) <= taken, f"{module}:{line}: from {origin} import"


def shadowed(module: str, call: ast.Call, name: str) -> bool:
    """Whether a parameter of the function around `call` has this name (`random: Random`)."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = node.args
            names = {arg.arg for arg in (*args.args, *args.kwonlyargs, *args.posonlyargs)}
            if name in names and any(inner is call for inner in ast.walk(node)):
                return True
    return False


def test_heavy_packages_are_imported_where_they_are_used():
    """A broker must accept connections 150 ms after its start."""
    for module in MODULES:
        for line, name, _ in imports(module):
            where = f"{module}:{line}: {name}"
            if top(name) == "prometheus_client":
                assert module in ("aiokq/metrics.py", "aiokq/spark/listener.py"), where
            if top(name) in ("typer", "rich", "click"):
                assert module.startswith(COMMAND_LINE), where
        for line, name, _ in imports(module, only_on_import=True):
            where = f"{module}:{line}: {name}"
            assert top(name) != "pyarrow" or module.startswith("aiokq/spark/"), where
            assert top(name) not in ("pyspark", "numpy", "pandas") or module.startswith(
                "aiokq/spark/"
            ), where


def test_nothing_below_imports_the_lazy_exports():
    """`from aiokq import Producer` in a lower layer would be a cycle that no linter sees."""
    for module in MODULES:
        if module.startswith((*FORWARD, *COMMAND_LINE)) or module == "aiokq/__main__.py":
            continue
        for line, name, names in imports(module):
            where = f"{module}:{line}"
            assert name != "aiokq" or names, f"{where}: import aiokq"
            if name == "aiokq":
                for imported in names:
                    target = PACKAGE / imported
                    module_of_ours = target.is_dir() or target.with_suffix(".py").exists()
                    assert module_of_ours, (
                        f"{where}: from aiokq import {imported}: import it from its own module"
                    )


def test_the_package_itself_imports_nothing_of_its_own():
    """`import aiokq` must cost nothing: the classes are loaded when first named (PEP 562)."""
    for line, name, names in imports("aiokq/__init__.py", only_on_import=True):
        if name == "aiokq._version" or (name == "aiokq" and names == ["_version"]):
            continue
        assert top(name) in sys.stdlib_module_names, f"aiokq/__init__.py:{line}: {name}"
        assert name not in ("asyncio", "ssl"), f"aiokq/__init__.py:{line}: {name}"


def test_every_module_says_what_it_owns():
    """The first line is what a reader has to choose by."""
    for module in MODULES:
        docstring = ast.get_docstring(tree(module))
        assert docstring, f"{module} has no docstring"
        assert docstring.splitlines()[0].strip(), f"{module}: the first line is empty"


START_PATH = (
    "aiokq",
    "aiokq.core.clock",
    "aiokq.core.counters",
    "aiokq.core.environment",
    "aiokq.core.errors",
    "aiokq.core.files",
    "aiokq.core.offload",
    "aiokq.core.properties",
    "aiokq.core.observable_map",
    "aiokq.core.supervisor",
    "aiokq.core.types",
    "aiokq.core.watchdog",
    "aiokq.broker.process",
    "aiokq.broker.embedded",
)


def test_the_brokers_start_path_is_light():
    """pydantic alone costs 90 ms; one import in a wrong place brings it back."""
    code = (
        "import importlib, sys\n"
        "for module in sys.argv[1:]:\n"
        "    importlib.import_module(module)\n"
        "    print(module, *{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *START_PATH],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    heavy = {"pydantic", "pydantic_core", "typer", "rich", "prometheus_client", "pyarrow", "numpy"}
    lines = done.stdout.splitlines()
    assert len(lines) == len(START_PATH)
    for line in lines:
        module, *loaded = line.split()
        assert not heavy & set(loaded), f"{module} loads them"


@pytest.mark.parametrize(
    "package",
    ["admin", "assign", "client", "cluster", "connection", "consumer", "core", "group", "producer"],
)
def test_frozen_value_classes_are_compiled_late(package: str):
    """Half a millisecond a class, for a hundred of them, was a third of what an import took."""
    for path in sorted((ROOT / "aiokq" / package).rglob("*.py")):
        assert "@dataclass(frozen=True" not in path.read_text(), f"{path.name}: use core.frozen"


def test_what_is_generated_from_the_settings_is_current():
    """An editor would complete settings that are gone, and keywords be checked by old bounds."""
    done = subprocess.run(
        [sys.executable, "tools/generate_settings.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"run tools/generate_settings.py: {done.stdout}{done.stderr}"
