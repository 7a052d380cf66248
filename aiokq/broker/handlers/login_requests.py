"""LoginRequests: handles the requests of a login at once, without a task and without waiting.

Anybody can send these requests, so they must cost little. Requests that cannot be handled at once
are left to `Dispatcher.handle`, which uses the same handlers and returns the same responses.
Examples are a token whose keys must be fetched, and tokens without a request header.

Tests: ``tests/unit/broker/handlers/test_login_requests.py``, which compares the responses with
those of `Dispatcher.handle`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from aiokq.broker.gate import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from aiokq.broker.handlers import APIS, h17_sasl_handshake, h18_api_versions
from aiokq.broker.response_errors import count_errors
from aiokq.connection.request_context import SessionState
from aiokq.core.errors import InvalidRequest, UnsupportedVersion
from aiokq.wire.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokq.wire.codec import decode, encode_bytes
from aiokq.wire.frames import decode_request_header, encode_response, frame_response
from aiokq.wire.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokq.wire.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from aiokq.broker.gate import Gate
    from aiokq.broker.handlers.areas import Cluster, Login, Quorum
    from aiokq.broker.metadata.quorum_description import FinalizedFeatures
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.counters import BrokerCounters
    from aiokq.wire.fields import Fragment
    from aiokq.wire.frames import RequestHeader
    from aiokq.wire.struct import Response

__all__ = ["LoginRequests"]

HEADER_BYTES: Final = 10
"""Length of the shortest header of a request."""

LONGEST_BYTES: Final = 16 * 1024
"""Size in bytes from which a request is left to `Dispatcher.handle`, which decodes in steps."""

FIRST_FLEXIBLE: Final = 2
"""The first flexible version of SaslAuthenticate.

