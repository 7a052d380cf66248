"""One round: a broker, its fuzzers and its working clients, and what is wrong in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import aiokq
from aiokq.core.background import FAIL_ON_BUGS
from tests.fault.fuzz.fixture import (
    ALL_PASSWORDS,
    FETCH_SESSIONS,
    MARKER,
    Fixture,
    furnish,
    secrets_of,
)
from tests.fault.fuzz.plans import KINDS
from tests.fault.fuzz.values import SECRET
from tests.fault.fuzz.working import WorkingClient
from tests.peers.memory import peak_bytes, resident_bytes

MEMORY_BYTES = 512_000_000
LONGEST_WAIT = 15.0
"""Seconds that a working client may wait for a record, on a machine that is busy with fuzzers."""
SETTLE_WITHIN = 60.0
"""Seconds after the fuzzers in which tasks, connections, descriptors and sessions must be gone.

TLS handshakes and logins last up to 5 s, sessions of members of groups up to 3 s; transactions of
producers that are gone are aborted after 3 s.
"""
SPARE_FILES = 10
"""Files that the broker may have open more than before: segments that it has opened again."""
ERROR_LINE = re.compile(r"\d{4}-\d\d-\d\d \S+ (ERROR|CRITICAL) ")
ALLOWED_ERRORS = ("transaction marker is refused",)
"""Parts of ERROR lines in the broker's log that are no bug.

A super user may write markers with the epoch of a later coordinator; the real one is then refused.
"""


class Outcome(NamedTuple):
    """What a round has found.

    Attributes:
        numbers: counts for the report.
        violations: what is wrong; empty if all is well.
    """

    seed: int
    numbers: dict[str, Any]
    violations: list[str]


class Broker:
    """The process of the broker."""

    def __init__(self, fixture: Fixture) -> None:
        self.fixture = fixture
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.fixture.log.open("w") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.fault.fuzz.serving", str(self.fixture.directory)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=os.environ | {FAIL_ON_BUGS: "1", "PYTHONFAULTHANDLER": "1"},
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            if not await self._process.stdout.readline():
                raise RuntimeError(f"the broker did not start: {self.fixture.log.read_text()}")

    @property
    def exit_code(self) -> int | None:
        assert self._process is not None
        return self._process.returncode

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def stop(self) -> int:
        """End the process; return its exit code, or 1000 if it had to be killed."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                return await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            return 1000

    async def state(self, *, collected: bool = False) -> dict[str, Any]:
        """Return what the probe tells, and what the system knows of the process."""
        reader, writer = await asyncio.open_unix_connection(str(self.fixture.probe))
        try:
            writer.write(b"collect\n" if collected else b"\n")
            async with asyncio.timeout(30):
                found: dict[str, Any] = json.loads(await reader.read())
        finally:
            writer.close()
        found["descriptors"] = len(os.listdir(f"/proc/{self.pid}/fd"))
        return found

    def memory(self) -> tuple[int, int]:
        """Return the resident bytes of the process, now and at most."""
        return resident_bytes(self.pid), peak_bytes(self.pid)

    def complaints(self) -> list[str]:
        """Return what must not be in the log: errors, tracebacks and secrets."""
        text = self.fixture.log.read_text(errors="replace")
        lines = text.splitlines()
        found = []
        for number, line in enumerate(lines):
            if ERROR_LINE.match(line) and not any(each in line for each in ALLOWED_ERRORS):
                found.append(" | ".join(each[:300] for each in lines[number : number + 40]))
            elif "never retrieved" in line or "never awaited" in line:
                found.append(line)
        for name, password in ALL_PASSWORDS.items():
            if password in text:
                found.append(f"the password of {name} is in the log")
        if MARKER.decode() in text:
            found.append("a secret record is in the log")
        return found


async def run_round(
    directory: Path,
    *,
    seed: int,
    seconds: float,
    kinds: Collection[str] = KINDS,
    connections: int = 12,
    processes: int = 2,
    plans: Collection[str] = (),
    least: int = 0,
) -> Outcome:
    """Run a round.

    Args:
        directory: for the files of the round.
        seconds: duration of the fuzzing; all kinds of listeners are fuzzed at the same time.
        connections: connections at a time for each kind.
        processes: number of processes of fuzzers.
        plans: "KIND/NUMBER" of single plans, which are carried out in place of fuzzing.
        least: number of connections of each kind until which the fuzzing goes on after `seconds`.
    """
    began = time.monotonic()
    fixture = Fixture.create(directory)
    broker = Broker(fixture)
    violations: list[str] = []
    numbers: dict[str, Any] = {}
    await broker.start()
    try:
        (directory / "ids.json").write_text(json.dumps(await furnish(fixture)))
        before = await secrets_of(fixture)
        idle = await broker.state(collected=True)
        violations += await _fuzz(
            fixture, broker, numbers, seed, seconds, kinds, connections, processes, plans, least
        )
        if broker.exit_code is None:
            after = await secrets_of(fixture)
            for name, value in before.items():
                if after[name] != value:
                    violations.append(f"changed: {name}: {value} is now {after[name]}")
            violations += await _settled(broker, idle)
            _, peak = broker.memory()
            numbers["peak_mb"] = round(peak / 1e6)
            if peak > MEMORY_BYTES:
                violations.append(f"{peak:,} B of memory, at most {MEMORY_BYTES:,}")
    except Exception as error:
        violations.append(f"the round failed: {error!r}")
    finally:
        code = broker.exit_code
        if code is not None:
            violations.append(f"the broker ended with exit code {code}")
        elif (code := await broker.stop()) != 0:
            violations.append(f"SIGTERM: exit code {code}")
    violations += broker.complaints()
    numbers["seconds"] = round(time.monotonic() - began, 1)
    return Outcome(seed, numbers, violations)


