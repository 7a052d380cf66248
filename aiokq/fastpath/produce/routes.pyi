"""The types of routes.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from aiokq.fastpath.produce.batch import Batch, Slot

@final
class Route:
    @property
    def topic(self) -> str: ...
    @property
    def slots(self) -> Sequence[Slot]: ...
    @property
    def partitions(self) -> int: ...
    @property
    def available(self) -> tuple[int, ...]: ...
    @property
    def pending(self) -> Sequence[Batch]: ...
