"""The dispatcher: decodes a request, calls its handler and encodes the response.

The dispatcher holds no state of the broker. It counts the errors in responses, except those of the
fast path of Produce, which counts its errors itself. The package `connection` keeps the responses
of a connection in order, enforces its limits and counts its requests and bytes.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Final

from aiokq.broker.gate import Undecided
from aiokq.broker.handlers import APIS
from aiokq.broker.handlers.call import Call
from aiokq.broker.response_errors import count_errors, count_errors_in_steps
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.connection.turn import BATCHES_PER_REQUEST, Pace
from aiokq.core.errors import IllegalSaslState
from aiokq.wire.catalog import api as request_class
from aiokq.wire.codec import decode, decode_in_steps, encode_in_steps
from aiokq.wire.fields import Fragment
from aiokq.wire.frames import (
    RequestHeader,
    decode_request_header,
    encode_response,
    frame_response,
)
from aiokq.wire.struct import Request, Response

if TYPE_CHECKING:
    from aiokq.broker.gate import Gate
    from aiokq.broker.handlers.areas import Handler
    from aiokq.broker.handlers.binding import Areas
    from aiokq.broker.handlers.h00_ordinary import OrdinaryProduce
    from aiokq.broker.handlers.login_requests import LoginRequests
    from aiokq.core.counters import BrokerCounters

__all__ = ["AskingDispatcher", "Dispatcher", "has_throttle_time"]

API_VERSIONS: Final = 18

LONG_REQUEST_BYTES: Final = 16 * 1024
"""Size in bytes from which a request is decoded in steps, so that other tasks may run in between.

Decoding a request of this size takes about a millisecond if it consists mostly of names.
"""

LONG_RESPONSE_STEPS: Final = 256
"""The response of a handler that took at least this many steps is also encoded in steps.

