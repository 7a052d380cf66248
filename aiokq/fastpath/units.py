"""Owns the list of the units, and the hash that ties what is built to its sources.

setup.py runs this file by path, before the package can be imported, so it imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

UNITS: Final[dict[str, tuple[str, ...]]] = {
    "": ("shared",),
    "produce": ("columns", "deliveries", "batch", "routes", "accumulator"),
    "consume": ("cursor", "columns", "stream"),
    "broker": ("compaction", "produced"),
}
"""Unit to its parts. A unit is a directory of this package, "" the package itself; a part is a
source `part.py`, which is importable as it is, with its C types in `_part.pxd`, and is compiled to
the extension `_part` beside it. A new unit or part is added here, and nowhere else."""


def parts(unit: str, compiled: bool) -> list[str]:
    """The names of a unit's modules, compiled or not, a module after those that it needs."""
    package = f"aiokq.fastpath.{unit}" if unit else "aiokq.fastpath"
    return [f"{package}.{'_' if compiled else ''}{part}" for part in UNITS[unit]]


def extensions() -> Iterator[tuple[str, str]]:
    """Each extension's module name, and the path of its source below the package aiokq."""
    for unit in UNITS:
        for name, source in zip(parts(unit, True), parts(unit, False), strict=True):
            yield name, source.removeprefix("aiokq.").replace(".", "/") + ".py"


def sources(package: Path) -> list[Path]:
    """What all the extensions are built from: the parts, and every .pxd and .h file."""
    here = package / "fastpath"
    found = [package / source for _, source in extensions()]
    return found + sorted([*here.rglob("*.pxd"), *here.rglob("*.h")])


def source_hash(package: Path) -> str:
    """SHA-256 over the sources; "" where they are not installed.

    Args:
        package: the directory of the package aiokq.
    """
    import hashlib  # it costs a broker's start milliseconds

    digest = hashlib.sha256()
    for path in sources(package):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return ""
        digest.update(f"{path.relative_to(package).as_posix()} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
