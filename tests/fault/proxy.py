"""A TCP proxy over real sockets that disturbs its traffic on demand; independent of Kafka.

    async with FaultProxy("127.0.0.1", broker_port) as proxy:
        client connects to 127.0.0.1:proxy.port
        proxy.to_client.delay = 0.5      # every piece waits
        proxy.to_server.piece = 1        # byte by byte
        proxy.stall()                    # nothing passes, nothing is closed
        proxy.half_open()                # the server's side is gone, the client is not told
        proxy.cut()                      # both sides are reset

After asyncpg's `tests/test_adversity.py`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass

READ_BYTES = 65_536


@dataclass
class Direction:
    """What happens to bytes in one direction.

    Attributes:
        delay: seconds that each piece waits before it is passed on.
        piece: bytes passed on at a time; 0 for as many as arrive.
        limit: bytes after which the connection is cut; `None` for never.
        passed: bytes passed on so far.
    """

    delay: float = 0.0
    piece: int = 0
    limit: int | None = None
    passed: int = 0


class FaultProxy:
    """Listens on a free port of 127.0.0.1 and passes everything to one address."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.to_server = Direction()
        self.to_client = Direction()
        self.accepted = 0
        self.refusing = False
        self._going = asyncio.Event()
        self._going.set()
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """The number of connections that clients have open."""
        return len(self._links)

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        links = list(self._links)
        for link in links:
            link.cut()
        await asyncio.gather(*(link.ended.wait() for link in links))

    def cut(self) -> None:
        """Reset all connections, both sides."""
        for link in list(self._links):
            link.cut()

    def stall(self) -> None:
        """Pass nothing on and close nothing, until `resume`."""
        self._going.clear()

    def resume(self) -> None:
        """Pass on again."""
        self._going.set()

    def half_open(self) -> None:
        """Reset the server's side; discard what clients send, and send them nothing."""
        for link in list(self._links):
            link.half_open()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, reader, writer)
        if self.refusing:
            link.reset(writer)
            return
        self._links.add(link)
        try:
            await link.run(self._target)
        finally:
            self._links.discard(link)
            link.ended.set()


class _Link:
    """One client's connection and the proxy's own connection to the server for it."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._half_open = False
        self.ended = asyncio.Event()

    async def run(self, target: tuple[str, int]) -> None:
        try:
            self._server = await asyncio.open_connection(*target)
        except OSError:
            self.reset(self._client[1])
            return
        proxy = self._proxy
        pumps = [
            asyncio.create_task(
                self._pump(self._client[0], self._server[1], proxy.to_server, to_server=True)
            ),
            asyncio.create_task(
                self._pump(self._server[0], self._client[1], proxy.to_client, to_server=False)
            ),
        ]
        try:
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for _, writer in (self._client, self._server):
                writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        *,
        to_server: bool,
    ) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                await self._proxy._going.wait()
                if self._half_open:
                    continue
                size = direction.piece or len(data)
                for start in range(0, len(data), size):
                    if direction.delay:
                        await asyncio.sleep(direction.delay)
                    piece = data[start : start + size]
                    if direction.limit is not None:
                        piece = piece[: max(0, direction.limit - direction.passed)]
                    if writer.is_closing():  # uvloop's transports raise RuntimeError
                        return
                    writer.write(piece)
                    await writer.drain()
                    direction.passed += len(piece)
                    if direction.limit is not None and direction.passed >= direction.limit:
                        self.cut()
                        return
                    if direction.piece:
                        await asyncio.sleep(0)  # lets the reader receive this piece alone
            if self._half_open and not to_server:
                return  # the client must not notice that the server's side is gone
            writer.close()
        except (ConnectionError, TimeoutError):
            self.cut()

    def half_open(self) -> None:
        self._half_open = True
        if self._server is not None:
            self.reset(self._server[1])

    def cut(self) -> None:
        self.reset(self._client[1])
        if self._server is not None:
            self.reset(self._server[1])

    @staticmethod
    def reset(writer: asyncio.StreamWriter) -> None:
        """Close with RST, as a crashed peer's kernel or a firewall does."""
        sock = writer.get_extra_info("socket")
        if sock is not None and not writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
