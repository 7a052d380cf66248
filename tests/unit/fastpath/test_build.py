"""Which core is in use, whether it was built from these sources, and which unit is loaded when."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import pytest

from aiokq import fastpath
from aiokq.fastpath import pure
from aiokq.fastpath.loading import load
from aiokq.fastpath.produce import states
from aiokq.fastpath.units import UNITS, extensions, source_hash, sources
from tests import conftest, cores

PACKAGE = Path(fastpath.__file__).parent.parent
INHERITED = {name: value for name, value in os.environ.items() if not name.startswith("AIOKQ_")}
NAMES = [name for name, _ in extensions()]
pytestmark = pytest.mark.build_independent  # each test chooses the core that it is about
built = pytest.mark.skipif(not cores.BUILT, reason="the compiled core is not built")


def run(
    code: str, *, cwd: Path = PACKAGE.parent, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**INHERITED, **environment},
    )


def file_of(name: str, package: Path) -> Path:
    return package / (name.removeprefix("aiokq.").replace(".", "/") + EXTENSION_SUFFIXES[0])


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with its built files.

    The byte code is copied too: otherwise each process of a test compiles what it imports.
    """
    package = tmp_path_factory.mktemp("copy") / "aiokq"
    shutil.copytree(PACKAGE, package)
    return package


@pytest.fixture
def copy(copied: Path) -> Iterator[Path]:
    """The copy of the package; a test may damage its built files, which are restored."""
    yield copied
    for name in NAMES:
        shutil.copy2(file_of(name, PACKAGE), file_of(name, copied))


@built
def test_the_compiled_core_is_built_from_these_sources() -> None:
    """After an edit `make setup` must rebuild it."""
    assert load("", True)["SOURCE_HASH"] == source_hash(PACKAGE)
    assert not fastpath.stale()


