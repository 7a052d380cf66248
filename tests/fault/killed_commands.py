"""Commands for a stopped broker that are killed with SIGKILL at a change of the disk.

As a program, this module reads a request per line and runs each command in a fork of its own, so
that a kill costs no start of Python. It runs what `aiokq storage adopt`, `aiokq log repair` and
`aiokq log forget-missing` run, without the command line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from aiokq.broker.metadata.stopped_broker.adoption import adopt
from aiokq.broker.metadata.stopped_broker.forgetting import forget_missing
from aiokq.broker.metadata.stopped_broker.log_repair import repair_log
from aiokq.core.clock import SystemClock
from aiokq.core.errors import KafkaError
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c

COMMANDS: dict[str, Callable[[str], object]] = {
    "adopt": lambda path: adopt(
        OsFiles(),
        path,
        execute=True,
        random=random.SystemRandom(),
        timestamp_ms=SystemClock().timestamp_ms(),
        crc32c=crc32c,
    ),
    "repair": lambda path: repair_log(
        OsFiles(), path, execute=True, others_lost=False, crc32c=crc32c
    ),
    "forget": lambda path: forget_missing(
        OsFiles(), [path], execute=True, now_ms=SystemClock().timestamp_ms()
    ),
}

CHANGES = (
    *("mkdir", "rename", "replace", "remove", "unlink", "rmdir", "link", "chmod", "utime"),
    *("pwritev", "ftruncate", "fsync", "fdatasync"),
)
"""The functions of `os` by which aiokq changes the disk; `os.open` is one if it creates a file."""

NEVER = 10**9


class Run(NamedTuple):
    """The outcome of a command.

    Attributes:
        code: 0, 1 after an error, or -9 if the command was killed.
        changes: a letter for each change of the disk that was begun, "w" for a write.
        error: the error, if there was one.
    """

    code: int
    changes: str
    error: str


class Commands:
    """Runs commands until the end of a `with` block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fault.killed_commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Commands:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, command: str, path: Path, *, kill_at: int = NEVER, torn: bool = False) -> Run:
        """Run one of `COMMANDS` on a log directory.

        Args:
            kill_at: number of the change of the disk, from 0, before which the command is killed.
            torn: that change is a write, half of which is written before the kill.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = [command, str(path), kill_at, torn]
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return Run(*json.loads(self._process.stdout.readline()))


def _serve() -> None:
    for line in sys.stdin:
        print(json.dumps(_run(*json.loads(line))), flush=True)


def _run(command: str, path: str, kill_at: int, torn: bool) -> Run:
    receiver, sender = os.pipe()
    error_receiver, error_sender = os.pipe()
    child = os.fork()
    if child == 0:
        code = 111
        try:
            _kill_at(kill_at, torn=torn, tell=sender)
            COMMANDS[command](path)
            code = 0
        except KafkaError as error:
            os.write(error_sender, str(error).encode())
            code = 1
        finally:
            os._exit(code)  # never read the parent's requests
    os.close(sender)
    os.close(error_sender)
    changes, error = (_read_all(one).decode() for one in (receiver, error_receiver))
    _, status = os.waitpid(child, 0)
    return Run(os.waitstatus_to_exitcode(status), changes, error)


def _read_all(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()


def _kill_at(at: int, *, torn: bool, tell: int) -> None:
    """Replace the functions of `os` that change the disk, in this process."""
    write, pwritev = os.write, os.pwritev
    count = 0

    def note(*, is_write: bool = False) -> bool:
        nonlocal count
        write(tell, b"w" if is_write else b".")
        count += 1
        return count > at

    def killing(function: Callable[..., Any]) -> Callable[..., Any]:
        def killed(*args: Any, **options: Any) -> Any:
            if note(is_write=function is pwritev):
                if function is pwritev and torn:
                    descriptor, buffers, position = args
                    data = b"".join(map(bytes, buffers))
                    pwritev(descriptor, [data[: len(data) // 2]], position)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return killed

    def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & os.O_CREAT and not os.path.exists(path) and note():
            os.kill(os.getpid(), signal.SIGKILL)
        return real_open(path, flags, *args, **options)

    real_open = os.open
    os.open = opened
    for name in CHANGES:
        setattr(os, name, killing(getattr(os, name)))


if __name__ == "__main__":
    _serve()
