"""Byte parity with two other libraries: they read what we write and write the same bytes again."""

from __future__ import annotations

import functools
import importlib
import io
import pkgutil
import re
from typing import Any

import pytest

from aiokq import wire
from aiokq.wire.struct import Message, Request, Response
from tests.property.wire.messages import filled, in_version, message_classes, pairs, versions
from tools.kafka_schema import snake_case

SEEDS = range(1, 4)

EXCHANGED = [cls for cls in message_classes() if issubclass(cls, (Request, Response))]
"""kafka-python has requests and responses only."""

SHARED = [cls for cls in message_classes() if cls.RECORD_TYPE is None]
"""kio has schemas too, but not those of the coordinators' records."""


def message_of(cls: type[Message], version: int, seed: int) -> Message:
    message = in_version(filled(cls, seed), version, flexible=cls.is_flexible(version))
    assert isinstance(message, Message)
    if cls is wire.ApiVersionsResponse:
        # kafka-python reads the answer to a refused version in the shape of version 0.
        assert isinstance(message, wire.ApiVersionsResponse)
        message.error_code = 0
    return message


def framed(message: Message, version: int) -> bytes:
    if isinstance(message, Request):
        fragments = wire.encode_request(message, version=version, correlation_id=7, client_id="me")
    else:
        assert isinstance(message, Response)
        fragments = wire.encode_response(message, version=version, correlation_id=7)
    return b"".join(fragments)  # type: ignore[arg-type]


@functools.cache
def kafka_python_classes() -> dict[str, Any]:
    package = pytest.importorskip("kafka.protocol", reason="NO BYTE PARITY: no kafka-python")
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(package.__path__, "kafka.protocol."):
        if ".old" not in module.name:
            found |= vars(importlib.import_module(module.name))
    return found


@pytest.mark.parametrize("cls", EXCHANGED, ids=lambda cls: cls.__name__)
def test_kafka_python_writes_the_same_frames(cls: type[Message]) -> None:
    """Versions that 4.0 dropped, which kio no longer has, are compared here, and all headers."""
    theirs = kafka_python_classes().get(cls.__name__)
    if theirs is None:
        pytest.skip(f"kafka-python has no {cls.__name__}")
    for version in versions(cls):
        for seed in SEEDS:
            ours = message_of(cls, version, seed)
            message = theirs.decode(wire.encode_bytes(ours, version), version=version)
            message._header, message._version = None, version
            message.with_header(**({"client_id": "me"} if isinstance(ours, Request) else {}))
            message.header.correlation_id = 7
            frame = bytes(message.encode(header=True, framed=True))
            assert framed(ours, version) == frame, version


def kio_schema(cls: type[Message], version: int) -> Any:
    """Return kio's class for a message version, or `None` if it has none."""
    index = pytest.importorskip("kio.index", reason="NO BYTE PARITY: no kio")
    kinds = importlib.import_module("kio.static.constants").EntityType
    suffix = re.search("(Request|Response)$", cls.__name__)
    kind = kinds[suffix[1].lower()] if suffix else kinds.data
    name = snake_case(re.sub("(Request|Response)$", "", cls.__name__))
    try:
        return index.load_entity_schema(name, version, kind)
    except index.UnknownEntity:
        return None


@pytest.mark.parametrize("cls", SHARED, ids=lambda cls: cls.__name__)
def test_kio_writes_the_same_bytes(cls: type[Message]) -> None:
    """kio is generated from the same definitions by other people."""
    compared = 0
    for version in versions(cls):
        theirs = kio_schema(cls, version)
        if theirs is None:
            continue
        serial = importlib.import_module("kio.serial")
        for seed in SEEDS:
            data = wire.encode_bytes(message_of(cls, version, seed), version)
            message, size = serial.entity_reader(theirs)(data, 0)
            assert size == len(data), version
            again = io.BytesIO()
            serial.entity_writer(theirs)(again, message)
            assert again.getvalue() == data, version
            compared += 1
    if not compared:
        pytest.skip(f"kio has no {cls.__name__}")


def test_every_message_but_the_coordinators_records_is_compared_with_a_peer() -> None:
    """Another release of a peer renames its classes, and every comparison above is skipped."""
    theirs = kafka_python_classes()
    alone = {
        (cls.__name__, version)
        for cls, version in pairs()
        if cls.RECORD_TYPE is None
        and not (cls in EXCHANGED and cls.__name__ in theirs)
        and kio_schema(cls, version) is None
    }
    assert not alone
    assert len([cls for cls, _ in pairs() if cls.RECORD_TYPE is None]) > 500
