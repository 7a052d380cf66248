"""The DescribeClientQuotas API (key 48), all versions."""

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
    """How to match the entity {0 = exact name, 1 = default name, 2 = any specified name}."""

    match: str | None = string(nullable_since=0)
    """The string to match against, or null if unused for the match type."""


class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Request of the DescribeClientQuotas API.

    Version 1 enables flexible versions.

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
    """Whether the match is strict, i.e. should exclude entities with unspecified entity types."""


class DescribeClientQuotasEntityData(Struct):
    """Element of `DescribeClientQuotasEntryData.entity`.

    Source: `DescribeClientQuotasResponse.json`, struct `EntityData`.
    """

    entity_type: str = string()
    """The entity type."""

    entity_name: str | None = string(nullable_since=0)
    """The entity name, or null if the default."""


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

    Version 1 enables flexible versions.

    Source: `DescribeClientQuotasResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or `0` if the quota description succeeded."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or `null` if the quota description succeeded."""

    entries: list[DescribeClientQuotasEntryData] | None = array(
        DescribeClientQuotasEntryData, nullable_since=0
    )
    """A result entry."""
