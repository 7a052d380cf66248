"""Every message in every version: compiled code equals the interpreter, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq import wire
from aiokq.connection.turn import at_once
from aiokq.wire import interpret
from aiokq.wire.codec import decode_in_steps, encode_in_steps
from aiokq.wire.struct import Message
from tests.property.wire.messages import in_version, message_classes, structs, versions


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_any_message_survives_the_wire_in_every_version(
    cls: type[Message], data: st.DataObject
) -> None:
    """A field read where it was not written shifts all that follow, in one version only."""
    drawn = data.draw(structs(cls))
    for version in versions(cls):
        message = in_version(drawn, version, flexible=cls.is_flexible(version))
        assert isinstance(message, Message)
        encoded = wire.encode_bytes(message, version)
        assert encoded == interpret.encode(message, version)
        assert wire.decode(cls, encoded, version) == message
        assert interpret.decode(cls, encoded, version) == message
        assert b"".join(at_once(encode_in_steps(message, version))) == encoded
        assert at_once(decode_in_steps(cls, encoded, version)) == message
        # Whatever the buffer the frame arrived in.
        assert wire.decode(cls, memoryview(bytearray(b"head" + encoded)), version, 4) == message


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_values_that_a_version_cannot_carry_are_refused_by_both_codecs(
    cls: type[Message], data: st.DataObject
) -> None:
    """A field that is dropped silently changes what the request means."""
    message = data.draw(structs(cls))
    assert isinstance(message, Message)
    for version in versions(cls):
        outcomes = []
        for encode in (wire.encode_bytes, interpret.encode):
            try:
                outcomes.append((encode(message, version), None))
            except wire.FieldNotSupported:
                outcomes.append((b"", wire.FieldNotSupported))
            except interpret.ProtocolError:
                outcomes.append((b"", interpret.ProtocolError))
        if outcomes[0][1] is None or outcomes[1][1] is None:
            assert outcomes[0] == outcomes[1]
