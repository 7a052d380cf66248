"""Whatever a peer sends, the client sees responses or ProtocolError, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokq import wire
from aiokq.connection.protocol import ClientProtocol
from aiokq.core.errors import ProtocolError

requests = st.sampled_from(
    [
        (wire.ApiVersionsRequest(), 4),
        (wire.MetadataRequest(), 12),
        (wire.MetadataRequest(), 1),
        (wire.ProduceRequest(acks=1), 9),
        (wire.FetchRequest(), 12),
        (wire.SaslAuthenticateRequest(), 2),
    ]
)


@given(st.lists(requests, min_size=1, max_size=5), st.data())
def test_hostile_responses_are_protocol_errors(
    sent: list[tuple[wire.Request[wire.Response], int]], data: st.DataObject
) -> None:
    """Right or wrong correlation ids in front of random bytes: typed errors, no pending leak."""
    protocol = ClientProtocol("me")
    for request, version in sent:
        protocol.send(request, version)
    for number in range(len(sent)):
        correlation = data.draw(st.sampled_from([number, number, number, number + 1, -1]))
        body = data.draw(st.one_of(st.binary(max_size=60), st.just(b"\0#" + bytes(20))))
        before = len(protocol.pending)
        try:
            pending, response = protocol.receive(
                memoryview(correlation.to_bytes(4, "big", signed=True) + body)
            )
        except ProtocolError:
            if correlation != number:
                assert len(protocol.pending) == before
                return
        else:
            assert pending.correlation_id == number
            assert isinstance(response, pending.request_class.RESPONSE)
        assert len(protocol.pending) == before - 1
