"""Frames of a consumer's batches: their contents, and what an error leaves of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokq.consumer.buffers import extent
from aiokq.consumer.reader import BatchStream, Reader
from aiokq.core.errors import CorruptRecord
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.spark.record_frames import frames
from tests.unit.consumer.test_record_source import World

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Session:
    """Stands in for a Connect session; a frame is its table."""

    __module__ = "pyspark.sql.connect.session"

    def addTag(self, tag: str) -> None: ...

    def clearTags(self) -> None: ...

    def createDataFrame(self, table: Any) -> Any:
        return table


def damaged(world: World, number: int) -> None:
    """Add a chunk of offsets 0 to 5, in batches of two, whose middle one does not decompress."""
    state = world.partition(number)
    data = b""
    for first in (0, 2, 4):
        records = [RawRecord(first + n, 1, None, b"x") for n in range(2)]
        data += encode_batch(records, crc32c=crc32c, attributes=int(first == 2))
    view = memoryview(data)
    frame = world.buffers.frame(len(view))
    chunk = world.buffers.chunk(frame, "t", number, view, 0, extent(view).end_offset, None)
    state.chunks.append(chunk)
    state.queued_bytes += chunk.size
    state.fetch_offset = 6
    world.source.arrived(state)


async def of_all(found: list[Any], source: AsyncIterator[Any]) -> None:
    async for part in source:
        rows = zip(
            part.frame.column("partition").to_pylist(),
            part.frame.column("offset").to_pylist(),
            strict=True,
        )
        found.append((list(rows), part.offsets))


async def test_what_came_before_damage_is_in_a_frame_before_the_error_is_raised() -> None:
    """Regression: batches were decoded after several had been requested.

    Positions were then after the damage, and the batches before it were lost.
    """
    world = World()
    world.fetched(world.partition(0), 3)
    damaged(world, 1)
    reader = Reader(world.source, world.buffers, None)
    found: list[Any] = []
    columns = ["partition", "offset"]

    def source() -> Any:
        return frames(Session(), BatchStream(reader), max_wait=0.05, columns=columns)  # type: ignore[arg-type]

    with pytest.raises(CorruptRecord, match="offset 2 of t-1"):
        await of_all(found, source())
    assert found == [([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)], {T0: 3, T1: 2})]
    assert world.source.states[T1].position == 2

    world.fetched(world.source.states[T0], 1)
    more = await anext(source())
    assert more.offsets == {T0: 4}, "the others go on"
    assert world.source.states[T1].position == 2
