"""From a frame to its handler and back: versions, decoding, encoding.

Owns no state of the broker; a connection's order, limits and counters are `connection`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.handlers import APIS
from aiokq.broker.handlers.call import Call
from aiokq.connection.request_context import CloseConnection, RequestContext
from aiokq.connection.turn import REQUESTS_PER_TURN
from aiokq.core.errors import UnsupportedVersion
from aiokq.wire.api_versions import ApiVersion, ApiVersionsResponse
from aiokq.wire.catalog import api as request_class
from aiokq.wire.codec import decode
from aiokq.wire.fields import Fragment
from aiokq.wire.frames import RequestHeader, decode_request_header, encode_response
from aiokq.wire.struct import Request, Response

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Areas, Handler
    from aiokq.broker.handlers.h00_ordinary import OrdinaryProduce
    from aiokq.core.counters import BrokerCounters

__all__ = ["BATCHES_A_REQUEST", "REQUESTS_PER_TURN", "Dispatcher"]

PRODUCE: Final = 0
API_VERSIONS: Final = 18

BATCHES_A_REQUEST: Final = 16
"""Appended batches that count as one more request of a turn; a request may have a thousand."""


class Dispatcher:
    """Implements `connection.RequestHandler` for one node.

    Args:
        areas: of the node, for its handlers.
        counters: the node's metrics.
        legacy: whether the versions that Kafka 4 dropped are served.
    """

    def __init__(self, areas: Areas, counters: BrokerCounters, *, legacy: bool) -> None:
        self._areas = areas
        self._turn = areas.turn
        self._counters = counters
        self._legacy = legacy
        self._routes: dict[tuple[int, int], tuple[type[Request[Response]], Handler]] = {}
        self._ordinary: OrdinaryProduce | None = None

    async def handle(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Answer one request.

        Raises:
            CloseConnection: an API or version that is not served; Kafka closes here too.
            ProtocolError: the frame is no request.
        """
        turn = self._turn
        if turn.is_over:
            await turn.next()
        turn.spend(1)
        if len(frame) > 1 and frame[1] == PRODUCE and not frame[0]:
            answer = self._answer_ordinary(frame)
            if answer is not None:
                return answer or None
        header = decode_request_header(frame)
        version = header.api_version
        route = self._routes.get((header.api_key, version)) or self._route(header.api_key, version)
        if route is None:
            return _refuse_api_versions(header)
        message, handler = route
        # Bytes behind a request are skipped, as Kafka does: librdkafka leaves three of them behind
        # its Metadata request for all topics.
        request = decode(message, frame, version, header.body_offset, exact=False)
        del frame  # what the request does not hold of it may go while the handler waits
        call = Call(version, header.client_id, context, self._counters)
        response = await handler(request, call)
        if response is None:
            return None
        return encode_response(response, version=version, correlation_id=header.correlation_id)

    def _answer_ordinary(self, frame: memoryview) -> list[Fragment] | None:
        """The answer to a Produce request that needs no more; None if it does."""
        ordinary = self._ordinary
        if ordinary is None:
            from aiokq.broker.handlers.h00_ordinary import OrdinaryProduce

            areas = self._areas
            ordinary = OrdinaryProduce(areas.topics, areas.host.clock, self._counters)
            self._ordinary = ordinary
        answered = ordinary.answer(frame)
        if ordinary.appended >= BATCHES_A_REQUEST:
            self._turn.spend(ordinary.appended // BATCHES_A_REQUEST)
        return answered

    def _route(self, key: int, version: int) -> tuple[type[Request[Response]], Handler] | None:
        """The handler of a version that is served; None for one of ApiVersions that is not.

        Raises:
            CloseConnection: any other API or version.
        """
        api = APIS.get(key)
        if api is None:
            raise CloseConnection(f"unknown API key {key}")
        if not api.oldest(self._legacy) <= version <= api.max_version:
            if key == API_VERSIONS:
                return None
            raise CloseConnection(f"{api.name} version {version} is not supported")
        route = self._routes[key, version] = (request_class(key), api.load(self._areas))
        return route


def _refuse_api_versions(header: RequestHeader) -> list[Fragment]:
    """The answer every client can read: version 0, error 35, and the range to retry with.

    Java retries with that maximum; a range that is missing or wrong makes it loop (KIP-511).
    """
    api = APIS[API_VERSIONS]
    response = ApiVersionsResponse(
        error_code=UnsupportedVersion.code,
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
        ],
    )
    return encode_response(response, version=0, correlation_id=header.correlation_id)
