"""The fallback to the pure core warns once, unless the user chose it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.fastpath import missing
from aiokq.fastpath.units import UNITS, extensions
from tests import cores

ROOT = Path(__file__).resolve().parents[2]
INHERITED = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("AIOKQ_", "KAFKA_", "PYTHONWARNINGS"))
}
NOT_BUILT = "import sys; sys.modules['aiokq.fastpath._shared'] = None; "


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**INHERITED, **environment},
    )


def test_a_machine_without_a_compiler_is_told_once() -> None:
    """pip hides the output of setup.py, and ten modules import the core."""
    done = run(NOT_BUILT + "import aiokq.fastpath; from aiokq import Producer, Consumer")
    assert done.stderr.count("RuntimeWarning") == 1
    assert "several times slower" in done.stderr
    assert "python3-dev" in done.stderr


def test_a_core_that_is_there_and_broken_gives_its_reason() -> None:
    """A core built for another machine exists, so the message must not say that it is missing."""
    code = (
        "import sys, importlib.abc\n"
        "class Broken(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'aiokq.fastpath._shared':\n"
        "            raise ImportError('_shared.so: wrong ELF class')\n"
        "sys.meta_path.insert(0, Broken())\n"
        "import aiokq.fastpath"
    )
    assert "wrong ELF class" in run(code).stderr


def test_a_source_tree_beside_an_editable_installation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the message blamed a missing compiler. The tests run in such an installation."""
    if not cores.BUILT:
        pytest.skip("the compiled core is not built")
    monkeypatch.setattr(missing, "HERE", tmp_path / "aiokq")
    error = ImportError("no such module", name="aiokq.fastpath._shared")
    reason, remedy = missing.reason_and_remedy(error)
    assert f"the source tree {tmp_path}, imported in place of" in reason
    assert f"package in {ROOT}" in reason
    assert "pip install --editable ." in remedy


def test_who_asks_for_the_pure_core_is_not_warned() -> None:
    """AIOKQ_PURE=1 is the user's decision."""
    assert run(NOT_BUILT + "import aiokq.fastpath", AIOKQ_PURE="1").stderr == ""


def test_the_doctor_says_why_the_core_is_pure() -> None:
    """The warning may have been filtered or overlooked."""
    call = "from aiokq.cli.app import execute; execute(['doctor'])"
    done = run(NOT_BUILT + call)
    (line,) = [line for line in done.stdout.splitlines() if " core: " in line]
    assert line.startswith("warn")
    assert "it was not built" in line
    assert "python3-dev" in line
    assert done.stderr.count("aiokq: warning: ") == 1
    assert "AIOKQ_PURE=1 is set" in run(NOT_BUILT + call, AIOKQ_PURE="1").stdout


def test_the_broker_on_a_machine_without_a_compiler_starts() -> None:
    """The warning is on stderr; the line for programs on stdout is unchanged."""
    done = run(NOT_BUILT + "import aiokq.broker.process, aiokq.fastpath")
    assert done.stdout == ""
    assert done.stderr.count("RuntimeWarning") == 1


def test_the_contents_of_a_part_name_its_sections_in_order() -> None:
    """An outdated list would mislead readers of a file of a thousand lines."""
    listed_parts = 0
    for _, path in extensions():
        source = (ROOT / "aiokq" / path).read_text()
        sections = re.findall(r"^# -{20,} (.+)$", source, re.MULTILINE)
        assert sections.pop() == "module initialization", path
        contents = source[: source.index("from __future__")]
        listed = re.findall(r"^    (\w[\w' ]*?)  +\S", contents, re.MULTILINE)
        assert listed == sections, path
        listed_parts += bool(listed)
    assert listed_parts > 3


def test_no_part_is_longer_than_a_reader_bears() -> None:
    """docs/adr/0008-compiled-units.md gives the cost of dividing further."""
    for _, path in extensions():
        assert len((ROOT / "aiokq" / path).read_text().splitlines()) <= 1500, path


def test_the_contents_of_the_package_name_its_units() -> None:
    """Every unit is a package of that name, except the shared unit."""
    source = (ROOT / "aiokq" / "fastpath" / "__init__.py").read_text()
    listed = re.findall(r"^    aiokq\.fastpath\.?(\w*)  ", source, re.MULTILINE)
    assert listed == list(UNITS)
