"""The root command: its help, its errors and its exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aiokq.cli.output import OutputClosed
from aiokq.cli.session import Session, Terminated
from aiokq.core.errors import BootstrapFailed, ConfigError
from tests.unit.cli.harness import CommandLine


def test_the_help_lists_every_command_and_the_broker(alone: CommandLine):
    """Users look for commands in the help first."""
    done = alone("--help", servers=None)
    assert done.code == 0
    commands = "broker topics produce consume offsets groups cluster doctor"
    for command in commands.split():
        assert f"{command} " in done.out.decode()


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "describe"),
        ("topics", "create"),
        ("topics", "delete"),
        ("topics", "alter"),
        ("produce",),
        ("consume",),
        ("offsets",),
        ("groups", "list"),
        ("groups", "describe"),
        ("groups", "reset"),
        ("groups", "rewind"),
        ("groups", "delete"),
        ("groups", "import-zookeeper"),
        ("cluster",),
        ("check",),
        ("doctor",),
    ],
)
def test_every_command_explains_itself_with_an_example(
    alone: CommandLine, command: tuple[str, ...]
):
    """A help text that is truncated or has no example is of no use."""
    done = alone(*command, "--help", servers=None)
    text = done.out.decode()
    assert done.code == 0
    assert "$ aiokq " in text
    assert "…" not in text


def test_what_stands_in_brackets_is_in_the_help(alone: CommandLine):
    """Regression: brackets in `pip install aiokq[zookeeper]` were taken for markup and dropped."""
    text = alone("groups", "import-zookeeper", "--help", servers=None).out.decode()
    assert "aiokq[zookeeper]" in text


def test_the_help_needs_none_of_the_client():
    """`aiokq --help` has to be fast."""
    code = (
        "import sys; from aiokq.cli.app import execute; execute(['--help']); "
        "print(*sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr); "
        "print(*(m for m in sys.modules if m.startswith('aiokq.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    tops, ours = (line.split() for line in done.stderr.splitlines())
    assert not {"asyncio", "pydantic", "prometheus_client", "pyarrow", "uvloop"} & set(tops)
    assert not [m for m in ours if m.startswith(("aiokq.client", "aiokq.cluster", "aiokq.wire"))]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_is_one_line(buffered: bool):
    """Regression: Python wrote the buffer again at its exit, complained, and ended with 120."""
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONUNBUFFERED"}
    if not buffered:
        environment["PYTHONUNBUFFERED"] = "1"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aiokq", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    assert (done.returncode, done.stderr) == (1, "aiokq: [Errno 28] No space left on device\n")


def test_the_version_is_shown(alone: CommandLine):
    """Bug reports contain it."""
    from aiokq import __version__

    assert alone("--version", servers=None).lines == [f"aiokq {__version__}"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topcs",), "No such command"),
        (("topics", "list", "--jsno"), "No such option"),
        (("consume",), "Missing argument"),
        (("topics", "create", "t", "--partitions", "0"), "--partitions"),
        (("topics", "create", "t", "--partitions", "three"), "--partitions"),
        (("consume", "t", "--format", "xml"), "--format"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    alone: CommandLine, arguments: tuple[str, ...], says: str
):
    """Click's box of eight lines around a short message is hard to find in a log."""
    done = alone(*arguments, servers=None)
    assert done.code == 2
    assert says in done.complaint
    assert done.out == b""
    assert "--help" in done.complaint


@pytest.mark.parametrize("arguments", [(), ("topics",)])
def test_a_group_without_a_command_shows_its_help(alone: CommandLine, arguments: tuple[str, ...]):
    """A user who types `aiokq topics` wants the list of its commands."""
    done = alone(*arguments, servers=None)
    assert done.code == 2
    assert "Commands" in done.out.decode() + done.err


def test_no_bootstrap_servers_says_where_to_give_them(alone: CommandLine):
    """There is no default: a command must not hit the wrong cluster."""
    done = alone("topics", "list", servers=None)
    assert done.code == 2
    assert "KAFKA_BOOTSTRAP_SERVERS" in done.complaint


@pytest.mark.parametrize("servers", ["localhost", "http://localhost:9092", "localhost:port", ":1"])
def test_an_unreadable_address_is_one_line(alone: CommandLine, servers: str):
    """The line says how to correct the address."""
    done = alone("topics", "list", servers=servers)
    assert done.code == 1
    assert "bootstrap_servers" in done.complaint


class Ending(Session):
    """A session in which every command ends with the same exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def run(self, main):
        main.close()
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "complaint"),
    [
        (KeyboardInterrupt(), 130, ""),
        (Terminated(), 143, ""),
        (ConfigError("linger_ms: no"), 1, "aiokq: linger_ms: no\n"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (BootstrapFailed([("k:1", "refused\nby\x1b[2J")]), 1, "k:1: refused by\\x1b[2J"),
    ],
)
def test_every_way_to_end_has_its_exit_code(
    alone: CommandLine, error: BaseException, code: int, complaint: str
):
    """Scripts decide by the code; a traceback tells users nothing."""
    alone.session = Ending(error)
    done = alone("topics", "list")
    assert done.code == code
    assert complaint in done.err
    assert done.err.count("\n") == (1 if complaint else 0)


def test_a_reader_that_goes_away_is_no_error(alone: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """`aiokq consume orders | head -1` must not end in a traceback."""
    discarded = []
    monkeypatch.setattr("aiokq.cli.app.discard_output", lambda: discarded.append(True))
    alone.session = Ending(OutputClosed())
    done = alone("topics", "list")
    assert (done.code, done.err, discarded) == (141, "", [True])


def test_nothing_that_answers_is_one_line_that_names_the_address(cli: CommandLine):
    """The error comes after bootstrap_timeout_ms, without a traceback."""
    done = cli("topics", "list", servers="127.0.0.1:1")
    assert done.code == 1
    assert "127.0.0.1:1" in done.complaint
    assert "cannot connect" in done.complaint


def test_an_unknown_host_is_one_line_that_names_it(cli: CommandLine):
    """The usual cause is a typing error in the name."""
    done = cli("cluster", servers="nowhere.example:9092")
    assert done.code == 1
    assert "nowhere.example" in done.complaint


def test_verbose_shows_the_warnings_of_the_client(cli: CommandLine):
    """Warnings explain a wait; without --verbose they would distract from the error."""
    done = cli("-v", "topics", "list", servers="127.0.0.1:1")
    assert "node unreachable" in done.err
    assert "node failed" not in cli("topics", "list", servers="127.0.0.1:1").err


def test_help_has_the_exit_codes(alone: CommandLine):
    """Scripts rely on the exit codes."""
    text = " ".join(alone("--help", servers=None).out.decode().split())
    for code in ("0 success", "1 failure", "2 wrong usage", "130 ended", "143 ended", "141"):
        assert code in text
