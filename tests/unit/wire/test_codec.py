"""Encoding and decoding of single messages: references, rejected values, error texts."""

from __future__ import annotations

from typing import Any

import pytest

from aiokq import wire
from aiokq.core.errors import ProtocolError
from aiokq.core.files import FileRange
from aiokq.wire import codec
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord
from aiokq.wire.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from aiokq.wire.primitives import COPY_BELOW


def produce(records: wire.Records, *more: wire.Records) -> wire.ProduceRequest:
    data = [
        wire.PartitionProduceData(index=index, records=value)
        for index, value in enumerate((records, *more))
    ]
    topic = wire.TopicProduceData(name="orders", partition_data=data)
    return wire.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def test_record_data_is_passed_by_reference() -> None:
    """A produce request of a megabyte must not be copied on its way to the socket."""
    first, second = bytearray(COPY_BELOW), memoryview(bytes(COPY_BELOW * 2))
    fragments = wire.encode(produce(first, second), 9)
    assert fragments[1] is first
    assert fragments[3] is second
    assert b"".join(fragments) == wire.encode_bytes(produce(first, second), 9)  # type: ignore[arg-type]


def test_short_record_data_is_joined() -> None:
    """A hundred tiny batches are one write instead of two hundred."""
    fragments = wire.encode(produce(b"abc", b"def"), 9)
    assert len(fragments) == 1


def test_record_data_may_be_several_pieces() -> None:
    """A fetch response has batches of several segments."""
    pieces = [bytes(COPY_BELOW), memoryview(b"tail")]
    whole = produce(b"".join(pieces))
    assert wire.encode_bytes(produce(pieces), 9) == wire.encode_bytes(whole, 9)


def test_a_file_range_is_counted_and_left_alone() -> None:
    """The range is sent by sendfile and never read."""
    piece = FileRange(None, 100, 5000)  # not to be accessed
    fragments = wire.encode(produce([piece, b"x"]), 9)
    assert piece in fragments
    same = wire.encode(produce(bytes(5001)), 9)
    assert fragments[0] == same[0]
    with pytest.raises(ProtocolError, match="range of a file"):
        wire.encode_bytes(produce(piece), 9)


def test_decoded_records_are_a_view_of_the_frame() -> None:
    """Sixteen megabytes of fetched records are in memory only once."""
    frame = bytearray(wire.encode_bytes(produce(b"records", None, b""), 9))
    decoded = wire.decode(wire.ProduceRequest, frame, 9)
    first, second, third = (data.records for data in decoded.topic_data[0].partition_data)
    assert isinstance(first, memoryview)
    assert first.obj is frame
    assert bytes(first) == b"records"
    assert second is None
    assert isinstance(third, memoryview)
    assert len(third) == 0


def test_a_value_that_the_version_cannot_carry_is_refused() -> None:
    """If `validate_only` were dropped silently, the topics would be created."""
    request = wire.CreateTopicsRequest(validate_only=True)
    with pytest.raises(wire.FieldNotSupported, match="validate_only") as caught:
        wire.encode(request, 0)
    assert (caught.value.api, caught.value.version) == ("CreateTopics", 0)
    assert wire.decode(wire.CreateTopicsRequest, wire.encode_bytes(request, 1), 1) == request


def test_an_ignorable_value_is_dropped() -> None:
    """A request to a broker too old for racks has none."""
    request = wire.FetchRequest(rack_id="eu-1")
    assert wire.encode_bytes(request, 10) == wire.encode_bytes(wire.FetchRequest(), 10)


def test_unknown_tagged_fields_are_kept_and_sent_on() -> None:
    """Fields of a newer peer must survive a proxy that does not know them."""
    request = wire.HeartbeatRequest(group_id="g", unknown_tags={900: b"new", 3: b""})
    data = wire.encode_bytes(request, 4)
    decoded = wire.decode(wire.HeartbeatRequest, data, 4)
    assert decoded.unknown_tags == {3: b"", 900: b"new"}
    assert wire.encode_bytes(decoded, 4) == data
    with pytest.raises(wire.FieldNotSupported):
        wire.encode(request, 3)


