"""install_wheel.py DIR: build the wheel and install it, with its dependencies, into a venv at DIR.

The wheel is what users get: it must build, install and hold the compiled core.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECK = "import aiokq.fastpath as f; assert f.COMPILED and not f.stale()"


def main() -> int:
    environment = Path(sys.argv[1]).absolute()
    python = str(environment / "bin" / "python")
    dist = environment / "dist"
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    for step in (
        [sys.executable, "-m", "venv", "--clear", str(environment)],
        [*build, "-w", str(dist), str(ROOT)],
    ):
        if subprocess.run(step).returncode:
            return 1
    (wheel,) = dist.glob("aiokq-*.whl")
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
    if subprocess.run(install).returncode:
        return 1
    return subprocess.run([python, "-I", "-c", CHECK], cwd="/").returncode


if __name__ == "__main__":
    sys.exit(main())
