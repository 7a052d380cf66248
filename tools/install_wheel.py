"""install_wheel.py DIR: build sdist and wheel, and install the wheel into a venv at DIR.

The sdist must build, and the wheel must install and contain the compiled core, the type stubs, the
header for C programs and the systemd units. Building the wheel from the sdist shows that the sdist
is complete, and keeps files of an older build in the source tree out of the wheel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDIST = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
CHECK = "import aiokq.fastpath as f; assert f.COMPILED and not f.stale()"


def main() -> int:
    environment = Path(sys.argv[1]).absolute()
    python = str(environment / "bin" / "python")
    dist = environment / "dist"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if not _run(sys.executable, "-m", "venv", "--clear", str(environment)):
        return 1
    dist.mkdir()
    if not _run(sys.executable, "-c", SDIST, str(dist), quiet=True):
        return 1
    (sdist,) = dist.glob("aiokq-*.tar.gz")
    options = ["-q", "--no-deps", "--no-build-isolation", "-w", str(dist)]
    if not _run(*pip, "wheel", *options, str(sdist)):
        return 1
    (wheel,) = dist.glob("aiokq-*.whl")
    data = {
        str(path.relative_to(ROOT))
        for name in ("*.pyi", "py.typed", "include/*.h", "systemd/*")
        for path in (ROOT / "aiokq").rglob(name)
    }
    if missing := data - set(zipfile.ZipFile(wheel).namelist()):
        print(f"{wheel.name} lacks {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    if not _run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)):
        return 1
    return 0 if _run(python, "-I", "-c", CHECK, cwd="/") else 1


def _run(*command: str, cwd: str | Path = ROOT, quiet: bool = False) -> bool:
    """Run a command, and return whether it succeeded; a build fails if the core is not compiled."""
    environment = {**os.environ, "AIOKQ_REQUIRE_COMPILED": "1"}
    environment.pop("AIOKQ_PURE", None)
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=cwd, env=environment, stdout=output).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
