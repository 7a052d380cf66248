"""The nodes of the registry view, with the contents that Kafka wrote to ZooKeeper.

The functions compute nodes from metadata and group descriptions. registry.py sends the requests.

Source: section 5.6 of Kafka's documentation (ZooKeeper directories); `ZkUtils.scala` of 0.8,
`ZkData.scala` of 3.x.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Final

from aiokq.admin.group_types import GroupDescription, MemberDescription
from aiokq.cluster.metadata import ZERO_ID, BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from aiokq.core.frozen import frozen
from aiokq.core.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "RegistryNode",
    "group_name",
    "group_node",
    "metadata_node",
    "node_name",
    "parse_path",
]

UNKNOWN: Final = -1
"""Value of fields that a client cannot know: JMX ports, controller epochs, registration times."""

GROUP_PARTS: Final = ("ids", "offsets", "owners")


@frozen
class RegistryNode:
    """One node of the tree.

    Attributes:
        data: the contents, mostly JSON; None for a node that only has children.
        children: the names of its children, sorted.
    """

    path: str
    data: str | None = None
    children: tuple[str, ...] = ()


def parse_path(path: str) -> tuple[str, ...]:
    """Split a path into names; a slash at the end is ignored.

    Raises:
        ValueError: the path is not absolute, or contains an empty name.
    """
    if not path.startswith("/") or "//" in path:
        raise ValueError(f"{path!r} is not a path: a path begins with /, as in /brokers/ids")
    return tuple(name for name in path.split("/") if name)


def node_name(text: str) -> str:
    """Return the node name of a group id or member id: ``/`` and ``%`` are escaped as in URLs."""
    return text.replace("%", "%25").replace("/", "%2F")


def group_name(name: str) -> str:
    """Return the group id or member id of a node name; the inverse of `node_name`."""
    return name.replace("%2F", "/").replace("%2f", "/").replace("%25", "%")


def metadata_node(
    metadata: ClusterMetadata, names: tuple[str, ...], *, security_protocol: str
) -> RegistryNode | None:
    """Return a node outside ``/consumers``; None if it does not exist."""
    path = "/" + "/".join(names)
    match names:
        case ():
            return RegistryNode(path, None, ("brokers", "consumers"))
        case ("brokers",):
            return RegistryNode(path, None, ("ids", "topics"))
        case ("brokers", "ids"):
            return RegistryNode(path, None, _numbers(metadata.brokers))
        case ("brokers", "ids", number):
            broker = metadata.brokers.get(_number(number))
            if broker is not None:
                return RegistryNode(path, _broker(broker, security_protocol))
        case ("brokers", "topics"):
            return RegistryNode(path, None, tuple(sorted(metadata.topics)))
        case ("brokers", "topics", topic, *rest):
            info = metadata.topics.get(topic)
            if info is not None:
                return _topic_node(path, info, rest)
    return None


def _topic_node(path: str, topic: TopicInfo, names: list[str]) -> RegistryNode | None:
    match names:
        case []:
            return RegistryNode(path, _topic(topic), ("partitions",))
        case ["partitions"]:
            return RegistryNode(path, None, _numbers(topic.partitions))
        case ["partitions", number, *rest]:
            partition = topic.partitions.get(_number(number))
            if partition is None:
                return None
            if not rest:
                return RegistryNode(path, None, ("state",))
            return RegistryNode(path, _state(partition)) if rest == ["state"] else None
    return None


def _numbers(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(str(number) for number in sorted(numbers))


def _number(name: str) -> int:
    """Return the number in a node name; -1 if the name is not a plain decimal number."""
    return int(name) if name.isdecimal() and str(int(name)) == name else UNKNOWN


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _broker(broker: BrokerInfo, security_protocol: str) -> str:
    # `host` and `port` are for readers older than Kafka 0.9, which support only PLAINTEXT.
    plain = security_protocol == "PLAINTEXT"
    document: dict[str, object] = {
        "listener_security_protocol_map": {security_protocol: security_protocol},
        "endpoints": [f"{security_protocol}://{broker.address}"],
        "jmx_port": UNKNOWN,
        "host": broker.host if plain else None,
        "timestamp": str(UNKNOWN),
        "port": broker.port if plain else UNKNOWN,
        "version": 4,
    }
    if broker.rack is not None:
        document["rack"] = broker.rack
    return _json(document)


def _topic(topic: TopicInfo) -> str:
    document: dict[str, object] = {
        "removing_replicas": {},
        "partitions": {str(n): list(p.replicas) for n, p in sorted(topic.partitions.items())},
        "adding_replicas": {},
        "version": 2,
    }
    if topic.topic_id != ZERO_ID:
        identity = base64.urlsafe_b64encode(topic.topic_id.bytes).rstrip(b"=").decode()
        document |= {"topic_id": identity, "version": 3}
    return _json(document)


def _state(partition: PartitionInfo) -> str:
    return _json(
        {
            "controller_epoch": UNKNOWN,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": list(partition.isr),
        }
    )


def group_node(
    names: tuple[str, ...],
    group: GroupDescription,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> RegistryNode | None:
    """Return the node of a group or a node below it; None if the node does not exist.

    Args:
        names: the names in the path after the name of the group.
        offsets: the committed offsets; used only for the node ``offsets`` and the nodes below it.
    """
    path = "/".join(("/consumers", node_name(group.group_id), *names))
    match names:
        case ():
            return RegistryNode(path, None, GROUP_PARTS)
        case ("ids",):
            ids = (node_name(member.member_id) for member in group.members)
            return RegistryNode(path, None, tuple(sorted(ids)))
        case ("ids", name):
            by_name = {node_name(member.member_id): member for member in group.members}
            if name in by_name:
                return RegistryNode(path, _member(by_name[name]))
        case ("offsets", *rest):
            values = {tp: str(at.offset) for tp, at in offsets.items() if at is not None}
            return _by_partition(path, values, rest)
        case ("owners", *rest):
            # Old consumers appended a stream number to the member id. Here each member has one
            # stream.
            owners = {tp: f"{member.member_id}-0" for tp, member in group.owners.items()}
            return _by_partition(path, owners, rest)
    return None


def _member(member: MemberDescription) -> str:
    pattern, subscription = "static", dict.fromkeys(member.subscription, 1)
    if member.subscription_regex is not None:
        pattern, subscription = "white_list", {member.subscription_regex: 1}
    return _json(
        {
            "version": 1,
            "subscription": subscription,
            "pattern": pattern,
            "timestamp": str(UNKNOWN),
        }
    )


def _by_partition(
    path: str, values: Mapping[TopicPartition, str], names: list[str]
) -> RegistryNode | None:
    match names:
        case []:
            return RegistryNode(path, None, tuple(sorted({tp.topic for tp in values})))
        case [topic]:
            numbers = _numbers(tp.partition for tp in values if tp.topic == topic)
            return RegistryNode(path, None, numbers) if numbers else None
        case [topic, number]:
            value = values.get(TopicPartition(topic, _number(number)))
            return None if value is None else RegistryNode(path, value)
    return None
