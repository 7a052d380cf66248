"""Reading dumps of ZooKeeper: offsets, invalid offsets, and unrelated nodes."""

from __future__ import annotations

import json

import pytest

from aiokq.admin.zookeeper import read_dump
from aiokq.core.errors import ConfigError
from aiokq.core.types import TopicPartition

EXPORTED = """\
/consumers/billing/offsets/orders/0:286894308
/consumers/billing/offsets/orders/1:284803985
/consumers/audit/offsets/orders/0:7
"""
OFFSETS = {
    "audit": {TopicPartition("orders", 0): 7},
    "billing": {TopicPartition("orders", 0): 286894308, TopicPartition("orders", 1): 284803985},
}


def test_an_export_of_kafkas_tool_is_read() -> None:
    """The file is written by `kafka.tools.ExportZkOffsets --output-file`."""
    found = read_dump(EXPORTED)
    assert (found.groups, found.problems, found.others) == (OFFSETS, [], 0)
    assert found.only(["audit", "none"]).groups == {"audit": OFFSETS["audit"]}


def test_lines_with_tabs_comments_chroots_and_other_nodes_are_read() -> None:
    """A dump of the whole tree that was made by a script."""
    text = """\
# made on a Sunday

/kafka/consumers/audit/offsets/orders/0\t7
  /kafka/consumers/billing/offsets/orders/0 : 286894308\r
/kafka/consumers/billing/offsets/orders/1\t284803985
/kafka/consumers/billing/owners/orders/0\tbilling_host:9-0
/kafka/brokers/ids/0\t{"host":"h","port":9092}
/kafka/consumers/billing/offsets/orders
"""
    found = read_dump(text)
    assert (found.groups, found.problems, found.others) == (OFFSETS, [], 3)


def test_json_of_zk_shell_and_plain_objects_are_read() -> None:
    """Written by zk-shell: `cp zk://host/consumers json://!tmp!dump.json/consumers true true`."""
    nodes = dict(line.split(":") for line in EXPORTED.splitlines())
    shell = {path: {"content": value, "acls": []} for path, value in nodes.items()}
    shell["/consumers/audit/offsets"] = {"content": "", "acls": []}
    assert read_dump(json.dumps(shell)).groups == OFFSETS
    assert read_dump(json.dumps(nodes)).groups == OFFSETS
    assert read_dump(json.dumps({path: int(value) for path, value in nodes.items()})).groups
    for wrong in ("[]", "{", '["/consumers/a/offsets/t/0"]', "[" * 100_000):
        with pytest.raises(ConfigError, match="dump"):
            read_dump(wrong)


@pytest.mark.parametrize(
    "value", ["", "-1", "x", "1.5", "12345678901234567890", '{"offset": 1}', "\u0663"]
)
def test_an_invalid_offset_is_reported_and_the_others_are_read(value: str) -> None:
    """A damaged line must neither become an offset nor stop the import."""
    found = read_dump(f"/consumers/g/offsets/t/0\t{value}\n/consumers/g/offsets/t/1\t5\n")
    assert found.groups == {"g": {TopicPartition("t", 1): 5}}
    (problem,) = found.problems
    assert problem.startswith("line 1: ")
    assert "not an offset of t-0 of group 'g'" in problem


@pytest.mark.parametrize("number", ["2147483648", "9" * 5000], ids=["32 bits", "huge"])
def test_a_number_that_is_not_a_partition_is_reported_and_the_others_are_read(number: str) -> None:
    """Regression: a number of thousands of digits ended the import with a ValueError."""
    found = read_dump(f"/consumers/g/offsets/t/{number}\t5\n/consumers/g/offsets/t/1\t5\n")
    assert found.groups == {"g": {TopicPartition("t", 1): 5}}
    assert found.problems == [f"line 1: t-{number[:40]} of group 'g' is not a partition"]


def test_node_names_of_kafka_0_7_are_accepted_if_unambiguous() -> None:
    """Kafka 0.7 named nodes `broker-partition`, which the tool's documentation still shows."""
    found = read_dump("/consumers/g/offsets/t/0-3:5\n")
    assert found.groups == {"g": {TopicPartition("t", 3): 5}}
    found = read_dump("/consumers/g/offsets/t/0-3:5\n/consumers/g/offsets/t/1-3:6\n")
    assert "several brokers" in found.problems[0]


def test_an_empty_file_has_no_groups() -> None:
    """It is not an error."""
    found = read_dump("")
    assert (found.groups, found.problems, found.others) == ({}, [], 0)
