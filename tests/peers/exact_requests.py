"""Requests in an exact version, on a connection of their own, to brokers of any make."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch

__all__ = ["ExactRequests", "transactional_batch"]

R = TypeVar("R", bound=wire.Response)

TRANSACTIONAL = 0x10


class ExactRequests:
    """A connection to one broker.

    Args:
        servers: "host:port" of the broker.
    """

    def __init__(self, servers: str) -> None:
        self._host, _, port = servers.split(",")[0].rpartition(":")
        self._port = int(port)

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def ask(self, request: wire.Request[R], version: int) -> R:
        """Send a request in this version and return the response."""
        self._send(request, version)
        return await self._receive(request, version)

    async def ask_all(self, requests: Sequence[wire.Request[R]], version: int) -> list[R]:
        """Send all requests in this version, then return their responses, in this order."""
        for request in requests:
            self._send(request, version)
        return [await self._receive(request, version) for request in requests]

    def _send(self, request: wire.Request[R], version: int) -> None:
        for fragment in wire.encode_request(
            request, version=version, correlation_id=7, client_id="exact"
        ):
            self._writer.write(bytes(fragment))  # type: ignore[arg-type]

    async def _receive(self, request: wire.Request[R], version: int) -> R:
        async with asyncio.timeout(60):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = await self._reader.readexactly(size)
        _, response = wire.decode_response(type(request).RESPONSE, frame, version)
        return response

    async def init_producer_id(self, transactional_id: str) -> tuple[int, int]:
        """Return the producer id and epoch of a transactional id."""
        while True:
            # Brokers create __transaction_state when the first coordinator is looked up.
            lookup = wire.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
            await self.ask(lookup, 4)
            found = await self.ask(
                wire.InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=60_000
                ),
                5,
            )
            if found.error_code not in (14, 15, 16, 51):
                assert not found.error_code
                return found.producer_id, found.producer_epoch
            await asyncio.sleep(0.1)

    async def produce(
        self,
        topic: str,
        data: bytes,
        *,
        transactional_id: str,
        version: int,
        partition: int = 0,
    ) -> int:
        """Produce a batch to a partition; return the error code."""
        while True:
            response = await self.ask(
                wire.ProduceRequest(
                    transactional_id=transactional_id,
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        wire.TopicProduceData(
                            name=topic,
                            partition_data=[
                                wire.PartitionProduceData(index=partition, records=data)
                            ],
                        )
                    ],
                ),
                version,
            )
            code = response.responses[0].partition_responses[0].error_code
            if code not in (19, 51):
                return code
            await asyncio.sleep(0.1)


def transactional_batch(
    producer_id: int, epoch: int, sequence: int, *values: bytes, timestamp_ms: int
) -> bytes:
    """Return a batch of a transactional producer."""
    return encode_batch(
        [RawRecord(n, timestamp_ms, None, value) for n, value in enumerate(values)],
        crc32c=crc32c,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )
