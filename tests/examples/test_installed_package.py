"""aiokq as a user has it: the wheel, in an environment of its own, beside a checkout.

`make test` builds it from the sdist, and installs it (tools/install_wheel.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from aiokq.fastpath.units import UNITS, extensions, sources
from tests.examples.test_examples import EXPECTED

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".cache" / "wheel"
PYTHON = ENVIRONMENT / "bin" / "python"


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    assert PYTHON.exists(), "the wheel is not installed: run `make .cache/stamps/wheel`"
    return subprocess.run(
        [str(PYTHON), "-W", "error", *arguments],
        cwd=cwd,
        # A user has none of the tests' variables, as the one that asks for the compiled core.
        env={name: value for name, value in os.environ.items() if not name.startswith("AIOKQ_")},
        capture_output=True,
        text=True,
        timeout=60,
    )


# blocking_code drives the broker with another client, which is not installed there.
@pytest.mark.parametrize("name", sorted(EXPECTED.keys() - {"blocking_code"}))
def test_an_example_that_is_run_as_a_file_uses_the_installed_package(name: str) -> None:
    """With `-m` it imported the source tree, and warned that no compiler was there."""
    result = run(f"examples/{name}.py")
    assert result.returncode == 0, result.stderr
    assert EXPECTED[name] in result.stdout
    assert not result.stderr


def test_a_source_tree_in_place_of_the_installed_package_is_named(tmp_path: Path) -> None:
    """Who reads "install a compiler" has one, and the compiled package as well."""
    bare = tmp_path / "checkout"
    shutil.copytree(ROOT / "aiokq", bare / "aiokq", ignore=shutil.ignore_patterns("*.so"))
    result = run("-c", "import aiokq.fastpath", cwd=bare)
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("RuntimeWarning")]
    assert f"this is the source tree {bare}, imported in place of" in line
    assert f"compiled package in {ENVIRONMENT.resolve()}" in line
    assert "compiler" not in line


def test_the_sdist_and_the_wheel_have_every_part_of_the_core() -> None:
    """A header that is left out is missed by whoever builds from the sdist, and types by mypy."""
    dist = ENVIRONMENT / "dist"
    (sdist,) = dist.glob("aiokq-*.tar.gz")
    (wheel,) = dist.glob("aiokq-*.whl")
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[-1] for name in archive.getnames()}
    in_wheel = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "aiokq"
    stubs = [*package.rglob("*.pyi"), package / "py.typed"]
    needed = {path.relative_to(ROOT).as_posix() for path in [*sources(package), *stubs]}
    assert sorted(needed - in_sdist) == []
    assert sorted(needed - in_wheel) == []
    built = {name.split(".")[0] for name in in_wheel if name.endswith((".so", ".pyd"))}
    assert built == {name.replace(".", "/") for name, _ in extensions()}
    assert not [name for name in in_sdist | in_wheel if name.endswith(".c")]
    # What an older build left in the tree would be in the wheel, too.
    modules = {name for name in in_wheel if name.startswith("aiokq/") and name.endswith(".py")}
    assert modules == {path.relative_to(ROOT).as_posix() for path in package.rglob("*.py")}


def test_the_installed_core_is_compiled_and_of_one_build() -> None:
    """Every unit of it."""
    names = ", ".join(f"aiokq.fastpath.{unit}".rstrip(".") for unit in UNITS)
    code = f"import {names}\nassert aiokq.fastpath.COMPILED and not aiokq.fastpath.stale()"
    done = run("-I", "-c", code, cwd=Path("/"))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_works_without_a_warning(tmp_path: Path) -> None:
    """The script is what most users start with."""
    result = run(str(ENVIRONMENT / "bin" / "aiokq"), "--version", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
