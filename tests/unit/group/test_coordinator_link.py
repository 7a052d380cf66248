"""The connection of one member to whoever coordinates its group."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.core.errors import Closed
from aiokq.group.actions import Ask
from aiokq.group.coordinator_link import CoordinatorLink
from aiokq.wire.heartbeat import HeartbeatRequest


class Engine:
    """A cluster that takes its time to find the coordinator."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.connections = 0

    async def coordinator(self, kind: Any, key: str, *, timeout: float) -> int:
        await self.found.wait()
        return 1

    def node(self, node_id: int) -> Any:
        self.connections += 1
        raise AssertionError("nobody would close this connection")


async def test_who_still_looks_for_the_coordinator_at_the_end_connects_to_none() -> None:
    """A cluster that several clients share would keep the connection."""
    engine = Engine()
    link = CoordinatorLink(engine, "g")  # type: ignore[arg-type]
    ask = Ask(HeartbeatRequest, lambda version: HeartbeatRequest(), 5.0, 1)
    asking = asyncio.ensure_future(link.ask(ask))
    await asyncio.sleep(0)
    await link.close()
    engine.found.set()
    with pytest.raises(Closed):
        await asking
    assert engine.connections == 0
