"""Frames: sizes, header versions, and the fields that are known before the message is decoded."""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.core.errors import ProtocolError


def frame(fragments: list[wire.Fragment]) -> bytes:
    """Check the size of a frame; return the frame without it."""
    data = b"".join(fragments)  # type: ignore[arg-type]
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("client_id", ["me", "", None, "ü" * 100])
def test_requests_survive_with_their_header(version: int, client_id: str | None) -> None:
    """Header version 2 has tagged fields, but a client id in the old form."""
    request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="orders")])
    data = frame(
        wire.encode_request(request, version=version, correlation_id=7, client_id=client_id)
    )
    header, decoded = wire.decode_request(memoryview(data))
    assert header == wire.decode_request_header(data)
    assert header[:4] == (3, version, 7, client_id)
    assert decoded == request


def test_request_header_bytes_are_kafkas() -> None:
    """API key, version, correlation id, client id and tags precede the message."""
    old = wire.encode_request(
        wire.ApiVersionsRequest(), version=0, correlation_id=1, client_id="ab"
    )
    assert old == [b"\0\0\0\x0c" + b"\0\x12\0\0" + b"\0\0\0\1" + b"\0\2ab"]
    new = wire.encode_request(
        wire.ApiVersionsRequest(client_software_name="n", client_software_version="v"),
        version=3,
        correlation_id=1,
        client_id="ab",
    )
    assert new == [b"\0\0\0\x12" + b"\0\x12\0\3" + b"\0\0\0\1" + b"\0\2ab" + b"\0" + b"\2n\2v\0"]


@pytest.mark.parametrize("version", [8, 9])
def test_responses_survive_with_their_header(version: int) -> None:
    """Flexible responses have tagged fields in the header."""
    response = wire.MetadataResponse(cluster_id="c", controller_id=1)
    data = frame(wire.encode_response(response, version=version, correlation_id=9))
    assert wire.peek_correlation_id(data) == 9
    assert wire.decode_response(wire.MetadataResponse, data, version) == (9, response)
    assert len(data) - len(wire.encode_bytes(response, version)) == (5 if version == 9 else 4)


def test_the_header_of_api_versions_never_has_tags() -> None:
    """The client reads the response before it knows the broker's versions."""
    response = wire.ApiVersionsResponse(error_code=35)
    for version in (0, 3, 4):
        data = frame(wire.encode_response(response, version=version, correlation_id=1))
        assert data[4:] == wire.encode_bytes(response, version)
        assert wire.decode_response(wire.ApiVersionsResponse, data, version) == (1, response)


def test_record_data_counts_for_the_size_of_the_frame() -> None:
    """With a size without the records, the next frame would start inside them."""
    data = wire.PartitionProduceData(records=bytes(5000))
    request = wire.ProduceRequest(topic_data=[wire.TopicProduceData(partition_data=[data])])
    fragments = wire.encode_request(request, version=9, correlation_id=1, client_id=None)
    assert len(fragments) == 3
    frame(fragments)


def test_the_header_of_an_unknown_api_is_readable() -> None:
    """The broker logs the API before it closes the connection."""
    header = wire.decode_request_header(b"\x7f\x00\0\3\0\0\0\5\0\2ab" + b"whatever")
    assert header == wire.RequestHeader(0x7F00, 3, 5, "ab", 12)
    with pytest.raises(ProtocolError, match="32512"):
        wire.decode_request(b"\x7f\x00\0\3\0\0\0\5\0\2ab")
    with pytest.raises(ProtocolError, match="32512"):
        wire.api(0x7F00)


def test_the_header_of_a_version_from_the_future_is_readable() -> None:
    """The response to ApiVersions 99 has the supported range, and needs the correlation id."""
    header = wire.decode_request_header(b"\0\x12\0\x63\0\0\0\5\xff\xff\0rest")
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 5, None)
    with pytest.raises(ProtocolError, match="versions 0 to 4"):
        wire.decode_request(b"\0\x12\0\x63\0\0\0\5\xff\xff\0rest")


def test_tagged_fields_of_headers_are_skipped() -> None:
    """A newer peer may send some."""
    request = b"\0\x03\0\x0c\0\0\0\5\0\0" + b"\1\7\2xy"
    header = wire.decode_request_header(request)
    assert header.body_offset == len(request)
    body = wire.encode_bytes(wire.MetadataResponse(), 12)
    assert wire.decode_response(wire.MetadataResponse, b"\0\0\0\1" + b"\1\7\2xy" + body, 12)


def test_bytes_behind_the_message_are_skipped() -> None:
    """librdkafka ends some messages with an extra section of tagged fields."""
    response = wire.MetadataResponse(cluster_id="c")
    data = frame(wire.encode_response(response, version=9, correlation_id=1))
    assert wire.decode_response(wire.MetadataResponse, data + b"\0", 9) == (1, response)
    request = wire.MetadataRequest(topics=None)
    data = frame(wire.encode_request(request, version=9, correlation_id=1, client_id=""))
    assert wire.decode_request(data + b"\0")[1] == request
    with pytest.raises(ProtocolError, match="1 bytes after"):
        wire.decode(wire.MetadataRequest, wire.encode_bytes(request, 9) + b"\0", 9)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\3\0\x0c\0\0\0\5",
        b"\0\3\0\x0c\0\0\0\5\0\5ab",
        b"\0\3\0\x0c\0\0\0\5\xff\xfe",
        b"\0\3\0\x0c\0\0\0\5\0\1\xff\0",
        b"\0\3\0\x0c\0\0\0\5\0\0",
        b"\0\3\0\x0c\0\0\0\5\0\0\xff\xff\xff\xff\x7f",
        b"\0\3\0\x0c\0\0\0\5\0\0\1\1\x7f",
    ],
)
def test_malformed_headers_raise_protocol_errors(data: bytes) -> None:
    """Any program may connect to the port, for example an HTTP client."""
    with pytest.raises(ProtocolError):
        wire.decode_request(data)


def test_short_responses_raise_protocol_errors() -> None:
    """A frame of three bytes has no correlation id."""
    with pytest.raises(ProtocolError):
        wire.peek_correlation_id(b"\0\0\0")
    with pytest.raises(ProtocolError) as caught:
        wire.decode_response(wire.MetadataResponse, b"\0\0\0\1", 12)
    assert (caught.value.api, caught.value.version, caught.value.offset) == ("Metadata", 12, 4)


@pytest.mark.parametrize("client_id", ["x" * 40_000, "svc-\udcff"], ids=ascii)
def test_a_client_id_that_does_not_fit_is_refused(client_id: str) -> None:
    """It has a 16-bit length in every version, and is UTF-8."""
    with pytest.raises(ProtocolError, match="client id"):
        wire.encode_request(
            wire.HeartbeatRequest(), version=4, correlation_id=1, client_id=client_id
        )
