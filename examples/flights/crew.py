"""The members of the group as seen by their parent process, which starts and kills them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from .delays import Statistics

# A line holds a batch: up to a megabyte of records.
LINE_BYTES = 64 * 1024 * 1024
STOP_SECONDS = 20


class Report(NamedTuple):
    """A flight as a member reports it."""

    offset: int
    row: int
    carrier: str
    route: str
    delay: int | None
    value_bytes: int
    keyless: bool


@dataclass(slots=True)
class Member:
    """One process of the group."""

    name: str
    process: asyncio.subprocess.Process
    partitions: int = 0
    records: int = 0
    killed: bool = False


@dataclass(slots=True)
class Ledger:
    """The reports of all members, each record counted once, by its offset in its partition.

    Attributes:
        first: offset of the first record of the run, per partition.
        redelivered: records reported again by another member because the first one was killed
            before it had committed them, which at-least-once delivery allows.
        doubled: records reported twice for any other reason.
    """

    statistics: Statistics
    first: dict[int, int]
    redelivered: int = 0
    doubled: int = 0
    _told_by: dict[tuple[int, int], Member] = field(default_factory=dict)

    def take(self, member: Member, partition: int, reports: list[Report]) -> int:
        """Add new reports, and return their number."""
        new = 0
        for report in reports:
            if report.offset < self.first[partition]:
                continue  # of an earlier run
            before = self._told_by.setdefault((partition, report.offset), member)
            if before is not member:
                if before.killed:
                    self.redelivered += 1
                else:
                    self.doubled += 1
                continue
            self.statistics.add(report)
            new += 1
        return new

    @property
    def records(self) -> int:
        return len(self._told_by)


class Crew:
    """The members of the group.

    Args:
        told: called with a member and the number of new records in a report.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        ledger: Ledger,
        told: Callable[[Member, int], None],
    ) -> None:
        self.members: list[Member] = []
        self._arguments = (bootstrap, topic, group)
        self._ledger = ledger
        self._told = told
        self._assigned = asyncio.Event()
        self._listeners: list[asyncio.Task[None]] = []

    async def start(self) -> Member:
        """Start another member."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.flights.member",
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
        )
        member = Member(f"member {len(self.members) + 1}", process)
        self.members.append(member)
        self._listeners.append(asyncio.create_task(self._listen(member)))
        return member

    async def assigned(self, partitions: int) -> None:
        """Wait until the members have that many partitions together."""
        while sum(member.partitions for member in self.members) < partitions:
            self._assigned.clear()
            await self._assigned.wait()

    def kill(self, member: Member) -> None:
        """Send SIGKILL: the member neither commits nor leaves the group."""
        member.killed = True
        member.partitions = 0
        member.process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Let all members leave the group."""
        for member in self.members:
            if not member.killed:
                with suppress(ProcessLookupError):
                    member.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*(member.process.wait() for member in self.members))
        except TimeoutError:
            for member in self.members:
                with suppress(ProcessLookupError):
                    member.process.kill()
        await asyncio.gather(*self._listeners)

    async def _listen(self, member: Member) -> None:
        assert member.process.stdout is not None
        while line := await member.process.stdout.readline():
            if not line.endswith(b"\n"):
                return  # killed while it wrote the line: neither reported nor committed
            document = json.loads(line)
            if "flights" in document:
                reports = [Report(*row) for row in document["flights"]]
                new = self._ledger.take(member, document["partition"], reports)
                member.records += new
                self._told(member, new)
            elif not member.killed:
                member.partitions += document.get("assigned", 0) - document.get("revoked", 0)
                self._assigned.set()
