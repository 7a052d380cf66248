"""AcceptedConnection: a client's connection to a server; its requests are handled one at a time.

While a request is being handled, the connection receives the next requests. It stops reading when
too many requests, or too many bytes of requests, are queued. These limits, and writing only one
response at a time, bound the memory that a client can use.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, cast

from aiokq.connection.framing import (
    FIRST_STEP_BYTES,
    RECEIVE_BUFFER_BYTES,
    SIZE_BYTES,
    FrameReader,
)
from aiokq.connection.loop_time import LoopTime, Timed
from aiokq.connection.request_context import (
    CloseConnection,
    LoginHandler,
    RequestContext,
    SessionState,
)
from aiokq.connection.responses import SERVER_WRITE_HIGH_WATER_BYTES, ResponseWriter
from aiokq.connection.transport import FrameTransport
from aiokq.connection.turn import RECEIVED_BYTES_PER_TURN
from aiokq.core.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    KafkaError,
    ProtocolError,
)
from aiokq.core.user_errors import is_for_caller
from aiokq.wire import API_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.connection.frame_pool import FramePool
    from aiokq.connection.server import Server
    from aiokq.connection.tls.tls_connection import TlsConnection
    from aiokq.core.types import Buffer
    from aiokq.wire import Fragment

__all__ = ["AcceptedConnection"]

logger = logging.getLogger("aiokq.connection")


WAITING_REQUESTS: Final = 16
"""Number of queued requests at which reading stops.

The limit is above the number of requests that most producers have in flight. Stopping and resuming
costs system calls, and requests that are received, handled and answered together find code and data
in the processor's caches.
"""

WAITING_BYTES: Final = 1152 * 1024
"""Bytes of queued requests at which reading stops; eight requests of 128 KB are below the limit.

A connection also holds the bytes of one read, and the memory of the request that is being handled.
Several large requests that were received together share one block of memory, of at most 2 MiB. The
block stays in use until the last of these requests is answered.
"""

LOGIN_STEP_BYTES: Final = 4096
"""Memory that is allocated first for a frame before the login; later it is doubled as bytes arrive.

Anybody can connect, so the size that a client announces must not allocate memory (CVE-2022-34917).
"""

FREE_LOGIN_BYTES: Final = 16 * 1024
"""Bytes that a connection may hold before its login even if the memory for logins is used up.

Common logins need less. Therefore clients that use up the memory without a login cannot keep other
clients from logging in.
"""

LOGIN_REQUESTS: Final = 128
"""Maximum number of requests before the login; a connection that sends more is closed.

A login has fewer than ten requests. Without the limit, a client could go on sending requests that
are answered with an error, and an empty request costs 300 bytes that no budget counts.
"""

LOGIN_REQUESTS_PER_STEP: Final = 4
"""Maximum number of an unauthenticated client's requests that one call of `_log_in` handles.

`Strangers`, which limits the loop time of connections before their login, decides when `_log_in` is
called.
"""

LOGIN_READ_BYTES: Final = 16 * 1024
"""Bytes that a transport of TLS receives at once before the login.

The number is small, because the transport holds these bytes while reading is paused, and no budget
counts them.
"""

ANSWER_COST: Final = 16
"""Bytes of a connection's `Share` that one byte of a response uses; a byte of a request uses 1.

A `Share` is the number of bytes that a connection may handle before other tasks run. Encoding a
large response takes longer than appending as many bytes: a Metadata response of 80 KB takes 12 ms,
a Produce request of 512 KB less than 1 ms. Small responses, such as those to Produce, use little of
the share.
"""


_LOGINS_FULL: Final = "the memory for requests before the login is used up"

_READY: Final = SessionState.READY
_AUTHENTICATE: Final = SessionState.AUTHENTICATE
_LOGGED_IN: Final = (SessionState.READY, SessionState.EXPIRED)
"""States of a session in which no login is in progress."""


class _Pause:
    """Reasons to stop reading; reading resumes when no reason remains.

    The reasons are plain integers, because an operator of an IntFlag costs a call, and each request
    needs several operators.
    """

    BUSY: Final = 1
    """The queue of requests is full."""
    BUDGET: Final = 2
    """The server's memory for requests is used up."""
    MUTED: Final = 4
    """The client is throttled."""
    INVALID: Final = 8
    """The client has sent bytes that are not a request; reading never resumes."""
    REFUSED: Final = 16
    """The client's login has failed; reading never resumes."""
    SHARE: Final = 32
    """Clients without a login have used their share of the loop's time (see `Strangers`)."""


