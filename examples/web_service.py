"""A web service that answers when Kafka has the record: `python examples/web_service.py`.

The HTTP part is minimal. The example shows one producer per process, and one awaited `send()` per
request. The program also runs its own clients.
"""

from __future__ import annotations

import asyncio
import json

import aiokq


class OrderService:
    """Accepts orders over HTTP and writes each one to a topic before it answers."""

    def __init__(self, producer: aiokq.Producer) -> None:
        self.producer = producer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            status, answer = await self.place(body)
            payload = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(payload)))
            writer.write(payload)
            await writer.drain()
        finally:
            writer.close()

    async def place(self, body: bytes) -> tuple[bytes, dict[str, object]]:
        try:
            metadata = await self.producer.send("orders", body)
        except aiokq.BufferFull:
            return b"503 Service Unavailable", {"error": "too much is waiting, try again"}
        except aiokq.KafkaError as error:
            return b"502 Bad Gateway", {"error": str(error)}
        return b"201 Created", {"partition": metadata.partition, "offset": metadata.offset}


async def post(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /orders HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    answer = await reader.read()
    writer.close()
    return answer


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Producer(kafka.bootstrap_servers, linger_ms=1) as producer,
    ):
        service = OrderService(producer)
        server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            answers = await asyncio.gather(*(post(port, b"order %d" % n) for n in range(50)))
        created = sum(answer.startswith(b"HTTP/1.1 201") for answer in answers)
        print(f"{created} of {len(answers)} orders placed")
        print(answers[-1].decode().replace("\r\n", " | "))


if __name__ == "__main__":
    asyncio.run(main())
