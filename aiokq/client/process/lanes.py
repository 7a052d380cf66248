"""Lanes: items that are handled one after the other, several lanes at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from aiokq.core.supervisor import Supervisor

__all__ = ["run_in_lanes"]

T = TypeVar("T")


async def run_in_lanes(
    items: Iterable[T],
    lane_of: Callable[[T], Hashable],
    work: Callable[[T], Awaitable[None]],
    concurrency: int,
    supervisor: Supervisor,
) -> None:
    """Work on all items, those of a lane in order and at most `concurrency` at a time.

    If the call is cancelled, or work fails, the other work is cancelled and awaited first.

    Raises:
        Exception: the first exception of `work`.
    """
    lanes: dict[Hashable, deque[T]] = {}
    for item in items:
        lanes.setdefault(lane_of(item), deque()).append(item)
    waiting = deque(lanes.values())
    failures: list[Exception] = []
    tasks: set[asyncio.Task[None]] = set()

    async def worker() -> None:
        try:
            while waiting:
                lane = waiting.popleft()
                while lane:
                    await work(lane.popleft())
        except Exception as error:  # noqa: BLE001 - raised below, when the others have ended
            failures.append(error)
            waiting.clear()
            for task in tasks:
                task.cancel()

    try:
        for number in range(min(concurrency, len(waiting))):
            tasks.add(supervisor.spawn(worker(), name=f"lane {number}"))
        if tasks:
            await asyncio.wait(tasks)
    finally:
        running = {task for task in tasks if not task.done()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
    if failures:
        raise failures[0]
