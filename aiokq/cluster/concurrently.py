"""`concurrently`: runs several coroutines as supervised tasks and collects results and errors."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from aiokq.core.error_base import KafkaError
from aiokq.core.errors import Closed
from aiokq.core.supervisor import Supervisor

__all__ = ["concurrently"]

T = TypeVar("T")


async def concurrently(
    supervisor: Supervisor, coros: Iterable[Coroutine[Any, Any, T]], *, name: str
) -> list[T | KafkaError]:
    """Run all coroutines; return the result or the `KafkaError` of each coroutine.

    A single coroutine is awaited without a task. Cancelling this call cancels the coroutines.

    Raises:
        Closed: the supervisor was closed before the coroutines were done.
    """
    calls = list(coros)
    if len(calls) == 1:
        return [await _outcome(calls[0])]
    tasks: list[asyncio.Task[T | KafkaError]] = []
    try:
        for call in calls:
            tasks.append(supervisor.spawn(_outcome(call), name=name))
        if tasks:
            await asyncio.wait(tasks)
        if any(task.cancelled() for task in tasks):
            # The supervisor cancelled the task. The caller was not cancelled, so Closed is raised.
            raise Closed(f"{supervisor.name} was closed during the call")
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        # Coroutines that never started are closed, because Python would otherwise warn that they
        # were never awaited. Started coroutines end with the cancellation of their tasks.
        for call in calls:
            if inspect.getcoroutinestate(call) == inspect.CORO_CREATED:
                call.close()
        raise


async def _outcome(coro: Coroutine[Any, Any, T]) -> T | KafkaError:
    try:
        return await coro
    except KafkaError as error:
        return error
