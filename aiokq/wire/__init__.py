"""Kafka's messages: typed classes and the functions that encode and decode them.

`aiokq.connection` sends and receives these messages. `aiokq.records` encodes and decodes record
batches.

One class represents all versions of a message, such as `MetadataRequest`. Nested structs are
classes, too. The classes have Kafka's names and defaults; their fields are keyword arguments in
snake_case::

    from aiokq import wire

    fragments = wire.encode_request(
        wire.MetadataRequest(topics=None), version=12, correlation_id=1, client_id="me"
    )
    # Send the fragments. Receive the response as `frame`, without its 4-byte size.
    correlation_id, response = wire.decode_response(wire.MetadataResponse, frame, 12)

Decoding raises `ProtocolError`, and no other error, if the bytes are not the expected message.
Message classes are imported on first use; type checkers find them in the generated `__init__.pyi`.
`tools/generate_messages.py` describes how to add an API.
"""

from __future__ import annotations

import importlib

from aiokq.wire.catalog import API_NAMES, MODULES, api
from aiokq.wire.codec import decode, decode_prefixed, encode, encode_bytes, encode_prefixed
from aiokq.wire.fields import ZERO_UUID, Buffer, Fragment, Records
from aiokq.wire.frames import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    peek_correlation_id,
)
from aiokq.wire.primitives import FieldNotSupported
from aiokq.wire.struct import NO_TAGS, Message, Request, Response, Struct

_MODULE_OF = {name: module for module, names in MODULES.items() for name in names.split()}

__all__ = [
    "api",
    "decode",
    "decode_prefixed",
    "decode_request",
    "decode_request_header",
    "decode_response",
    "encode",
    "encode_bytes",
    "encode_prefixed",
    "encode_request",
    "encode_response",
    "peek_correlation_id",
    "API_NAMES",
    "NO_TAGS",
    "ZERO_UUID",
    "Buffer",
    "FieldNotSupported",
    "Fragment",
    "Message",
    "Records",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    *sorted(_MODULE_OF),
]


def __getattr__(name: str) -> object:
    """Import a message class on first use (PEP 562)."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"aiokq.wire.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, including those of classes that are not imported yet."""
    return sorted(__all__)
