"""What the cluster lacks is told by the option that asked for it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from aiokq import Cluster, TopicDescription
from aiokq.errors import UnknownTopicOrPartition
from aiokq.spark.lookup import Lookup
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


@pytest.mark.parametrize(("option", "value"), [("subscribe", "nope"), ("assign", '{"nope":[0]}')])
async def test_a_missing_topic_is_told_by_its_option(option: str, value: str) -> None:
    """Kafka's own words, about a server that does not host it, name neither."""
    options = ReadOptions.parse({"kafka.bootstrap.servers": "a:1", option: value}, streaming=False)
    lookup = Lookup(cast(Cluster, Nothing()), options)
    with pytest.raises(UnknownTopicOrPartition, match=f"option {option}: there is no topic 'nope'"):
        await lookup.partitions()