`LoginRequests` reads and writes earlier versions itself, because their codecs would take longer.
"""

_READY: Final = SessionState.READY
_AUTHENTICATE: Final = SessionState.AUTHENTICATE

_API_AND_VERSION: Final = struct.Struct(">I").unpack_from

_ANSWER: Final = struct.Struct(">iihhi").pack
"""Packs size, correlation id, error code, length of the error message, and length of the token."""

_ANSWER_BYTES: Final = 12
"""Length of these fields without the size."""


class LoginRequests:
    """Answers ApiVersions, SaslHandshake and SaslAuthenticate before the login.

    The body of an ApiVersions response is encoded once for each version, until the cluster's
    metadata changes.
    """

    def __init__(
        self,
        login: Login,
        cluster: Cluster,
        quorum: Quorum,
        gate: Gate,
        counters: BrokerCounters,
    ) -> None:
        self._login = login
        self._cluster = cluster
        self._quorum = quorum
        self._gate = gate
        self._counters = counters
        self._versions: dict[int, tuple[FinalizedFeatures, bytes]] = {}
        # The bodies of SaslHandshake responses without an error, by version and mechanisms.
        self._mechanisms: dict[tuple[int, tuple[str, ...]], bytes] = {}

    def answer(self, context: RequestContext, frame: memoryview) -> list[Fragment] | None:
        """Return the response to a request; None if `Dispatcher.handle` must handle it.

        Raises:
            CloseConnection: the gate does not admit the request, or the login has failed.
            ProtocolError: the frame is not a valid request.
        """
        nbytes = len(frame)
        if not HEADER_BYTES <= nbytes < LONGEST_BYTES or context.session.sends_tokens:
            return None
        gate = self._gate
        (api_and_version,) = _API_AND_VERSION(frame)
        if not gate.admit(context, api_and_version, nbytes):
            if context.session.state is _AUTHENTICATE:
                return None
            header = decode_request_header(frame)
            gate.throttle_ms(context, header.api_key, header.client_id, nbytes, in_login=True)
            return self.refuse_versions(header)
        key = api_and_version >> 16
        if key == SASL_AUTHENTICATE:
            answer = self._authenticate
        elif key == SASL_HANDSHAKE:
            answer = self._handshake
        elif key == API_VERSIONS:
            answer = self.api_versions
        else:
            return None
        header = decode_request_header(frame)
        in_login = context.session.state is not _READY
        response = answer(context, frame, header)
        if response is not None and gate.quotas is not None:
            # Count the request. A login is not throttled.
            gate.throttle_ms(context, key, header.client_id, nbytes, in_login=in_login)
        return response

    def _authenticate(
        self, context: RequestContext, frame: memoryview, header: RequestHeader
    ) -> list[Fragment] | None:
        answered = self._login.authenticate_at_once(context, _token(frame, header))
        if answered is None:
            return None
        token, lifetime_ms = answered
        version, number = header.api_version, header.correlation_id
        if version >= FIRST_FLEXIBLE:
            response = SaslAuthenticateResponse(
                error_code=0, error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms
            )
            return encode_response(response, version=version, correlation_id=number)
        tail = token if version == 0 else token + lifetime_ms.to_bytes(8)
        return [_ANSWER(_ANSWER_BYTES + len(tail), number, 0, 0, len(token)) + tail]

    def _handshake(
        self, context: RequestContext, frame: memoryview, header: RequestHeader
    ) -> list[Fragment]:
        version = header.api_version
        request = decode(SaslHandshakeRequest, frame, version, header.body_offset, exact=False)
        response = self._login.handshake(
            context,
            request.mechanism,
            sends_tokens=version < h17_sasl_handshake.FIRST_WITH_REQUESTS,
        )
        if response.error_code:
            return self._encoded(response, header)
        known = version, tuple(response.mechanisms)
        body = self._mechanisms.get(known)
        if body is None:
            body = self._mechanisms[known] = encode_bytes(response, version)
        return frame_response([body], SaslHandshakeResponse, version, header.correlation_id)

    def api_versions(
        self, context: RequestContext, frame: memoryview, header: RequestHeader
    ) -> list[Fragment]:
        """Return the response to ApiVersions, also after the login.

        Raises:
            ProtocolError: the frame is not a valid request.
        """
        version = header.api_version
        request = decode(ApiVersionsRequest, frame, version, header.body_offset, exact=False)
        if not h18_api_versions.introduce(request, version, context.session):
            return self._encoded(ApiVersionsResponse(error_code=InvalidRequest.code), header)
        features = self._quorum.features()
        known, body = self._versions.get(version, (None, b""))
        if known != features:
            response = h18_api_versions.versions(self._cluster, features, version)
            body = encode_bytes(response, version)
            self._versions[version] = features, body
        return frame_response([body], ApiVersionsResponse, version, header.correlation_id)

    def refuse_versions(self, header: RequestHeader) -> list[Fragment]:
        """Return an ApiVersions response with UNSUPPORTED_VERSION and the versions of ApiVersions.

        The response has version 0, which every client can read. A Java client retries with the
        highest version of ApiVersions in the response, and retries forever if the range of versions
        is missing or wrong (KIP-511).
        """
        api = APIS[API_VERSIONS]
        response = ApiVersionsResponse(
            error_code=UnsupportedVersion.code,
            api_keys=[
                ApiVersion(
                    api_key=api.key, min_version=api.min_version, max_version=api.max_version
                )
            ],
        )
        return self._encoded(response, header._replace(api_version=0))

    def _encoded(self, response: Response, header: RequestHeader) -> list[Fragment]:
        count_errors(self._counters.errors, response)
        return encode_response(
            response, version=header.api_version, correlation_id=header.correlation_id
        )


def _token(frame: memoryview, header: RequestHeader) -> bytes:
    """Return the token of a SaslAuthenticate request.

    Raises:
        ProtocolError: the frame is not a valid request.
    """
    version, at = header.api_version, header.body_offset
    if version < FIRST_FLEXIBLE:
        begin = at + 4
        end = begin + int.from_bytes(frame[at:begin], "big", signed=True)
        if begin <= end <= len(frame):
            return bytes(frame[begin:end])
    return bytes(decode(SaslAuthenticateRequest, frame, version, at, exact=False).auth_bytes)
