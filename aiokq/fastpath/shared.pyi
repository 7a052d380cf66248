"""The types of shared.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from aiokq.core.types import Buffer

SOURCE_HASH: Final[str]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def murmur2(key: Buffer) -> int: ...
def partition_for_key(key: Buffer, partitions: int) -> int: ...

@final
class LoopGuard:
    def __init__(self, check: Callable[[], None] | None = None) -> None: ...
    def require(self) -> None: ...
    def forget(self) -> None: ...
