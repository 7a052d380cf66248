"""`HttpServer`: the connections of the gateway's HTTP interface, limited in time, number and bytes.

h11 parses the bytes. This module has the connections and limits, because a complete HTTP server
(aiohttp) takes more memory than the rest of the gateway's code, and lacks some of the limits. Most
handlers answer a request at once when its last byte arrives, without a task. So reports work as
long as the loop runs, even if a part of the gateway has failed and no task can be started. Tests:
tests/fault/test_gateway_http.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final, TypeAlias, cast

import h11

from aiokq.core import forks
from aiokq.errors import Closed
from aiokq.gateway.http_messages import Refusal, Request, Response, request_of

__all__ = ["Answer", "HttpServer"]

logger = logging.getLogger("aiokq.gateway")

Answer: TypeAlias = Callable[[Request], Response | Coroutine[Any, Any, Response]]
"""Answers a request. It may raise Refusal."""

HEAD_SECONDS: Final = 15.0
"""Time from the start of a connection, or its last answer, to the end of the next request."""

WRITE_SECONDS: Final = 15.0
"""Time that a program may take to read an answer."""

REST_SECONDS: Final = 2.0
"""Seconds for which the bytes after a malformed request are read and discarded."""

MOST_CONNECTIONS: Final = 256
"""Maximum number of open connections; each further connection closes the oldest one."""

MOST_UNSENT: Final = 16 * 1024 * 1024
"""Maximum bytes of answers that programs have not read yet. If a large answer would exceed the
maximum, the oldest connections with unread answers are closed before the answer is written.
"""

LARGE_ANSWER: Final = MOST_UNSENT // MOST_CONNECTIONS
"""Size above which an answer is large. The size is such that one answer of this size on each
connection is within MOST_UNSENT.
"""

MOST_ANSWERS: Final = 16
"""Requests of one connection that are answered in one iteration of the loop."""

MOST_SECONDS: Final = 0.02
"""Time of answers of one connection after which other tasks get a turn of the loop."""

MOST_EVENTS: Final = 64
"""Number of parts of a request that are parsed in one iteration of the loop.

