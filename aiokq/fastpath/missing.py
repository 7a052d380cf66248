"""The reason why the compiled core is missing, for a warning; imported only in that case."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

from aiokq.fastpath.units import extensions

__all__ = ["reason_and_remedy"]

HERE = Path(__file__).resolve().parent.parent
NAMES = [name for name, _ in extensions()]


def reason_and_remedy(error: ImportError) -> tuple[str, str]:
    """Return the reason and the remedy, each as a part of the warning's text.

    Args:
        error: the exception from importing the compiled core.
    """
    if error.name not in NAMES:
        return str(error), "Install aiokq again"
    installed = _compiled_installation()
    if installed is not None:
        return (
            f"this is the source tree {HERE.parent}, imported in place of the installed, compiled "
            f"package in {installed.parent}",
            "Run the program from another directory or as a file (`python examples/quickstart.py`"
            " instead of `python -m`), or compile the source tree with `pip install --editable .`",
        )
    return (
        "it was not built",
        "Install a C compiler and Python's headers (Debian: gcc python3-dev) and aiokq again",
    )


def _compiled_installation() -> Path | None:
    """Return the directory of another aiokq package on sys.path that has a compiled core."""
    for distribution in distributions(name="aiokq"):
        for package in _packages(distribution):
            if package != HERE and all(_built(package, name) for name in NAMES):
                return package
    return None


def _built(package: Path, name: str) -> bool:
    return any(package.glob(name.removeprefix("aiokq.").replace(".", "/") + ".*.so"))


def _packages(distribution: Distribution) -> Iterator[Path]:
    """Yield the directories in which the package of an installation may be.

    The package is beside its metadata or, in an editable installation, in its source tree.
    """
    yield Path(str(distribution.locate_file("aiokq"))).resolve()
    origin = distribution.read_text("direct_url.json")
    if origin is not None:
        yield Path(unquote(urlsplit(json.loads(origin)["url"]).path)).resolve() / "aiokq"
