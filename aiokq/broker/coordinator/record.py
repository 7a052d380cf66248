"""A record of a coordinator's log as the runtime and its shards exchange it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.wire.struct import Message

__all__ = ["CoordinatorRecord"]


class CoordinatorRecord(NamedTuple):
    """A key and a value, which `ShardFactory.encode` encodes."""

    key: Message
    value: Message | None
    """None for a tombstone, which removes the entry of the key."""
