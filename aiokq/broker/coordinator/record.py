"""A record of a coordinator's log, as the runtime and its shards pass it to each other."""

from __future__ import annotations

from aiokq.core.named_tuple import NamedTuple

__all__ = ["CoordinatorRecord"]


class CoordinatorRecord(NamedTuple):
    """A key and a value for `ShardFactory.encode`; their types depend on the coordinator."""

    key: object
    value: object
    """None for a tombstone, which removes the entry of the key."""
