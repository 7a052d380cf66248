"""What everything in a round shares: plan, broker, proxy, history and the moments of its phases."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiokq
from tests.fault.misuse.broker import BrokerUnderTest
from tests.fault.misuse.history import History
from tests.fault.misuse.plan import Plan
from tests.fault.proxy import FaultProxy

T = TypeVar("T")

UNTYPED = "an error that is not in the documentation reached a caller"
HANG = "a call did not end in time"
SILENT = "misuse was not refused"

TYPED = (aiokq.KafkaError, ValueError, TypeError, TimeoutError)
"""What a caller may be told by any call."""


@dataclass(repr=False)
class World:
    """One round.

    Attributes:
        load_over: producers end, no fault begins any more.
        finished: everything has been read: members of groups end.
        counts: of what was done, by kind, and what it met.
    """

    plan: Plan
    root: Path
    broker: BrokerUnderTest
    proxy: FaultProxy | None
    history: History = field(default_factory=History)
    load_over: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    counts: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)

    @property
    def servers(self) -> str:
        """Where clients find the broker."""
        port = self.broker.port if self.proxy is None else self.proxy.port
        return f"127.0.0.1:{port}"

    def phase(self, name: str) -> None:
        """Something of the round is over; when, for who reads its log."""
        print(f"--- {self.now() - self.began:5.1f} s: {name}", flush=True)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    async def note_delays(self) -> None:
        """How long the machine keeps this loop from running."""
        while True:
            before = self.now()
            await asyncio.sleep(0.1)
            late = self.now() - before - 0.1
            if late > 0.1:
                self.history.delays.append((self.now(), late))

    async def within(self, seconds: float, what: str, call: Awaitable[T]) -> T:
        """What a call gives; one that takes longer is a violation, and is given up.

        The time is counted while the machine lets this process run. Who is cancelled here cancels
        the call.
        """
        task = asyncio.ensure_future(call)
        start = self.now()
        left = seconds
        while left > 0:
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise
            if task.done():
                return task.result()
            now = self.now()
            left = seconds + self.history.held_up(start, now) - (now - start)
        self.history.complain(HANG, f"{what}: {seconds:.0f} s; {where(task)}")
        task.cancel()
        await asyncio.wait([task], timeout=5)
        raise asyncio.CancelledError(what)

    def refused(self, what: str, error: BaseException) -> None:
        """An error that the documentation names: counted, with one example of each in the log."""
        name = f"{what} raised {type(error).__name__}"
        if name not in self.counts:
            print(f"    {name}: {error}", flush=True)
        self.counts[name] += 1

    def unexpected(self, what: str, error: BaseException) -> None:
        """An error that no caller should have to know."""
        self.history.complain(UNTYPED, f"{what}: {type(error).__name__}: {error}{origin(error)}")


def where(task: asyncio.Future[Any]) -> str:
    """Where a task waits."""
    if not isinstance(task, asyncio.Task):
        return repr(task)
    frames = task.get_stack(limit=6)
    return " < ".join(f"{f.f_code.co_qualname}:{f.f_lineno}" for f in reversed(frames))


def origin(error: BaseException) -> str:
    """The last places an error came through."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f" ({' > '.join(places[-5:])})" if places else ""
