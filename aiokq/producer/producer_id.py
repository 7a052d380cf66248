"""ProducerIdSource: obtains producer ids with InitProducerId."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.cluster.denials import name_denial
from aiokq.core.errors import KafkaError, UnsupportedVersion, raise_for
from aiokq.producer.idempotence import IdState, ProducerIdentity
from aiokq.wire.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.connection.backoff import Backoff

__all__ = ["ProducerIdSource"]

logger = logging.getLogger("aiokq.producer")

TROUBLE: Final = "no producer id"


class ProducerIdSource:
    """Obtains a producer id from any broker whenever one is needed.

    After a retriable error, the request is repeated with backoff until it succeeds; records that
    wait for the id expire after delivery_timeout_ms. An error that is not retriable, for example
    because the broker is too old, fails all records that are not in flight. The next record that
    needs an id causes another request.

    Attributes:
        identity: the producer id and epoch that batches are numbered with.
    """

    def __init__(self, engine: ClusterEngine, backoff: Backoff) -> None:
        self._engine = engine
        self._backoff = backoff
        self.identity = ProducerIdentity()
        self._needed = asyncio.Event()

    def need(self) -> None:
        """Request an id, because a batch waits for one."""
        if self.identity.state is IdState.ABSENT:
            self._needed.set()

    async def run(self, issued: Callable[[], None], refused: Callable[[KafkaError], None]) -> None:
        """Obtain an id whenever one is needed; never return.

        Args:
            issued: called when a broker has issued an id.
            refused: called with an error that is not retriable; fails the batches not in flight.
        """
        while True:
            await self._needed.wait()
            self._needed.clear()
            if self.identity.state is not IdState.ABSENT:
                continue
            self.identity.requested()
            try:
                response = await self._engine.request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
                )
                raise_for(response.error_code, api="InitProducerId")
            except KafkaError as error:
                name_denial(self._engine, error)
                self.identity.refused()
                delay = self._backoff.next()
                self._engine.outages.failed(TROUBLE, None, error, where={})
                if not error.retriable:
                    refused(_explained(error))
                    await asyncio.sleep(delay)
                else:
                    await asyncio.sleep(delay)
                    self._needed.set()
                continue
            self._backoff.reset()
            self._engine.outages.ended(TROUBLE, None)
            self.identity.issued(response.producer_id, response.producer_epoch)
            logger.info(
                "producer id issued: producer_id=%s epoch=%s",
                response.producer_id,
                response.producer_epoch,
            )
            issued()


def _explained(error: KafkaError) -> KafkaError:
    """Return the error; if the broker is too old, return an error with a workaround."""
    if isinstance(error, UnsupportedVersion):
        return UnsupportedVersion(
            "the broker does not support idempotent producers (older than 0.11): set "
            "enable_idempotence=False",
            api="InitProducerId",
            node=error.node,
        )
    return error
