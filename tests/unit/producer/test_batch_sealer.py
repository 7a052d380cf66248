"""BatchSealer: batches that are compressed outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from aiokq.core.offload import InlineOffload
from aiokq.producer.batch_sealer import BatchSealer
from aiokq.producer.values import ProducerValues


class GoneBatch:
    """A failed batch, whose records are freed."""

    topic = "orders"
    size = 1_000_000

    def payload(self) -> memoryview:
        raise ValueError("the uncompressed records are freed")


def test_a_batch_that_fails_before_its_compression_begins_is_no_bug() -> None:
    """Regression: a batch that failed before the task's first step was logged as a bug."""
    tasks: list[Coroutine[Any, Any, None]] = []
    settings = ProducerValues.given({"bootstrap_servers": "h:1", "compression_type": "gzip"})
    sealer = BatchSealer(settings, InlineOffload(), lambda work, name: tasks.append(work))
    queued: Any = SimpleNamespace(
        batch=GoneBatch(), queue=SimpleNamespace(topic="orders"), done=False, sealing=False
    )
    told: list[object] = []

    async def main() -> None:
        assert not sealer.seal(queued, told.append, lambda *broken: told.append(broken))
        queued.done = True
        for task in tasks:
            await task

    asyncio.run(main())
    assert told == []
    assert not queued.sealing
