"""The types of pool.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, final

from aiokq.core.types import Buffer
from aiokq.fastpath.gateway.values import Message, PoolCounts, Refused, Sample

@final
class Taken:
    @property
    def count(self) -> int: ...
    @property
    def charge(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def oldest_ms(self) -> int: ...
    def __len__(self) -> int: ...
    def message(self, index: int) -> Message: ...
    def timestamps(self) -> tuple[int, int]: ...
    def sequences(self, rows: Iterable[int] | None = None) -> memoryview: ...
    def sizes(self) -> memoryview: ...
    def select(self, rows: Sequence[int]) -> Taken: ...
    def batches(self, messages: int, size: int) -> list[int]: ...
    def columns(
        self,
        *,
        partitions: int = 0,
        usable: Buffer | None = None,
        null_keys: bool = False,
        null_values: bool = False,
        earliest_ms: int = 0,
        latest_ms: int = ...,
        header: bytes = b"aiokq.timestamp",
    ) -> dict[str, Any]: ...

@final
class Pool:
    MESSAGE_OVERHEAD: Final[int]
    TOPIC_OVERHEAD: Final[int]
    @property
    def max_bytes(self) -> int: ...
    def __init__(
        self,
        max_bytes: int,
        *,
        wake_fd: int = -1,
        sample_bytes: int = 256,
        max_topic_names: int = 65536,
        refused_bytes: int = 0,
        refused_reasons: Collection[int] = (),
        refused_whole: Collection[int] = (),
        refused_prefix: int = -1,
        refused_per_s: int = 0,
        spooled: bool = False,
    ) -> None: ...
    def register(
        self,
        topic: bytes,
        *,
        batch_messages: int = 0,
        batch_bytes: int = 0,
        batch_ms: int = -1,
        max_message_bytes: int = -1,
        rate_interval_ms: int = 0,
        rate_max_messages: int = -1,
    ) -> int: ...
    def configure(
        self,
        slot: int,
        *,
        batch_messages: int = 0,
        batch_bytes: int = 0,
        batch_ms: int = -1,
        max_message_bytes: int = -1,
        rate_interval_ms: int = 0,
        rate_max_messages: int = -1,
    ) -> None: ...
    def forget(self, slot: int) -> None: ...
    def unresolved(self, limit: int = 1000) -> list[tuple[bytes, int]]: ...
    def discard_unresolved(self, topic: bytes, reason: int) -> int: ...
    def take_unresolved(self, topic: bytes) -> Taken | None: ...
    def due(self) -> tuple[list[int], int | None]: ...
    def take(self, slot: int, *, flush: bool = False, max_bytes: int = 0) -> Taken | None: ...
    def held(self, slot: int) -> tuple[int, int]: ...
    def release(self, messages: int, charge: int) -> None: ...
    def counts(self, *, topics: bool = False, new_window: bool = False) -> PoolCounts: ...
    def samples(self, *, clear: bool = False) -> list[Sample]: ...
    def refused(self) -> list[Refused]: ...
    def feed(
        self,
        data: Buffer,
        *,
        sequence: int = -1,
        replayed: bool = False,
        stop_when_full: bool = False,
        max_message_bytes: int = 0x7FFFFFFF,
        arrival_ms: int = -1,
    ) -> int: ...
    def finished(self) -> memoryview: ...
    def close(self) -> None: ...
    def set_clock(self, monotonic_ms: int, wall_ms: int) -> None: ...
