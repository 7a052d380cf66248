"""Shared by the tests of reports: a pool with messages, its accounting, and a clock by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokq.fastpath.gateway import BAD_TOPIC, Pool
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.client import encode
from aiokq.gateway.engine import TopicState
from aiokq.gateway.reports.windows import DiscardWindows, UncleanDisconnects

NOW = 1_700_000_000_000
EVERYTHING = range(BAD_TOPIC + 1)
"""The reasons for which the pool itself discards."""


def message(
    topic: str | bytes, value: bytes = b"v", *, key: bytes = b"", timestamp_ms: int = NOW
) -> bytes:
    return encode(topic, value, key=key, timestamp_ms=timestamp_ms)


class Desk:
    """A pool and its accounting, without sockets and Kafka."""

    def __init__(self, max_bytes: int = 1 << 20, **options: Any) -> None:
        self.pool = Pool(max_bytes, **options)
        self.mono = 1000.0
        self.set_clock()
        self.accounting = Accounting(self.pool)
        self.unclean = UncleanDisconnects(0, 0)

    def set_clock(self) -> None:
        self.pool.set_clock(int(self.mono * 1000), NOW + int((self.mono - 1000) * 1000))

    def move(self, seconds: float) -> None:
        self.mono += seconds
        self.set_clock()

    def windows(self, interval: int = 10) -> DiscardWindows:
        return DiscardWindows(
            self.accounting,
            self.pool,
            unclean=lambda: self.unclean,
            interval=interval,
            now=lambda: self.mono,
            started_at=NOW / 1000,
        )

    def topic(self, name: str, **limits: int) -> TopicState:
        """Register a topic that exists."""
        topic = TopicState(name, SimpleNamespace())  # type: ignore[arg-type]
        topic.slot = self.pool.register(name.encode(), **limits)
        self.accounting.registered(topic)
        return topic

    def feed(self, *messages: bytes) -> None:
        self.pool.feed(b"".join(messages))

    def take(self, topic: TopicState) -> Any:
        return self.pool.take(topic.slot, flush=True)
