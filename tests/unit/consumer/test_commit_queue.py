"""CommitQueue keeps the order of commits, even if some of them time out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.consumer.commit_queue import CommitQueue
from aiokq.core.errors import RequestTimeout


def overdue(waited: float) -> RequestTimeout:
    return RequestTimeout(f"waited {waited}")


async def test_a_commit_that_times_out_does_not_let_later_ones_overtake() -> None:
    """A commit that timed out let the next one start before an older one had ended."""
    queue = CommitQueue()
    first, second, third = queue.join(), queue.join(), queue.join()
    with pytest.raises(RequestTimeout):
        await second.wait(0.01, overdue)
    second.end()
    with pytest.raises(RequestTimeout):
        await third.wait(0.01, overdue)
    first.end()
    assert await third.wait(1.0, overdue) > 0


async def test_a_turn_that_is_ended_twice_before_it_has_come_ends_once() -> None:
    """For commit_nowait() after a longer commit, asyncio logged an InvalidStateError."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    queue = CommitQueue()
    first, second = queue.join(), queue.join()
    second.end()
    second.end()
    first.end()
    await asyncio.sleep(0.01)
    assert second.ended.done()
    assert told == []
