"""The types of messages.py and of the extension compiled from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from aiokq.core.types import Buffer

TopicBatches: TypeAlias = tuple[str, bytes, Sequence[tuple[int, memoryview]]]
"""(name, id, batches), each batch with its partition."""

Answer: TypeAlias = tuple[str | bytes, int, int, int]
"""(topic name or id, partition, base offset, log append time or -1)."""

def produce_body(
    version: int,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
    topics: Sequence[TopicBatches],
) -> list[bytes | memoryview] | None: ...
def read_answers(data: Buffer, position: int, version: int) -> tuple[int, list[Answer]] | None: ...