def test_a_tagged_field_given_twice_is_refused() -> None:
    """Which of the two values is used would depend on the reader."""
    once = wire.encode_bytes(wire.HeartbeatRequest(unknown_tags={5: b"a"}), 4)
    assert once.endswith(b"\x01\x05\x01a")
    twice = once[:-4] + b"\x02\x05\x01a\x05\x01b"
    with pytest.raises(ProtocolError, match="twice"):
        wire.decode(wire.HeartbeatRequest, twice, 4)


@pytest.mark.parametrize(
    "request_",
    [
        wire.HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        wire.HeartbeatRequest(generation_id=2**31),
        wire.HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
        wire.HeartbeatRequest(group_id="x" * 32768),
        wire.HeartbeatRequest(group_id="\ud800"),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_values_that_do_not_fit_raise_protocol_errors(
    request_: wire.HeartbeatRequest, version: int
) -> None:
    """The error has the name of the message and the field."""
    with pytest.raises(ProtocolError, match="HeartbeatRequest"):
        wire.encode(request_, version)


def test_strings_up_to_the_limit_are_carried() -> None:
    """32,767 bytes in the classic and the compact form."""
    request = wire.HeartbeatRequest(group_id="x" * 32767)
    for version in (3, 4):
        data = wire.encode_bytes(request, version)
        assert wire.decode(wire.HeartbeatRequest, data, version) == request


def test_errors_say_where_reading_stopped() -> None:
    """API, version and position make a bug report useful."""
    data = wire.encode_bytes(wire.HeartbeatRequest(group_id="group"), 3)
    with pytest.raises(ProtocolError) as caught:
        wire.decode(wire.HeartbeatRequest, data[:4], 3)
    assert (caught.value.api, caught.value.version, caught.value.offset) == ("Heartbeat", 3, 2)


def test_versions_that_do_not_exist_are_refused() -> None:
    """A negotiation bug must not send bytes that only look like a message."""
    for version in (-1, 5):
        with pytest.raises(ProtocolError, match="versions 0 to 4"):
            wire.encode(wire.HeartbeatRequest(), version)
        with pytest.raises(ProtocolError, match="versions 0 to 4"):
            wire.decode(wire.HeartbeatRequest, b"", version)


def test_schemas_carry_their_version_in_front() -> None:
    """Group members decode each other's subscriptions by it."""
    subscription = wire.ConsumerProtocolSubscription(topics=["orders"], user_data=None)
    data = wire.encode_prefixed(subscription, 1)
    assert data[:2] == b"\0\1"
    assert wire.decode_prefixed(wire.ConsumerProtocolSubscription, data) == subscription


def test_a_subscription_of_a_newer_version_is_read_as_the_newest_known() -> None:
    """Kafka's newer versions only append fields, so newer members can join an older group."""
    subscription = wire.ConsumerProtocolSubscription(topics=["orders"], rack_id="eu")
    data = b"\x00\x09" + wire.encode_prefixed(subscription, 3)[2:] + b"appended"
    assert wire.decode_prefixed(wire.ConsumerProtocolSubscription, data) == subscription
    with pytest.raises(ProtocolError):
        wire.decode_prefixed(wire.ConsumerProtocolSubscription, b"\0\3" + data[2:])


def test_keys_of_coordinator_records_carry_their_type() -> None:
    """A group's metadata must not be decoded as an offset."""
    key = wire.GroupMetadataKey(group="billing")
    data = wire.encode_prefixed(key, 0)
    assert data == b"\x00\x02\x00\x07billing"
    assert wire.decode_prefixed(wire.GroupMetadataKey, data) == key
    with pytest.raises(ProtocolError, match="record type 2"):
        wire.decode_prefixed(wire.OffsetCommitKey, data)
    with pytest.raises(ProtocolError):
        wire.decode_prefixed(wire.OffsetCommitKey, b"\0")


def test_negative_versions_of_schemas_are_refused() -> None:
    """A damaged record may have version -1."""
    with pytest.raises(ProtocolError):
        wire.decode_prefixed(wire.OffsetCommitValue, b"\xff\xff\0\0")


@pytest.mark.parametrize(
    ("value", "tail"),
    [
        (None, "01 00 01 00"),
        (
            ClassicMemberMetadata(
                session_timeout_ms=30_000,
                supported_protocols=[ClassicProtocol(name="range", metadata=b"abc")],
            ),
            "01 00 12 01 00 00 75 30 02 06 72 61 6e 67 65 04 61 62 63 00 00",
        ),
    ],
)
def test_a_tagged_struct_says_that_it_is_null(
    value: ClassicMemberMetadata | None, tail: str
) -> None:
    """The bytes are Apache Kafka's. A missing tag would mean a struct of defaults.

    Regression: Kafka took every member of the consumer protocol in aiokq's log for a classic
    member, and aiokq could not decode Kafka's log.
    """
    message = ConsumerGroupMemberMetadataValue(classic_member_metadata=value)
    data = wire.encode_bytes(message, 0)
    assert data.endswith(bytes.fromhex(tail))
    assert wire.decode(ConsumerGroupMemberMetadataValue, data, 0) == message
    untagged = data[: -len(bytes.fromhex(tail))] + b"\0"
    assert (
        wire.decode(ConsumerGroupMemberMetadataValue, untagged, 0).classic_member_metadata is None
    )


@pytest.fixture
def unused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all codecs and uses, as in a new process."""
    for name in ("_decoders", "_encoders", "_decoded", "_encoded"):
        monkeypatch.setattr(codec, name, {})


@pytest.mark.usefixtures("unused")
def test_the_content_of_a_record_is_interpreted_until_its_type_is_used_often() -> None:
    """To compile the codecs of a few metadata records took a tenth of a broker's start."""
    record = FeatureLevelRecord(name="metadata.version", feature_level=25)
    for _ in range(codec.INTERPRETED_USES):
        encoded = wire.encode_bytes(record, 0)
        assert wire.decode(FeatureLevelRecord, encoded, 0) == record
    assert not codec._encoders
    assert not codec._decoders
    assert wire.encode_bytes(record, 0) == encoded
    assert wire.decode(FeatureLevelRecord, encoded, 0) == record
    assert (FeatureLevelRecord, 0) in codec._encoders.keys() & codec._decoders.keys()


@pytest.mark.usefixtures("unused")
def test_requests_and_responses_are_compiled_at_once() -> None:
    """A client or broker that sends one sends more of them, and their records are not copied."""
    wire.encode_bytes(wire.HeartbeatRequest(), 4)
    assert list(codec._encoders) == [(wire.HeartbeatRequest, 4)]


@pytest.mark.usefixtures("unused")
@pytest.mark.parametrize("wrong", [{"feature_level": 2**15}, {"name": None}, {"name": "\ud800"}])
def test_the_error_of_a_rarely_used_type_is_that_of_its_codec(wrong: dict[str, Any]) -> None:
    record = FeatureLevelRecord(**wrong)
    errors = []
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            wire.encode(record, 0)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    with pytest.raises(ProtocolError, match="has versions 0 to 0"):
        wire.encode(record, 1)


@pytest.mark.usefixtures("unused")
def test_bytes_after_a_rarely_used_type_are_an_error_only_if_it_must_be_exact() -> None:
    record = FeatureLevelRecord(name="kraft.version", feature_level=1)
    data = wire.encode_bytes(record, 0) + b"more"
    assert wire.decode(FeatureLevelRecord, data, 0, exact=False) == record
    with pytest.raises(ProtocolError, match="after"):
        wire.decode(FeatureLevelRecord, data, 0)
