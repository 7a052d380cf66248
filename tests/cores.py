"""Both cores in one process: the names of all units, of the compiled parts and of the pure ones."""

from __future__ import annotations

import os
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from aiokq.fastpath.loading import load
from aiokq.fastpath.units import UNITS

BUILT = find_spec("aiokq.fastpath._shared") is not None
NAMES = ["compiled", "pure"]


def core(name: str) -> SimpleNamespace:
    """The core "compiled" or "pure"; skips the test if it is not built."""
    compiled = name == "compiled"
    if compiled and not BUILT and os.environ.get("AIOKQ_REQUIRE_COMPILED") != "1":
        pytest.skip("the compiled core is not built: make setup", allow_module_level=True)
    given = {name: value for unit in UNITS for name, value in load(unit, compiled).items()}
    return SimpleNamespace(**given, COMPILED=compiled)


def cores() -> list[SimpleNamespace]:
    """The pure core, and the compiled one where it is built."""
    return [core(name) for name in NAMES if BUILT or name == "pure"]
