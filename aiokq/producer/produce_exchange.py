"""EncodedProduce and ProduceAnswers: an encoded Produce request, and its usual response.

From version `FIRST_ENCODED` of Produce on, the sender creates no message objects for the topics and
batches of a request, nor for those of a response in which every batch was appended. Other requests
and responses are `ProduceRequest` and `ProduceResponse` objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.fastpath.produce import read_answers
from aiokq.wire.codec import decode, set_decoder, set_encoder
from aiokq.wire.produce import ProduceRequest, ProduceResponse
from aiokq.wire.struct import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.core.types import Buffer
    from aiokq.fastpath.produce import Answer
    from aiokq.wire.fields import Fragment
    from aiokq.wire.struct import Message

__all__ = ["FIRST_ENCODED", "EncodedProduce", "ProduceAnswers"]

FIRST_ENCODED: Final = 9
"""The first version of Produce that `produce_body` encodes."""


class EncodedProduce(ProduceRequest):
    """A Produce request of version `FIRST_ENCODED` or later, whose body `produce_body` encoded."""

    __slots__ = ("body",)

    def __init__(self, body: list[Fragment]) -> None:
        self.body = body


class ProduceAnswers(Response, request=EncodedProduce):
    """A Produce response in which every batch was appended; see `read_answers`."""

    __slots__ = ("answers", "throttle_time_ms")

    def __init__(self, throttle_time_ms: int, answers: Sequence[Answer]) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.answers = answers


def _body(message: Message) -> list[Fragment]:
    assert isinstance(message, EncodedProduce)
    return message.body


def _set_codecs(version: int) -> None:
    def read(data: Buffer, position: int, exact: bool = True) -> ProduceAnswers | ProduceResponse:
        found = read_answers(data, position, version)
        if found is None:
            return decode(ProduceResponse, data, version, position, exact=exact)
        return ProduceAnswers(*found)

    set_encoder(EncodedProduce, version, _body)
    set_decoder(ProduceAnswers, version, read)


for _version in range(FIRST_ENCODED, ProduceRequest.MAX_VERSION + 1):
    _set_codecs(_version)
