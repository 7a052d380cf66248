"""The gateway's C code under sanitizers: any bytes, any pieces, several threads."""

from __future__ import annotations

import fcntl
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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory that all processes of this run of the tests have in common."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "gateway-fuzz"
    folder.mkdir(exist_ok=True)
    return folder


def built(sanitizer: str, shared: Path) -> list[str]:
    """Compile the driver, once for all tests; return the command that runs it, or skip the test."""
    sanitized = [f"-fsanitize={sanitizer}"]
    folder = shared / sanitizer.replace(",", "-")
    program = folder / "fuzz"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:  # other processes run tests of this module too
        fcntl.flock(lock, fcntl.LOCK_EX)
        probe = folder / "probe.c"
        probe.write_text("int main(void) { return 0; }\n")
        made = subprocess.run(
            ["gcc", *sanitized, str(probe), "-o", str(folder / "probe")],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            pytest.skip(f"gcc has no -fsanitize={sanitizer}: {made.stderr.splitlines()[-1]}")
        # The thread sanitizer knows no addresses as random as those of new kernels.
        fixed = ["setarch", "-R"] if shutil.which("setarch") else []
        if subprocess.run([*fixed, str(folder / "probe")], capture_output=True).returncode:
            fixed = []
            if subprocess.run([str(folder / "probe")], capture_output=True).returncode:
                pytest.skip(f"-fsanitize={sanitizer} does not run here")
        if not program.exists():
            new = folder / "fuzz.new"
            subprocess.run(
                [
                    "gcc",
                    *OPTIONS,
                    *sanitized,
                    f"-I{ROOT}",
                    str(DRIVER),
                    "-o",
                    str(new),
                    "-lpthread",
                ],
                check=True,
            )
            new.rename(program)
    return [*fixed, str(program)]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_any_bytes(shared: Path) -> None:
    """No byte outside a message, an arena or a column is read or written, and nothing leaks."""
    command = built("address,undefined", shared)
    rounds = os.environ.get("AIOKQ_FUZZ_ROUNDS", "40")
    for seed in (1, 2):
        run([*command, "bytes", str(seed), rounds])


def test_little_is_copied_under_the_mutex(shared: Path) -> None:
    """Neither a message of 16 MiB nor the rest of a batch holds up the loop and other inputs."""
    run([*built("address,undefined", shared), "locks"])


def test_few_segments_are_used_again(shared: Path) -> None:
    """Those in use count, too; an empty pool keeps none; the last one ends what they share."""
    run([*built("address,undefined", shared), "spares"])


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_inputs_and_a_loop_that_takes(shared: Path, sanitizer: str) -> None:
    """Three blocking inputs, six senders, a small pool: nothing is lost, doubled or raced for."""
    run([*built(sanitizer, shared), "threads", "3000"])


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_inputs_and_a_spool(shared: Path, sanitizer: str) -> None:
    """The same with a small spool, whose segments are read and deleted meanwhile."""
    run([*built(sanitizer, shared), "spool", "3000"])


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_two_threads_that_end_an_input(shared: Path, sanitizer: str) -> None:
    """Regression: the thread of the input read without a mutex whether it was to read to its end.

    The end would take minutes if the second thread did not limit the time of the first.
    """
    run([*built(sanitizer, shared), "ends"])


def test_an_incomplete_message_of_another_input_has_a_limit_in_time(shared: Path) -> None:
    """Regression: without a limit of its own, it had one only if its own input waited for it."""
    run([*built("address,undefined", shared), "partials"])
