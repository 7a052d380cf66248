"""Requests and responses are matched in order; any violation ends the connection."""

from __future__ import annotations

import pytest

from aiokq import wire
from aiokq.connection.protocol import ClientProtocol
from aiokq.core.errors import ProtocolError


def frame(fragments: list[wire.Fragment]) -> memoryview:
    return memoryview(b"".join(fragments)[4:])  # type: ignore[arg-type]


def answer(correlation_id: int, cluster_id: str) -> memoryview:
    response = wire.MetadataResponse(cluster_id=cluster_id)
    return frame(wire.encode_response(response, version=9, correlation_id=correlation_id))


def test_pipelined_requests_get_their_own_responses() -> None:
    """Three requests are in flight, and the broker responds in order."""
    protocol = ClientProtocol("me")
    sent = [protocol.send(wire.MetadataRequest(), 9)[0] for _ in range(3)]
    for n, pending in enumerate(sent):
        found, response = protocol.receive(answer(n, f"c{n}"))
        assert found is pending
        assert isinstance(response, wire.MetadataResponse)
        assert response.cluster_id == f"c{n}"
    assert not protocol.pending


def test_a_sent_request_is_a_complete_frame() -> None:
    """The broker must be able to decode key, version, correlation id and client id."""
    protocol = ClientProtocol("me")
    protocol.send(wire.MetadataRequest(), 12)
    _, fragments = protocol.send(wire.MetadataRequest(topics=None), 12)
    header, request = wire.decode_request(frame(fragments))
    assert header[:4] == (3, 12, 1, "me")
    assert request == wire.MetadataRequest(topics=None)


def test_a_response_out_of_order_is_a_protocol_error() -> None:
    """If a broken proxy swaps two responses, no later response can be trusted."""
    protocol = ClientProtocol("me")
    protocol.send(wire.MetadataRequest(), 9)
    protocol.send(wire.MetadataRequest(), 9)
    with pytest.raises(ProtocolError, match="correlation id 1 instead of the one to <Metadata v9"):
        protocol.receive(answer(1, "x"))


def test_requests_of_a_sasl_exchange_have_ids_of_their_own() -> None:
    """The response to an older request cannot pass for the response to a SASL request, and the ids
    are repeated only after eight exchanges.
    """
    protocol = ClientProtocol("me")
    older, _ = protocol.send(wire.MetadataRequest(), 9)
    ids = []
    for _ in range(9):
        sasl, fragments = protocol.send_sasl(wire.MetadataRequest(), 9)
        header, _ = wire.decode_request(frame(fragments))
        assert header.correlation_id == sasl.correlation_id
        ids.append(sasl.correlation_id)
        later, _ = protocol.send(wire.MetadataRequest(), 9)
        assert protocol.all_pending()[-1] is sasl
        assert protocol.receive(answer(older.correlation_id, "older"))[0] is older
        assert protocol.receive(answer(sasl.correlation_id, "sasl"))[0] is sasl
        assert protocol.sasl_pending is None
        older = later
    assert ids == [*range(2**31 - 8, 2**31), 2**31 - 8]
    with pytest.raises(ProtocolError, match="instead of the one to"):
        protocol.receive(answer(ids[0], "late"))


def test_a_response_without_a_request_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="without a request"):
        ClientProtocol("me").receive(answer(0, "x"))
    with pytest.raises(ProtocolError, match="no correlation id"):
        ClientProtocol("me").receive(memoryview(b"\0\0"))


def test_a_malformed_response_names_the_api() -> None:
    """The message is truncated; its request is no longer pending."""
    protocol = ClientProtocol("me")
    protocol.send(wire.MetadataRequest(), 9)
    with pytest.raises(ProtocolError) as caught:
        protocol.receive(answer(0, "x")[:-3])
    assert caught.value.api == "Metadata"
    assert not protocol.pending


def test_requests_without_response_use_a_correlation_id() -> None:
    """Produce with acks=0 has a correlation id but no response."""
    protocol = ClientProtocol("me")
    protocol.send(wire.ProduceRequest(acks=0), 9, expect_response=False)
    sent, _ = protocol.send(wire.MetadataRequest(), 9)
    assert sent.correlation_id == 1
    assert protocol.match(answer(1, "x")) is sent


def test_a_response_to_acks_0_is_ignored() -> None:
    """librdkafka's mock cluster sends such responses, which used to end the connection."""
    protocol = ClientProtocol("me")
    protocol.send(wire.ProduceRequest(acks=0), 9, expect_response=False)
    assert protocol.match(answer(0, "x")) is None
    protocol.send(wire.ProduceRequest(acks=0), 9, expect_response=False)
    sent, _ = protocol.send(wire.MetadataRequest(), 9)
    protocol.send(wire.MetadataRequest(), 9)
    assert protocol.match(answer(1, "x")) is None
    with pytest.raises(ProtocolError, match="correlation id 3 instead of the one to <Metadata v9"):
        protocol.match(answer(3, "x"))
    assert protocol.match(answer(2, "x")) is sent


def test_a_request_that_cannot_be_encoded_uses_no_correlation_id() -> None:
    """After a request in a version that does not exist, the next request has correlation id 0."""
    protocol = ClientProtocol("me")
    with pytest.raises(ProtocolError):
        protocol.send(wire.MetadataRequest(), 99)
    assert not protocol.pending
    assert protocol.send(wire.MetadataRequest(), 9)[0].correlation_id == 0


def test_a_refused_api_versions_is_read_in_version_0() -> None:
    """A broker that supports up to v2 returns UNSUPPORTED_VERSION in v0, with its range."""
    protocol = ClientProtocol("me")
    protocol.send(wire.ApiVersionsRequest(), 4)
    refusal = wire.ApiVersionsResponse(
        error_code=35, api_keys=[wire.ApiVersion(api_key=18, min_version=0, max_version=2)]
    )
    _, response = protocol.receive(
        frame(wire.encode_response(refusal, version=0, correlation_id=0))
    )
    assert response == refusal


def test_an_unsupported_version_error_in_a_mixed_encoding_is_recognised() -> None:
    """librdkafka's mock cluster sends these bytes, which mix encodings. The client then uses
    version 0.
    """
    protocol = ClientProtocol("me")
    protocol.send(wire.ApiVersionsRequest(), 4)
    refusal = bytes.fromhex("00000000 0023 01 0012 0000 0002 00000000")
    _, response = protocol.receive(memoryview(refusal))
    assert response == wire.ApiVersionsResponse(error_code=35)


def test_correlation_ids_stay_positive() -> None:
    """The correlation id is a signed int32 and starts again at 0, before the ids of SASL."""
    protocol = ClientProtocol("me")
    protocol._next_correlation_id = 2**31 - 9
    assert protocol.send(wire.MetadataRequest(), 9)[0].correlation_id == 2**31 - 9
    assert protocol.send(wire.MetadataRequest(), 9)[0].correlation_id == 0
