"""ClientProtocol: the client's side of the protocol without I/O; matches responses to requests.

It takes frames, which `framing.py` splits from the stream, and returns fragments to send. The
caller sends the fragments, waits for responses, and enforces deadlines.

Source: Kafka protocol guide; KIP-511 (ApiVersions fallback).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from aiokq.connection.framing import FrameReader
from aiokq.core.errors import KafkaError, ProtocolError
from aiokq.wire import Request, Response, decode_response, encode_request
from aiokq.wire.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    import asyncio

    from aiokq.core.types import Buffer

__all__ = ["ClientProtocol", "FrameReader", "PendingRequest"]

R = TypeVar("R", bound=Response)

_SASL_IDS: Final = 8
"""Number of correlation ids reserved for SASL exchanges: the largest ids, as in Java's client."""

_FIRST_SASL_ID: Final = 2**31 - _SASL_IDS
_UNSUPPORTED_VERSION: Final = 35


class PendingRequest(Generic[R]):
    """A request that was sent and not answered.

    Attributes:
        correlation_id: number of the request, which the response repeats in its first field.
        request_class: class of the request.
        version: version of the request and of its response.
        future: future of the response; `None` in tests of the protocol alone.
        timeout: timeout of the request in seconds.
        deadline: the loop's time at which the request fails.
        sent_at: time of sending in monotonic seconds, for the latency.
    """

    __slots__ = (
        "correlation_id",
        "deadline",
        "future",
        "request_class",
        "sent_at",
        "timeout",
        "version",
    )

    def __init__(self, correlation_id: int, request_class: type[Request[R]], version: int) -> None:
        self.correlation_id = correlation_id
        self.request_class = request_class
        self.version = version
        self.future: asyncio.Future[R] | None = None
        self.timeout = 0.0
        self.deadline = 0.0
        self.sent_at = 0.0

    def __repr__(self) -> str:
        return f"<{self.request_class.NAME} v{self.version} correlation={self.correlation_id}>"


