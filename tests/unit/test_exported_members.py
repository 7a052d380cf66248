"""The exports of `aiokq` and its public modules: complete, and nothing else."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import aiokq

INIT = Path(aiokq.__file__)
MODULES = ("errors", "metrics", "wire")


def imported_for_type_checkers() -> dict[str, set[str]]:
    """Return names by module, from the `if TYPE_CHECKING:` block of the package."""
    found: dict[str, set[str]] = {}
    for node in ast.parse(INIT.read_text()).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                names = {alias.name for alias in statement.names}
                found.setdefault(str(statement.module), set()).update(names)
    return found


@pytest.mark.parametrize("name", aiokq.__all__)
def test_every_public_name_resolves(name: str):
    """The lazy table must follow a class that moves."""
    assert getattr(aiokq, name) is not None


def test_type_checkers_see_what_is_exported():
    """The lazy table and the imports for type checkers have the same names."""
    seen = imported_for_type_checkers()
    assert seen.pop("aiokq") == set(MODULES)
    assert seen == {module: set(names) for module, names in aiokq._HOMES.items()}
    listed = {name for names in seen.values() for name in names}
    assert listed | set(MODULES) | {"__version__"} == set(aiokq.__all__)
    assert len(aiokq.__all__) == len(set(aiokq.__all__))


def test_public_objects_carry_public_names():
    """No private name is in the table."""
    assert all(not n.startswith("_") for n in aiokq.__all__ if n != "__version__")
    assert dir(aiokq) == sorted(aiokq.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        aiokq.Nothing  # noqa: B018


@pytest.mark.parametrize("module", [*MODULES, "gateway", "testing"])
def test_public_modules_say_what_they_export(module: str):
    """Each has an `__all__`, and all of its names exist."""
    imported = importlib.import_module(f"aiokq.{module}")
    assert imported.__all__
    for name in imported.__all__:
        assert hasattr(imported, name), name


def test_errors_has_a_class_for_every_code():
    """Users who catch an error by its class find it under its Kafka name."""
    from aiokq import errors

    assert errors.KafkaError is aiokq.KafkaError
    for code, cls in errors.ERROR_CLASSES.items():
        assert getattr(errors, cls.__name__) is cls, code


def literal_names(module: str) -> set[str]:
    """Return the names that type checkers see in a module's `__all__`.

    Type checkers read only a literal list, in the stub if the module has one.
    """
    source = Path(str(importlib.import_module(module).__file__))
    stub = source.with_suffix(".pyi")
    for node in ast.parse((stub if stub.exists() else source).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{module} has no __all__")


def test_type_checkers_see_every_error():
    """Regression: mypy reported `errors.TopicExists` as undefined.

    mypy does not evaluate `__all__ += module.__all__`.
    """
    from aiokq import errors

    seen: set[str] = set()
    for node in ast.parse(Path(errors.__file__).read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            seen |= literal_names(str(node.module))
    assert set(errors.__all__) == seen


def modules_after(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_aiokq_loads_next_to_nothing():
    """`import aiokq` is part of many programs' start; the broker's must not load pydantic."""
    loaded = modules_after("import aiokq")
    assert not [m for m in loaded if m.startswith("aiokq.") and m != "aiokq._version"]
    assert not loaded & {"pydantic", "asyncio", "typer", "rich", "prometheus_client", "pyarrow"}


def test_the_embedded_broker_loads_no_client():
    """A test suite that only starts a broker must not load the clients."""
    loaded = modules_after("import aiokq; aiokq.EmbeddedCluster")
    assert not loaded & {"pydantic", "typer", "rich", "prometheus_client", "pyarrow"}
    assert not [m for m in loaded if m.startswith(("aiokq.producer", "aiokq.client"))]


def test_the_client_loads_no_broker():
    """A service that only produces must not load the broker."""
    loaded = modules_after("import aiokq; aiokq.Cluster")
    assert not [m for m in loaded if m.startswith("aiokq.broker")]
    assert not loaded & {"typer", "rich", "prometheus_client", "pyarrow"}


CONSTRUCTORS = {
    "Admin": 'Admin("h:1", client_id="me")',
    "Cluster": 'c = Cluster("h:1"); c.producer(acks="all"); c.consumer("t"); c.admin()',
    "Consumer": 'Consumer("t", bootstrap_servers="h:1", group_id="g", value_deserializer=str)',
    "Producer": 'Producer("h:1", linger_ms=5, compression_type="zstd", value_serializer=str)',
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_a_client_made_by_keywords_loads_no_pydantic(name: str):
    """Importing it and building the models took as long as the rest of a short command."""
    loaded = modules_after(f"from aiokq import {name}; {CONSTRUCTORS[name]}")
    assert "aiokq.cluster.engine" in loaded
    assert not loaded & {"pydantic", "pydantic_core", "annotated_types"}
    assert not [module for module in loaded if module.endswith(".settings")]


def test_a_cluster_loads_the_clients_that_are_made_of_it():
    """Regression: it loaded producer, consumer, groups and administration for every client."""
    unused = ("aiokq.admin", "aiokq.assign", "aiokq.consumer", "aiokq.group", "aiokq.producer")
    loaded = modules_after('from aiokq import Cluster; Cluster("h:1")')
    assert not [module for module in loaded if module.startswith(unused)]
    loaded = modules_after('from aiokq import Cluster; Cluster("h:1").producer()')
    assert "aiokq.producer.producer" in loaded
    assert not [module for module in loaded if module.startswith(unused[:-1])]


def test_a_producer_loads_what_it_produces_with():
    """Each module costs a quarter of a millisecond, even if nothing of it is used."""
    loaded = {m for m in modules_after('from aiokq import Producer; Producer("h:1")') if "." in m}
    ours = {module for module in loaded if module.startswith("aiokq.")}
    # The core has a module for each part, compiled or not.
    ours = {module for module in ours if not module.startswith(("aiokq._", "aiokq.fastpath."))}
    for unused in (
        "admin",
        "assign",
        "cluster.partition_reader",
        "connection.sasl",
        "consumer",
        "group",
    ):
        assert not [module for module in ours if module.startswith(f"aiokq.{unused}")]
    assert not ours & {"aiokq.records.codecs", "aiokq.records.legacy", "aiokq.wire.fetch"}
    assert "aiokq.connection.listener" not in ours
    assert len(ours) <= 130, "is what was added needed by every producer?"


def test_every_error_that_is_raised_can_be_caught_by_its_name():
    """Regression: CommitFailed was documented and raised, but missing in aiokq.errors."""
    from aiokq import errors
    from aiokq.core import errors as defined

    kinds = {
        name
        for name, kind in vars(defined).items()
        if isinstance(kind, type) and issubclass(kind, Exception | Warning)
    }
    assert kinds <= set(errors.__all__)
