"""CurrentProducer: the producer of a call of `process()`, and its successors.

A producer is finished when its transaction lasted longer than the coordinator allows, for example
because brokers were away for so long. Then another one takes its place.
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
        stop: set when the call is to end.
        renews: whether a fenced producer has a successor. If others may use its transactional id,
            they would fence each other forever.
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
        """Replace the producer, which was fenced. May be repeated if it is cancelled.

        Raises:
            ProducerFenced: others may use the transactional id.
            KafkaError: no coordinator gives the successor an id.
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
