"""The keys of quotas, the entities that they apply to, and the rules for their values.

Source: Kafka ``QuotaConfig``, ``ClientQuotaControlManager``.
Tests: ``tests/unit/broker/metadata/controller/test_quota_changes.py``.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, TypeAlias

from aiokq.core.errors import InvalidRequest

__all__ = [
    "CLIENT_ID",
    "CLIENT_KEYS",
    "CONNECTION_CREATION_RATE",
    "CONSUMER_BYTE_RATE",
    "CONTROLLER_MUTATION_RATE",
    "ENTITY_TYPES",
    "IP",
    "PRODUCER_BYTE_RATE",
    "REQUEST_PERCENTAGE",
    "USER",
    "QuotaEntity",
    "check_value",
    "keys_of",
]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: types (``user``, ``client-id``, ``ip``) and names, sorted by type. The
name None means the default of the type.
"""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (
    PRODUCER_BYTE_RATE,
    CONSUMER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    CONTROLLER_MUTATION_RATE,
)
"""The keys of users and client ids; an address has `CONNECTION_CREATION_RATE` only."""

_GREATEST: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The greatest value of each key that takes only whole numbers."""

_FRACTION: Final = 1e-6
"""The largest fractional part with which a value counts as a whole number, as in Kafka."""


def keys_of(types: Collection[str]) -> tuple[str, ...]:
    """Return the quota keys that an entity with these types may have."""
    return (CONNECTION_CREATION_RATE,) if IP in types else CLIENT_KEYS


def check_value(key: str, value: float, keys: Collection[str]) -> None:
    """Check the value of a quota.

    Kafka accepts NaN and infinity for keys with fractional values. Both are refused here.

    Args:
        keys: the keys that the entity may have.

    Raises:
        InvalidRequest: the entity cannot have the key, or the value is 0 or less, not finite, too
            large, or a fraction although the key takes only whole numbers.
    """
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if value <= 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if not math.isfinite(value):
        raise InvalidRequest(f"Quota {key} must be a finite number, not {value}")
    greatest = _GREATEST.get(key)
    if greatest is None:
        return
    if value > greatest:
        kind = "an INT" if key == CONNECTION_CREATION_RATE else "a LONG"
        raise InvalidRequest(f"Proposed value for {key} is too large for {kind}.")
    if abs(value % 1.0) > _FRACTION:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
