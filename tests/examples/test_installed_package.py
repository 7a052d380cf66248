"""aiokq as a user has it: the wheel, in an environment of its own, beside a checkout.

`make test` installs it (tools/install_wheel.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

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


def test_the_command_works_without_a_warning(tmp_path: Path) -> None:
    """The script is what most users start with."""
    result = run(str(ENVIRONMENT / "bin" / "aiokq"), "--version", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
