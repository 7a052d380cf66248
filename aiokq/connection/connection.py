"""Connection: one open connection to a broker, with its requests, their futures and deadlines.

`handshake.py` opens connections; `node.py` decides which connections exist, and when.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast

from aiokq.connection.finalized_features import NO_FEATURES
from aiokq.connection.framing import SIZE_BYTES, FrameReader
from aiokq.connection.lazy_timer import LazyTimer
from aiokq.connection.protocol import ClientProtocol
from aiokq.connection.throttling import throttle_seconds
from aiokq.connection.transport import FrameTransport
from aiokq.connection.versions import common_versions
from aiokq.core.errors import (
    Closed,
    ConnectionLost,
    KafkaError,
    ProtocolError,
    RequestTimeout,
)
from aiokq.wire.api_versions import ApiVersionsRequest
from aiokq.wire.versions import newest_version

if TYPE_CHECKING:
    from aiokq.connection.frame_pool import FramePool
    from aiokq.connection.options import ConnectionOptions
    from aiokq.connection.protocol import PendingRequest
    from aiokq.core.clock import Clock
    from aiokq.core.counters import ClientCounters
    from aiokq.wire import Request, Response

__all__ = ["Connection"]

logger = logging.getLogger("aiokq.connection")

R = TypeVar("R", bound="Response")

_CLOSE_TIMEOUT: Final = 1.0
"""Maximum seconds that a closing connection takes to send its pending output."""

# Seconds between the deadline of a request and its failure. After a long iteration the loop runs
# timers before it reads responses that are already in the socket. With the delay, the loop reads
# them first.
_GRACE: Final = 0.001


class Connection:
    """One open connection. Requests are pipelined, and the broker answers them in order.

    `handshake.open_connection` creates connections. Each request is sent without delay; the caller
    limits the number of requests in flight.

    Attributes:
        name: node id, or "host:port" before the id is known; for errors and logs.
        api_versions: the broker's (oldest, newest) version of each API key.
        finalized_features: the feature levels from the broker's ApiVersions response.
        error: the error that ended the connection, such as `Closed` after `close`; `None` while the
            connection is open.
        last_used: the loop's time of the last request or response.
        proven: whether the broker has answered a request after the handshake.
        on_proven: called when the first request after the handshake is answered.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        *,
        name: int | str,
        clock: Clock,
        counters: ClientCounters,
        on_throttle: Callable[[float], None] | None = None,
        pool: FramePool | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._clock = clock
        self._counters = counters
        self._on_throttle = on_throttle
        self._protocol = ClientProtocol(options.client_id)
        self._closed = self._loop.create_future()
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._deadlines = LazyTimer(self._loop, self._check_deadlines)
        self._idle = LazyTimer(self._loop, self._check_idle)
        self._versions: dict[int, int] = {}
        self._ready = False
        self.proven = False
        self.on_proven: Callable[[], None] | None = None
        self._retiring = False
        self._held: list[tuple[bytes, PendingRequest[Response] | None]] | None = None
        self._released: asyncio.Future[None] | None = None
        self._end: asyncio.TimerHandle | None = None
        self.name = name
        self.api_versions: dict[int, tuple[int, int]] = {}
        self.finalized_features = NO_FEATURES
        self.error: KafkaError | None = None
        self.last_used = self._loop.time()
        reader = FrameReader(options.max_frame_bytes, pool=pool, raises_first_step=True)
        self.transport = FrameTransport(self, reader)

    def __repr__(self) -> str:
        state = "open" if self.error is None else f"ended: {self.error}"
        return f"<Connection to {self.name} ({self.transport.peer}), {state}>"

    @property
    def in_flight(self) -> int:
        """The number of requests that were sent and are not answered."""
        return len(self._protocol.pending)

    @property
    def awaited_api(self) -> str | None:
        """The API of the oldest request in flight, for example "Fetch"; None if there is none."""
        pending = self._protocol.all_pending()
        return pending[0].request_class.NAME if pending else None

    @property
    def closed(self) -> bool:
        """Whether the connection has ended or is closing, so that no request can be sent."""
        return self.error is not None or self.transport.closing

    @property
    def retiring(self) -> bool:
        """Whether the connection should be replaced, because its session ends soon (KIP-368).

        A retiring connection is closed as soon as no request is in flight.
        """
        return self._retiring

    @property
    def holding(self) -> bool:
        """Whether requests wait until the end of a SASL exchange."""
        return self._held is not None

    def version_for(self, request_class: type[Request[Response]]) -> int:
        """Return the newest version of an API that both sides support.

        Raises:
            UnsupportedVersion: client and broker have no version in common.
        """
        key = request_class.API_KEY
        version = self._versions.get(key)
        if version is None:
            _, version = common_versions(request_class, self.api_versions, node=self.name)
            self._versions[key] = version
        return version

    def version_carrying(self, message: Request[Response]) -> int:
        """Return the newest common version that has all fields that are set in the message.

        The call examines every field; use `version_for` for messages built for a known version.

        Raises:
            UnsupportedVersion: client and broker have no version in common.
            FieldNotSupported: no common version has all the fields.
        """
        oldest, newest = common_versions(type(message), self.api_versions, node=self.name)
        return newest_version(message, oldest, newest)

    def completed(self, message: Request[R]) -> Request[R]:
        """Return the message; if it is an ApiVersionsRequest, add the client's name and version.

        Brokers refuse version 3 or later of ApiVersions without a name and version (KIP-511).
        """
        if isinstance(message, ApiVersionsRequest):
            options = self._options
            return dataclasses.replace(  # type: ignore[return-value]
                message,
                client_software_name=message.client_software_name or options.software_name,
                client_software_version=message.client_software_version or options.software_version,
            )
        return message

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback(self)` on the loop when the connection ends, or now if it has ended."""
        if self.error is None:
            self._close_callbacks.append(callback)
        else:
            callback(self)

    # Hot path, once per request; measured by benchmarks/micro/connection.py.
    def send(
        self,
        message: Request[R],
        *,
        timeout: float | None = None,
        version: int | None = None,
        at_once: bool = False,
    ) -> asyncio.Future[R]:
        """Send a request and return a future of the response.

        Cancelling the future only ends the wait. The response is dropped when it arrives.

        Context: the event loop; does not wait.

        Args:
            message: the request.
            timeout: seconds until the request times out; default: `request_timeout_ms`. After a
                timeout the connection is closed, because the broker answers requests in order.
            version: version of the request; default: the newest that both sides support.
            at_once: whether the request is written now; if not, small requests of one iteration of
                the loop are written together.

        Raises:
            ConnectionLost: the connection has ended or is closing; nothing was sent.
            UnsupportedVersion: client and broker have no version of this API in common.
            ProtocolError: the request cannot be encoded in that version.
        """
        if self.error is not None or self.transport.closing:
            raise self._lost_error("the request was not sent", type(message), written=False)
        if version is None:
            version = self.version_for(type(message))
        sent, fragments = self._protocol.send(message, version)
        loop = self._loop
        future: asyncio.Future[R] = loop.create_future()
        sent.future = future
        now = loop.time()
        sent.sent_at = self._clock.monotonic()
        sent.timeout = self._options.request_timeout if timeout is None else timeout
        sent.deadline = now + sent.timeout
        self.last_used = now
        self._deadlines.arm(sent.deadline)
        size = SIZE_BYTES + int.from_bytes(fragments[0][:SIZE_BYTES], "big")
        self._counters.bytes_sent += size
        if self._held is None:
            self.transport.write(fragments, size, at_once=at_once)
        else:
            self._held.append((b"".join(fragments), cast("PendingRequest[Response]", sent)))
        return future

    def push(self) -> None:
        """Write pending requests now, not at the end of the loop's current iteration."""
        self.transport.push()

    async def request(
        self, message: Request[R], *, timeout: float | None = None, version: int | None = None
    ) -> R:
        """Send a request and wait for the response.

        Raises:
            RequestTimeout: no response within `timeout` seconds.
            ConnectionLost: the connection ended before the response.
            ProtocolError: the request cannot be encoded, or the response cannot be decoded.
            UnsupportedVersion: client and broker have no version of this API in common.
        """
        return await self.send(message, timeout=timeout, version=version)

    def send_no_reply(self, message: Request[Response], *, version: int | None = None) -> None:
        """Send a request that has no response: Produce with acks=0.

        Raises:
            ConnectionLost: the connection has ended or is closing; nothing was sent.
            UnsupportedVersion: client and broker have no version of this API in common.
            ProtocolError: the request cannot be encoded in that version.
        """
        if self.error is not None or self.transport.closing:
            raise self._lost_error("the request was not sent", type(message), written=False)
        if version is None:
            version = self.version_for(type(message))
        _, fragments = self._protocol.send(message, version, expect_response=False)
        self.last_used = self._loop.time()
        size = SIZE_BYTES + int.from_bytes(fragments[0][:SIZE_BYTES], "big")
        self._counters.bytes_sent += size
        if self._held is None:
            self.transport.write(fragments, size)
        else:
            self._held.append((b"".join(fragments), None))

    async def sasl_request(self, message: Request[R], *, version: int | None = None) -> R:
        """Send a request of a SASL exchange, and wait for the response.

        The broker answers in order, so the timeout begins at the latest deadline of the earlier
        requests in flight.

        Raises:
            RequestTimeout: there was no response within `request_timeout_ms`.
            ConnectionLost: the connection ended before the response.
            ProtocolError: the request cannot be encoded, or the response cannot be decoded.
            UnsupportedVersion: client and broker have no version of this API in common.
        """
        if self.error is not None or self.transport.closing:
            raise self._lost_error("the request was not sent", type(message), written=False)
        if version is None:
            version = self.version_for(type(message))
        now = self._loop.time()
        since = max([now, *(each.deadline for each in self._protocol.pending)])
        sent, fragments = self._protocol.send_sasl(message, version)
        future: asyncio.Future[R] = self._loop.create_future()
        sent.future = future
        sent.sent_at = self._clock.monotonic()
        sent.timeout = self._options.request_timeout
        sent.deadline = since + sent.timeout
        self._deadlines.arm(sent.deadline)
        size = SIZE_BYTES + int.from_bytes(fragments[0][:SIZE_BYTES], "big")
        self._counters.bytes_sent += size
        self.transport.write(fragments, size)
        return await future

    def hold(self) -> None:
        """Keep new requests back until `release`, because a SASL exchange begins."""
        self._held = []
        self._released = self._loop.create_future()

    def release(self) -> None:
        """Send the requests that were kept back, in their order."""
        held, self._held = self._held, None
        for frame, _ in held or ():
            if not self.transport.closing:
                self.transport.write([frame], len(frame))
        self._end_of_hold()

    def _end_of_hold(self) -> None:
        if self._released is not None and not self._released.done():
            self._released.set_result(None)
        self._released = None

    async def drain(self) -> None:
        """Wait while requests are kept back, or more than 1 MiB of requests is unsent.

        Once more than 1 MiB is unsent, the wait ends when at most 256 KiB is unsent.

        Raises:
            ConnectionLost: the connection ended.
        """
        if self._released is not None:
            await asyncio.shield(self._released)
        await self.transport.drain()

    async def close(self, reason: str = "closed by this client") -> None:
        """Send pending output, then close; requests in flight fail. May be called twice.

        If the output is not sent within a second, the connection is aborted.
        """
        self.shut(reason)
        if self.error is None:
            done, _ = await asyncio.wait([self._closed], timeout=_CLOSE_TIMEOUT)
            if not done:
                self.transport.fail(Closed(reason))
                await asyncio.wait([self._closed], timeout=_CLOSE_TIMEOUT)

    def shut(self, reason: str) -> None:
        """Start to close the connection without waiting; requests in flight fail immediately.

        Pending output is sent first. If this takes more than a second, the connection is aborted.
        """
        if self.error is None and not self.transport.closing:
            self.transport.close(Closed(reason))
            self._fail_pending(ConnectionLost(f"connection to {self.name}: {reason}"))
            self._end = self._loop.call_later(_CLOSE_TIMEOUT, self.transport.fail, Closed(reason))

    def abort(self, error: KafkaError) -> None:
        """Close immediately because of `error`; pending requests fail."""
        self.transport.fail(error)

    async def wait_closed(self) -> KafkaError:
        """Wait until the connection has ended, and return the cause."""
        await asyncio.wait([self._closed])
        assert self.error is not None
        return self.error

    def retire(self) -> None:
        """Set `retiring`, because the session ends soon and was not renewed (KIP-368).

        The connection is closed as soon as no request is in flight.
        """
        self._retiring = True
        if not self.in_flight:
            self.shut("replaced, because the login expires")

    def ready(self) -> None:
        """Start to count idle time, because the handshake is done."""
        self._ready = True
        if self._options.max_idle and self.error is None:
            self._idle.arm(self._loop.time() + self._options.max_idle)

    # The transport calls the following public methods.

    def connected(self) -> None:
        """Do nothing: `open_connection` waits for the transport, and then sends ApiVersions."""

    def bytes_received(self) -> None:
        """Do nothing, because only complete frames are handled."""

    # Hot path, once per read; measured by benchmarks/micro/connection.py.
    def frames_received(self, frames: list[memoryview]) -> None:
        """Resolve the future of each response."""
        self.last_used = self._loop.time()
        protocol = self._protocol
        counters = self._counters
        for frame in frames:
            if self.error is not None:
                return
            counters.bytes_received += SIZE_BYTES + len(frame)
            try:
                sent = protocol.match(frame)
            except ProtocolError as error:
                error.add_context(node=self.name)
                self.transport.fail(error)
                return
            if sent is None:
                continue
            future = sent.future
            assert future is not None
            if future.done():  # the future was cancelled before its response arrived
                continue
            try:
                response = protocol.decode(sent, frame)
                if self._on_throttle is not None:
                    throttle = throttle_seconds(response, sent.version)
                    if throttle:
                        self._on_throttle(throttle)
            except KafkaError as error:
                error.add_context(api=sent.request_class.NAME, node=self.name)
                future.set_exception(error)
                lost = ConnectionLost(f"closed, because {self.name} sent a malformed response")
                lost.__cause__ = error
                self.transport.fail(lost)
                return
            except Exception as error:
                # A bug. The request is not in `pending`, so nothing else would fail its future.
                future.set_exception(error)
                self.transport.fail(ConnectionLost(f"closed, {error!r} while reading {sent!r}"))
                logger.exception("response not handled: node=%s request=%r", self.name, sent)
                return
            name = sent.request_class.NAME
            counters.requests[name] += 1
            counters.request_seconds[name].observe(self._clock.monotonic() - sent.sent_at)
            future.set_result(response)
            if not self.proven and self._ready:
                self.proven = True
                if self.on_proven is not None:
                    self.on_proven()  # called last, because a log handler may raise
        if self._retiring and not protocol.pending:
            self.shut("replaced, because the login expires")

    def invalid_received(self, error: KafkaError) -> None:
        """Fail the connection, because no later response can be trusted."""
        self.transport.fail(error)

    def lost(self, error: KafkaError) -> None:
        """Fail pending requests and call the close callbacks, because the transport is gone."""
        if (
            self._ready
            and not self.proven
            and self._protocol.pending
            and self._options.security.mechanism is None
            and self.transport.hung_up
        ):
            error = ConnectionLost(
                f"{error.message} on the first request after ApiVersions; if this listener"
                " requires SASL, set security_protocol=SASL_PLAINTEXT or SASL_SSL"
            )
        if error.node is None:
            error.add_context(node=self.name)
        self.error = error
        self._deadlines.cancel()
        self._idle.cancel()
        if self._end is not None:
            self._end.cancel()
        self._fail_pending(error)
        self._held = None
        self._end_of_hold()
        self._closed.set_result(None)
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    def _lost_error(
        self, what: str, request_class: type[Request[Response]], *, written: bool
    ) -> ConnectionLost:
        error = ConnectionLost(
            f"{self.error.message if self.error else 'connection is closing'}; {what}",
            api=request_class.NAME,
            node=self.name,
            may_have_been_written=written,
        )
        error.__cause__ = self.error
        return error

    def _fail_pending(self, error: KafkaError) -> None:
        held = {id(sent) for _, sent in self._held or ()}
        for sent in self._protocol.drop_all():
            if sent.future is not None and not sent.future.done():
                fail_request(sent, error, self.name, written=id(sent) not in held)

    def _check_deadlines(self, now: float) -> float | None:
        """If a request is late by more than `_GRACE`, fail all late requests and the connection.

        Return the loop's time of the next check; None if no check is needed.
        """
        pending = self._protocol.all_pending()
        if not pending:
            return None
        earliest = min(sent.deadline for sent in pending)
        if now < earliest:
            return earliest
        if now < earliest + _GRACE:
            return earliest + _GRACE
        late = [sent for sent in pending if sent.deadline <= now]
        for sent in late:
            if sent.future is not None and not sent.future.done():
                sent.future.set_exception(
                    RequestTimeout(
                        f"no answer from {self.transport.peer} within {sent.timeout:g} s",
                        api=sent.request_class.NAME,
                        node=self.name,
                    )
                )
        self.transport.fail(
            ConnectionLost(f"closed, because {self.name} did not respond to {late[0]!r} in time")
        )
        return None

    def _check_idle(self, now: float) -> float | None:
        due = self.last_used + self._options.max_idle
        if self.in_flight:
            return now + self._options.max_idle
        if now < due:
            return due
        self.shut(f"idle for {self._options.max_idle:g} s")
        return None


def fail_request(
    sent: PendingRequest[Response], error: KafkaError, node: int | str, *, written: bool
) -> None:
    """Fail one pending request with its own error, which says that the connection ended.

    Args:
        written: whether the request was sent; if not, it was kept back by `Connection.hold`.
    """
    own = ConnectionLost(
        f"{error.message}; {sent.request_class.NAME} was not {'answered' if written else 'sent'}",
        api=sent.request_class.NAME,
        node=node,
        may_have_been_written=written,
    )
    own.__cause__ = error
    assert sent.future is not None
    sent.future.set_exception(own)
    # Mark the exception as retrieved, because the connection itself reports its end.
    sent.future.exception()
