"""State that everything in a round shares: plan, broker, proxy, history and phases."""

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
"""The errors that any call may raise."""


@dataclass(repr=False)
class World:
    """One round.

    Attributes:
        load_over: set when producers end and no new fault begins.
        finished: set when everything has been read and members of groups end.
        counts: how often each action was run and each outcome seen.
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
        """The address at which clients reach the broker, which is the proxy's if there is one."""
        port = self.broker.port if self.proxy is None else self.proxy.port
        return f"127.0.0.1:{port}"

    def phase(self, name: str) -> None:
        """Print that a phase or action is over, with the time, for readers of the output."""
        print(f"--- {self.now() - self.began:5.1f} s: {name}", flush=True)

    @staticmethod
    def now() -> float:
        return time.monotonic()

    async def note_delays(self) -> None:
        """Record how long the machine keeps this loop from running."""
        while True:
            before = self.now()
            await asyncio.sleep(0.1)
            late = self.now() - before - 0.1
            if late > 0.1:
                self.history.delays.append((self.now(), late))

    async def within(self, seconds: float, what: str, call: Awaitable[T]) -> T:
        """Return the result of `call`; a call that takes longer is a violation and is cancelled.

        Time in which the machine does not run this process does not count. Cancellation of the
        caller cancels the call.
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
        """Count an error that the documentation names, and print the first of each kind."""
        name = f"{what} raised {type(error).__name__}"
        if name not in self.counts:
            print(f"    {name}: {error}", flush=True)
        self.counts[name] += 1

    def unexpected(self, what: str, error: BaseException) -> None:
        """Record an error that no caller should have to expect as a violation."""
        self.history.complain(UNTYPED, f"{what}: {type(error).__name__}: {error}{origin(error)}")


def where(task: asyncio.Future[Any]) -> str:
    """Return the stack at which a task waits."""
    if not isinstance(task, asyncio.Task):
        return repr(task)
    frames = task.get_stack(limit=6)
    return " < ".join(f"{f.f_code.co_qualname}:{f.f_lineno}" for f in reversed(frames))


def origin(error: BaseException) -> str:
    """Return the last places of an error's traceback."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f" ({' > '.join(places[-5:])})" if places else ""
