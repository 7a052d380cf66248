"""What a batch reads of each partition, by options, contents of the log, and filters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.data_loss import DataLoss
from aiokq.spark.offset_reader import Ends, OffsetReader, Partitions
from aiokq.spark.offsets import PartitionOffsets
from aiokq.spark.options import ReadOptions

pytest.importorskip("pyspark")

from aiokq.spark.batch_reader import _ranges

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
LOGS = {T0: range(5, 100), T1: range(50), T2: range(0)}


class Logs(OffsetReader):
    """Simulated logs from one offset to another, and the first young offset of some."""

    def __init__(self, options: ReadOptions, young: PartitionOffsets) -> None:
        self._options = options
        self.young = young

    async def partitions(self, *, missing_ok: bool = False) -> Partitions:
        return Partitions(dict.fromkeys(LOGS, 0))

    async def ends(self, partitions: Iterable[TopicPartition]) -> Ends:
        return Ends(*({tp: getattr(LOGS[tp], at) for tp in LOGS} for at in ("start", "stop")))

    async def first_since(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> PartitionOffsets:
        return self.young


def ranges(
    since_ms: int | None = None, young: PartitionOffsets | None = None, **given: Any
) -> list[tuple[int, int, int]]:
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t"}
        | {name: v if isinstance(v, str) else json.dumps({"t": v}) for name, v in given.items()},
        streaming=False,
    )
    offset_reader = cast("OffsetReader", Logs(options, young or {}))
    found = asyncio.run(_ranges(offset_reader, options, since_ms))
    return [(part.partition, part.start, part.stop) for part in found]


def test_a_batch_is_all_there_is() -> None:
    """Unless options limit it."""
    assert ranges() == [(0, 5, 100), (1, 0, 50), (2, 0, 0)]


def test_a_filter_by_time_begins_at_the_first_record_that_young() -> None:
    """Regression: a partition without young records was read completely for nothing."""
    assert ranges(1_700_000_000_000, {T0: 90}) == [(0, 90, 100), (1, 50, 50), (2, 0, 0)]


def test_a_filter_by_time_keeps_to_the_offsets_asked_for() -> None:
    """A filter makes a range shorter, never longer."""
    given = {
        "startingOffsets": {"0": 20, "1": 10, "2": -2},
        "endingOffsets": {"0": 40, "1": 30, "2": -1},
    }
    assert ranges(1, {T0: 7, T1: 45}, **given) == [(0, 20, 40), (1, 30, 30), (2, 0, 0)]


def test_offsets_that_are_not_there_are_a_loss_or_are_left_out() -> None:
    """failOnDataLoss, both ways; a range that ends before its start is an error."""
    given = {
        "startingOffsets": {"0": 0, "1": 0, "2": -2},
        "endingOffsets": {"0": -1, "1": 60, "2": -1},
    }
    with pytest.raises(DataLoss, match="START_OFFSET_RESET"):
        ranges(**given)
    assert ranges(failOnDataLoss="false", **given) == [(0, 5, 100), (1, 0, 50), (2, 0, 0)]
    with pytest.raises(ConfigError, match="start offset 70 is greater than the resolved end"):
        ranges(startingOffsets={"0": 5, "1": 70, "2": 0})
