"""Rules of the architecture that import-linter cannot check, tested on the source.

import-linter (`make lint`) checks the layers. These tests check which modules start tasks, reach
for clock or randomness, import heavy packages, and what `aiokq/__init__` imports.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "aiokq"
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py"))

FORWARD = ("aiokq/gateway/", "aiokq/spark/", "aiokq/testing/", "aiokq/compat/")
"""Layers above `aiokq/__init__`, which may import it (DESIGN section 3)."""

COMMAND_LINE = ("aiokq/cli/", "aiokq/console/")

STARTS_TASKS = {
    "aiokq/core/supervisor.py": {"create_task", "TaskGroup"},
}
"""For each module, the calls with which it may start a task."""

ENTERS_A_LOOP = {
    "aiokq/broker/process.py": {"Runner"},
    "aiokq/broker/loop_thread.py": {"run", "run_coroutine_threadsafe"},
}
"""For each module, the calls with which it may start a loop, or reach one from another thread."""

CLOCK_AND_CHANCE = {
    "aiokq/fastpath/gateway/pool.py": {"os.urandom"},
    "aiokq/fastpath/gateway/pure_intake.py": {"time.monotonic", "time.sleep"},
    "aiokq/fastpath/gateway/pure_pool.py": {"time.monotonic_ns", "time.time_ns"},
    "aiokq/fastpath/gateway/pure_spool.py": {"time.monotonic", "time.time_ns"},
    "aiokq/fastpath/produce/accumulator.py": {"time.time_ns", "time.monotonic"},
    "aiokq/fastpath/produce/outgoing.py": {"time.monotonic"},
    "aiokq/connection/network.py": {"random.Random"},
    "aiokq/connection/sasl/jwt_assertion.py": {"secrets.token_hex"},
    "aiokq/connection/sasl/scram.py": {"secrets.token_urlsafe"},
    "aiokq/connection/tls/key_loading.py": {"os.urandom"},
    "aiokq/connection/tls/verified_chains.py": {"time.time"},
    "aiokq/admin/users.py": {"secrets.token_bytes"},
    "aiokq/broker/security/authentication/key_source.py": {"time.monotonic"},
    "aiokq/connection/timed_answer.py": {"time.monotonic"},
    "aiokq/broker/security/authentication/scram.py": {"secrets.token_bytes"},
    "aiokq/broker/security/authentication/user_passwords.py": {"secrets.token_bytes"},
}
"""For each module outside core, the system functions that it may use.

