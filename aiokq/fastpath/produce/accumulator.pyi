"""The types of accumulator.py and of the extension compiled from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, final

from aiokq.core.clock import Clock
from aiokq.core.errors import KafkaError
from aiokq.core.types import Buffer
from aiokq.fastpath.produce.batch import Batch, PlainRecord, Slot, SlotOwner
from aiokq.fastpath.produce.columns import RecordColumns
from aiokq.fastpath.produce.deliveries import Deliveries, Delivery
from aiokq.fastpath.produce.routes import Route
from aiokq.fastpath.shared import LoopGuard

Headers: TypeAlias = Iterable[tuple[str, Buffer | None]]

RecordTuple: TypeAlias = (
    tuple[Buffer | None, Buffer | None]
    | tuple[Buffer | None, Buffer | None, Headers | None]
    | tuple[Buffer | None, Buffer | None, Headers | None, int | None]
)
"""(key, value[, headers[, timestamp_ms]])."""

@final
class Accumulator:
    on_unknown_topic: Callable[[str], None] | None
    on_memory_freed: Callable[[], None] | None
    on_refused: Callable[[Batch], None] | None
    on_bug: Callable[[str, Exception], BaseException] | None
    choose: Callable[[str], int] | None
    loop: asyncio.AbstractEventLoop | None
    waiting: int
    def __init__(
        self,
        *,
        batch_size: int,
        buffer_memory: int,
        max_record_bytes: int,
        clock: Clock | None = None,
        on_unknown_topic: Callable[[str], None] | None = None,
        on_memory_freed: Callable[[], None] | None = None,
        on_refused: Callable[[Batch], None] | None = None,
        on_bug: Callable[[str, Exception], BaseException] | None = None,
        choose: Callable[[str], int] | None = None,
        seed: int = 0,
        ignore_keys: bool = False,
        guard: LoopGuard | None = None,
    ) -> None: ...
    @property
    def guard(self) -> LoopGuard: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def buffer_memory(self) -> int: ...
    @property
    def max_record_bytes(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def refusal(self) -> KafkaError | None: ...
    @property
    def used_bytes(self) -> int: ...
    def has_memory(self, size: int) -> bool: ...
    def append(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery: ...
    def append_waited(
        self,
        topic: str,
        value: Buffer | None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> Delivery: ...
    def append_many(
        self,
        topic: str,
        records: Sequence[RecordTuple],
        partition: int | None = None,
        *,
        start: int = 0,
        into: Deliveries | None = None,
        waited: bool = False,
    ) -> tuple[Deliveries, int]: ...
    def append_columns(
        self,
        topic: str,
        columns: RecordColumns,
        *,
        start: int = 0,
        into: Deliveries | None = None,
        waited: bool = False,
    ) -> tuple[Deliveries, int]: ...
    def route(self, topic: str) -> Route | None: ...
    def set_route(
        self,
        topic: str,
        partitions: int,
        available: Iterable[int],
        owner_factory: Callable[[Slot], SlotOwner | None],
    ) -> Route: ...
    def forget_route(self, topic: str) -> None: ...
    def pending(self, topic: str) -> tuple[Batch, ...]: ...
    def resolve_pending(self, topic: str) -> int: ...
    def fail_pending(self, topic: str, error: BaseException) -> int: ...
    def new_batch(
        self, slot: Slot, records: Iterable[PlainRecord], created: float | None = None
    ) -> tuple[Batch, list[Delivery]]: ...
    def release(self, batch: Batch) -> None: ...
    def refuse(self, error: KafkaError | None) -> None: ...
    def check_accepts(self) -> None: ...
    def close(self) -> None: ...