Other tasks may run between two steps.
"""

_READY: Final = SessionState.READY
_AUTHENTICATE: Final = SessionState.AUTHENTICATE

API_AND_VERSION_BYTES: Final = 4
_API_AND_VERSION: Final = struct.Struct(">I").unpack_from


class Dispatcher:
    """The request handler of one node (`connection.RequestHandler`).

    Args:
        areas: the parts of the node that request handlers use.
        gate: decides which requests are handled, and which resources they may use.
        counters: the node's metrics.
    """

    def __init__(self, areas: Areas, gate: Gate, counters: BrokerCounters) -> None:
        self._areas = areas
        self._turn = areas.turn
        self._gate = gate
        self._counters = counters
        self._routes: dict[int, tuple[type[Request[Response]], Handler]] = {}
        self._ordinary: OrdinaryProduce | None = None
        self._logins: LoginRequests | None = None

    async def handle(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Handle one request; return its response, or None if it has none (Produce with acks=0).

        Raises:
            CloseConnection: the gate does not admit the request, or the handler of the request
                closes the connection.
            ProtocolError: the frame is not a valid request.
        """
        turn = self._turn
        if turn.spend(1):
            await turn.next()
        nbytes = len(frame)
        if nbytes < API_AND_VERSION_BYTES:
            if context.session.sends_tokens:
                return await self._handle_token(context, frame)
            decode_request_header(frame)  # raises ProtocolError
        (api_and_version,) = _API_AND_VERSION(frame)
        if not self._gate.admit(context, api_and_version, nbytes):
            if context.session.sends_tokens:
                return await self._handle_token(context, frame)
            header = decode_request_header(frame)
            if context.session.state is _AUTHENTICATE:
                raise self._no_token(header)
            self._gate.throttle_ms(context, header.api_key, header.client_id, nbytes)
            return (self._logins or self._login_requests()).refuse_versions(header)
        if not api_and_version >> 16:  # Produce
            answer = self._answer_ordinary(context, frame)
            if answer is not None:
                return answer or None
        header = decode_request_header(frame)
        version = header.api_version
        if header.api_key == API_VERSIONS and nbytes < LONG_REQUEST_BYTES:
            # `Strangers` reads in `turn.begun` whether clients are at work. Every new connection
            # sends ApiVersions first, so this request is no sign of work and is taken out of the
            # count. Requests before the login stay in the count: `Strangers` subtracts them itself.
            if context.session.state is _READY:
                turn.begun -= 1
            if self._gate.quotas is None:
                logins = self._logins or self._login_requests()
                return logins.api_versions(context, frame, header)
        route = self._routes.get(api_and_version)
        if route is None:
            key = header.api_key
            route = (request_class(key), APIS[key].load(self._areas))
            self._routes[api_and_version] = route
        message, handler = route
        pace = Pace(turn)
        in_login = context.session.state is not _READY
        # As in Kafka, bytes after the request are ignored: librdkafka sends three of them after a
        # Metadata request for all topics.
        if nbytes < LONG_REQUEST_BYTES:
            request = decode(message, frame, version, header.body_offset, exact=False)
        else:
            request = await pace.run(
                decode_in_steps(message, frame, version, header.body_offset, exact=False)
            )
        del frame  # the handler must not keep the frame alive through this local
        gate = self._gate
        call = Call(header.api_key, version, header.client_id, context, gate, self._counters, pace)
        if gate.authorizer is not None and gate.asks_caller:
            from aiokq.broker.handlers.questions import ask_in_advance

            await ask_in_advance(self._areas.topics, request, call)
        try:
            response = await handler(request, call)
        except CloseConnection as closing:
            # The quotas count this request, too: a Produce request with acks=0 may have appended
            # batches before one was refused.
            gate.throttle_ms(context, header.api_key, header.client_id, nbytes, answered=False)
            self._encode_last(closing, header)
            raise
        throttle_ms = 0
        if gate.quotas is not None:
            throttle_ms = gate.throttle_ms(
                context,
                header.api_key,
                header.client_id,
                nbytes,
                answered=response is not None,
                in_login=in_login,
                least_ms=getattr(response, "throttle_time_ms", 0),
            )
        if response is None:
            return None
        if throttle_ms and has_throttle_time(type(response), version):
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        if pace.steps < LONG_RESPONSE_STEPS:
            count_errors(self._counters.errors, response)
            return encode_response(response, version=version, correlation_id=header.correlation_id)
        await pace.run(count_errors_in_steps(self._counters.errors, response))
        return frame_response(
            await pace.run(encode_in_steps(response, version)),
            type(response),
            version,
            header.correlation_id,
        )

    def handle_login(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Handle one request of a connection before its login (`connection.LoginHandler`).

        Returns:
            The response. None if the request has to wait, or is not an ordinary request of a login;
            the caller then passes the request to `handle`.

        Raises:
            CloseConnection, ProtocolError: see `handle`.
        """
        try:
            return (self._logins or self._login_requests()).answer(context, frame)
        except CloseConnection as closing:
            if closing.response is not None:
                self._encode_last(closing, decode_request_header(frame))
            raise

    def _login_requests(self) -> LoginRequests:
        from aiokq.broker.handlers.login_requests import LoginRequests

        areas = self._areas
        self._logins = LoginRequests(
            areas.login, areas.cluster, areas.quorum, self._gate, self._counters
        )
        return self._logins

    def _answer_ordinary(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Handle a Produce request on the fast path (`h00_ordinary`), if it qualifies.

        Returns:
            The response, empty for acks=0; None if the request must take the general path.
        """
        ordinary = self._ordinary
        if ordinary is None:
            from aiokq.broker.handlers.h00_ordinary import OrdinaryProduce

            areas = self._areas
            ordinary = OrdinaryProduce(
                areas.topics, areas.admission, areas.host.clock, self._gate, self._counters
            )
            self._ordinary = ordinary
        answered = ordinary.answer(context, frame)
        if ordinary.appended >= BATCHES_PER_REQUEST:
            self._turn.spend(ordinary.appended // BATCHES_PER_REQUEST)
        return answered

    async def _handle_token(self, context: RequestContext, frame: memoryview) -> list[Fragment]:
        """Handle a token that has no request header; return the answer's size, then the answer."""
        token = await self._areas.login.token(context, bytes(frame))
        return [len(token).to_bytes(4, "big") + token]

    def _no_token(self, header: RequestHeader) -> CloseConnection:
        """Return the error that ends a connection after a wrong request during a login.

        Called in the state AUTHENTICATE, for a request that is not SaslAuthenticate. The body of
        the request is not decoded. The response has the error ILLEGAL_SASL_STATE if the API has an
        error code outside of arrays.
        """
        key, version = header.api_key, header.api_version
        api = APIS.get(key)
        if api is None:
            return CloseConnection(f"unknown API key {key} during a login")
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS:
                return CloseConnection(f"{api.name} version {version} during a login")
            header = header._replace(api_version=0)
        response = request_class(key).RESPONSE()
        version = header.api_version
        if any(
            field.name == "error_code" and field.since <= version <= field.until
            for field in response.__fields__
        ):
            response.error_code = IllegalSaslState.code  # type: ignore[attr-defined]
        closing = self._areas.login.failure(f"{api.name} request during a login", response)
        self._encode_last(closing, header)
        return closing

    def _encode_last(self, closing: CloseConnection, header: RequestHeader) -> None:
        """Encode the response after which a connection is closed."""
        if closing.response is None:
            return
        count_errors(self._counters.errors, closing.response)
        closing.answer = encode_response(
            closing.response, version=header.api_version, correlation_id=header.correlation_id
        )


class AskingDispatcher(Dispatcher):
    """A dispatcher for an authorizer that may await answers of the user's coroutine function."""

    async def handle(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Handle one request; run its handler again whenever an answer had to be awaited.

        Raises:
            CloseConnection, ProtocolError: see `Dispatcher.handle`.
        """
        gate = self._gate
        gate.begin(context)
        try:
            while True:
                try:
                    return await super().handle(context, frame)
                except Undecided as undecided:
                    questions = undecided
                gate.again(context)
                await gate.settle(context, questions)
        finally:
            gate.end(context)


@functools.cache
def has_throttle_time(response: type[Response], version: int) -> bool:
    """Return whether a version of a response has the field ``throttle_time_ms``."""
    return any(
        field.name == "throttle_time_ms" and field.since <= version <= field.until
        for field in response.__fields__
    )