class AcceptedConnection:
    """A connection that a server has accepted from a client.

    Attributes:
        context: the connection's context, passed to handlers.
        busy: whether a request is being handled, or its response is being written.
        last_active: the loop's time at which bytes were received, a response was finished, or
            reading was resumed, whichever is latest.
    """

    # Without slots, an object with more than 30 attributes would need a dictionary of its own.
    __slots__ = (
        "__weakref__",
        "_accepted_at",
        "_before_login",
        "_budget",
        "_clock",
        "_error",
        "_frame_started",
        "_frames",
        "_granted",
        "_granted_at",
        "_has_left",
        "_held",
        "_idle",
        "_invalid",
        "_login_handler",
        "_login_requests",
        "_loop",
        "_paused",
        "_received",
        "_refusal",
        "_server",
        "_share",
        "_spare",
        "_stopping",
        "_task",
        "_waiting",
        "_wake",
        "_will_log_in",
        "_writer",
        "busy",
        "context",
        "last_active",
        "transport",
    )

    def __init__(
        self,
        server: Server,
        context: RequestContext,
        scratch: bytearray | None,
        pool: FramePool,
    ) -> None:
        limits = server.limits
        self._server = server
        # Whether the client has not logged in for the first time yet.
        self._before_login = needs_login = context.session.state is not _READY
        self._login_requests = 0  # number of requests received before the login
        self._budget = server.login_budget if needs_login else server.budget
        # The client has no task before its login, unless something has to be awaited for it.
        self._task: asyncio.Task[None] | None = None
        self._login_handler = server.login_handler if needs_login else None
        self._will_log_in = False  # whether `_log_in` will be called
        self._refusal: asyncio.TimerHandle | None = None
        self._idle = server.idle
        self._clock = server.clock.monotonic  # for latencies; the loop's time is coarser
        self._loop = asyncio.get_running_loop()
        # (frame, bytes counted in `_waiting`, bytes to free after the response, time of receipt).
        self._frames: deque[tuple[memoryview, int, int, float]] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._has_left = False  # whether the client left while it was throttled
        self._paused = 0  # the sum of the current `_Pause` reasons
        self._waiting = 0  # bytes of queued requests, and unused bytes of their shared memory
        self._received = 0  # bytes of queued requests, and of earlier requests whose memory is held
        self._held = 0  # bytes charged to `_budget`
        self._granted = 0  # part of `_held` that the reader may allocate next
        self._granted_at = 0  # bytes that the reader had allocated at the grant
        self._frame_started: float | None = None
        self._stopping = False
        self._error: KafkaError | None = None
        self._invalid: KafkaError | None = None  # the error in the bytes after the last request
        self.context = context
        self.busy = False
        self.last_active = self._accepted_at = self._loop.time()
        self._spare = None if scratch is None else server.budget
        if needs_login:
            context.on_login = self._logged_in
        self.transport = FrameTransport(
            self,
            FrameReader(
                limits.max_login_frame_bytes if needs_login else limits.max_frame_bytes,
                scratch=scratch,
                pool=pool,
                spare=None if needs_login else self._spare,
                first_step=LOGIN_STEP_BYTES if needs_login else FIRST_STEP_BYTES,
            ),
            write_high_water=SERVER_WRITE_HIGH_WATER_BYTES,
            peer=context.peer,
            is_accepted=True,
        )

    def forget(self) -> None:
        """Close the child's copy of the socket, and drop its queued requests, after a fork.

        The parent handles the requests. Without this call, the child could handle them, too: if it
        exits from inside a coroutine of the parent's loop, for example by ``sys.exit()``, other
        tasks of that loop may run in the child.
        """
        self._stopping = True
        self._frames.clear()
        self.transport.forget()

    def _logged_in(self) -> None:
        """Accept large requests, and charge memory to the budget of logged-in clients."""
        self._before_login = False
        reader = self.transport.reader
        reader.max_frame_bytes = self._server.limits.max_frame_bytes
        reader.first_step = FIRST_STEP_BYTES
        reader.spare = self._spare
        self._limit_reads(None)
        self._server.known(self)
        self._budget.charge(-self._held)
        self._budget = self._server.budget
        self._budget.charge(self._held)

    def _limit_reads(self, nbytes: int | None) -> None:
        """Set the number of bytes that a TLS transport receives at once; None for its default."""
        if self.context.is_tls and self.transport.made:
            cast("TlsConnection", self.transport.transport).read_at_most(nbytes)

    # The transport calls the following public methods.

    def connected(self) -> None:
        """Start to serve the client."""
        if self._before_login:
            self._limit_reads(LOGIN_READ_BYTES)
        else:
            self._server.known(self)
        try:
            self._server.security.connected(self.context, self.transport.transport)
        except AuthenticationFailed as error:
            self.transport.fail(error)
            return
        if self._login_handler is None:
            self._start_task()
        else:
            self._idle[self] = None

    def bytes_received(self) -> None:
        """Charge the memory of a partly received request to the server's budget."""
        self.last_active = now = self._loop.time()
        if self._frame_started is None:
            self._frame_started = now
            self._idle.pop(self, None)
        self._account()
        if not self._before_login:
            self._server.turn.begun += 1  # tells `Strangers` that a client is at work
        elif not self._server.strangers.read(self._read_on, self.context.peer_host):
            self._pause(_Pause.SHARE)
        if self.transport.loop_time is not None:
            self.transport.loop_time.end()

    def _read_on(self) -> None:
        self._resume(_Pause.SHARE)

    def frames_received(self, frames: list[memoryview]) -> None:
        """Queue the requests, and stop reading if the queue is full."""
        # Hot path, measured by benchmarks/micro/produce.py.
        reader, queue = self.transport.reader, self._frames
        self.last_active = now = self._loop.time()
        arrived = self._clock()
        together = reader.together
        nbytes = 0
        for frame in frames:
            size = len(frame)
            nbytes += size
            queue.append((frame, size, 0 if together else size, arrived))
        self._server.counters.bytes_in += nbytes + SIZE_BYTES * len(frames)
        if together:  # the shared memory is held until the last frame is answered
            slack = reader.slack
            nbytes += slack
            queue[-1] = (frames[-1], size + slack, nbytes, arrived)
        self._waiting += nbytes
        self._received += nbytes
        if reader.mid_frame:
            self._frame_started = now
            self._account()
        elif self._frame_started is not None:
            self._frame_started = None
            self._account()
        else:  # no partial request, so `_account` would only charge the frames
            self._held += nbytes
            self._budget.charge(nbytes)
        if self._before_login:
            self._login_requests += len(frames)
            self._check_login()
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)
            self._idle.pop(self, None)
        if len(queue) >= WAITING_REQUESTS or self._waiting >= WAITING_BYTES:
            self._pause(_Pause.BUSY)
        if self.transport.loop_time is not None:
            self.transport.loop_time.end()
        if self._task is None:
            self._attend()

    def invalid_received(self, error: KafkaError) -> None:
        """Answer the requests that precede invalid bytes, then close the connection, as in Kafka.

        Kafka reads the next size only after it has answered the previous request.
        """
        self._invalid = error
        self._frame_started = None
        self._pause(_Pause.INVALID)
        self._account()
        if self._wake_up():
            self._idle.pop(self, None)
        if self._task is None:
            self._attend()

    def lost(self, error: KafkaError) -> None:
        """End the connection, but handle the complete requests received, as Kafka does.

        If the requests were dropped, records would be lost: a producer with acks=0 may close its
        connection right after the last request. A login has no such requests, and the check of a
        password may take long, so a login is cancelled and its memory freed.
        """
        self._error = error
        if self._task is not None:
            self._writer.lost()
        if self.context.session.state not in _LOGGED_IN:
            self._drop_requests()
            if self._task is not None:
                self._task.cancel()
        if self._refusal is not None:
            self._refusal.cancel()
        self._wake_up()
        if isinstance(error, ProtocolError):
            self._server.complain("none", self.transport.peer, error)
        else:
            logger.debug("connection closed: peer=%s reason=%s", self.transport.peer, error)
            if not self.transport.made:
                self._server.security.handshake_failed(self.context, error.__cause__)
        self._account()
        self._budget.forget(self)
        self._server.forget(self)
        self.context.disconnected()

    # The server calls the following public methods.

    def check(self, now: float) -> None:
        """Close the connection of an idle or stalled client.

        A client is stalled if it does not complete its TLS handshake and login, or a later login,
        in time, has stopped in the middle of a request, takes longer than `max_idle` to send a
        request, or does not read the last response. Nothing is read from a client while it is
        throttled, which may take days. The method therefore checks whether a throttled client has
        disconnected. If it has, the bytes that it sent before are read and handled at once.
        """
        limits = self._server.limits
        began = self._login_began
        if began is not None and now - began > self._server.security.handshake_timeout:
            self.transport.fail(
                ConnectionLost("the client did not complete its TLS handshake or its login in time")
            )
            return
        # A client whose request is in progress is not idle.
        if self.busy or not self.transport.made:
            return
        quiet = now - self.last_active
        if self.transport.closing:
            if quiet > limits.write_stall:
                self.transport.fail(ConnectionLost("the client did not read the last response"))
        elif self._paused:
            is_muted = self._paused & _Pause.MUTED
            if is_muted and quiet > limits.read_stall and self.transport.peer_has_left:
                self._has_left = True
                self._wake_up()
        elif self._frame_started is not None:
            if quiet > limits.read_stall:
                self.transport.fail(
                    ConnectionLost(
                        f"no more data of an incomplete request for {limits.read_stall:g} s"
                    )
                )
            elif limits.max_idle and now - self._frame_started > limits.max_idle:
                self.transport.fail(
                    ConnectionLost(f"a request took more than {limits.max_idle:g} s to arrive")
                )
        elif limits.max_idle and quiet > limits.max_idle:
            self.transport.close(Closed(f"idle for {limits.max_idle:g} s"))

    @property
    def _login_began(self) -> float | None:
        """The loop's time at which the TLS handshake and login in progress began, if there is one.

        Those of a new connection begin when it is accepted.
        """
        if self._before_login or not self.transport.made:
            return self._accepted_at
        session = self.context.session
        return session.reauthenticated_at if session.state is _AUTHENTICATE else None

    def stop(self) -> None:
        """Close the connection after the current request, or now if none is being handled."""
        self._stopping = True
        if not self.busy:
            self.transport.close(Closed("the server is closing"))

    def _start_task(self) -> None:
        server = self._server
        self._login_handler = None
        # The writer and the share are created here, because only the task uses them, and many
        # connections end before they need a task.
        self._writer = ResponseWriter(self.transport, server.limits.write_stall, server.turn)
        self._share = server.turn.share(RECEIVED_BYTES_PER_TURN)
        try:
            self._task = server.supervisor.spawn(
                self._serve(self.context), name=f"connection {self.context.peer}"
            )
        except Closed as error:
            self.transport.fail(error)

    def _attend(self) -> None:
        """Arrange the handling of the requests, or invalid bytes, of a client without a task."""
        self._idle.pop(self, None)
        if self._paused & _Pause.REFUSED:
            self._drop_requests()
        elif self._stopping or self._will_log_in or self.transport.ended:
            return
        elif self._login_handler is None:
            self._start_task()
        else:
            self._will_log_in = True
            self._server.strangers.do(self._log_in, self.context.peer_host)

    def _log_in(self) -> None:
        """Handle the next requests of an unauthenticated client.

        `Strangers`, which limits the loop time of such clients, calls this method. After the login,
        or if something has to be awaited, a task takes over.
        """
        self._will_log_in = False
        handle = self._login_handler
        if self._stopping or self.transport.ended or handle is None:
            return
        for _ in range(LOGIN_REQUESTS_PER_STEP):
            if not self._frames:
                break
            if not self._before_login:
                self._start_task()
                return
            if not self._handle_login(handle):
                return
        if not self._before_login:
            self._login_handler = None
        if self._frames:
            if self._login_handler is None:
                self._start_task()
            else:
                self._will_log_in = True
                self._server.strangers.do_later(self._log_in, self.context.peer_host)
        elif self._invalid is not None:
            delay = self._server.limits.failed_login_delay if self._before_login else 0.0
            self._refuse_later(None, delay)
        else:
            self._resume(_Pause.BUSY)
            self.last_active = self._loop.time()
            if self._frame_started is None:
                self._idle[self] = None

    def _handle_login(self, handle: LoginHandler) -> bool:
        """Handle the first queued request of an unauthenticated client.

        Returns:
            False if the connection is closed, or a task handles the request.
        """
        server, queue = self._server, self._frames
        frame, nbytes, given_back, arrived = queue[0]
        api = "unknown"
        if len(frame) >= 2:
            api = API_NAMES.get(frame[0] << 8 | frame[1], "unknown")
        try:
            response = handle(self.context, frame)
        except CloseConnection as reason:
            logger.debug("closing connection: peer=%s api=%s: %s", self.context.peer, api, reason)
            self._refuse_later(reason.answer, reason.delay)
            return False
        except Exception as error:  # noqa: BLE001 - wrong input, or a bug; it ends this connection
            server.complain(api, self.context.peer, error)
            self._refuse_later(None, 0.0)
            return False
        if response is None:
            self._start_task()
            return False
        queue.popleft()
        self._waiting -= nbytes
        counters = server.counters
        counters.bytes_out += self.transport.send(response)  # type: ignore[arg-type]  # no ranges
        counters.requests[api] += 1
        counters.request_seconds[api].observe(self._clock() - arrived)
        self._received -= given_back
        self._held -= given_back
        self._budget.answered(self, given_back)
        return True

    def _refuse_later(self, answer: Sequence[Fragment] | None, delay: float) -> None:
        """Do the same as `_refuse` for a client without a task, and close the connection."""
        self._pause(_Pause.REFUSED)
        self._drop_requests()
        if delay > 0:
            self.busy = True
            self._refusal = self._loop.call_later(delay, self._end_refused, answer)
        else:
            self._end_refused(answer)

    def _end_refused(self, answer: Sequence[Fragment] | None) -> None:
        # The timer refers to this method, and so to the connection: a cycle.
        self._refusal = None
        self.busy = False
        if self.transport.ended:
            return
        if answer is not None:
            answered = self.transport.send(cast("Sequence[Buffer]", answer))
            self._server.counters.bytes_out += answered
        self.transport.close(
            self._invalid or Closed("the server handles no more requests of this connection")
        )

    async def _serve(self, context: RequestContext) -> None:
        """Handle requests until the connection ends."""
        try:
            if not self._frames:
                # The connection does not count as idle before the loop has polled the socket,
                # because a request may already be in the socket's buffer.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            while not self._stopping:
                if not self._frames:
                    if self._error is not None or self._invalid is not None:
                        if self._invalid is not None and context.on_login is not None:
                            await self._refuse(None, self._server.limits.failed_login_delay)
                        return
                    self._resume(_Pause.BUSY)
                    self._wake = self._loop.create_future()
                    if self._frame_started is None:
                        self._idle[self] = None
                    await self._wake
                    self._wake = None
                elif not await (
                    self._handle_stranger(context) if self._before_login else self._handle(context)
                ):
                    return
                elif context.mute_until > self._loop.time():
                    await self._mute(context)
        except BaseException as error:
            # Some errors are not instances of `Exception`: a panic of a Rust extension, or the
            # CancelledError of another task. Without the `except`, they would end the server.
            if is_for_caller(error):
                raise
            self._server.complain("none", context.peer, error)
        finally:
            self._task = None
            self.busy = False
            self.last_active = self._loop.time()
            self._frames.clear()
            self._waiting = self._received = 0
            self._budget.settle(self)
            self._account()
            if self._error is None:  # an error means that the transport is gone
                self.transport.close(
                    self._invalid
                    or Closed("the server handles no more requests of this connection")
                )

    def _handle(self, context: RequestContext) -> Awaitable[bool]:
        """Return an awaitable that runs `_handle_queued`.

        If the server measures loop time, the awaitable also counts the loop time that it takes.
        """
        if not self._server.measures_loop_time:
            if context.loop_time is not None:  # a quota that needed the count was removed
                context.loop_time = self.transport.loop_time = None
            return self._handle_queued(context)
        if context.loop_time is None:
            context.loop_time = self.transport.loop_time = LoopTime(self._server.clock.thread_time)
        return Timed(self._handle_then_mute(context), context.loop_time)

    async def _handle_stranger(self, context: RequestContext) -> bool:
        """Handle the first queued request of an unauthenticated client, when `Strangers` allows it.

        `Strangers`, which limits the loop time of such clients, also counts the loop time that
        `_handle_queued` takes.
        """
        strangers = self._server.strangers
        await strangers.next(context.peer_host)
        if self._stopping:
            return False
        return await Timed(self._handle_queued(context), strangers)

    async def _handle_then_mute(self, context: RequestContext) -> bool:
        handled = await self._handle_queued(context)
        if handled and context.mute_until > self._loop.time():
            await self._mute(context)
        return handled

    async def _handle_queued(self, context: RequestContext) -> bool:
        """Handle the queued requests in order; return False if the connection must be closed.

        The method returns early, and later requests stay queued, after a request of a client
        without a login, after a request that muted the client, or when the connection is being
        stopped.
        """
        # Hot path, measured by benchmarks/micro/produce.py.
        of_stranger = self._before_login  # stays True if this request completes the login
        server, writer = self._server, self._writer
        handle = server.handler.handle
        counters, queue = server.counters, self._frames
        self.busy = True
        share = self._share
        if len(queue) > 1:
            share.renew()
        while queue:
            frame, nbytes, given_back, arrived = queue.popleft()
            self._waiting -= nbytes
            api = "unknown"
            if len(frame) >= 2:
                api = API_NAMES.get(frame[0] << 8 | frame[1], "unknown")
            response = None  # do not keep the previous response during this request
            try:
                response = await handle(context, frame)
                # Free the frame's memory, unless the handler keeps the frame.
                del frame
                if response is not None and self._error is None:
                    sent = writer.write_small(response)
                    if sent is None:
                        sent = await writer.write(response)
                    counters.bytes_out += sent
                    nbytes += ANSWER_COST * sent
            except CloseConnection as reason:
                logger.debug("closing connection: peer=%s api=%s: %s", context.peer, api, reason)
                if reason.delay or reason.answer is not None:
                    # The traceback's frames would keep the request in memory.
                    reason.__traceback__ = reason.__context__ = None
                    del frame
                    await self._refuse(reason.answer, reason.delay)
                return False
            except ConnectionLost as error:
                # The client is gone; requests that were already received are still handled.
                logger.debug("connection lost: peer=%s api=%s: %s", context.peer, api, error)
                self.transport.fail(error)
            except ProtocolError as error:
                server.complain(api, context.peer, error)
                return False
            except Exception as error:  # noqa: BLE001 - a bug; it ends only this connection
                server.complain(api, context.peer, error)
                return False
            counters.requests[api] += 1
            counters.request_seconds[api].observe(self._clock() - arrived)
            self._received -= given_back
            self._held -= given_back  # set before the call, which may grant memory to `self`
            self._budget.answered(self, given_back)
            if (
                self._stopping
                or of_stranger
                or (context.mute_until and context.mute_until > self._loop.time())
            ):
                break
            if queue and share.spend(0, nbytes):
                await share.next()
                if self._stopping:
                    break
        self.transport.push()  # otherwise, the next turn of the loop would send the held output
        self.busy = False
        self.last_active = self._loop.time()
        return True

    async def _refuse(self, answer: Sequence[Fragment] | None, delay: float) -> None:
        """After a failed login, drop all requests of the client and answer after a delay.

        During the delay nothing is read, so a disconnect of the client is noticed only afterwards.
        """
        self._pause(_Pause.REFUSED)
        self._drop_requests()
        if self._error is None:
            await asyncio.sleep(delay)
        if answer is not None and self._error is None:
            try:
                self._server.counters.bytes_out += await self._writer.write(answer)
            except ConnectionLost as error:
                logger.debug("connection lost: peer=%s: %s", self.context.peer, error)

    def _drop_requests(self) -> None:
        """Forget all requests, complete or not, and free their memory."""
        self._frames.clear()
        self.transport.reader.abandon()
        self._waiting = self._received = 0
        self._budget.settle(self)
        self._account()

    def _check_login(self) -> None:
        """Close the connection if it exceeds a limit of requests or memory before its login."""
        budget = self._budget
        if self._login_requests > LOGIN_REQUESTS:
            self._end_login(f"it sent more than {LOGIN_REQUESTS} requests before its login")
        elif self._held > FREE_LOGIN_BYTES and budget.used > budget.limit:
            self._end_login(_LOGINS_FULL)

    def _end_login(self, reason: str) -> None:
        """Close the connection of a client that has not logged in, and free its memory."""
        self._server.login_ended(self.context.peer, reason)
        self._drop_requests()
        self.transport.fail(ConnectionLost(reason))

    async def _mute(self, context: RequestContext) -> None:
        """Stop reading until the throttle time is over or the client disconnects.

        A client that has left is not throttled any more, because it sends no further requests.
        """
        if self._has_left:
            return
        self._pause(_Pause.MUTED)
        self._wake = self._loop.create_future()
        try:
            async with asyncio.timeout_at(context.mute_until):
                while self._error is None and not self._has_left:
                    await self._wake
                    self._wake = self._loop.create_future()
        except TimeoutError:
            pass  # the throttle time is over
        finally:
            self._wake = None
            self._resume(_Pause.MUTED)

    def _wake_up(self) -> bool:
        """Wake up the task if it waits for a request or for the end of a throttle time."""
        wake = self._wake
        if wake is None or wake.done():
            return False
        wake.set_result(None)
        return True

    def _account(self) -> None:
        """Charge the used memory to the server's budget; if too little is left, stop reading."""
        reader, budget = self.transport.reader, self._budget
        under_way, wanted = reader.needs
        if not wanted or under_way != self._granted_at:
            self._granted = 0  # the reader has allocated this memory, or needs none
        self._charge(under_way)
        if wanted and not self._granted and not self._paused & _Pause.BUDGET:
            # After the login, requests that fit the receive buffer are always read, because larger
            # requests that exhaust the budget may depend on them: Produce with acks=all waits for
            # the replicas' Fetch requests.
            if self._before_login:
                fits = self._held + wanted <= FREE_LOGIN_BYTES
            else:
                fits = under_way + wanted <= RECEIVE_BUFFER_BYTES
            if fits or budget.may_take(self, wanted, self._budget_granted):
                self._grant(wanted)
            elif self._before_login:
                self._end_login(_LOGINS_FULL)
            else:
                self._pause(_Pause.BUDGET)

    def _charge(self, under_way: int) -> None:
        held = under_way + self._granted + self._received
        more = held - self._held
        if more:
            self._held = held  # set before the call, which may grant memory to this connection
            self._budget.charge(more)

    def _grant(self, nbytes: int) -> None:
        """Charge memory that the reader is about to allocate."""
        self._granted, self._granted_at = nbytes, self.transport.reader.allocated
        self._charge(self._granted_at)

    def _budget_granted(self) -> None:
        self._grant(self.transport.reader.wanted)
        self._resume(_Pause.BUDGET)

    def _pause(self, reason: int) -> None:
        if not self._paused:
            self.transport.pause_reading()
        self._paused |= reason

    def _resume(self, reason: int) -> None:
        if self._paused:
            self._paused &= ~reason
            if not self._paused:
                self.last_active = self._loop.time()
                self.transport.resume_reading()
