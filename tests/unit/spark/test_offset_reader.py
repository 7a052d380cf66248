"""Errors of lookups name the option that asked for missing topics or offsets."""

from __future__ import annotations

from typing import Any, Literal, cast
from uuid import UUID

import pytest

from aiokq import Cluster, OffsetListing, TopicDescription, TopicPartition
from aiokq.errors import ConfigError, UnknownTopicOrPartition
from aiokq.spark.offset_reader import Ends, OffsetReader
from aiokq.spark.options import ReadOptions


class Nothing:
    """A cluster without topics."""

    def admin(self) -> Nothing:
        return self

    async def start(self) -> None: ...

    async def describe_topics(self, names: list[str], timeout: float | None) -> dict[str, Any]:
        return {
            name: TopicDescription(name, error=UnknownTopicOrPartition(topic_partition=name))
            for name in names
        }


class Named(Nothing):
    """A cluster with topics of these names, without partitions."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def list_topics(self, timeout: float | None) -> dict[str, None]:
        return dict.fromkeys(self.names)

    async def describe_topics(self, names: list[str], timeout: float | None) -> dict[str, Any]:
        return {name: TopicDescription(name, topic_id=UUID(int=len(name))) for name in names}


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", {"orders", "orders-eu", "all-orders"}),
        ("^orders", {"orders", "orders-eu"}),
        ("^orders$", {"orders"}),
        ("^(?:eu|us)$", set()),
    ],
)
async def test_a_pattern_is_found_anywhere_in_a_name(pattern: str, found: set[str]) -> None:
    """As in Spark's own connector; otherwise a migrated job would silently miss topics."""
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": "a:1", "subscribePattern": pattern}, streaming=False
    )
    cluster = Named("orders", "orders-eu", "all-orders", "bills")
    partitions = await OffsetReader(cast(Cluster, cluster), options).partitions()
    assert partitions.topic_ids.keys() == found


class Old(Nothing):
    """A cluster without a record at or after the requested time."""

    async def list_offsets(
        self, wanted: dict[TopicPartition, int], **_: Any
    ) -> dict[TopicPartition, OffsetListing]:
        return {tp: OffsetListing(tp) for tp in wanted}


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("startingOffsets", '{"t":{"0":0}}', "Partitions specified for Kafka starting offsets"),
        ("endingOffsets", '{"t":{"0":0}}', "Partitions specified for Kafka ending offsets"),
        ("startingTimestamp", "9", "No offset matched"),
        ("startingOffsetsByTimestamp", '{"t":{"0":9,"1":9}}', "No offset matched"),
        ("endingOffsetsByTimestamp", '{"t":{"0":9}}', "Partitions specified for Kafka timestamp"),
    ],
)
async def test_limits_that_do_not_fit_are_told_by_their_option(
    option: str, value: str, told: str
) -> None:
    """Four options can set the start, and Spark's message does not say which one was used."""
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", option: value}
    options = ReadOptions.parse(given, streaming=False)
    offset_reader = OffsetReader(cast(Cluster, Old()), options)
    tps = [TopicPartition("t", 0), TopicPartition("t", 1)]
    ends = Ends(dict.fromkeys(tps, 0), dict.fromkeys(tps, 5))
    which: Literal["starting", "ending"] = "ending" if option.startswith("e") else "starting"
    limit = options.ending if which == "ending" else options.starting
    with pytest.raises(ConfigError, match=f"option {option}: {told}"):
        await offset_reader.resolve(limit, tps, ends, which)


@pytest.mark.parametrize(("option", "value"), [("subscribe", "nope"), ("assign", '{"nope":[0]}')])
async def test_a_missing_topic_is_told_by_its_option(option: str, value: str) -> None:
    """Kafka's message, "This server does not host this topic-partition", names neither."""
    options = ReadOptions.parse({"kafka.bootstrap.servers": "a:1", option: value}, streaming=False)
    offset_reader = OffsetReader(cast(Cluster, Nothing()), options)
    with pytest.raises(UnknownTopicOrPartition, match=f"option {option}: there is no topic 'nope'"):
        await offset_reader.partitions()
