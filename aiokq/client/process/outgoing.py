"""`Outgoing`: a record that a handler of `process()` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.producer.serializers import Headers

__all__ = ["Outgoing"]


@frozen
class Outgoing:
    """A record to send; the fields are the arguments of `Producer.send`.

    Attributes:
        topic: name of the topic.
        value: the value; None deletes the key in a compacted topic.
        key: determines the partition; None spreads records evenly.
        headers: (name, value) pairs.
        partition: number of the partition; overrides the key.
        timestamp_ms: milliseconds since 1970; the time of the sending if None.
    """

    topic: str
    value: object
    key: object = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
