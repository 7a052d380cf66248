"""A broker whose process may open few descriptors: `aiokq broker` or embedded, on either loop.

`python -m tests.peers.limited_broker asyncio DIRECTORY NAME=VALUE...` is the embedded one, which
also reads commands from its standard input, one per line:

- ``awaited``: prints as JSON the modules that remain to be imported after the start.
- ``mark``: forgets the modules imported so far.
- ``imported``: prints as JSON the modules imported since ``mark``.
- ``snapshot DIRECTORY``: takes a snapshot, and prints when it is complete.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["LimitedBroker", "limited_broker"]

_PROCESS = """
import sys
if sys.argv.pop(1) == "asyncio":
    sys.modules["uvloop"] = None
from aiokq.broker.process import main
sys.exit(main(sys.argv[1:]))
"""


class LimitedBroker:
    """A running broker with a limit on its descriptors."""

    def __init__(self, process: subprocess.Popen[str], address: str, errors: Path) -> None:
        self.process = process
        self.bootstrap_servers = address
        self._errors = errors

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.bootstrap_servers.rsplit(":", 1)
        return host, int(port)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def errors(self) -> str:
        """Return what the broker wrote to stderr, which includes its log."""
        return self._errors.read_text()

    def cpu_seconds(self) -> float:
        """Return the CPU time that the broker has used, in user and system mode."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self) -> int:
        """Return the number of open descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def ask(self, command: str) -> str:
        """Send a command to an embedded broker; return its response."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@contextmanager
def limited_broker(
    directory: Path, how: str, loop: str, limit: int | None, **settings: object
) -> Iterator[LimitedBroker]:
    """Run a broker while the block runs; fail if it does not stop cleanly.

    Args:
        directory: an empty one, for its data and its log.
        how: "process" or "embedded".
        loop: "asyncio" or "uvloop".
        limit: soft and hard limit on descriptors; None for the limit of this process.
    """
    assignments = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    data = str(directory / "data")
    if how == "process":
        arguments = ["-c", _PROCESS, loop, "--json", "--port", "0", "--data-dir", data]
        for assignment in assignments:
            arguments += ["--set", assignment]
    else:
        arguments = ["-m", "tests.peers.limited_broker", loop, data, *assignments]
    errors = directory / "stderr"

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            preexec_fn=limited,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the broker did not start: {errors.read_text()}")
        broker = LimitedBroker(process, json.loads(line)["bootstrap_servers"], errors)
        yield broker
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, broker.errors()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def _commands(stdin: IO[str], loop: asyncio.AbstractEventLoop, cluster: object) -> None:
    """Handle commands until the end of the input; runs in a thread of its own."""
    from aiokq.broker.warm_up import MODULES, OPTIONAL

    installed = {
        name
        for name in MODULES
        if name not in OPTIONAL or importlib.util.find_spec(name) is not None
    }
    known = set(sys.modules)
    for line in stdin:
        command, *arguments = line.split()
        if command == "awaited":
            print(json.dumps([*installed - {*sys.modules}]), flush=True)
        elif command == "mark":
            known = set(sys.modules)
            print(flush=True)
        elif command == "imported":
            print(json.dumps(sorted(set(sys.modules) - known)), flush=True)
        elif command == "snapshot":
            taken = asyncio.run_coroutine_threadsafe(
                cluster.snapshot(arguments[0]),  # type: ignore[attr-defined]
                loop,
            )
            try:
                taken.result(60)
            except Exception as error:
                print(f"failed: {error!r}", flush=True)
            else:
                print("taken", flush=True)


async def _embedded(data: str, assignments: list[str]) -> None:
    from aiokq.broker.embedded import EmbeddedCluster

    settings = dict(assignment.split("=", 1) for assignment in assignments)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    async with EmbeddedCluster(data_dir=data, settings=settings) as cluster:
        print(json.dumps({"bootstrap_servers": cluster.bootstrap_servers}), flush=True)
        threading.Thread(target=_commands, args=(sys.stdin, loop, cluster), daemon=True).start()
        await stop.wait()


def _main() -> None:
    loop, data, *assignments = sys.argv[1:]
    factory = asyncio.new_event_loop
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_embedded(data, assignments))


if __name__ == "__main__":
    _main()
