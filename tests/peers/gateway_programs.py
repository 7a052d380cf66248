"""C programs that write to a gateway, compiled from the header that the package ships."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from aiokq.gateway.client import get_include

HERE = Path(__file__).resolve().parent
WARNINGS = ("-Wall", "-Wextra", "-Werror")

needed = "gcc"
"""The compiler without which the programs cannot be built."""


def compiled(source: str, output: Path, *options: str, compiler: str = "gcc") -> Path:
    """Compile a source of this directory with all warnings as errors; fails with their text."""
    assert shutil.which(compiler) is not None, f"{compiler} is missing: apt install {compiler}"
    done = subprocess.run(
        [
            *(compiler, *options, *WARNINGS, f"-I{get_include()}"),
            *("-o", str(output), str(HERE / source)),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return output


def gateway_sender(directory: Path) -> Path:
    """Compile the program with the options of Dory's `to_dory`."""
    feature = "-D_POSIX_C_SOURCE=200809L"
    return compiled("gateway_sender.c", directory / "gateway_sender", "-std=c99", "-O1", feature)
