"""The broker under test: a process whose exits, limits and disk the round observes and controls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from aiokq.core.background import FAIL_ON_BUGS

START_WITHIN = 60.0
STOP_WITHIN = 60.0
"""Seconds that the broker may take to stop on a busy machine."""

DISK_BYTES = 512 * 1024 * 1024


class SmallDisk:
    """A tmpfs that faults can fill.

    Attributes:
        mounted: whether this process was allowed to mount it; if not, `fill` does nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"
        path.mkdir(parents=True)
        options = ["-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
        mounted = subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True)
        self.mounted = mounted.returncode == 0

    def fill(self, left: int) -> None:
        """Fill the disk until only `left` bytes are free."""
        if self.mounted:
            room = os.statvfs(self.path)
            size = room.f_bavail * room.f_frsize - left
            with self._filler.open("wb") as file, contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, size))

    def free(self) -> None:
        """Delete the file that fills the disk."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount the disk, which discards its files."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False)


class BrokerUnderTest:
    """`aiokq broker` on two log directories, the second of them on a small disk.

    Attributes:
        port: the port of the broker, the same after each restart.
        exits: exits of the process that the round did not cause.
        may_end: whether the current fault may make the broker exit.
        explained: the kinds of faults so far that explain ERROR lines in the broker's log.
        busy: a lock held by the fault that stops, starts or pauses the broker.
    """

    def __init__(self, root: Path, port: int, advertised: int, settings: dict[str, object]) -> None:
        self.port = port
        self.disk = SmallDisk(root / "disk")
        self.directories = [root / "data", self.disk.path / "data"]
        self.log = root / "broker.log"
        self.exits: list[str] = []
        self.may_end = False
        self.explained: set[str] = set()
        self.busy = asyncio.Lock()
        self.starts = 0
        self.process: subprocess.Popen[str] | None = None
        self._wanted = False
        self._command = [
            *(sys.executable, "-m", "aiokq", "broker", "--json", "--profile", "dev"),
            *("--port", str(port), "--advertise", f"127.0.0.1:{advertised}"),
            *(word for path in self.directories for word in ("--data-dir", str(path))),
            *(w for name, value in settings.items() for w in ("--set", f"{name}={value}")),
        ]

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the broker and block until it prints that it accepts connections."""
        self.starts += 1
        with self.log.open("a") as log:
            log.write(f"--- start {self.starts}\n")
            log.flush()
            self.process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {FAIL_ON_BUGS: "1"},
            )
        assert self.process.stdout is not None
        said = select.poll()  # select() cannot watch descriptors above 1,023
        said.register(self.process.stdout, select.POLLIN)
        ready = said.poll(START_WITHIN * 1000)
        line = self.process.stdout.readline() if ready else ""
        self.process.stdout.close()
        if not line:
            self.process.kill()
            raise RuntimeError(
                f"the broker did not start: exit code {self.process.wait()}, see {self.log}"
            )
        assert json.loads(line)
        self._wanted = True

    def end(self, number: int) -> int:
        """Send a signal, block until the process has exited and return its exit code.

        The code is 1000 if the process had to be killed after `STOP_WITHIN`.
        """
        assert self.process is not None
        self._wanted = False
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 1000  # no exit code of the broker's own

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def restart(self, number: int, down: float = 0.0) -> None:
        """End the broker with a signal, and start it again after `down` seconds."""
        ended_before = not self.alive
        if ended_before and self._wanted and not self.may_end:
            assert self.process is not None  # it exited while a fault held `busy`
            self.exits.append(f"exit code {self.process.returncode}")
        code = await asyncio.to_thread(self.end, number)
        if number == signal.SIGTERM and code != 0 and not (ended_before or self.may_end):
            what = f"no end within {STOP_WITHIN} s" if code == 1000 else f"exit code {code}"
            self.exits.append(f"SIGTERM: {what}")
        await asyncio.sleep(down)
        await asyncio.to_thread(self.start)

    async def watch(self) -> None:
        """Record unexpected exits, and start the broker again for the rest of the round."""
        while True:
            await asyncio.sleep(0.1)
            if not self._wanted or self.alive or self.busy.locked():
                continue
            async with self.busy:
                if self._wanted and not self.alive:
                    assert self.process is not None
                    self.exits.append(f"exit code {self.process.returncode}")
                    await asyncio.to_thread(self.start)

    def limit(self, what: int, soft: int | None) -> None:
        """Set a soft limit of the running process; None sets it to the hard limit."""
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(self.pid, what)
            value = hard if soft is None else soft
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard) if value != resource.RLIM_INFINITY else hard
            resource.prlimit(self.pid, what, (value, hard))

    def sockets(self) -> int:
        """The number of the broker's open sockets: listeners and one for each connection."""
        return sum(target.startswith("socket:") for target in self._descriptors())

    def descriptors(self) -> int:
        return sum(1 for _ in self._descriptors())

    def _descriptors(self) -> Iterator[str]:
        directory = f"/proc/{self.pid}/fd"
        for name in os.listdir(directory):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{directory}/{name}")

    def memory(self) -> int:
        """The broker's resident memory in bytes."""
        return self._pages(1)

    def address_space(self) -> int:
        return self._pages(0)

    def _pages(self, which: int) -> int:
        text = Path(f"/proc/{self.pid}/statm").read_text()
        return int(text.split()[which]) * resource.getpagesize()

    def complaints(self) -> list[str]:
        """ERROR lines and tracebacks in the broker's log that no fault explains."""
        found: list[str] = []
        lines = self.log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if line.startswith("Traceback") or "never retrieved" in line:
                trace = " | ".join(lines[max(0, number - 1) : number + 30])
                if not self._explains(trace):
                    found.append(trace)
            elif (" ERROR " in line or " CRITICAL " in line) and not self.explained:
                found.append(line)
        return found

    def _explains(self, trace: str) -> bool:
        """Whether a fault of this round explains the traceback."""
        return "memory" in self.explained

    def damage(self) -> list[str]:
        """Errors that `aiokq log verify` reports for the directories of the stopped broker."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "aiokq", "log", "verify", "--json"),
                *(str(path) for path in self.directories),
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode == 0:
            return []
        return [f"exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"]