async def _fuzz(
    fixture: Fixture,
    broker: Broker,
    numbers: dict[str, Any],
    seed: int,
    seconds: float,
    kinds: Collection[str],
    connections: int,
    processes: int,
    plans: Collection[str],
    least: int,
) -> list[str]:
    """Fuzz the broker while the clients work; return what is wrong."""
    found: list[str] = []
    workers = [WorkingClient(fixture, kind) for kind in KINDS]
    working = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        for worker in workers:
            await worker.ready.wait()
        groups = [[*plans]] if plans else [list(kinds)[n::processes] for n in range(processes)]
        attacks = [
            await _attack(fixture, seed, seconds, connections, least, group)
            for group in groups
            if group
        ]
        ends = asyncio.gather(*(attack.communicate() for attack in attacks))
        while not ends.done() and broker.exit_code is None:
            await asyncio.wait([ends], timeout=0.5)
        if broker.exit_code is not None:
            for attack in attacks:
                attack.kill()
        counts: dict[str, int] = {}
        for attack, (output, errors) in zip(attacks, await ends, strict=True):
            if attack.returncode != 0:
                found.append(f"a fuzzer ended: {errors.decode(errors='replace')[-2000:]}")
                continue
            told = json.loads(output)
            found += told["violations"]
            for name, count in told["counts"].items():
                counts[name] = counts.get(name, 0) + count
        numbers["connections"] = counts
        if broker.exit_code is not None:
            return found
        busy = await broker.state()
        numbers["requests"] = sum(busy["requests"].values())
        numbers["held"] = busy["held"]
        numbers["apis"] = len(busy["requests"])
        numbers["errors"] = len(busy["errors"])
        numbers["authenticated"] = busy["authenticated"]
        numbers["logins"] = sum(busy["logins"].values())
        numbers["logins_again"] = busy["logins"].get("PLAIN again", 0)
        numbers["failed_logins"] = sum(busy["failed logins"].values())
        for worker in workers:
            worker.end()
        await asyncio.wait(working, timeout=LONGEST_WAIT)
    finally:
        for worker, task in zip(workers, working, strict=True):
            found += _unserved(worker, has_ended=task.done())
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    numbers["longest_wait"] = round(max(worker.longest for worker in workers), 2)
    numbers["records"] = sum(worker.count for worker in workers)
    return found


def _unserved(worker: WorkingClient, *, has_ended: bool) -> list[str]:
    """Return how a working client was not served.

    Args:
        has_ended: whether the client has closed its connections.
    """
    found = []
    longest = max(worker.longest, worker.waiting)
    if worker.failure is not None:
        found.append(f"the client on {worker.listener}: {worker.failure}")
    elif longest > LONGEST_WAIT:
        found.append(f"the client on {worker.listener} waited {longest:.1f} s")
    elif not has_ended:
        found.append(f"the client on {worker.listener} has not ended")
    elif not worker.count:
        found.append(f"the client on {worker.listener} has done nothing")
    return found


async def _attack(
    fixture: Fixture,
    seed: int,
    seconds: float,
    connections: int,
    least: int,
    kinds: list[str],
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.fuzz.attack", str(fixture.directory)),
        *(str(seed), str(seconds), str(connections), str(least), *kinds),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _settled(broker: Broker, idle: dict[str, Any]) -> list[str]:
    """Delete what fuzzers may create, and wait until the broker is as it was before."""
    fixture = broker.fixture
    async with aiokq.Admin(**fixture.settings("admin"), default_api_timeout_ms=60_000) as admin:
        own = {"shared", SECRET, "hidden-9b1deb4d", "work", "work-anonymous"}
        made = [name for name in await admin.list_topics() if name not in own and name[:2] != "__"]
        if made:
            await admin.delete_topics(made)
    deadline = time.monotonic() + SETTLE_WITHIN
    while True:
        state = await broker.state(collected=True)
        left = _left(state, idle)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.5)


def _left(state: dict[str, Any], idle: dict[str, Any]) -> list[str]:
    left = []
    for name, count in state["tasks"].items():
        if count > idle["tasks"].get(name, 0) and not name.startswith(("cleaner", "flush")):
            left.append(f"{count} tasks {name!r} are left, {idle['tasks'].get(name, 0)} before")
    for name, count in state["connections"].items():
        if count:
            left.append(f"{count} connections on {name} are left")
    allowed = {
        **{
            name: idle[name]
            for name in (
                *("budget", "delayed fetches", "sockets"),
                *("groups with members", "open transactions"),
            )
        },
        # A session outlives its connection. It makes room for others when it is two minutes old.
        "fetch sessions": FETCH_SESSIONS,
        "descriptors": idle["descriptors"] + SPARE_FILES,
    }
    for name, most in allowed.items():
        if state[name] > most:
            left.append(f"{name}: {state[name]}, {idle[name]} before")
    return left


def raise_limits() -> None:
    """Let this process and its children open as many descriptors as they may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
