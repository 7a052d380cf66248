"""Every block of code in the guides and the README runs as it stands, and prints what it says.

Python blocks of a page run one after the other in one namespace, with a broker at the address that
the page names; console blocks run in one directory, with the output compared line by line, where
`...` stands for anything, a line of it for any number of lines.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

import pytest

import aiokq

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
PAGES = sorted(path.name for path in GUIDES.glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTS = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
ADDRESS = "127.0.0.1:9092"


def blocks(path: Path, language: str) -> list[str]:
    return [code for name, code in BLOCK.findall(path.read_text()) if name == language]


def expected(code: str) -> list[str]:
    """What the comments behind prints promise; `, then` where a loop prints again."""
    return [line for promise in PRINTS.findall(code) for line in promise.split(", then ")]


async def run_python(codes: list[str], **given: object) -> None:
    """`given`: names that the page expects to be there."""
    namespace: dict[str, Any] = {"__name__": "guide", **given}
    for code in codes:
        out = io.StringIO()
        compiled = compile(code, "guide", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(out):
            await evaluate(compiled, namespace)
        assert out.getvalue().splitlines() == expected(code), code


async def evaluate(code: CodeType, namespace: dict[str, Any]) -> None:
    result: Coroutine[Any, Any, None] | None = eval(code, namespace)
    if result is not None:
        await result


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(GUIDES / page, "python")])
async def test_the_python_of_a_guide_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies a block gets what the page says."""
    monkeypatch.chdir(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    with mock.patch.dict(os.environ, clean, clear=True):  # a page may set variables
        async with aiokq.EmbeddedCluster() as kafka:
            codes = blocks(GUIDES / page, "python")
            await run_python([code.replace(ADDRESS, kafka.bootstrap_servers) for code in codes])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def commands(code: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the output that the page shows."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        command, *output = part.rstrip("\n").split("\n")
        yield command, output


class Shell:
    """Runs commands as a reader would: `&` leaves one running, `export` is kept."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._environment = {n: v for n, v in os.environ.items() if not n.startswith("KAFKA_")}
        programs = Path(sys.executable).parent
        self._environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment["PYTHONPATH"] = str(ROOT)
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> list[str]:
        command = command.replace("9092", str(self.port))
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value
            return []
        if command.endswith("&"):
            self._start(command.removesuffix("&"))
            return []
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.splitlines()

    def _start(self, command: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._running.append(process)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise AssertionError(f"not running: {command}")

    def close(self) -> None:
        for process in self._running:
            process.terminate()
            process.communicate(timeout=20)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


CONSOLES = [
    path for path in [ROOT / "README.md", *map(GUIDES.joinpath, PAGES)] if blocks(path, "console")
]


@pytest.mark.parametrize("page", CONSOLES, ids=lambda path: path.name)
def test_the_commands_of_a_page_print_what_it_shows(page: Path, shell: Shell) -> None:
    """A reader types them in this order."""
    for code in blocks(page, "console"):
        for command, output in commands(code):
            lines = shell.run(command)
            pattern = "".join(
                "(.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".+") + "\n"
                for line in output
            )
            assert re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)), (command, lines)


def test_the_python_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """It is the first thing that anybody tries."""
    (code,) = blocks(ROOT / "README.md", "python")
    program = tmp_path / "program.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["0 0", "b'customer-7' b'value'"]


def test_every_page_is_listed() -> None:
    """A guide that no list leads to is not found."""
    contents = (GUIDES / "README.md").read_text()
    assert [page for page in PAGES if page != "README.md" and f"({page})" not in contents] == []
