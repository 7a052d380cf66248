"""The broker under test: a process whose ends, limits and disk are watched and meddled with."""

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
"""Seconds: what a broker takes on a machine that has much else to do."""

DISK_BYTES = 512 * 1024 * 1024


class SmallDisk:
    """A tmpfs of its own, which can be filled.

    Attributes:
        mounted: whether this process may mount; if not, nothing is ever full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"
        path.mkdir(parents=True)
        options = ["-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
        mounted = subprocess.run(["mount", "-t", "tmpfs", *options], capture_output=True)
        self.mounted = mounted.returncode == 0

    def fill(self, left: int) -> None:
        """Leave so many bytes."""
        if self.mounted:
            room = os.statvfs(self.path)
            size = room.f_bavail * room.f_frsize - left
            with self._filler.open("wb") as file, contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, size))

    def free(self) -> None:
        """Make room again."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """What was on it is gone."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False)


class BrokerUnderTest:
    """`aiokq broker` on two log directories, the second of them on a small disk.

    Attributes:
        port: the same for all its processes.
        exits: ends that nobody asked for.
        may_end: whether a fault that is going on explains an end.
        explained: whether a fault that happened explains ERROR lines in its log.
        busy: held by whatever stops, starts or pauses it.
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
        """Blocking: until it says that it listens."""
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
        said = select.poll()  # select() takes no descriptor past 1,023
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
        """Blocking: its exit code after a signal."""
        assert self.process is not None
        self._wanted = False
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 1000  # none of its own

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def restart(self, number: int, down: float = 0.0) -> None:
        """Ends it by a signal, and starts it again after some seconds."""
        ended_before = not self.alive
        if ended_before and self._wanted and not self.may_end:
            assert self.process is not None  # it ended while a fault held `busy`
            self.exits.append(f"exit code {self.process.returncode}")
        code = await asyncio.to_thread(self.end, number)
        if number == signal.SIGTERM and code != 0 and not (ended_before or self.may_end):
            what = f"no end within {STOP_WITHIN} s" if code == 1000 else f"exit code {code}"
            self.exits.append(f"SIGTERM: {what}")
        await asyncio.sleep(down)
        await asyncio.to_thread(self.start)

    async def watch(self) -> None:
        """Notes ends that nobody asked for, and starts it again for the rest of the round."""
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
        """A limit of the running process; None for as much as it may have."""
        with contextlib.suppress(ProcessLookupError):
            _, hard = resource.prlimit(self.pid, what)
            value = hard if soft is None else soft
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard) if value != resource.RLIM_INFINITY else hard
            resource.prlimit(self.pid, what, (value, hard))

    def sockets(self) -> int:
        """Its open sockets: its own, and one for each connection."""
        return sum(target.startswith("socket:") for target in self._descriptors())

    def descriptors(self) -> int:
        return sum(1 for _ in self._descriptors())

    def _descriptors(self) -> Iterator[str]:
        directory = f"/proc/{self.pid}/fd"
        for name in os.listdir(directory):
            with contextlib.suppress(OSError):
                yield os.readlink(f"{directory}/{name}")

    def memory(self) -> int:
        """Its resident bytes."""
        return self._pages(1)

    def address_space(self) -> int:
        return self._pages(0)

    def _pages(self, which: int) -> int:
        text = Path(f"/proc/{self.pid}/statm").read_text()
        return int(text.split()[which]) * resource.getpagesize()

    def complaints(self) -> list[str]:
        """ERROR lines and tracebacks in its log that no fault explains."""
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
        """Whether a fault that happened is what a traceback is about."""
        return "memory" in self.explained

    def damage(self) -> list[str]:
        """What `aiokq log verify` calls an error, of a broker that was stopped."""
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
