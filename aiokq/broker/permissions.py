"""The permissions that each API needs: one row per operation and type of resource.

A row also has the error of a denial. If there is an authorizer, the gate raises KeyError for a
permission without a row. A test checks that every handler uses every row of its API.

As in Kafka, permission is checked before existence, so a denial does not disclose whether a topic
exists. If a request does not name resources, denied resources are left out of the response. A
request with an unknown topic id gets UNKNOWN_TOPIC_ID, because there is no name to check; Kafka
does not treat topic ids as secrets.

Source: Kafka ``KafkaApis``, ``ControllerApis``, ``AuthHelper``, ``AclOperation``, ``AclEntry``
(4.2).
Tests: ``tests/unit/broker/test_gate.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.core.acl_types import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
)
from aiokq.core.errors import (
    ClusterAuthorization,
    GroupAuthorization,
    TopicAuthorization,
    TransactionalIdAuthorization,
)
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.core.errors import BrokerError

__all__ = [
    "CLUSTER_NAME",
    "OPERATIONS_NOT_REQUESTED",
    "PERMISSIONS",
    "SUPPORTED_OPERATIONS",
    "Operation",
    "Permission",
    "ResourceType",
    "operation_bits",
]

OPERATIONS_NOT_REQUESTED: Final = -(2**31)
"""The bit field of authorized operations if the client did not request it (KIP-430)."""


class Permission(NamedTuple):
    """An entry of `PERMISSIONS`: an operation on a type of resource.

    Attributes:
        refusal: the error that a client gets if the operation is denied.
    """

    operation: Operation
    resource_type: ResourceType
    refusal: type[BrokerError]


_O = Operation
_READ_TOPIC: Final = Permission(_O.READ, ResourceType.TOPIC, TopicAuthorization)
_WRITE_TOPIC: Final = Permission(_O.WRITE, ResourceType.TOPIC, TopicAuthorization)
_CREATE_TOPIC: Final = Permission(_O.CREATE, ResourceType.TOPIC, TopicAuthorization)
_DELETE_TOPIC: Final = Permission(_O.DELETE, ResourceType.TOPIC, TopicAuthorization)
_ALTER_TOPIC: Final = Permission(_O.ALTER, ResourceType.TOPIC, TopicAuthorization)
_DESCRIBE_TOPIC: Final = Permission(_O.DESCRIBE, ResourceType.TOPIC, TopicAuthorization)
_TOPIC_CONFIGS: Final = Permission(_O.DESCRIBE_CONFIGS, ResourceType.TOPIC, TopicAuthorization)
_ALTER_TOPIC_CONFIGS: Final = Permission(_O.ALTER_CONFIGS, ResourceType.TOPIC, TopicAuthorization)
_READ_GROUP: Final = Permission(_O.READ, ResourceType.GROUP, GroupAuthorization)
_DELETE_GROUP: Final = Permission(_O.DELETE, ResourceType.GROUP, GroupAuthorization)
_DESCRIBE_GROUP: Final = Permission(_O.DESCRIBE, ResourceType.GROUP, GroupAuthorization)
_GROUP_CONFIGS: Final = Permission(_O.DESCRIBE_CONFIGS, ResourceType.GROUP, GroupAuthorization)
_ALTER_GROUP_CONFIGS: Final = Permission(_O.ALTER_CONFIGS, ResourceType.GROUP, GroupAuthorization)
_CREATE_IN_CLUSTER: Final = Permission(_O.CREATE, ResourceType.CLUSTER, TopicAuthorization)
_DELETE_IN_CLUSTER: Final = Permission(_O.DELETE, ResourceType.CLUSTER, TopicAuthorization)
_ALTER_CLUSTER: Final = Permission(_O.ALTER, ResourceType.CLUSTER, ClusterAuthorization)
_DESCRIBE_CLUSTER: Final = Permission(_O.DESCRIBE, ResourceType.CLUSTER, ClusterAuthorization)
_CLUSTER_CONFIGS: Final = Permission(
    _O.DESCRIBE_CONFIGS, ResourceType.CLUSTER, ClusterAuthorization
)
_ALTER_CLUSTER_CONFIGS: Final = Permission(
    _O.ALTER_CONFIGS, ResourceType.CLUSTER, ClusterAuthorization
)
_FOLLOW: Final = Permission(_O.CLUSTER_ACTION, ResourceType.CLUSTER, TopicAuthorization)
_CLUSTER_ACTION: Final = Permission(_O.CLUSTER_ACTION, ResourceType.CLUSTER, ClusterAuthorization)
_IDEMPOTENT_WRITE: Final = Permission(
    _O.IDEMPOTENT_WRITE, ResourceType.CLUSTER, ClusterAuthorization
)
_WRITE_TRANSACTIONAL: Final = Permission(
    _O.WRITE, ResourceType.TRANSACTIONAL_ID, TransactionalIdAuthorization
)
_DESCRIBE_TRANSACTIONAL: Final = Permission(
    _O.DESCRIBE, ResourceType.TRANSACTIONAL_ID, TransactionalIdAuthorization
)

PERMISSIONS: Final[dict[int, tuple[Permission, ...]]] = {
    0: (_WRITE_TRANSACTIONAL, _WRITE_TOPIC),
    # A consumer needs READ on each topic. A follower needs CLUSTER_ACTION on the cluster.
    1: (_READ_TOPIC, _FOLLOW),
    2: (_DESCRIBE_TOPIC,),
    # Creation of a topic needs CREATE on the cluster or on the topic.
    3: (_DESCRIBE_TOPIC, _CREATE_IN_CLUSTER, _CREATE_TOPIC, _DESCRIBE_CLUSTER),
    8: (_READ_GROUP, _READ_TOPIC),
    9: (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    10: (_DESCRIBE_GROUP, _DESCRIBE_TRANSACTIONAL),
    # Joining a consumer group may resolve regular expressions, which match only topics that the
    # client may DESCRIBE. In Kafka, JoinGroup needs only READ on the group.
    11: (_READ_GROUP, _DESCRIBE_TOPIC),
    12: (_READ_GROUP,),
    13: (_READ_GROUP,),
    14: (_READ_GROUP,),
    15: (_DESCRIBE_GROUP,),
    # DESCRIBE on the cluster shows all groups. Without it, each group needs DESCRIBE.
    16: (_DESCRIBE_CLUSTER, _DESCRIBE_GROUP),
    17: (),
    18: (),
    19: (_CREATE_IN_CLUSTER, _CREATE_TOPIC, _TOPIC_CONFIGS),
    # DELETE on the cluster includes all topics. Without it and without DESCRIBE, the response omits
    # the name of a topic that the request gives by id.
    20: (_DELETE_IN_CLUSTER, _DELETE_TOPIC, _DESCRIBE_TOPIC),
    21: (_DELETE_TOPIC,),
    # A request without a transactional id needs IDEMPOTENT_WRITE, or WRITE on any topic (KIP-679).
    22: (
        _WRITE_TRANSACTIONAL,
        _IDEMPOTENT_WRITE,
        Permission(_O.WRITE, ResourceType.TOPIC, ClusterAuthorization),
    ),
    # A follower needs CLUSTER_ACTION, which covers all topics. Without it, each topic needs
    # DESCRIBE.
    23: (_FOLLOW, _DESCRIBE_TOPIC),
    # From version 4 on, the request comes from a broker, which needs only CLUSTER_ACTION.
    24: (_WRITE_TRANSACTIONAL, _WRITE_TOPIC, _CLUSTER_ACTION),
    25: (_WRITE_TRANSACTIONAL, _READ_GROUP),
    26: (_WRITE_TRANSACTIONAL,),
    # A coordinator needs CLUSTER_ACTION, and an administrator needs ALTER.
    27: (_ALTER_CLUSTER, _CLUSTER_ACTION),
    28: (_WRITE_TRANSACTIONAL, _READ_GROUP, _READ_TOPIC),
    29: (_DESCRIBE_CLUSTER,),
    30: (_ALTER_CLUSTER,),
    31: (_ALTER_CLUSTER,),
    32: (_CLUSTER_CONFIGS, _TOPIC_CONFIGS, _GROUP_CONFIGS),
    33: (_ALTER_CLUSTER_CONFIGS, _ALTER_TOPIC_CONFIGS, _ALTER_GROUP_CONFIGS),
    35: (_DESCRIBE_CLUSTER,),
    36: (),
    37: (_ALTER_TOPIC,),
    42: (_DELETE_GROUP,),
    43: (_ALTER_CLUSTER,),
    44: (_ALTER_CLUSTER_CONFIGS, _ALTER_TOPIC_CONFIGS, _ALTER_GROUP_CONFIGS),
    45: (_ALTER_CLUSTER,),
    46: (_DESCRIBE_CLUSTER,),
    47: (_DELETE_GROUP, _READ_TOPIC),
    48: (_CLUSTER_CONFIGS,),
    49: (_ALTER_CLUSTER_CONFIGS,),
    50: (_DESCRIBE_CLUSTER,),
    51: (_ALTER_CLUSTER,),
    55: (_DESCRIBE_CLUSTER,),
    57: (_ALTER_CLUSTER,),
    # The list of brokers needs no permission; the bit field of operations needs DESCRIBE.
    60: (_DESCRIBE_CLUSTER,),
    61: (_READ_TOPIC,),
    64: (_ALTER_CLUSTER,),
    65: (_DESCRIBE_TRANSACTIONAL, _DESCRIBE_TOPIC),
    66: (_DESCRIBE_TRANSACTIONAL,),
    68: (_READ_GROUP, _DESCRIBE_TOPIC),
    69: (_DESCRIBE_GROUP, _DESCRIBE_TOPIC),
    74: (_CLUSTER_CONFIGS,),
    75: (_DESCRIBE_TOPIC,),
}
"""The permissions of each API, by its key."""


def operation_bits(operations: tuple[Operation, ...] | list[Operation]) -> int:
    """Return the bit field of `operations`."""
    return sum(1 << operation for operation in operations)
