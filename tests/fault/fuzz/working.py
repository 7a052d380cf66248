"""The clients that must be served while fuzzers are at work: one for each listener."""

from __future__ import annotations

import asyncio
import contextlib
import time

import aiokq
from tests.fault.fuzz.fixture import WORK, Fixture

PAUSE = 0.02
"""Seconds between two records of a client."""


class WorkingClient:
    """Produces a record, and waits until it has consumed it; again and again.

    Attributes:
        longest: the longest time, in seconds, from sending a record to having it.
        count: number of records.
        failure: the error that ended the client, if any.
    """

    def __init__(self, fixture: Fixture, listener: str) -> None:
        self.listener = listener
        self.longest = 0.0
        self.count = 0
        self.failure: str | None = None
        self.ready = asyncio.Event()
        self._fixture = fixture
        self._end = False
        self._since: float | None = None

    @property
    def waiting(self) -> float:
        """Seconds since the current record was sent."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def end(self) -> None:
        self._end = True

    async def run(self) -> None:
        try:
            await self._work()
        except Exception as error:
            self.failure = repr(error)
        finally:
            self.ready.set()

    async def _work(self) -> None:
        topic = WORK.get(self.listener, "work")
        settings = self._fixture.settings(self.listener)
        prefix = self.listener.encode() + b"-"
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(aiokq.Producer(**settings, linger_ms=0))
            consumer = await stack.enter_async_context(
                aiokq.Consumer(**settings, auto_offset_reset="latest")
            )
            partition = aiokq.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.position(partition)
            self.ready.set()
            while not self._end:
                value = prefix + b"%d" % self.count
                self._since = time.monotonic()
                await producer.send(topic, value, partition=0)
                while (await consumer.getone()).value != value:
                    pass  # a record of the client of another listener
                self.longest = max(self.longest, self.waiting)
                self._since = None
                self.count += 1
                await asyncio.sleep(PAUSE)