The compiled core reads the system clock in C unless it gets another one; network.py creates the
real environment. The password of a temporary key must be random, and nobody may be able to predict
the salts and nonces of SCRAM and the ids of assertions. Threads fetch tokens and their keys.
OpenSSL compares certificates with the system's clock, and so does the check of resumed sessions.
The gateway's pool seeds the hash of topics, on which no result depends.
"""


class Call(NamedTuple):
    """A call in a module.

    Attributes:
        name: the dotted name of the callee ("" if it has none).
        takes_calls: whether an argument is a call itself.
        parameters: the parameters of the functions around the call.
    """

    line: int
    name: str
    takes_calls: bool
    parameters: frozenset[str]


class Import(NamedTuple):
    """An import in a module.

    Attributes:
        names: what is imported from the module; empty for `import module`.
        on_import: whether it is executed when the module is imported: it is neither in a function
            nor for type checkers.
    """

    line: int
    module: str
    names: list[str]
    on_import: bool


class Module(NamedTuple):
    """What the rules below need of a module: the trees of all modules would take a gigabyte."""

    docstring: str | None
    calls: list[Call]
    imports: list[Import]


LEAVES = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.Pass)
"""Kinds of nodes in which there is neither a call nor an import."""


@cache
def read(module: str) -> Module:
    tree = ast.parse((ROOT / module).read_text(), module)
    found = Module(ast.get_docstring(tree), [], [])
    pending: list[tuple[ast.AST, frozenset[str], bool]] = [(tree, frozenset(), True)]
    while pending:
        node, parameters, on_import = pending.pop()
        if isinstance(node, ast.Call):
            arguments = [one.value if isinstance(one, ast.Starred) else one for one in node.args]
            takes_calls = any(isinstance(one, ast.Call) for one in arguments)
            found.calls.append(Call(node.lineno, dotted(node.func), takes_calls, parameters))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found.imports.append(Import(node.lineno, alias.name, [], on_import))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            names = [alias.name for alias in node.names]
            found.imports.append(Import(node.lineno, node.module or "", names, on_import))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            args = node.args
            own = (arg.arg for arg in (*args.args, *args.kwonlyargs, *args.posonlyargs))
            parameters, on_import = parameters.union(own), False
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            pending.extend((child, parameters, on_import) for child in node.orelse)
            pending.extend((child, parameters, False) for child in (node.test, *node.body))
            continue
        # ast.iter_child_nodes() takes three times as long.
        for value in vars(node).values():
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, LEAVES):
                    pending.append((child, parameters, on_import))
    return found


def calls(module: str) -> list[Call]:
    return read(module).calls


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else node.attr
    return ""


def imports(module: str, *, only_on_import: bool = False) -> Iterator[tuple[int, str, list[str]]]:
    """Yield (line, module, names) of each import.

    With `only_on_import`, imports in functions and for type checkers are left out.
    """
    for found in read(module).imports:
        if found.on_import or not only_on_import:
            yield found.line, found.module, found.names


def is_type_checking(test: ast.expr) -> bool:
    return dotted(test).endswith("TYPE_CHECKING")


def top(name: str) -> str:
    return name.split(".")[0]


def allowed(table: dict[str, set[str]], module: str) -> set[str]:
    return table.get(module, set())


def test_the_rules_are_held_against_the_whole_package():
    """If the package moved, the rules below would be tested on no module."""
    assert len(MODULES) > 200
    assert {"aiokq/fastpath/shared.py", "aiokq/cli/app.py", *STARTS_TASKS, *ENTERS_A_LOOP} <= {
        *MODULES
    }


def test_only_the_supervisor_starts_tasks():
    """A task without an owner fails unseen and outlives close()."""
    for module in MODULES:
        may = allowed(STARTS_TASKS, module)
        for call in calls(module):
            name = call.name
            last = name.rsplit(".", 1)[-1]
            assert last not in {"create_task", "ensure_future", "TaskGroup"} - may, (
                f"{module}:{call.line}: {name}() starts a task: use core.supervisor"
            )
            if last in {"gather", "as_completed", "shield", "wait_for"} and name != f"self.{last}":
                # With coroutines as arguments these start tasks implicitly.
                assert top(name) != "asyncio" or not call.takes_calls, (
                    f"{module}:{call.line}: {name}() on a call may start a task"
                )
        for line, origin, names in imports(module):
            assert origin != "asyncio" or not {"create_task", "ensure_future", "TaskGroup"} & set(
                names
            ), f"{module}:{line}: call them as asyncio.<name>, so that this test sees it"


def test_loops_are_entered_by_entry_points_only():
    """A library that runs its own loop cannot be used from a running loop."""
    for module in MODULES:
        if module.startswith((*FORWARD, *COMMAND_LINE)):
            continue
        may = allowed(ENTERS_A_LOOP, module)
        for line, name, *_ in calls(module):
            for banned in ("run", "Runner", "run_coroutine_threadsafe", "new_event_loop"):
                assert name != f"asyncio.{banned}" or banned in may, f"{module}:{line}: {name}()"
            assert not name.endswith("set_event_loop_policy"), f"{module}:{line}: {name}()"


def test_clock_and_chance_are_handed_in():
    """Otherwise the code could not run with a virtual clock and a seed."""
    for module in MODULES:
        if module.startswith(("aiokq/core/", *FORWARD, *COMMAND_LINE)):
            continue
        may = allowed(CLOCK_AND_CHANCE, module)
        imported = {name for _, name, _ in imports(module)}
        for line, name, _, parameters in calls(module):
            first = top(name)
            reaches = (
                (first in ("time", "secrets") and first in imported)
                or (first == "random" and "random" in imported and name != "random")
                or name in ("os.urandom", "uuid.uuid1", "uuid.uuid4")
                or name.endswith(("datetime.now", "datetime.utcnow", "date.today"))
            )
            # A parameter may have the name of a module (`random: Random`).
            if reaches and first not in parameters:
                assert name in may, f"{module}:{line}: {name}(): use environment.clock/.random"
        for line, origin, names in imports(module):
            taken = {"time": {"strftime", "gmtime"}, "random": {"Random"}}.get(origin)
            assert taken is None or set(names) <= taken, f"{module}:{line}: from {origin} import"


def test_heavy_packages_are_imported_where_they_are_used():
    """A broker must accept connections 150 ms after its start."""
    for module in MODULES:
        for line, name, _ in imports(module):
            where = f"{module}:{line}: {name}"
            if top(name) == "prometheus_client":
                assert module in PROMETHEUS, where
            if top(name) in ("typer", "rich", "click"):
                assert module.startswith(COMMAND_LINE), where
        for line, name, _ in imports(module, only_on_import=True):
            where = f"{module}:{line}: {name}"
            assert top(name) != "pyarrow" or module.startswith("aiokq/spark/"), where
            assert top(name) not in ("pyspark", "numpy", "pandas") or module.startswith(
                "aiokq/spark/"
            ), where


def test_nothing_below_imports_the_lazy_exports():
    """`from aiokq import Producer` in a lower layer would be a cycle that import-linter misses."""
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
    """Readers choose a module by the first line of its docstring."""
    for module in MODULES:
        docstring = read(module).docstring
        assert docstring, f"{module} has no docstring"
        assert docstring.splitlines()[0].strip(), f"{module}: the first line is empty"


PROMETHEUS = ("aiokq/metrics.py", "aiokq/gateway/metrics.py", "aiokq/spark/listener.py")
"""The modules that may import prometheus_client."""

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
    """pydantic alone costs 90 ms, and one wrong import would load it."""
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
    """Half a millisecond for each of a hundred classes was a third of the import time."""
    for path in sorted((ROOT / "aiokq" / package).rglob("*.py")):
        assert "@dataclass(frozen=True" not in path.read_text(), f"{path.name}: use core.frozen"


def test_what_is_generated_from_the_settings_is_current():
    """Editors would otherwise complete removed settings, and keywords have outdated bounds."""
    done = subprocess.run(
        [sys.executable, "tools/generate_settings.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, f"run tools/generate_settings.py: {done.stdout}{done.stderr}"
