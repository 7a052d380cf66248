"""The stream reader by version of Spark: options that a version cannot support are refused."""

from __future__ import annotations

import pickle

import pytest

from aiokq.errors import ConfigError
from aiokq.spark import stream_reader as module
from aiokq.spark.micro_batches import BatchLimit
from aiokq.spark.offsets import OffsetMap
from aiokq.spark.options import ReadOptions

types = pytest.importorskip("pyspark.sql.types")

SCHEMA = types.StructType([types.StructField("value", types.BinaryType())])


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse(
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t", **given}, streaming=True
    )


class MicroBatchPlanner:
    """Simulated planner, whose log grows by one with each call."""

    def __init__(self) -> None:
        self.started_at: list[object] = []
        self.planned: list[object] = []

    def initial(self) -> OffsetMap:
        return {"t": {"0": 5}}

    def next_end(self, start: OffsetMap | None, wanted: BatchLimit) -> OffsetMap:
        self.started_at.append(start)
        return {"t": {"0": 1 + (5 if start is None else start["t"]["0"])}}

    def ranges(self, start: OffsetMap, end: OffsetMap) -> list[object]:
        self.planned.append(start)
        return []


def test_limits_are_told_to_spark() -> None:
    """Spark passes the limit back in each call."""
    both = {"maxOffsetsPerTrigger": "7", "minOffsetsPerTrigger": "2"}

    def limit(**given: str) -> object:
        return module.stream_reader(options(**given), SCHEMA, 2).getDefaultReadLimit()

    assert limit(**both) == module.ReadMaxRows(7)
    assert limit(minOffsetsPerTrigger="2") == module.ReadMinRows(2)
    assert limit() == module.ReadAllAvailable()


def test_a_reader_goes_to_the_workers_without_what_its_process_knows() -> None:
    """Clients and loops cannot leave their process."""
    reader = module.stream_reader(options(), SCHEMA, 2)

    assert pickle.loads(pickle.dumps(reader))._planner is None


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_are_refused_where_spark_has_none(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If they were ignored, a batch would read everything at once."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)

    with pytest.raises(ConfigError, match=rf"option {option} needs PySpark 4\.2 or newer"):
        module.stream_reader(options(**{option: "5"}), SCHEMA, 2)


def test_a_spark_that_does_not_say_where_a_batch_starts_is_remembered_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PySpark 4.1 calls latestOffset() without arguments."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)
    reader = module.stream_reader(options(), SCHEMA, 2)
    assert isinstance(reader, module.UnlimitedStreamReader)
    progress = MicroBatchPlanner()
    monkeypatch.setattr(reader, "_planner", progress)

    reader.initialOffset()
    first = reader.latestOffset()
    reader.partitions({"t": {"0": 5}}, first)
    second = reader.latestOffset()

    assert progress.started_at == [{"t": {"0": 5}}, {"t": {"0": 6}}]
    assert second == {"t": {"0": 7}}


def test_after_a_restart_such_a_spark_tells_by_the_batch_it_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a Spark does not call initialOffset() after a restart."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)
    reader = module.stream_reader(options(), SCHEMA, 2)
    assert isinstance(reader, module.UnlimitedStreamReader)
    monkeypatch.setattr(reader, "_planner", MicroBatchPlanner())

    reader.partitions({"t": {"0": 8}}, {"t": {"0": 9}})

    assert reader.latestOffset() == {"t": {"0": 10}}


def test_such_a_spark_asks_for_the_end_before_the_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The end of the first batch has the start of the query; otherwise a crash in it left a gap."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)
    reader = module.stream_reader(options(), SCHEMA, 2)
    assert isinstance(reader, module.UnlimitedStreamReader)
    progress = MicroBatchPlanner()
    monkeypatch.setattr(reader, "_planner", progress)

    end = reader.latestOffset()

    assert progress.started_at == [{"t": {"0": 5}}]
    assert reader.initialOffset() == {"t": {"0": 5}}
    assert end == {"t": {"0": 6}}


def test_a_first_batch_without_rows_is_no_beginning_to_such_a_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: after a restart, records that had arrived meanwhile were skipped."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)
    reader = module.stream_reader(options(), SCHEMA, 2)
    progress = MicroBatchPlanner()
    monkeypatch.setattr(reader, "_planner", progress)
    began = "__aiokq_initial__.t"

    end = reader.latestOffset()
    reader.partitions({"t": {"0": 4}, began: {"0": 4}}, end)
    reader.partitions(reader.initialOffset(), end)

    assert progress.planned == [{"t": {"0": 4}}, {"t": {"0": 5}}]


def test_options_that_no_longer_fit_are_nothing_to_a_query_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """startingOffsets does not name a partition that was added later, and does not have to."""
    monkeypatch.setattr(module, "HAS_LIMITS", False)
    reader = module.stream_reader(options(), SCHEMA, 2)
    assert isinstance(reader, module.UnlimitedStreamReader)
    progress = MicroBatchPlanner()
    monkeypatch.setattr(reader, "_planner", progress)

    def refuse() -> None:
        raise ConfigError("partitions specified don't match")

    monkeypatch.setattr(progress, "initial", refuse)

    reader.latestOffset()

    assert progress.started_at == [None]
