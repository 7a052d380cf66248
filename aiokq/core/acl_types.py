"""The operations, types of resources, patterns and permissions of ACLs, with Kafka's codes.

The broker and the admin client use the same types. Every start of a broker imports this module, so
it imports little.

Source: Kafka ``AclOperation``, ``ResourceType``, ``PatternType``, ``AclPermissionType``,
``AclEntry`` (4.2). Tests: ``tests/unit/core/test_acls.py``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "ANY_HOST",
    "ANY_NAME",
    "ANY_USER",
    "CLUSTER_NAME",
    "SUPPORTED_OPERATIONS",
    "Operation",
    "PatternType",
    "PermissionType",
    "ResourceType",
]

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

ANY_NAME: Final = "*"
"""The name of a LITERAL pattern that covers every resource of its type."""

ANY_HOST: Final = "*"
"""The host of an ACL that applies to clients on every host."""

ANY_USER: Final = "User:*"
"""The principal of an ACL that applies to every client."""


class Operation(IntEnum):
    """Kafka's ``AclOperation``, with its codes.

    ANY occurs only in filters. ALL, in an ACL, covers every operation.
    """

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ``ResourceType``, with its codes. ANY occurs only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's ``PatternType``, with its codes. ANY and MATCH occur only in filters."""

    ANY = 1
    MATCH = 2
    """The patterns that cover a name: the name itself, its prefixes, and ``*``."""
    LITERAL = 3
    """The pattern covers the resource of this name; the name ``*`` covers all resources."""
    PREFIXED = 4
    """The pattern covers the resources whose names begin with the name of the pattern."""


class PermissionType(IntEnum):
    """Kafka's ``AclPermissionType``, with its codes. ANY occurs only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation

SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        _O.READ,
        _O.DELETE,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that have a meaning for each type of resource.

The bit field of authorized operations has these operations (KIP-430).
Source: Kafka ``AclEntry.supportedOperations``.
"""
