"""Several requests at once, each with its own outcome; tasks are the supervisor's."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from aiokq.core.error_base import KafkaError
from aiokq.core.supervisor import Supervisor

__all__ = ["concurrently"]

T = TypeVar("T")


async def concurrently(
    supervisor: Supervisor, coros: Iterable[Coroutine[Any, Any, T]], *, name: str
) -> list[T | KafkaError]:
    """Run all, wait for all. In place of a result stands the KafkaError that was raised.

    Cancelling it cancels them.

    Raises:
        Closed: the supervisor was closed before they were done.
    """
    waiting = list(coros)
    if len(waiting) == 1:
        return [await _outcome(waiting[0])]
    tasks = []
    try:
        while waiting:
            tasks.append(supervisor.spawn(_outcome(waiting.pop(0)), name=name))
        if tasks:
            await asyncio.wait(tasks)
        if any(task.cancelled() for task in tasks):
            raise asyncio.CancelledError
        return [task.result() for task in tasks]
    finally:
        for coro in waiting:
            coro.close()
        for task in tasks:
            task.cancel()


async def _outcome(coro: Coroutine[Any, Any, T]) -> T | KafkaError:
    try:
        return await coro
    except KafkaError as error:
        return error