A body may have 65,536 chunks of one byte, and to parse them takes a second.
"""

MOST_HEAD: Final = 16 * 1024
MOST_BODY: Final = 64 * 1024
MOST_WAITING: Final = MOST_HEAD + MOST_BODY
"""Number of received bytes of later requests above which reading is paused."""


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
        self._inherited: list[forks.Descriptor] = []
        self._open: dict[_Connection, None] = {}
        self.port = 0

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    async def start(self, host: str, port: int) -> None:
        """Listen on an address.

        Raises:
            OSError: the system refuses the address.
        """
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(
            lambda: _Connection(self), host, port, reuse_address=True, start_serving=False
        )
        try:
            await listener.start_serving()
        except BaseException:  # such as a cancellation
            listener.close()
            raise
        self._listener = listener
        # A forked child must not hold the port.
        self._inherited = [forks.Descriptor(one.fileno()) for one in self._listener.sockets]
        self.port = self._listener.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        """Accept no more connections; `start` listens again. Open connections stay."""
        if self._listener is not None:
            self._listener.close()

    async def close(self, seconds: float) -> None:
        """Stop listening and close connections; wait up to `seconds` for running handlers."""
        self.stop_listening()
        for one in list(self._open):
            one.end()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            while self._open and loop.time() < deadline:  # noqa: ASYNC110  no event tells
                await asyncio.sleep(0.01)
        finally:
            for one in list(self._open):
                one.abort()

    def opened(self, connection: _Connection) -> None:
        """Add a connection; at the limit, abort the oldest one.

        Otherwise a local program could block the interface with connections that send nothing.
        """
        if len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[connection] = None

    def make_room(self, connection: _Connection, size: int) -> None:
        """Abort connections with unread answers until MOST_UNSENT has room for `size` more bytes.

        Otherwise a local program could use up memory by requests for large reports. The oldest
        connections are aborted first; `connection`, which gets the answer, is not.
        """
        unsent = {one: one.unsent for one in self._open if one is not connection}
        total = size + sum(unsent.values())
        for one, waiting in unsent.items():
            if total <= MOST_UNSENT:
                break
            if waiting:
                one.abort()
                total -= waiting

    def closed(self, connection: _Connection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)


class _Connection(asyncio.Protocol):
    """One connection; its requests are answered one after another."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._inherited: forks.Descriptor | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._data = bytearray()
        """Received bytes that were not passed to `_http` yet."""
        self._is_head = False
        """Whether the method of the request that is read or answered is HEAD."""
        self._request: Request | None = None
        """The request whose body is incomplete."""
        self._body = 0
        """Number of bytes of this body that were received."""
        self._busy = False
        self._full = False
        """Whether the program reads its answers too slowly."""
        self._paused = False
        self._rests = False
        """Whether the parser continues in the next iteration of the loop."""
        self._eof = False
        self._ends = False
        """Whether the connection is closed after the answer that is under way."""
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------ asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # A program must notice the end of this process even if a forked child lives.
        self._inherited = forks.Descriptor(transport.get_extra_info("socket").fileno())
        self._server.opened(self)
        self._limit(self._server.head_seconds)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._transport = None
        self._inherited = None
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
        """Close the connection after the response in progress."""
        self._ends = True
        if not self._busy and self._transport is not None:
            self._transport.close()

    @property
    def unsent(self) -> int:
        """Number of bytes of answers that the system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _proceed(self) -> None:
        """Answer complete requests, but not too many in one iteration of the loop."""
        answered, begun = 0, self._loop.time()
        while self._transport is not None and not (
            self._busy or self._full or self._ends or self._rests
        ):
            if answered == MOST_ANSWERS or self._loop.time() - begun > MOST_SECONDS:
                self._rest()
                break
            answered += 1
            if self._transport.is_closing():
                self._data.clear()
                return
            try:
                request = self._next()
            except Refusal as refusal:
                self._ends = True  # the following bytes cannot be parsed
                self._data.clear()
                if self._paused:  # the bytes are read and discarded, see `_write`
                    self._paused = False
                    self._transport.resume_reading()
                self._write(None, refusal.response)
                return
            if request is None:
                break
            self._answer(request)
        if self._transport is None or self._transport.is_closing():
            return
        if self._eof and not (self._rests or self._busy or self._full):
            self._transport.close()
            return
        pauses = len(self._data) > MOST_WAITING
        if pauses and not self._paused:
            self._transport.pause_reading()
        elif self._paused and not pauses:
            self._transport.resume_reading()
        self._paused = pauses

    def _rest(self) -> None:
        """Let other tasks run before more is parsed."""
        self._rests = True
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._rests = False
        self._proceed()

    def _next(self) -> Request | None:
        """Return the next request; None if it is incomplete, or not completely parsed yet.

        Raises:
            Refusal: the request cannot be parsed, or is too long.
        """
        try:
            for _ in range(MOST_EVENTS):
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    if not self._data:
                        self._continue()
                        return None
                    self._http.receive_data(bytes(self._data))
                    self._data.clear()
                elif isinstance(event, h11.Request):
                    self._is_head = event.method == b"HEAD"
                    self._request, self._body = request_of(event), 0
                    if self._request.length > MOST_BODY:
                        raise Refusal(413)
                elif isinstance(event, h11.Data):
                    self._body += len(event.data)
                    if self._body > MOST_BODY:
                        raise Refusal(413)
                elif isinstance(event, h11.EndOfMessage):
                    request, self._request = self._request, None
                    return request
                else:
                    return None
        except h11.RemoteProtocolError as error:
            raise Refusal(error.error_status_hint, f"{error}\n") from error
        self._rest()
        return None

    def _continue(self) -> None:
        """Send "100 Continue" to a client that waits for it before it sends the body."""
        if self._http.they_are_waiting_for_100_continue and self._transport is not None:
            interim = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self._transport.write(self._http.send(interim) or b"")

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
        """Send a response; `request` is None if it could not be parsed."""
        if self._transport is None:
            return
        if len(response.body) > LARGE_ANSWER:
            self._server.make_room(self, len(response.body))
        self._transport.write(self._encoded(response))
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._is_head = False
            return
        self._ends = True
        if request is None and self._transport.can_write_eof():
            # Do not close yet: closing with unread bytes could make the client lose the response.
            self._limit(REST_SECONDS)
            self._transport.write_eof()
        else:
            self._limit(WRITE_SECONDS)
            self._transport.close()

    def _encoded(self, response: Response) -> bytes:
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Content-Type", response.type),
            ("Content-Length", str(len(response.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *response.headers.items(),
        ]
        if self._ends:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [
            h11.Response(
                status_code=response.status,
                reason=HTTPStatus(response.status).phrase,
                headers=headers,
            )
        ]
        if not self._is_head:
            events.append(h11.Data(data=response.body))
        events.append(h11.EndOfMessage())
        return b"".join(self._http.send(event) or b"" for event in events)

    # ------------------------------------------------------------ limits in time

    def _limit(self, seconds: float) -> None:
        """Abort the connection after some time, unless the timer is stopped or set again."""
        self._stop_timer()
        if self._transport is not None:
            self._timer = self._loop.call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
