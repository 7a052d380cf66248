"""IncompleteBatches: the batches without an outcome, and the calls that wait for these batches.

Source: Kafka `IncompleteBatches.java`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aiokq.fastpath.produce import Batch

__all__ = ["IncompleteBatches"]


class _Flush:
    """One call of `wait`: its batches, with split batches replaced by their parts."""

    __slots__ = ("batches", "done")

    def __init__(self, batches: set[Batch], done: asyncio.Future[None]) -> None:
        self.batches = batches
        self.done = done


class IncompleteBatches:
    """All batches of a producer that have no outcome yet, in the order in which they were added.

    Args:
        on_removal: called after a batch was removed, if other batches remain.
    """

    __slots__ = ("_batches", "_flushes", "_on_removal")

    def __init__(self, on_removal: Callable[[], None]) -> None:
        # A dict keeps insertion order; the order of a set would differ from run to run.
        self._batches: dict[Batch, None] = {}
        self._flushes: list[_Flush] = []
        self._on_removal = on_removal

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def copy(self) -> list[Batch]:
        """Return a list of the current batches.

        Context: any thread.
        """
        return list(self._batches)

    def add(self, batch: Batch) -> None:
        self._batches[batch] = None

    # Hot path, once per batch; measured by benchmarks/micro/producer.py.
    def remove(self, batch: Batch) -> None:
        """Remove a delivered, failed or split batch; end flushes that wait for no other batch."""
        self._batches.pop(batch, None)
        if self._batches:
            self._on_removal()
        for flush in self._flushes:
            flush.batches.discard(batch)
            if not flush.batches and not flush.done.done():
                flush.done.set_result(None)

    def replace(self, batch: Batch, parts: Sequence[Batch]) -> None:
        """Replace a split batch with its parts; flushes of the batch then wait for the parts."""
        self._batches.update(dict.fromkeys(parts))
        for flush in self._flushes:
            if batch in flush.batches:
                flush.batches.update(parts)
        self.remove(batch)

    async def wait(self) -> None:
        """Wait until all current batches are delivered or have failed."""
        if not self._batches:
            return
        flush = _Flush(set(self._batches), asyncio.get_running_loop().create_future())
        self._flushes.append(flush)
        try:
            await flush.done
        finally:
            self._flushes.remove(flush)
