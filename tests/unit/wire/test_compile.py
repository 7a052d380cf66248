"""The generated code of codecs: compilation, tracebacks, and hostile counts."""

from __future__ import annotations

import linecache
import traceback

import pytest

from aiokq import wire
from aiokq.core.errors import ProtocolError
from aiokq.wire import codec, compile
from aiokq.wire.fields import array, i32
from aiokq.wire.source import ELEMENTS_PER_STEP, has_records
from aiokq.wire.struct import Message, Struct


def test_codecs_are_compiled_on_first_use_and_kept() -> None:
    """A millisecond for each of 1,100 codecs would add a second to the start."""
    codec._decoders.pop((wire.LeaveGroupRequest, 5), None)
    data = wire.encode_bytes(wire.LeaveGroupRequest(group_id="g"), 5)
    wire.decode(wire.LeaveGroupRequest, data, 5)
    first = codec._decoders[wire.LeaveGroupRequest, 5]
    wire.decode(wire.LeaveGroupRequest, data, 5)
    assert codec._decoders[wire.LeaveGroupRequest, 5] is first


def test_tracebacks_show_the_generated_line() -> None:
    """Without the source a traceback into generated code would show no line."""
    with pytest.raises(ProtocolError) as caught:
        wire.decode(wire.HeartbeatRequest, b"\0", 3)
    assert caught.value.__cause__ is not None
    shown = "".join(traceback.format_exception(caught.value.__cause__))
    assert "<aiokq.wire decode HeartbeatRequest v3>" in shown
    assert "unpack_from_h" in shown
    assert any(name.startswith("<aiokq.wire init") for name in linecache.cache)


def test_fixed_width_fields_are_read_in_one_call() -> None:
    """A fetched partition has a run of them: index, error, three offsets and a length."""
    source = compile.source_of(wire.FetchResponse, 12)
    assert "unpack_from_ihqqqB(b, p); p += 31" in source


def test_elements_of_no_size_are_refused() -> None:
    """Two billion elements of size zero would fit into four bytes."""

    class Nothing(Struct):
        number: int = i32(since=1)

    class Schema(Message):
        NAME = "Schema"
        MAX_VERSION = 1
        things: list[Nothing] = array(Nothing)

    assert wire.decode(Schema, b"\0\0\0\0", 0) == Schema()
    with pytest.raises(ProtocolError, match="no size"):
        wire.decode(Schema, b"\0\0\0\1", 0)
    assert wire.decode(Schema, b"\0\0\0\1\0\0\0\2", 1).things == [Nothing(number=2)]


def test_record_data_keeps_its_frame_and_nothing_else_does() -> None:
    """Metadata must not keep its frame alive."""
    assert has_records(wire.FetchResponse)
    assert has_records(wire.ProduceRequest)
    assert not has_records(wire.MetadataResponse)
    sasl = wire.decode(wire.SaslAuthenticateRequest, bytearray(b"\0\0\0\2ab"), 0)
    assert type(sasl.auth_bytes) is bytes


def steps(work):
    """Return the number of times that work yielded, and its result."""
    count = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_codecs_in_steps_yield_after_some_elements() -> None:
    """Elements of all arrays are counted together, however they are nested."""
    request = wire.MetadataRequest(
        topics=[wire.MetadataRequestTopic(name=f"t{number}") for number in range(1000)]
    )
    count, encoded = steps(codec.encode_in_steps(request, 9))
    assert count == 1000 // ELEMENTS_PER_STEP
    assert encoded == wire.encode(request, 9)
    count, decoded = steps(codec.decode_in_steps(wire.MetadataRequest, b"".join(encoded), 9))
    assert count == 1000 // ELEMENTS_PER_STEP
    assert decoded == request
    groups = wire.DeleteGroupsRequest(groups_names=[f"g{number}" for number in range(1000)])
    count, encoded = steps(codec.encode_in_steps(groups, 2))
    assert count == 1000 // ELEMENTS_PER_STEP
    assert steps(codec.decode_in_steps(wire.DeleteGroupsRequest, b"".join(encoded), 2)) == (
        count,
        groups,
    )


def test_codecs_in_steps_refuse_what_the_others_refuse() -> None:
    """The errors name the message and the offset."""
    with pytest.raises(ProtocolError, match="malformed HeartbeatRequest"):
        steps(codec.decode_in_steps(wire.HeartbeatRequest, b"\0", 3))
    with pytest.raises(ProtocolError, match="has versions"):
        steps(codec.decode_in_steps(wire.HeartbeatRequest, b"\0", 99))
    with pytest.raises(ProtocolError):
        steps(codec.encode_in_steps(wire.HeartbeatRequest(group_id="g" * 40_000), 0))
