"""The types of outgoing.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeAlias, TypeVar, final

from aiokq.core.types import Buffer
from aiokq.fastpath.produce.accumulator import Accumulator
from aiokq.fastpath.produce.deliveries import Delivery

Headers: TypeAlias = Sequence[tuple[str, Buffer | None]]
T = TypeVar("T")

class Outgoing:
    def __init__(
        self,
        topic: str,
        value: object,
        key: object = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def value(self) -> object: ...
    @property
    def key(self) -> object: ...
    @property
    def headers(self) -> Headers | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def timestamp_ms(self) -> int | None: ...

@final
class HandlerResults(Generic[T]):
    def __init__(self, accumulator: Accumulator, direct: bool, holds: bool = False) -> None: ...
    @property
    def held_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def handle(
        self,
        handler: Callable[[T], object],
        items: list[T],
        start: int,
        stop: int,
        seconds: float,
        ended: Callable[[], bool],
    ) -> tuple[int, object, BaseException | None]: ...
    def append(self, item: T, outputs: list[Outgoing], start: int) -> int: ...
    def add(self, item: T, delivery: Delivery) -> None: ...
    def release(self) -> list[tuple[T, Outgoing]]: ...
    def failures(self) -> list[tuple[T, BaseException]]: ...
