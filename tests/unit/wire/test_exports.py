"""The exports of `aiokq.wire`, and the cost of importing it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from aiokq import wire
from aiokq.wire.catalog import API_NAMES, APIS, MODULES
from aiokq.wire.struct import Struct
from tools import generate_messages
from tools.api_purposes import PURPOSES, headline_of


def test_all_names_can_be_imported_and_are_what_they_say() -> None:
    """A missing name in `__all__` would break `from aiokq.wire import *`."""
    assert len(set(wire.__all__)) == len(wire.__all__)
    for name in wire.__all__:
        assert getattr(wire, name) is not None
    with pytest.raises(AttributeError, match="NoSuchRequest"):
        wire.NoSuchRequest  # type: ignore[attr-defined]  # noqa: B018


def test_the_generated_lists_are_current() -> None:
    """A class that is in a file but not in the catalogue cannot be found."""
    listed = {module: names.split() for module, names in MODULES.items()}
    assert listed == generate_messages.exported()
    names = sorted(name for names in listed.values() for name in names)
    assert [name for name in wire.__all__ if isinstance_struct(name)] == names
    for path, text in generate_messages.exports().items():
        assert path.read_text() == text


def test_each_api_has_a_purpose_in_its_headline() -> None:
    """Readers of a module learn what its requests do."""
    assert {name for name, _, _ in APIS.values()} == PURPOSES.keys()
    for key, (name, module, _) in APIS.items():
        document = importlib.import_module(f"aiokq.wire.{module}").__doc__
        assert document == f"{name} (API key {key}): {PURPOSES[name]}."
    assert headline_of("New", 99) == "New (API key 99): its request and its response."


def isinstance_struct(name: str) -> bool:
    value = getattr(wire, name)
    generic = {"Struct", "Message", "Request", "Response"}
    return isinstance(value, type) and issubclass(value, Struct) and name not in generic


def test_every_api_is_found_by_its_key() -> None:
    """The broker dispatches on it."""
    for key, (name, _, request) in APIS.items():
        cls = wire.api(key)
        assert (cls.API_KEY, cls.NAME, cls.__name__) == (key, name, request)
        assert API_NAMES[key] == name
        assert key == cls.RESPONSE.API_KEY


def test_importing_the_package_imports_no_message_file() -> None:
    """A broker starts in 150 ms and needs a third of the APIs."""
    script = (
        "import sys, aiokq.wire\n"
        "loaded = [name for name in sys.modules if name.startswith('aiokq.wire.')]\n"
        "print(*sorted(loaded))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.removeprefix("aiokq.wire.") for name in done.stdout.split()}
    assert loaded == {"catalog", "codec", "fields", "frames", "primitives", "struct"}
