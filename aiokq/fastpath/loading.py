"""Chooses between the compiled and the pure core, and loads the units of either.

All units are compiled, or all are pure. A mixture could combine a compiled Delivery with a pure
Batch, or a Batch of one build with an Accumulator of another build. A mixture therefore raises
ImportError.
Tests: tests/unit/fastpath/test_build.py, tests/unit/test_fastpath.py.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES

from aiokq.fastpath.units import UNITS, parts

PACKAGE = os.path.dirname(os.path.dirname(__file__))

REMEDY = "install aiokq again (in a checkout: make setup), or set AIOKQ_PURE=1 to run without them"


def choose() -> tuple[bool, tuple[str, str] | None]:
    """Return whether to use the compiled core; and if it is missing, the reason and the remedy.

    A missing compiled core causes a RuntimeWarning, unless AIOKQ_PURE=1.

    Raises:
        ImportError: only a part of the compiled core is installed, or the compiled core cannot be
            imported and AIOKQ_REQUIRE_COMPILED=1.
    """
    if os.environ.get("AIOKQ_PURE") == "1":
        return False, None
    names = [name for unit in UNITS for name in parts(unit, True)]
    absent = [name for name in names if not os.path.exists(_file(name))]
    if absent and len(absent) < len(names):
        raise ImportError(
            f"aiokq's compiled core is incomplete: {_listed(absent)} is missing; {REMEDY}"
        )
    try:
        import_module(names[0])
    except ImportError as error:
        if os.environ.get("AIOKQ_REQUIRE_COMPILED") == "1":
            raise
        from aiokq.fastpath.missing import reason_and_remedy

        missing = reason_and_remedy(error)
        warnings.warn(
            f"aiokq runs without its compiled core, several times slower: {missing[0]}. "
            f"{missing[1]}, or set AIOKQ_PURE=1 if this is wanted",
            RuntimeWarning,
            stacklevel=2,
        )
        return False, missing
    return True, None


def load(unit: str, compiled: bool) -> dict[str, object]:
    """Return a unit's exports by name, from its compiled or its pure parts.

    Tests load the parts of both cores in one process.

    Raises:
        ImportError: the compiled parts are of different builds.
    """
    shared = import_module(parts("", compiled)[0])
    given: dict[str, object] = {}
    try:
        for name in parts(unit, compiled):
            module = import_module(name)
            if compiled and module.SOURCE_HASH != shared.SOURCE_HASH:
                raise ImportError(f"{name} is of another build", name=name)
            given.update((public, getattr(module, public)) for public in module.__all__)
    # Cython raises ValueError or TypeError if the class sizes or function types differ from those
    # that a part was compiled against.
    except (ImportError, TypeError, ValueError) as error:
        other = _other_builds(unit, shared.SOURCE_HASH) if compiled else []
        if not other:
            raise
        raise ImportError(
            f"aiokq's compiled core is not of one build: {_listed(other)} was built from other "
            f"sources than {_listed(parts('', True))}; {REMEDY}",
            name=other[0],
        ) from error
    return given


def _file(name: str) -> str:
    """Return the path that an extension has if it is built."""
    return os.path.join(PACKAGE, *name.split(".")[1:]) + EXTENSION_SUFFIXES[0]


def _listed(names: list[str]) -> str:
    """Return the file names of extensions, relative to the directory that contains the package."""
    return ", ".join(os.path.relpath(_file(name), os.path.dirname(PACKAGE)) for name in names)


def _other_builds(unit: str, source_hash: str) -> list[str]:
    """Return the extensions of a unit that do not contain `source_hash` or cannot be read.

    The files are read, not imported, because the import of extensions of several builds may fail.
    """
    other = []
    for name in parts(unit, True):
        try:
            with open(_file(name), "rb") as file:
                if source_hash.encode() not in file.read():
                    other.append(name)
        except OSError:
            other.append(name)
    return other
