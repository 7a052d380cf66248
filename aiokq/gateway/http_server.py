"""HttpServer: connections of the gateway's HTTP interface, with limits in time, number and bytes.

A request is answered in the step in which its last byte arrives, except by the few handlers that
wait. So reports are there as long as the loop runs, also when a part of the gateway has failed and
no task can be started. Tests: tests/fault/test_gateway_http.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, cast

from aiokq.errors import Closed
from aiokq.gateway.http_messages import Refusal, Request, Response, parse_head

__all__ = ["Answer", "HttpServer"]

logger = logging.getLogger("aiokq.gateway")

Answer: TypeAlias = Callable[[Request], Response | Coroutine[Any, Any, Response]]
"""Answers a request. It may raise Refusal."""

HEAD_SECONDS: Final = 15.0
"""Time from the start of a connection, or its last answer, to the end of the next request."""

WRITE_SECONDS: Final = 15.0
"""Time that a program may take to read an answer."""

REST_SECONDS: Final = 2.0
"""Time in which what follows a request that cannot be understood is read and thrown away."""

MOST_CONNECTIONS: Final = 256
"""Number of open connections from which each new one closes the oldest."""

MOST_ANSWERS: Final = 16
"""Requests of one connection that are answered in one turn of the loop."""

MOST_HEAD: Final = 16 * 1024
MOST_BODY: Final = 64 * 1024
MOST_WAITING: Final = MOST_HEAD + MOST_BODY
"""Bytes that were received and belong to later requests, from which on nothing more is read."""


class HttpServer:
    """Listens, and passes requests to `answer`.

    Args:
        spawn: starts a task that belongs to the gateway.
    """

    def __init__(
        self,
        answer: Answer,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        *,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self.answer = answer
        self.spawn = spawn
        self.head_seconds = head_seconds
        self._listener: asyncio.Server | None = None
        self._open: dict[_Connection, None] = {}
        self.port = 0

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the system refuses the address.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: _Connection(self), host, port, reuse_address=True
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self, seconds: float) -> None:
        """Stop listening, and end the connections; answers that are under way have some time."""
        if self._listener is not None:
            self._listener.close()
        for one in list(self._open):
            one.end()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while self._open and loop.time() < deadline:  # noqa: ASYNC110  no event tells
            await asyncio.sleep(0.01)
        for one in list(self._open):
            one.abort()

    def opened(self, connection: _Connection) -> None:
        """Note a connection; the oldest one makes room for it.

        Connections that send nothing cost a local program nothing.
        """
        if len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[connection] = None

    def closed(self, connection: _Connection) -> None:
        """Note the end of a connection."""
        self._open.pop(connection, None)


class _Connection(asyncio.Protocol):
    """One connection: requests are answered one after the other."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._request: Request | None = None
        """The request whose body is incomplete, or that is being answered."""
        self._busy = False
        self._full = False
        """Whether the program reads its answers too slowly."""
        self._paused = False
        self._eof = False
        self._ends = False
        """Whether the connection is closed after the answer that is under way."""
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.opened(self)
        self._limit(self._server.head_seconds)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._transport = None
        self._data.clear()
        self._server.closed(self)

    def data_received(self, data: bytes) -> None:
        if not self._ends:
            self._data += data
            self._proceed()

    def eof_received(self) -> bool:
        self._eof = True
        if self._ends and not self._busy and self._transport is not None:
            self._transport.close()
        self._proceed()
        return True  # `_proceed` closes the connection when all requests are answered

    def pause_writing(self) -> None:
        self._full = True
        self._limit(WRITE_SECONDS)

    def resume_writing(self) -> None:
        self._full = False
        self._limit(self._server.head_seconds)
        self._proceed()

    # ------------------------------------------------------------ requests

    def end(self) -> None:
        """Close the connection, after the answer that is under way."""
        self._ends = True
        if not self._busy and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _proceed(self) -> None:
        """Answer the requests that are complete, some of them in one turn of the loop."""
        answered, more = 0, False
        while self._transport is not None and not (self._busy or self._full or self._ends):
            if answered == MOST_ANSWERS:
                self._loop.call_soon(self._proceed)
                more = True
                break
            answered += 1
            if self._transport.is_closing():
                self._data.clear()
                return
            try:
                request = self._next()
            except Refusal as refusal:
                self._ends = True  # what follows cannot be understood
                self._data.clear()
                self._write(None, refusal.response)
                return
            if request is None:
                break
            self._answer(request)
        if self._transport is None or self._transport.is_closing():
            return
        if self._eof and not (more or self._busy or self._full):
            self._transport.close()
            return
        pauses = len(self._data) > MOST_WAITING
        if pauses and not self._paused:
            self._transport.pause_reading()
        elif self._paused and not pauses:
            self._transport.resume_reading()
        self._paused = pauses

    def _next(self) -> Request | None:
        """Take the next request; None if it is not complete."""
        if self._request is None:
            while self._data.startswith(b"\r\n"):  # between requests they mean nothing
                del self._data[:2]
            end = self._data.find(b"\r\n\r\n")
            if end < 0 and len(self._data) <= MOST_HEAD:
                return None
            if end < 0 or end > MOST_HEAD:
                raise Refusal(431)
            request = parse_head(bytes(self._data[:end]))
            del self._data[: end + 4]
            if request.length > MOST_BODY:
                raise Refusal(413)
            self._request = request
            if request.length and request.headers.get("expect", "").lower() == "100-continue":
                assert self._transport is not None
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request = self._request
        if len(self._data) < request.length:
            return None
        del self._data[: request.length]
        self._request = None
        return request

    def _answer(self, request: Request) -> None:
        self._busy = True
        try:
            answer = self._server.answer(request)
        except Refusal as refusal:
            answer = refusal.response
        except Exception:
            logger.exception("a request cannot be answered: path=%r", request.path)
            answer = Refusal(500).response
        if isinstance(answer, Response):
            self._finish(request, answer)
            return
        self._stop_timer()
        try:
            self._server.spawn(self._wait_for(request, answer), "answer of a request")
        except Closed:
            answer.close()
            self._finish(request, Refusal(503, "the gateway has failed, or ends\n").response)

    async def _wait_for(self, request: Request, answer: Coroutine[Any, Any, Response]) -> None:
        response = Refusal(503, "the gateway ends\n").response
        try:
            response = await answer
        except Refusal as refusal:
            response = refusal.response
        except Exception:
            logger.exception("a request cannot be answered: path=%r", request.path)
            response = Refusal(500).response
        finally:
            self._finish(request, response)
            self._proceed()

    def _finish(self, request: Request, response: Response) -> None:
        self._busy = False
        self._limit(self._server.head_seconds)
        self._write(request, response)

    def _write(self, request: Request | None, response: Response) -> None:
        """Send a response; None for a request that cannot be understood."""
        if self._transport is None:
            return
        keeps_alive = request is not None and request.keeps_alive and not self._ends
        head_only = request is not None and request.method == "HEAD"
        self._transport.write(response.encoded(head_only=head_only, keeps_alive=keeps_alive))
        if keeps_alive:
            return
        self._ends = True
        if request is None and self._transport.can_write_eof():
            # To close the connection before everything is read would take the answer back.
            self._limit(REST_SECONDS)
            self._transport.write_eof()
        else:
            self._limit(WRITE_SECONDS)
            self._transport.close()

    # ------------------------------------------------------------ limits in time

    def _limit(self, seconds: float) -> None:
        """Close the connection after some time, unless something happens before."""
        self._stop_timer()
        if self._transport is not None:
            self._timer = self._loop.call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
