"""Finds the operation that was denied, from the API and the code of an authorization error.

A response has only the code. If several operations are possible, the result is the one that is
usually missing.

Source: Kafka ``KafkaApis``, ``ControllerApis`` (4.2); `aiokq.broker.permissions` is the broker's
table. Tests: ``tests/unit/core/test_denials.py``.
"""

from __future__ import annotations

from typing import Final

from aiokq.core.acl_types import CLUSTER_NAME, ResourceType

__all__ = ["denied_operation", "denied_resource"]

_TOPIC: Final = 29
_GROUP: Final = 30
_CLUSTER: Final = 31
_TRANSACTIONAL_ID: Final = 53

_TYPES: Final = {
    _TOPIC: ResourceType.TOPIC,
    _GROUP: ResourceType.GROUP,
    _CLUSTER: ResourceType.CLUSTER,
    _TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}

_READ_GROUP: Final = ("READ", _GROUP)
_OPERATIONS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "Produce": (
        ("WRITE", _TOPIC),
        ("WRITE", _TRANSACTIONAL_ID),
        ("IDEMPOTENT_WRITE", _CLUSTER),  # rare: without this permission, InitProducerId fails first
    ),
    "Fetch": (("READ", _TOPIC),),
    "ListOffsets": (("DESCRIBE", _TOPIC),),
    "Metadata": (("DESCRIBE", _TOPIC),),
    "OffsetCommit": (_READ_GROUP, ("READ", _TOPIC)),
    "OffsetFetch": (("DESCRIBE", _GROUP), ("DESCRIBE", _TOPIC)),
    "FindCoordinator": (("DESCRIBE", _GROUP), ("DESCRIBE", _TRANSACTIONAL_ID)),
    "JoinGroup": (_READ_GROUP,),
    "Heartbeat": (_READ_GROUP,),
    "LeaveGroup": (_READ_GROUP,),
    "SyncGroup": (_READ_GROUP,),
    "DescribeGroups": (("DESCRIBE", _GROUP),),
    "CreateTopics": (("CREATE", _TOPIC),),
    "DeleteTopics": (("DELETE", _TOPIC),),
    "DeleteRecords": (("DELETE", _TOPIC),),
    "InitProducerId": (("WRITE", _TRANSACTIONAL_ID), ("IDEMPOTENT_WRITE", _CLUSTER)),
    "OffsetForLeaderEpoch": (("DESCRIBE", _TOPIC),),
    "AddPartitionsToTxn": (("WRITE", _TRANSACTIONAL_ID), ("WRITE", _TOPIC)),
    "AddOffsetsToTxn": (("WRITE", _TRANSACTIONAL_ID), _READ_GROUP),
    "EndTxn": (("WRITE", _TRANSACTIONAL_ID),),
    "WriteTxnMarkers": (("ALTER", _CLUSTER),),
    "TxnOffsetCommit": (("WRITE", _TRANSACTIONAL_ID), _READ_GROUP, ("READ", _TOPIC)),
    "DescribeAcls": (("DESCRIBE", _CLUSTER),),
    "CreateAcls": (("ALTER", _CLUSTER),),
    "DeleteAcls": (("ALTER", _CLUSTER),),
    "DescribeConfigs": tuple(("DESCRIBE_CONFIGS", code) for code in (_TOPIC, _GROUP, _CLUSTER)),
    "AlterConfigs": tuple(("ALTER_CONFIGS", code) for code in (_TOPIC, _GROUP, _CLUSTER)),
    "IncrementalAlterConfigs": tuple(
        ("ALTER_CONFIGS", code) for code in (_TOPIC, _GROUP, _CLUSTER)
    ),
    "AlterReplicaLogDirs": (("ALTER", _CLUSTER),),
    "DescribeLogDirs": (("DESCRIBE", _CLUSTER),),
    "CreatePartitions": (("ALTER", _TOPIC),),
    "DeleteGroups": (("DELETE", _GROUP),),
    "ElectLeaders": (("ALTER", _CLUSTER),),
    "AlterPartitionReassignments": (("ALTER", _CLUSTER),),
    "ListPartitionReassignments": (("DESCRIBE", _CLUSTER),),
    "OffsetDelete": (("DELETE", _GROUP), ("READ", _TOPIC)),
    "DescribeClientQuotas": (("DESCRIBE_CONFIGS", _CLUSTER),),
    "AlterClientQuotas": (("ALTER_CONFIGS", _CLUSTER),),
    "DescribeUserScramCredentials": (("DESCRIBE", _CLUSTER),),
    "AlterUserScramCredentials": (("ALTER", _CLUSTER),),
    "DescribeQuorum": (("DESCRIBE", _CLUSTER),),
    "UpdateFeatures": (("ALTER", _CLUSTER),),
    "DescribeProducers": (("READ", _TOPIC),),
    "UnregisterBroker": (("ALTER", _CLUSTER),),
    "DescribeTransactions": (("DESCRIBE", _TRANSACTIONAL_ID),),
    "ConsumerGroupHeartbeat": (_READ_GROUP, ("DESCRIBE", _TOPIC)),
    "ConsumerGroupDescribe": (("DESCRIBE", _GROUP), ("DESCRIBE", _TOPIC)),
    "ListConfigResources": (("DESCRIBE_CONFIGS", _CLUSTER),),
    "DescribeTopicPartitions": (("DESCRIBE", _TOPIC),),
}


def denied_operation(api: str | None, code: int) -> str | None:
    """Return the operation that an authorization error denies; None if it is unknown."""
    for operation, denied in _OPERATIONS.get(api or "", ()):
        if denied == code:
            return operation
    return None


def denied_resource(code: int, name: str | None) -> str | None:
    """Return the resource of an authorization error as text, such as "TOPIC:orders".

    Args:
        name: the name of the resource; None if it is not known.
    """
    kind = _TYPES.get(code)
    if kind is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    return None if kind is None or name is None else f"{kind.name}:{name}"
