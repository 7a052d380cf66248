"""The list of the units of aiokq.fastpath, and the hash of their sources.

setup.py runs this file by path before aiokq can be imported, so this file imports nothing of aiokq.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

UNITS: Final[dict[str, tuple[str, ...]]] = {
    "": ("shared",),
    "produce": (
        *("arguments", "columns", "deliveries", "batch", "routes"),
        *("accumulator", "building", "outgoing", "queues", "messages"),
    ),
    "consume": ("cursor", "columns", "stream"),
    "broker": ("compaction", "produced"),
    "gateway": ("pool", "spool", "intake"),
}
"""Maps each unit to its parts.

A unit is a directory of this package ("" is the package itself). A part is a module `part.py` that
can be imported uncompiled; its C types, if it has any, are in `_part.pxd`. The part is compiled to
the extension `_part` beside it. A new unit or part is added only here.
"""


def parts(unit: str, compiled: bool) -> list[str]:
    """Return the module names of a unit, compiled or not, in the order of their dependencies."""
    package = f"aiokq.fastpath.{unit}" if unit else "aiokq.fastpath"
    return [f"{package}.{'_' if compiled else ''}{part}" for part in UNITS[unit]]


def extensions() -> Iterator[tuple[str, str]]:
    """Yield each extension's module name and the path of its source in the package aiokq."""
    for unit in UNITS:
        for name, source in zip(parts(unit, True), parts(unit, False), strict=True):
            yield name, source.removeprefix("aiokq.").replace(".", "/") + ".py"


def sources(package: Path) -> list[Path]:
    """Return the sources of all extensions: the parts, and every .pxd and .h file."""
    here = package / "fastpath"
    found = [package / source for _, source in extensions()]
    return found + sorted([*here.rglob("*.pxd"), *here.rglob("*.h")])


def source_hash(package: Path) -> str:
    """Return the SHA-256 of the sources; "" if they are not installed.

    Args:
        package: the directory of the package aiokq.
    """
    import hashlib  # imported here: the import takes milliseconds of a broker's start

    digest = hashlib.sha256()
    for path in sources(package):
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return ""
        digest.update(f"{path.relative_to(package).as_posix()} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
