"""CurrentProducer: replaces the producer of a `process()` call when the producer is fenced.

The coordinator fences a producer whose transaction exceeds the transaction timeout, for example
because no broker was reachable for that long.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from aiokq.core.errors import ProducerFenced, RequestTimeout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from types import TracebackType

    from aiokq.producer.producer import Producer

__all__ = ["CurrentProducer"]

logger = logging.getLogger("aiokq.client")


class CurrentProducer:
    """The producer that writes the results.

    Args:
        create: returns a producer that is not started.
        stop: set when the `process()` call must end.
        renews: whether a fenced producer is replaced; False if other producers may have the same
            transactional id, because they would fence each other forever.
    """

    def __init__(
        self, create: Callable[[], Producer], stop: asyncio.Event, *, renews: bool
    ) -> None:
        self._create = create
        self._stop = stop
        self._renews = renews
        self.now = create()

    async def __aenter__(self) -> Self:
        await self.now.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.now.__aexit__(kind, error, traceback)

    async def renew(self, error: ProducerFenced) -> None:
        """Replace the fenced producer. A call that was cancelled may be repeated.

        Raises:
            ProducerFenced: `renews` is False.
            KafkaError: the new producer cannot be started.
        """
        if not self._renews:
            raise error
        logger.warning("fenced producer is replaced: error=%s", error.__cause__ or error)
        await self.now.close(0)
        while True:
            successor = self._create()
            try:
                await successor.start()
            except RequestTimeout as late:
                if self._stop.is_set():
                    raise
                logger.warning("producer was not started: error=%s", late)
            else:
                self.now = successor
                return
