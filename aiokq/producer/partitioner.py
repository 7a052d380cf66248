"""Owns what a partitioner of the user's is; the default (murmur2, sticky) is in the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from aiokq.core.types import Buffer

__all__ = ["Partitioner"]


@runtime_checkable
class Partitioner(Protocol):
    """Chooses the partition of records that were sent without one.

    Runs on the event loop once per record: it must be quick and must not block.
    """

    def partition(
        self,
        topic: str,
        key: Buffer | None,
        value: Buffer | None,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int | None:
        """The partition for one record.

        Args:
            topic: of the record.
            key: after serialization.
            value: after serialization.
            partitions: all partitions of the topic, ascending; never empty.
            available: those that have a leader now; may be empty.

        Returns:
            A member of `partitions`, or None for the default: murmur2 of the key as in Java, or
            without a key one partition until a batch is full (KIP-480, KIP-794).
        """
        ...
