"""The nodes of the registry view, with the contents that ZooKeeper had."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from aiokq.admin.group_types import GroupDescription, MemberDescription
from aiokq.client.registry_tree import (
    group_name,
    group_node,
    metadata_node,
    node_name,
    parse_path,
)
from aiokq.cluster.metadata import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from aiokq.core.types import OffsetAndMetadata, TopicPartition

METADATA = ClusterMetadata(
    brokers={2: BrokerInfo(2, "::1", 9093), 1: BrokerInfo(1, "h", 9092, "r")},
    topics={
        "t": TopicInfo("t", UUID(int=1), partitions={0: PartitionInfo(0, 1, 4, (1, 2), (1,))}),
        "old": TopicInfo("old"),
    },
)
GROUP = GroupDescription(
    "g/1",
    members=(
        MemberDescription(
            "m/1", "c", "h", subscription=("t",), assignment=(TopicPartition("t", 0),)
        ),
        MemberDescription("m2", "c", "h", subscription_regex="t.*"),
    ),
)


def look(path: str, protocol: str = "PLAINTEXT") -> Any:
    return metadata_node(METADATA, parse_path(path), security_protocol=protocol)


def look_group(path: str) -> Any:
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5), TopicPartition("t", 1): None}
    return group_node(parse_path(path), GROUP, offsets)


def test_every_child_that_is_listed_exists() -> None:
    """A walk of the whole tree must find all nodes."""
    seen = 0
    pending = ["/"]
    while pending:
        path = pending.pop()
        seen += 1
        if path != "/consumers":
            node = look(path)
            assert node.path == path
            pending += [f"{path.rstrip('/')}/{child}" for child in node.children]
    assert seen == 13
    pending = ["/"]
    while pending:
        path = pending.pop()
        node = look_group(path)
        pending += [f"{path.rstrip('/')}/{child}" for child in node.children]


def test_broker_nodes_have_the_format_of_kafka() -> None:
    """Old tools read host and port, newer ones the endpoints."""
    assert look("/brokers/ids").children == ("1", "2")
    assert json.loads(look("/brokers/ids/1").data) == {
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://h:9092"],
        "jmx_port": -1,
        "host": "h",
        "timestamp": "-1",
        "port": 9092,
        "version": 4,
        "rack": "r",
    }
    secure = json.loads(look("/brokers/ids/2", "SASL_SSL").data)
    assert (secure["host"], secure["port"]) == (None, -1)
    assert secure["endpoints"] == ["SASL_SSL://[::1]:9093"]


def test_topic_nodes_have_the_format_of_kafka() -> None:
    """Since 2.8 they contain the topic id in Base64."""
    assert json.loads(look("/brokers/topics/t").data) == {
        "removing_replicas": {},
        "partitions": {"0": [1, 2]},
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "adding_replicas": {},
        "version": 3,
    }
    assert json.loads(look("/brokers/topics/old").data)["version"] == 2
    assert look("/brokers/topics/t/partitions/0/state").data == (
        '{"controller_epoch":-1,"leader":1,"version":1,"leader_epoch":4,"isr":[1]}'
    )


def test_group_nodes_have_the_format_of_the_old_consumers() -> None:
    """Member ids with a slash are escaped, because they are node names."""
    assert look_group("/ids").children == ("m%2F1", "m2")
    assert json.loads(look_group("/ids/m%2F1").data) == {
        "version": 1,
        "subscription": {"t": 1},
        "pattern": "static",
        "timestamp": "-1",
    }
    member = json.loads(look_group("/ids/m2").data)
    assert (member["pattern"], member["subscription"]) == ("white_list", {"t.*": 1})
    assert look_group("/owners/t/0").data == "m/1-0"
    assert look_group("/offsets/t").children == ("0",)
    assert look_group("/offsets/t/0").data == "5"
    assert look_group("/offsets/t/0").path == "/consumers/g%2F1/offsets/t/0"


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/brokers/x",
        "/brokers/ids/3",
        "/brokers/ids/01",
        "/brokers/ids/-1",
        "/brokers/ids/1/x",
        "/brokers/topics/none",
        "/brokers/topics/t/x",
        "/brokers/topics/t/partitions/1",
        "/brokers/topics/t/partitions/0/x",
        "/brokers/topics/t/partitions/0/state/x",
    ],
)
def test_missing_objects_have_no_node(path: str) -> None:
    """Also if the name only resembles a number."""
    assert look(path) is None


@pytest.mark.parametrize(
    "path",
    ["/x", "/ids/none", "/ids/m2/x", "/offsets/t/1", "/offsets/none", "/owners/t/0/x"],
)
def test_a_group_has_no_other_nodes(path: str) -> None:
    """A partition without a committed offset has no offset node."""
    assert look_group(path) is None


def test_group_names_can_be_read_back_from_node_names() -> None:
    """Any group name is allowed."""
    for name in ("a", "a/b", "%2F", "a%25/%2f"):
        assert "/" not in node_name(name)
        assert group_name(node_name(name)) == name
    for wrong in ("brokers", "", "/brokers//ids"):
        with pytest.raises(ValueError, match="not a path"):
            parse_path(wrong)