class ClientProtocol:
    """Numbers requests, and finds the request that each response answers.

    A broker answers the requests of a connection in order, so requests are kept in a queue. A
    response to any request but the oldest raises `ProtocolError`, after which the connection is
    unusable.

    A request of a SASL exchange is not in the queue. Its correlation id comes from a range of its
    own, so that the response to an older request cannot be mistaken for the response to this one.

    Args:
        client_id: sent with every request, for the broker's logs and quotas.
    """

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.pending: deque[PendingRequest[Response]] = deque()
        """Requests in flight, oldest first."""
        self.sasl_pending: PendingRequest[Response] | None = None
        """The request of a SASL exchange that is in flight."""
        self._next_correlation_id = 0
        self._next_sasl_id = 0
        self._expects_none = False

    def send(
        self, request: Request[R], version: int, *, expect_response: bool = True
    ) -> tuple[PendingRequest[R], list[Buffer]]:
        """Encode a request, and add it to `pending` if a response is expected.

        Args:
            request: the message.
            version: the negotiated version.
            expect_response: False for Produce with acks=0, which has no response.

        Returns:
            The pending request, and the fragments that the caller has to send unchanged.

        Raises:
            FieldNotSupported: the request sets a field that the version does not have.
            ProtocolError: the version or a value cannot be encoded.
        """
        correlation_id = self._next_correlation_id
        fragments = encode_request(
            request, version=version, correlation_id=correlation_id, client_id=self.client_id
        )
        self._next_correlation_id = (correlation_id + 1) % _FIRST_SASL_ID
        sent: PendingRequest[R] = PendingRequest(correlation_id, type(request), version)
        if expect_response:
            self.pending.append(sent)  # type: ignore[arg-type]  # requests are invariant
        else:
            self._expects_none = True
        return sent, fragments  # type: ignore[return-value]  # requests have no ranges of files

    def send_sasl(
        self, request: Request[R], version: int
    ) -> tuple[PendingRequest[R], list[Buffer]]:
        """Encode a request of a SASL exchange. Only one may be in flight.

        Returns:
            The pending request, and the fragments that the caller has to send unchanged.

        Raises:
            ProtocolError: the version or a value cannot be encoded.
        """
        assert self.sasl_pending is None, self.sasl_pending
        correlation_id = _FIRST_SASL_ID + self._next_sasl_id
        fragments = encode_request(
            request, version=version, correlation_id=correlation_id, client_id=self.client_id
        )
        self._next_sasl_id = (self._next_sasl_id + 1) % _SASL_IDS
        sent: PendingRequest[R] = PendingRequest(correlation_id, type(request), version)
        self.sasl_pending = cast("PendingRequest[Response]", sent)
        return sent, cast("list[Buffer]", fragments)

    def match(self, frame: memoryview) -> PendingRequest[Response] | None:
        """Remove and return the pending request that a frame answers.

        Returns:
            The request; None for a response to Produce with acks=0. Only librdkafka's mock cluster
            and brokers derived from it send such responses.

        Raises:
            ProtocolError: the frame is too short, no request is pending, or the response belongs to
                another request than the oldest.
        """
        if len(frame) < 4:
            raise ProtocolError(f"a response of {len(frame)} bytes has no correlation id")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        sasl = self.sasl_pending
        if sasl is not None and sasl.correlation_id == correlation_id:
            self.sasl_pending = None
            return sasl
        if self._expects_none and all(
            sent.correlation_id != correlation_id for sent in self.pending
        ):
            return None
        if not self.pending:
            raise ProtocolError(f"a response (correlation id {correlation_id}) without a request")
        due = self.pending[0]
        if due.correlation_id != correlation_id:
            raise ProtocolError(
                f"a response with correlation id {correlation_id} instead of the one to {due!r}",
                api=due.request_class.NAME,
                version=due.version,
            )
        return self.pending.popleft()

    def decode(self, sent: PendingRequest[R], frame: memoryview) -> R:
        """Return the response in a frame for which `match` returned `sent`.

        Raises:
            ProtocolError: the frame cannot be decoded.
        """
        # A broker that does not know this version of ApiVersions answers in version 0; the error
        # code has the same position in every version (KIP-511).
        if (
            sent.request_class is ApiVersionsRequest
            and len(frame) >= 6
            and int.from_bytes(frame[4:6], "big", signed=True) == _UNSUPPORTED_VERSION
        ):
            return cast("R", _refused_api_versions(frame))
        return decode_response(sent.request_class.RESPONSE, frame, sent.version)[1]  # type: ignore[return-value]

    def receive(self, frame: memoryview) -> tuple[PendingRequest[Response], Response]:
        """Match and decode a frame; return the pending request and its response.

        Raises:
            ProtocolError: `match` or `decode` raised it, or no response was expected.
        """
        sent = self.match(frame)
        if sent is None:
            raise ProtocolError("a response to a request that expects none")
        try:
            return sent, self.decode(sent, frame)
        except KafkaError as error:
            error.add_context(api=sent.request_class.NAME)
            raise

    def drop_all(self) -> list[PendingRequest[Response]]:
        """Remove and return all pending requests, because the connection is gone."""
        dropped = self.all_pending()
        self.pending.clear()
        self.sasl_pending = None
        return dropped

    def all_pending(self) -> list[PendingRequest[Response]]:
        """Return the requests in flight, including that of a SASL exchange."""
        return [*self.pending] if self.sasl_pending is None else [*self.pending, self.sasl_pending]


def _refused_api_versions(frame: memoryview) -> ApiVersionsResponse:
    """Return the error response; it lists no versions if the frame is not in version 0."""
    try:
        return decode_response(ApiVersionsResponse, frame, 0)[1]
    except ProtocolError:  # librdkafka's mock cluster mixes the encodings of versions 0 and 3
        return ApiVersionsResponse(error_code=_UNSUPPORTED_VERSION)
