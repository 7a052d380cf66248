"""Errors of a load are reported before Spark starts, in terms of the load's options."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.data_loss import DataLoss, Losses
from aiokq.spark.loading import preflight
from aiokq.spark.loading.option_errors import in_words_of_load, refusal_of_load
from aiokq.spark.loading.options import LoadOptions, OptionError
from aiokq.spark.loading.preflight import look
from aiokq.spark.offset_reader import Ends, OffsetReader, Partitions

T = TypeVar("T")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Logs(OffsetReader):
    """Two partitions of ten records, of the last hour."""

    def __init__(self, cluster: object, options: Any, timeout: float | None = None) -> None:
        self._options = options

    async def partitions(self, *, missing_ok: bool = False) -> Partitions:
        return Partitions({T0: 0, T1: 0})

    async def ends(self, partitions: object) -> Ends:
        return Ends({T0: 2, T1: 2}, {T0: 10, T1: 10})


class Client:
    """Stands in for the client of the worker."""

    cluster = SimpleNamespace(metadata=SimpleNamespace(cluster_id="c"))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)


def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> preflight.Preflight:
    monkeypatch.setattr(preflight, "OffsetReader", Logs)
    monkeypatch.setattr(preflight, "worker_client", lambda kafka: Client())
    options = LoadOptions(to=tmp_path, topics=("t",), kafka={"bootstrap.servers": "a:1"}, **changes)
    return look(options, None)


@pytest.mark.parametrize(
    ("starting", "problem"),
    [
        (
            '{"t":{"0":99,"1":0}}',
            "t-0 ends at 10, before 99; with fail_on_data_loss=False the load",
        ),
        ('{"t":{"0":-3,"1":0}}', "-3 of t-0 is not an offset"),
        ('{"t":{"0":0}}', "Partitions specified for Kafka starting offsets don't match"),
    ],
)
def test_a_beginning_that_no_log_has_is_told_by_the_loads_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting: str, problem: str
) -> None:
    """Regression: it was reported after Spark's start, with an option that nobody had typed."""
    with pytest.raises(OptionError) as caught:
        begun(tmp_path, monkeypatch, starting=starting)
    assert caught.value.option == "starting"
    assert caught.value.problem.startswith(problem)


def test_a_beginning_beyond_the_end_is_the_end_where_losses_are_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the query determines it; the progress bar counts what will be loaded."""
    found = begun(tmp_path, monkeypatch, starting='{"t":{"0":99,"1":-2}}', fail_on_data_loss=False)
    assert found.missing == {T0: 0, T1: 8}


def test_what_the_source_refuses_later_is_told_by_the_loads_options() -> None:
    """A topic that was deleted meanwhile, or that lost records before they were loaded."""
    late = refusal_of_load(ConfigError("option startingOffsets: t-0 ends at 1, before 9"))
    assert isinstance(late, OptionError)
    assert (late.option, late.problem) == ("starting", "t-0 ends at 1, before 9")
    other = ConfigError("option kafka.colour: no")
    assert refusal_of_load(other) is other
    assert in_words_of_load("option subscribe: there is no topic 't'") == (
        "topics: there is no topic 't'"
    )


def test_a_loss_is_told_with_the_loads_option() -> None:
    """The source's advice, failOnDataLoss, names an option that a load does not have."""
    with pytest.raises(DataLoss) as caught:
        Losses(True).start_reset(T0, 3, 7)
    assert in_words_of_load(caught.value.message.replace("\n", " ")) == (
        "records may have been deleted before they were loaded, by retention or with their "
        "topic: Starting offset for t-0 was 3 but consumer reset to 7. With "
        "fail_on_data_loss=False the load continues"
    )


def test_a_beginning_that_is_no_json_is_told_by_the_loads_option(tmp_path: Path) -> None:
    """Users of --from do not know startingOffsets."""
    options = LoadOptions(
        to=tmp_path, topics=("t",), kafka={"bootstrap.servers": "a:1"}, starting='{"t":'
    )
    with pytest.raises(OptionError, match=r"^starting: Expected e\.g\.") as caught:
        look(options, None)
    assert caught.value.option == "starting"
