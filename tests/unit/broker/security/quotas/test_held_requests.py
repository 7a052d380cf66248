"""HeldRequests: a client that is new is served when its quotas are known."""

from __future__ import annotations

import asyncio
import time

import pytest

from aiokq import Cluster, EmbeddedCluster, Throttled, wire
from aiokq.broker.security.quotas.caller_quotas import CallerQuotas
from aiokq.broker.security.quotas.held_requests import HeldRequests
from aiokq.connection.request_context import RequestContext, SessionState
from tests.unit.broker.harness import batch

RATE = 100_000.0


class Handler:
    def __init__(self) -> None:
        self.handled: list[bytes] = []

    async def handle(self, context: RequestContext, frame: memoryview) -> list[bytes]:
        self.handled.append(bytes(frame))
        return [b"answer"]


def frame_of(request: wire.Request[wire.Response], version: int, client_id: str) -> memoryview:
    fragments = wire.encode_request(request, version=version, correlation_id=1, client_id=client_id)
    return memoryview(bytearray(b"".join(map(bytes, fragments))[4:]))


def test_a_request_is_held_until_the_answer_is_there() -> None:
    """Requests before a login, and what is no request, are passed on at once."""

    async def main() -> None:
        answer = asyncio.get_running_loop().create_future()

        async def quota(principal: str, client_id: str, key: str) -> float:
            return await answer  # type: ignore[no-any-return]

        tasks = []
        quotas = CallerQuotas(
            quota, time.monotonic, lambda work, name: tasks.append(asyncio.ensure_future(work))
        )
        handler = Handler()
        held = HeldRequests(handler, quotas)
        context = RequestContext(1, "", "", "")
        frame = frame_of(wire.HeartbeatRequest(group_id="g", member_id="m"), 4, "c")
        waiting = asyncio.ensure_future(held.handle(context, frame))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not handler.handled
        other = RequestContext(2, "", "", "")
        other.session.state = SessionState.HANDSHAKE
        assert await held.handle(other, frame) == [b"answer"]
        other.session.state = SessionState.READY
        for malformed in (b"", b"\0", b"\0\x0c\0\4\0\0\0\1\x7f\xffc"):
            assert await held.handle(other, memoryview(malformed)) == [b"answer"]
        answer.set_result(5)
        assert await waiting == [b"answer"]
        assert len(handler.handled) == 5
        await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_new_client_id_for_each_request_evades_nothing(is_async: bool) -> None:
    """All ids of the principal share the rate, and none is served before it is known."""

    def quota(principal: str, client_id: str, key: str) -> float | None:
        return RATE if key == "producer_byte_rate" else None

    async def quota_later(principal: str, client_id: str, key: str) -> float | None:
        await asyncio.sleep(0.005)
        return quota(principal, client_id, key)

    async with EmbeddedCluster(quota=quota_later if is_async else quota) as kafka:
        await kafka.node.metadata.create_topic_if_allowed("t", allowed=True)
        host, _, port = kafka.bootstrap_servers.rpartition(":")
        data = batch(1, value=b"x" * 50_000)
        request = wire.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                wire.TopicProduceData(
                    name="t",
                    partition_data=[wire.PartitionProduceData(index=0, records=data)],
                )
            ],
        )
        throttled_ms = []
        for n in range(25):  # of 50 KB each: 10 seconds' worth after 20 of them
            reader, writer = await asyncio.open_connection(host, int(port))
            fragments = wire.encode_request(
                request, version=9, correlation_id=n, client_id=f"evader-{n}"
            )
            writer.write(b"".join(map(bytes, fragments)))
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
            _, response = wire.decode_response(wire.ProduceResponse, memoryview(answer), 9)
            throttled_ms.append(response.throttle_time_ms)
            writer.close()
            await writer.wait_closed()
        assert throttled_ms[:10] == [0] * 10
        assert throttled_ms[-1] > 1000


async def test_a_client_of_aiokq_is_told() -> None:
    """By the event `Throttled`, also if a coroutine function gives the quota."""

    async def quota(principal: str, client_id: str, key: str) -> float | None:
        await asyncio.sleep(0)
        return 10_000.0 if key == "producer_byte_rate" else None

    async with (
        EmbeddedCluster(quota=quota) as kafka,
        Cluster(kafka.bootstrap_servers) as cluster,
        cluster.producer(linger_ms=0) as producer,
    ):
        events = cluster.events()
        for _ in range(3):
            await producer.send("t", b"x" * 50_000)
        async with asyncio.timeout(10):
            async for event in events:
                if isinstance(event, Throttled):
                    break
