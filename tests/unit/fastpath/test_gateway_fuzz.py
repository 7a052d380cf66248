"""The gateway's C code under sanitizers: any bytes, any pieces, several threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq import fastpath

DRIVER = Path(__file__).with_name("gateway_fuzz.c")
ROOT = Path(fastpath.__file__).parents[2]
OPTIONS = ["-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all"]
pytestmark = [
    pytest.mark.build_independent,
    pytest.mark.skipif(sys.platform != "linux", reason="the compiled inputs need Linux"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc"),
    pytest.mark.timeout(300),  # the sanitizers make the compiler and the program slow
]


def built(sanitizer: str, folder: Path) -> list[str]:
    """Compile the driver; return the command that runs it, or skip the test."""
    sanitized = [f"-fsanitize={sanitizer}"]
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    made = subprocess.run(
        ["gcc", *sanitized, str(probe), "-o", str(folder / "probe")], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"gcc has no -fsanitize={sanitizer}: {made.stderr.splitlines()[-1]}")
    # The thread sanitizer knows no addresses as random as those of new kernels.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    if subprocess.run([*fixed, str(folder / "probe")], capture_output=True).returncode:
        fixed = []
        if subprocess.run([str(folder / "probe")], capture_output=True).returncode:
            pytest.skip(f"-fsanitize={sanitizer} does not run here")
    program = folder / "fuzz"
    subprocess.run(
        ["gcc", *OPTIONS, *sanitized, f"-I{ROOT}", str(DRIVER), "-o", str(program), "-lpthread"],
        check=True,
    )
    return [*fixed, str(program)]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_any_bytes(tmp_path: Path) -> None:
    """No byte outside a message, an arena or a column is read or written, and nothing leaks."""
    command = built("address,undefined", tmp_path)
    rounds = os.environ.get("AIOKQ_FUZZ_ROUNDS", "40")
    for seed in (1, 2):
        run([*command, "bytes", str(seed), rounds])


def test_little_is_copied_under_the_mutex(tmp_path: Path) -> None:
    """Neither a message of 16 MiB nor the rest of a batch holds up the loop and other inputs."""
    run([*built("address,undefined", tmp_path), "locks"])


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_inputs_and_a_loop_that_takes(tmp_path: Path, sanitizer: str) -> None:
    """Three blocking inputs, six senders, a small pool: nothing is lost, doubled or raced for."""
    run([*built(sanitizer, tmp_path), "threads", "3000"])


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_inputs_and_a_spool(tmp_path: Path, sanitizer: str) -> None:
    """The same with a small spool, whose segments are read and deleted meanwhile."""
    run([*built(sanitizer, tmp_path), "spool", "3000"])
