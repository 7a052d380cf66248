"""The connection of a member to the coordinator of its group."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.core.errors import Closed
from aiokq.group.actions import Ask
from aiokq.group.coordinator_connection import CoordinatorConnection
from aiokq.wire.heartbeat import HeartbeatRequest


class Engine:
    """A cluster that takes some time to find the coordinator."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.connections = 0

    async def coordinator(self, kind: Any, key: str, *, timeout: float) -> int:
        await self.found.wait()
        return 1

    def node(self, node_id: int) -> Any:
        self.connections += 1
        raise AssertionError("nobody would close this connection")


async def test_no_connection_is_made_if_closed_during_the_coordinator_lookup() -> None:
    """In a cluster shared by several clients the connection would stay open."""
    engine = Engine()
    link = CoordinatorConnection(engine, "g")  # type: ignore[arg-type]
    ask = Ask(HeartbeatRequest, lambda version: HeartbeatRequest(), 5.0, 1)
    asking = asyncio.ensure_future(link.ask(ask))
    await asyncio.sleep(0)
    await link.close()
    engine.found.set()
    with pytest.raises(Closed):
        await asking
    assert engine.connections == 0


class Slot:
    """A connection that takes some time to close."""

    def __init__(self, opened: list[Slot]) -> None:
        self.closing = asyncio.Event()
        self.closed = False
        opened.append(self)

    async def get(self) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        await self.closing.wait()
        self.closed = True


class Moving:
    """A cluster that finds a different coordinator each time."""

    def __init__(self) -> None:
        self.opened: list[Slot] = []
        self.node_id = 0

    async def coordinator(self, kind: Any, key: str, *, timeout: float) -> int:
        self.node_id += 1
        return self.node_id

    def node(self, node_id: int) -> Any:
        return SimpleNamespace(dedicated=lambda name: Slot(self.opened))


async def test_no_connection_is_left_if_closed_while_an_old_one_is_closing() -> None:
    """The last heartbeat is sent while an earlier one still looks for a coordinator that moved."""
    engine = Moving()
    link = CoordinatorConnection(engine, "g")  # type: ignore[arg-type]
    ask = Ask(HeartbeatRequest, lambda version: HeartbeatRequest(), 5.0, 1)
    asking = [asyncio.ensure_future(link.ask(ask)) for _ in range(3)]
    await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(link.close())
    await asyncio.sleep(0.01)
    for slot in engine.opened:
        slot.closing.set()
    await closing
    await asyncio.sleep(0.01)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert all(slot.closed for slot in engine.opened)
