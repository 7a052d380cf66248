"""DescribeClientQuotas (API key 48): list the quotas of users, client ids and addresses."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, f64, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ComponentData",
    "DescribeClientQuotasEntityData",
    "DescribeClientQuotasEntryData",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClientQuotasValueData",
]


class ComponentData(Struct):
    """Element of `DescribeClientQuotasRequest.components`.

    Source: `DescribeClientQuotasRequest.json`, struct `ComponentData`.
    """

    entity_type: str = string()
    """The entity type that the filter component applies to."""

    match_type: int = i8()
    """How to match the entity: 0 = exact name, 1 = default name, 2 = any specified name."""

    match: str | None = string(nullable_since=0)
    """The name to match, or null if the match type needs none."""


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Request of the DescribeClientQuotas API.

    Version 1 is the first flexible version.

    Source: `DescribeClientQuotasRequest.json`.
    """

    API_KEY = 48
    NAME = "DescribeClientQuotas"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1

    components: list[ComponentData] = array(ComponentData)
    """Filter components to apply to quota entities."""

    strict: bool = boolean()
    """Whether to leave out entities with further entity types, which no component names."""


class DescribeClientQuotasEntityData(Struct):
    """Element of `DescribeClientQuotasEntryData.entity`.

    Source: `DescribeClientQuotasResponse.json`, struct `EntityData`.
    """

    entity_type: str = string()
    """The entity type."""

    entity_name: str | None = string(nullable_since=0)
    """The name of the entity, or null for the default."""


class DescribeClientQuotasValueData(Struct):
    """Element of `DescribeClientQuotasEntryData.values`.

    Source: `DescribeClientQuotasResponse.json`, struct `ValueData`.
    """

    key: str = string()
    """The quota configuration key."""

    value: float = f64()
    """The quota configuration value."""


class DescribeClientQuotasEntryData(Struct):
    """Element of `DescribeClientQuotasResponse.entries`.

    Source: `DescribeClientQuotasResponse.json`, struct `EntryData`.
    """

    entity: list[DescribeClientQuotasEntityData] = array(DescribeClientQuotasEntityData)
    """The quota entity description."""

    values: list[DescribeClientQuotasValueData] = array(DescribeClientQuotasValueData)
    """The quota values for the entity."""


class DescribeClientQuotasResponse(Response, request=DescribeClientQuotasRequest):
    """Response to `DescribeClientQuotasRequest`.

    Version 1 is the first flexible version.

    Source: `DescribeClientQuotasResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    entries: list[DescribeClientQuotasEntryData] | None = array(
        DescribeClientQuotasEntryData, nullable_since=0
    )
    """The quotas of each entity."""