@pytest.mark.parametrize("stale", [False, True])
def test_a_run_of_tests_names_a_core_that_was_not_built_again(
    stale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: failures with errors such as TypeError did not show their cause."""
    monkeypatch.setattr(fastpath, "stale", lambda: stale)
    lines: list[str] = []
    reporter = SimpleNamespace(write_line=lambda line, **markup: lines.append(line))
    conftest.pytest_terminal_summary(reporter)
    assert ["make setup" in line for line in lines] == [True] * stale


def test_an_edit_of_any_source_changes_the_hash(tmp_path: Path) -> None:
    """An edit of a part, of its C types, or of a header only; without sources there is no hash."""
    copied = tmp_path / "aiokq"
    for path in sources(PACKAGE):
        target = copied / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    assert source_hash(copied) == source_hash(PACKAGE)
    for path in sources(copied):
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert source_hash(copied) != source_hash(PACKAGE), path
        path.write_bytes(before)
    (copied / "fastpath" / "shared.py").unlink()
    assert source_hash(copied) == ""


def test_the_hash_covers_every_file_that_the_compiler_reads() -> None:
    """A part that is missing in the list of units would not be compiled."""
    folder = PACKAGE / "fastpath"
    compiled = {
        path
        for path in folder.rglob("*.py")
        if re.search(r"^    SOURCE_HASH: str = AIOKQ_SOURCE_HASH", path.read_text(), re.MULTILINE)
    }
    assert compiled
    assert set(sources(PACKAGE)) == compiled | {*folder.rglob("*.pxd"), *folder.rglob("*.h")}
    plain = {"produced", "building", "messages"}  # these parts have functions only
    types = {path.with_name(f"_{path.stem}.pxd") for path in compiled if path.stem not in plain}
    assert types == {*folder.rglob("_*.pxd")}


def test_make_builds_again_after_an_edit_of_any_source() -> None:
    """If `make setup` missed a header, its edit would take effect only with a later one."""
    done = subprocess.run(
        ["make", "--print-data-base", "--question", "setup"],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(".cache/stamps/build:")]
    needed = {path.relative_to(PACKAGE.parent).as_posix() for path in sources(PACKAGE)}
    assert needed <= set(line.split())


def test_the_numbers_of_the_pure_core_are_those_of_the_compiled_one() -> None:
    """The compiled core has them in a .pxd, the pure core in a module."""
    for path, module in (("produce/states.pxd", states), ("native.pxd", pure)):
        text = (PACKAGE / "fastpath" / path).read_text()
        enums = re.findall(r"^cdef enum:\n((?:    .+\n)+)", text, re.MULTILINE)
        assert enums
        for enum in enums:
            value = -1
            for name, given in re.findall(r"(\w+)(?: = (\d+))?\n", enum):
                value = int(given) if given else value + 1
                assert getattr(module, name) == value, name


def test_the_pure_core_can_be_forced() -> None:
    """AIOKQ_PURE=1 is for comparisons and as a workaround."""
    done = run("from aiokq import fastpath; print(fastpath.COMPILED)", AIOKQ_PURE="1")
    assert done.stdout.strip() == "False", done.stderr


def test_a_silently_pure_install_can_be_refused() -> None:
    """CI sets AIOKQ_REQUIRE_COMPILED=1."""
    code = (
        "import sys; sys.modules['aiokq.fastpath._shared'] = None\n"
        "from aiokq import fastpath; print(fastpath.COMPILED)"
    )
    assert run(code).stdout.strip() == "False"
    done = run(code, AIOKQ_REQUIRE_COMPILED="1")
    assert done.returncode != 0
    assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_both_cores_have_the_same_names(unit: str) -> None:
    """The unit exports them too."""
    names = load(unit, False).keys()
    face = __import__(f"aiokq.fastpath.{unit}".rstrip("."), fromlist=["x"])
    assert names == {name for name in face.__all__ if name in names}
    assert names >= set(face.__all__) - {
        "COMPILED",
        "MISSING",
        "restore_metadata",
        "restore_outgoing",
        "restore_record",
        "stale",
    }
    if cores.BUILT:
        assert load(unit, True).keys() == names


COMPILER = """#!/bin/sh
case "$*" in *bad.c*) echo "no such instruction" >&2; exit 1 ;; esac
exec gcc "$@"
"""


@built
@pytest.mark.timeout(300)  # the compiler runs three times
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_a_part_that_does_not_compile_takes_the_others_with_it(tmp_path: Path) -> None:
    """Otherwise the wheel would have a mixture that cannot be imported."""
    package = tmp_path / "aiokq" / "fastpath"
    package.mkdir(parents=True)
    shutil.copy(PACKAGE.parent / "setup.py", tmp_path)
    units = (PACKAGE / "fastpath" / "units.py").read_text()
    two = re.sub(r"^UNITS: .*?^}", 'UNITS = {"": ("good", "bad")}', units, flags=re.S | re.M)
    (package / "units.py").write_text(two)
    (package / "__init__.py").touch()
    (package.parent / "__init__.py").touch()
    for part in ("good", "bad"):
        (package / f"{part}.py").write_text("NUMBER = 1\n")
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)

    def build(**environment: str) -> tuple[int, str, int]:
        """Return the exit status, the output, and the number of extensions afterwards."""
        done = subprocess.run(
            [sys.executable, "setup.py", "build_ext", "--build-lib", "built"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**INHERITED, **environment},
        )
        return done.returncode, done.stderr, len([*tmp_path.rglob("*.so")])

    progress = tmp_path / "progress"
    status, _, extensions = build(AIOKQ_BUILD_PROGRESS=str(progress))
    assert (status, extensions) == (0, 2)
    assert progress.read_text().splitlines() == [
        "aiokq: translating the 2 modules of the core to C ...",
        "aiokq: compiled 1 of 2 modules of the core",
        "aiokq: compiled 2 of 2 modules of the core",
    ]
    status, said, extensions = build(CC=str(compiler))
    assert (status, extensions) == (0, 0)
    assert "the compiled core was not built" in said
    status, _, _ = build(CC=str(compiler), AIOKQ_REQUIRE_COMPILED="1")
    assert status != 0


@built
@pytest.mark.parametrize("name", NAMES)
def test_a_core_of_which_a_part_is_missing_is_refused(copy: Path, name: str) -> None:
    """The error names the file and the remedy."""
    file = file_of(name, copy)
    file.unlink()
    done = run("import aiokq.fastpath", cwd=copy.parent)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ImportError")]
    assert f"{file.relative_to(copy.parent)} is missing" in line
    assert "install aiokq again (in a checkout: make setup), or set AIOKQ_PURE=1" in line
    assert run("import aiokq.fastpath", cwd=copy.parent, AIOKQ_PURE="1").returncode == 0


@built
@pytest.mark.parametrize("name", NAMES[1:])
def test_a_part_of_another_build_is_refused(copy: Path, name: str) -> None:
    """Its classes may have other fields.

    The copy differs from a part of another build only in its hash.
    """
    file = file_of(name, copy)
    ours = str(load("", True)["SOURCE_HASH"]).encode()
    assert file.read_bytes().count(ours) == 1
    file.write_bytes(file.read_bytes().replace(ours, b"0" * len(ours)))
    unit = name.split(".")[2]
    done = run(f"import aiokq.fastpath.{unit}", cwd=copy.parent)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError")
    assert f"{file.relative_to(copy.parent)} was built from other sources than" in line
    assert "install aiokq again (in a checkout: make setup), or set AIOKQ_PURE=1" in line
    others = [other for other in UNITS if other != unit]
    code = ";".join(f"import {f'aiokq.fastpath.{other}'.rstrip('.')}" for other in others)
    assert run(code, cwd=copy.parent).returncode == 0


@built
@pytest.mark.parametrize("name", NAMES[1:])
def test_a_part_that_cannot_be_loaded_is_named(copy: Path, name: str) -> None:
    """The dynamic linker's message does not say what to reinstall."""
    file = file_of(name, copy)
    file.write_bytes(b"no extension")
    done = run(f"import aiokq.fastpath.{name.split('.')[2]}", cwd=copy.parent)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError")
    assert f"{file.relative_to(copy.parent)} was built from other sources than" in line


