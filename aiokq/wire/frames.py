"""Frames: messages with their size and their request or response header.

An encoded frame starts with its 4-byte size. A frame to decode has no size, because the reader of
the connection has removed it. Bytes after a decoded message are ignored, as in Kafka: librdkafka
sends such bytes after its requests, and its mock cluster sends them after flexible responses.

Source: KIP-482, Kafka `RequestHeader.json`, `ResponseHeader.json`, `ApiMessageType`.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import TypeVar

from aiokq.core.errors import ProtocolError
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.catalog import APIS, api
from aiokq.wire.codec import decode, encode
from aiokq.wire.fields import Buffer, Fragment
from aiokq.wire.primitives import DECODE_ERRORS, Malformed, uvarint
from aiokq.wire.struct import Request, Response

__all__ = [
    "RequestHeader",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode_request",
    "encode_response",
    "frame_response",
    "peek_correlation_id",
]

R = TypeVar("R", bound=Response)

API_VERSIONS_KEY = 18

_REQUEST_HEAD = struct.Struct(">ihhih")
_RESPONSE_HEAD = struct.Struct(">ii")
_HEADER = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """Header of a request.

    Attributes:
        api_key: the key of the API, which may be an API that aiokq does not support.
        api_version: version of the API; it determines the formats of header and message.
        correlation_id: number of the request, which the response repeats.
        client_id: the client.id of the client; None if the request has none.
        body_offset: position in the frame where the message begins, in bytes.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def encode_request(
    message: Request[Response], *, version: int, correlation_id: int, client_id: str | None
) -> list[Fragment]:
    """Encode a request as a frame that starts with its size.

    Raises:
        ProtocolError: the version is not supported, a value does not fit its field, or the client
            id is too long or cannot be encoded.
    """
    fragments = encode(message, version)
    try:
        name = b"" if client_id is None else client_id.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError(f"cannot encode the client id: {error}") from error
    if len(name) > 0x7FFF:
        raise ProtocolError(f"client id of {len(name)} bytes, at most 32767 are allowed")
    # The client id keeps its 16-bit length in flexible versions, so that any broker can read it.
    tags = b"\0" if message.is_flexible(version) else b""
    size = 10 + len(name) + len(tags) + sum(map(len, fragments))
    head = _REQUEST_HEAD.pack(
        size, message.API_KEY, version, correlation_id, -1 if client_id is None else len(name)
    )
    # The first fragment is `bytes`, because fields of the message precede record data.
    fragments[0] = b"".join((head, name, tags, fragments[0]))  # type: ignore[arg-type]
    return fragments


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Decode the header of a request, even if aiokq does not support its API or version.

    Tagged fields of the header are skipped. For an unknown API, the body offset is the position
    after the client id, because it is unknown whether tagged fields follow.

    Raises:
        ProtocolError: the header is malformed.
    """
    position = 0
    try:
        key, version, correlation_id, length = _HEADER.unpack_from(frame, 0)
        position = _HEADER.size
        client_id = None
        if length != -1:
            end = position + length
            if not position <= end <= len(frame):
                raise Malformed(f"client id of {length} bytes in {len(frame) - position}")
            client_id = str(frame[position:end], "utf-8")
            position = end
        if version >= _flexible_since(key):
            position = _skip_tags(frame, position)
    except DECODE_ERRORS as error:
        raise ProtocolError(f"malformed request header: {error}", offset=position) from error
    return RequestHeader(key, version, correlation_id, client_id, position)


def decode_request(frame: Buffer) -> tuple[RequestHeader, Request[Response]]:
    """Decode a request: its header and its message.

    Raises:
        ProtocolError: the frame is not a request, or its API or version is not supported.
    """
    header = decode_request_header(frame)
    if header.api_key not in APIS:
        raise ProtocolError(f"no API has key {header.api_key}", version=header.api_version)
    cls = api(header.api_key)
    return header, decode(cls, frame, header.api_version, header.body_offset, exact=False)


def encode_response(message: Response, *, version: int, correlation_id: int) -> list[Fragment]:
    """Encode a response as a frame that starts with its size.

    Raises:
        ProtocolError: the version is not supported, or a value does not fit its field.
    """
    # Hot path, measured by benchmarks/micro/groups.py.
    return frame_response(encode(message, version), type(message), version, correlation_id)


def frame_response(
    fragments: list[Fragment], cls: type[Response], version: int, correlation_id: int
) -> list[Fragment]:
    """Put size and header before an encoded response."""
    tags = b"\0" if _tagged_header(cls, version) else b""
    size = 4 + len(tags)
    for fragment in fragments:
        size += len(fragment)
    head = _RESPONSE_HEAD.pack(size, correlation_id)
    fragments[0] = b"".join((head, tags, fragments[0]))  # type: ignore[arg-type]
    return fragments


def decode_response(cls: type[R], frame: Buffer, version: int) -> tuple[int, R]:
    """Decode a response, in the version of its request.

    Returns:
        The correlation id and the message.

    Raises:
        ProtocolError: the frame is not such a response.
    """
    correlation_id = peek_correlation_id(frame)
    position = 4
    if _tagged_header(cls, version):
        try:
            position = _skip_tags(frame, position)
        except DECODE_ERRORS as error:
            raise ProtocolError(
                f"malformed response header: {error}",
                api=cls.NAME,
                version=version,
                offset=position,
            ) from error
    return correlation_id, decode(cls, frame, version, position, exact=False)


def peek_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response, without decoding the rest.

    Raises:
        ProtocolError: the frame is shorter than a correlation id.
    """
    if len(frame) < 4:
        raise ProtocolError(f"response of {len(frame)} bytes has no correlation id", offset=0)
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    return correlation_id  # type: ignore[no-any-return]


@functools.cache
def _flexible_since(key: int) -> float:
    """Return the first API version with tagged fields in the request header, or infinity."""
    since = api(key).FLEXIBLE_SINCE if key in APIS else None
    return math.inf if since is None else since


@functools.cache
def _tagged_header(cls: type[Response], version: int) -> bool:
    """Return whether the response header has tagged fields.

    The header of an ApiVersions response never has tagged fields. A client sends ApiVersions before
    it has the broker's versions, and must be able to read the response even if the broker does not
    support the version of the request.
    """
    return cls.is_flexible(version) and cls.API_KEY != API_VERSIONS_KEY


def _skip_tags(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields of a header."""
    if not frame[position]:
        return position + 1
    count, position = uvarint(frame, position)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise Malformed(f"tagged field of {size} bytes exceeds the frame")
    return position
