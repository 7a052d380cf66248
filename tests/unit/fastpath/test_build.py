"""Which core is in use, and whether it was built from these sources."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq import _core, fastpath
from aiokq._source_hash import SOURCES, source_hash

PACKAGE = Path(fastpath.__file__).parent


INHERITED = {name: value for name, value in os.environ.items() if not name.startswith("AIOKQ_")}


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=PACKAGE.parent,
        env={**INHERITED, **environment},
    )


def test_the_compiled_core_is_built_from_these_sources() -> None:
    """An edit must not run stale code: python setup.py build_ext --inplace."""
    if importlib.util.find_spec("aiokq._compiled") is None:
        pytest.skip("not built")
    from aiokq import _compiled

    assert source_hash(PACKAGE) == _compiled.SOURCE_HASH
    assert not fastpath.stale()


def test_the_hash_covers_every_source_of_the_core(tmp_path: Path) -> None:
    """An edit of the header alone is an edit; a wheel without sources is not stale."""
    for name in SOURCES:
        (tmp_path / name).write_bytes((PACKAGE / name).read_bytes())
    assert source_hash(tmp_path) == source_hash(PACKAGE)
    for name in SOURCES:
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(before + b"\n")
        assert source_hash(tmp_path) != source_hash(PACKAGE)
        (tmp_path / name).write_bytes(before)
    (tmp_path / SOURCES[0]).unlink()
    assert source_hash(tmp_path) == ""


def test_the_pure_core_can_be_forced() -> None:
    """AIOKQ_PURE=1, to compare and to work around."""
    done = run("from aiokq import fastpath; print(fastpath.COMPILED)", AIOKQ_PURE="1")
    assert done.stdout.strip() == "False", done.stderr


def test_a_silently_pure_install_can_be_refused() -> None:
    """AIOKQ_REQUIRE_COMPILED=1 in CI."""
    code = (
        "import sys; sys.modules['aiokq._compiled'] = None\n"
        "from aiokq import fastpath; print(fastpath.COMPILED)"
    )
    assert run(code).stdout.strip() == "False"
    done = run(code, AIOKQ_REQUIRE_COMPILED="1")
    assert done.returncode != 0
    assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr


def test_both_cores_say_what_they_are() -> None:
    """And have the same public names."""
    assert _core.COMPILED is False
    for name in fastpath.__all__:
        assert hasattr(fastpath, name)
    if importlib.util.find_spec("aiokq._compiled") is not None:
        from aiokq import _compiled

        assert _compiled.COMPILED is True
        for name in set(fastpath.__all__) & set(dir(_core)):
            assert hasattr(_compiled, name)


def test_the_core_needs_neither_cython_nor_pyarrow_to_run() -> None:
    """Cython is a build requirement; pyarrow is loaded by to_arrow()."""
    code = (
        "import sys\n"
        "from aiokq import fastpath\n"
        "print(sorted({'Cython', 'cython', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    for pure in ("0", "1"):
        assert run(code, AIOKQ_PURE=pure).stdout.strip() == "[]"