@built
def test_a_broker_of_two_builds_ends_with_one_line(copy: Path) -> None:
    """Regression: the broker ran, and failed at the first Produce request with a traceback."""
    file = file_of("aiokq.fastpath.broker._compaction", copy)
    ours = str(load("", True)["SOURCE_HASH"]).encode()
    file.write_bytes(file.read_bytes().replace(ours, b"0" * len(ours)))
    code = "import sys; from aiokq.broker import process; sys.exit(process.main(['--port', '0']))"
    done = run(code, cwd=copy.parent)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("aiokq broker: aiokq's compiled core is not of one build: ")
    assert str(file.relative_to(copy.parent)) in line
    code = "import sys; from aiokq.cli.app import execute; sys.exit(execute(['doctor']))"
    doctor = run(code, cwd=copy.parent)
    assert "fail  core: aiokq's compiled core is not of one build" in doctor.stdout
    assert doctor.returncode == 1


@built
@pytest.mark.parametrize("entry", ["async with", "with"])
def test_an_embedded_cluster_of_two_builds_does_not_start(copy: Path, entry: str) -> None:
    """Regression: it started, logged the error, and then its clients' requests timed out."""
    file = file_of("aiokq.fastpath.broker._compaction", copy)
    ours = str(load("", True)["SOURCE_HASH"]).encode()
    file.write_bytes(file.read_bytes().replace(ours, b"0" * len(ours)))
    code = f"""
import asyncio, aiokq
async def main():
    {entry} aiokq.EmbeddedCluster():
        print("started")
asyncio.run(main())
"""
    done = run(code, cwd=copy.parent)
    assert done.returncode == 1
    assert done.stdout == ""
    line = done.stderr.splitlines()[-1]
    assert line.startswith("ImportError: aiokq's compiled core is not of one build: ")
    assert "install aiokq again (in a checkout: make setup), or set AIOKQ_PURE=1" in line
    assert run(code, cwd=copy.parent, AIOKQ_PURE="1").stdout == "started\n"


LOADED = "print(*sorted(name for name in sys.modules if name.startswith('aiokq.fastpath')))"


def units_loaded(imports: str, **environment: str) -> set[str]:
    """Return the units that a process has loaded after these imports, without the shared one."""
    done = run(f"import sys\n{imports}\n{LOADED}", **environment)
    assert done.returncode == 0, done.stderr
    return {name.split(".")[2] for name in done.stdout.split() if name.count(".") >= 2} & {*UNITS}


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize(
    ("imports", "units"),
    [
        ("import aiokq.fastpath", set()),
        ("import aiokq.fastpath.produce", {"produce"}),
        ("import aiokq.fastpath.consume", {"consume"}),
        ("import aiokq.fastpath.broker", {"broker"}),
        ("import aiokq.fastpath.gateway", {"gateway"}),
        ("from aiokq import Producer", {"produce"}),
    ],
)
def test_a_process_loads_only_the_units_that_it_uses(
    imports: str, units: set[str], pure: str
) -> None:
    """A broker encodes no records, and a producer cleans no logs."""
    if pure == "0" and not cores.BUILT:
        pytest.skip("the compiled core is not built")
    assert units_loaded(imports, AIOKQ_PURE=pure) == units


@pytest.mark.parametrize("pure", ["0", "1"])
def test_the_broker_loads_its_own_unit_only(pure: str) -> None:
    """This includes the modules that the broker imports later."""
    if pure == "0" and not cores.BUILT:
        pytest.skip("the compiled core is not built")
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in sorted((PACKAGE / "broker").rglob("*.py"))
    ]
    code = "\n".join(f"import {module.removesuffix('.__init__')}" for module in modules)
    assert units_loaded(code, AIOKQ_PURE=pure) == {"broker"}


def test_the_core_needs_neither_cython_nor_pyarrow_to_run() -> None:
    """Cython is needed for the build only; pyarrow is loaded by to_arrow()."""
    code = (
        "import sys\n"
        "import aiokq.fastpath.produce, aiokq.fastpath.consume, aiokq.fastpath.broker\n"
        "import aiokq.fastpath.gateway\n"
        "print(sorted({'Cython', 'cython', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    for forced in ("0", "1"):
        assert run(code, AIOKQ_PURE=forced).stdout.strip() == "[]"
