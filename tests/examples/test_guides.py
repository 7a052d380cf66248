"""Every block of code in the guides and the README runs as it stands, and prints what it says.

Python blocks of a page run one after the other in one namespace, with a broker at the address that
the page names; console blocks run in one directory, with the output compared line by line, where
`...` stands for anything, a line of it for any number of lines.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
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


def is_program(code: str) -> bool:
    return "\nasyncio.run(" in code


def is_test_file(code: str) -> bool:
    return "import pytest_asyncio\n" in code


def lines_of(page: str) -> list[str]:
    """The blocks that are typed one after the other."""
    codes = blocks(GUIDES / page, "python")
    return [code for code in codes if not is_program(code) and not is_test_file(code)]


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


@pytest.mark.parametrize("page", [page for page in PAGES if lines_of(page)])
async def test_the_python_of_a_guide_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever copies a block gets what the page says."""
    monkeypatch.chdir(tmp_path)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    with mock.patch.dict(os.environ, clean, clear=True):  # a page may set variables
        async with aiokq.EmbeddedCluster() as kafka:
            codes = lines_of(page)
            await run_python([code.replace(ADDRESS, kafka.bootstrap_servers) for code in codes])


INI = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
TEST_FILES = [
    (page, number)
    for page in PAGES
    for number, code in enumerate(filter(is_test_file, blocks(GUIDES / page, "python")))
]


@pytest.mark.parametrize(("page", "number"), TEST_FILES)
def test_the_test_files_of_a_guide_pass(page: str, number: int, tmp_path: Path) -> None:
    """With the modes and scopes of pytest-asyncio that the page speaks of."""
    code = list(filter(is_test_file, blocks(GUIDES / page, "python")))[number]
    (tmp_path / "test_guide.py").write_text(code)
    (tmp_path / "pytest.ini").write_text(INI)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_guide.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["a record is in work", "there is nothing to do"])
async def test_the_service_of_the_shutdown_guide_ends_as_it_says(
    when: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Containers are stopped by a signal, many times a day, in the middle of something."""
    (code,) = filter(is_program, blocks(GUIDES / "shutdown.md", "python"))
    records = 20 if when == "a record is in work" else 2
    async with aiokq.EmbeddedCluster() as kafka, aiokq.Cluster(kafka.bootstrap_servers) as cluster:
        async with cluster.producer() as producer:
            await producer.send_many("orders", [(None, b"%d" % each) for each in range(records)])
        program = tmp_path / "service.py"
        program.write_text(code.replace(ADDRESS, kafka.bootstrap_servers))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", str(program)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            async with asyncio.timeout(60):
                while said[-1:] != ["handled 1"]:
                    line = await process.stdout.readline()
                    assert line, "it ended by itself"
                    said.append(line.decode().strip())
                process.send_signal(number)
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, err.decode()) == (0, "")
        said += out.decode().splitlines()
        handled = [line for line in said if line.startswith("handled")]
        assert said == ["ready", *(f"handled {each}" for each in range(len(handled))), "closed"]
        if when == "a record is in work":
            assert len(handled) < records
        async with cluster.admin() as admin:
            committed = (await admin.list_group_offsets(["billing"]))["billing"].offsets
            assert committed[aiokq.TopicPartition("orders", 0)].offset == len(handled)
            (group,) = (await admin.describe_groups(["billing"])).values()
            assert not group.members
        ends = await cluster.offsets(("invoices", 0), "latest")
        assert ends is not None
        assert ends.offset == len(handled)


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


async def test_the_example_of_send_runs_as_it_stands() -> None:
    """It is what an editor shows first."""
    text = inspect.cleandoc(str(aiokq.Producer.send.__doc__))
    (example,) = re.findall(r"^::\n\n((?:    .*\n)+)", text, re.MULTILINE)
    async with aiokq.EmbeddedCluster() as kafka, aiokq.Producer(kafka.bootstrap_servers) as made:
        out = io.StringIO()
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(textwrap.dedent(example), "example", "exec", flags)
        with contextlib.redirect_stdout(out):
            await evaluate(code, {"producer": made})
    assert out.getvalue() == "orders 0 0\n"


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
