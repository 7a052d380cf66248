"""Assignments that Kafka's own assignors made for random groups; see tests/golden/assign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aiokq.assign.model import Subscription, Topology
from aiokq.core.types import TopicPartition

GROUPS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "assign" / "assignments.json").read_text()
)


def topology(group: dict[str, Any]) -> Topology:
    return Topology(
        group["partitions"],
        {
            TopicPartition(topic, number): frozenset(racks)
            for topic, partitions in group["racks"].items()
            for number, racks in enumerate(partitions)
        },
    )


def subscriptions(group: dict[str, Any]) -> dict[str, Subscription]:
    return {
        member: Subscription(
            tuple(topics),
            rack=group["member_racks"].get(member),
            group_instance_id=group["instances"].get(member),
        )
        for member, topics in group["subscriptions"].items()
    }


def partitions(rows: list[list[Any]]) -> list[TopicPartition]:
    return [TopicPartition(*row) for row in rows]
