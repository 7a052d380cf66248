"""The types of intake.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import final

from aiokq.fastpath.gateway.pool import Pool
from aiokq.fastpath.gateway.spool import SpoolWriter
from aiokq.fastpath.gateway.values import IntakeCounts

@final
class Intake:
    def __init__(
        self,
        pool: Pool,
        fd: int,
        transport: str,
        *,
        max_message_bytes: int = 65536,
        when_full: str = "discard",
        allowed_uids: Collection[int] | None = None,
        max_connections: int = 1024,
        idle_ms: int = 0,
        partial_ms: int = 0,
        idle_when_full_ms: int = 0,
        spool: SpoolWriter | None = None,
    ) -> None: ...
    def start(self) -> None: ...
    def change(
        self,
        *,
        max_message_bytes: int = 65536,
        when_full: str = "discard",
        max_connections: int = 1024,
        idle_ms: int = 0,
        partial_ms: int = 0,
        idle_when_full_ms: int = 0,
    ) -> None: ...
    def stop(self, *, drain_ms: int = 0) -> None: ...
    def counts(self) -> IntakeCounts: ...
