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
    """Condition on one entity type: an element of `DescribeClientQuotasRequest.components`.

    Source: `DescribeClientQuotasRequest.json`, struct `ComponentData`.
    """

    entity_type: str = string()
    """The entity type that the component matches: `user`, `client-id` or `ip`."""

    match_type: int = i8()
    """How the component matches: 0 for the entity whose name is the value of `match`, 1 for the
    default entity, 2 for any entity of the type.
    """

    match: str | None = string(nullable_since=0)
    """The name of the entity if `match_type` is 0, else null."""


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
    """The filter: an entity must match all components."""

    strict: bool = boolean()
    """Whether to leave out entities that have an entity type for which there is no component."""


class DescribeClientQuotasEntityData(Struct):
    """Type and name of an entity: an element of `DescribeClientQuotasEntryData.entity`.

    Source: `DescribeClientQuotasResponse.json`, struct `EntityData`.
    """

    entity_type: str = string()
    """The entity type: `user`, `client-id` or `ip`."""

    entity_name: str | None = string(nullable_since=0)
    """The name of the entity, or null for the default entity of its type."""


class DescribeClientQuotasValueData(Struct):
    """One quota: an element of `DescribeClientQuotasEntryData.values`.

    Source: `DescribeClientQuotasResponse.json`, struct `ValueData`.
    """

    key: str = string()
    """The name of the quota, such as `producer_byte_rate`."""

    value: float = f64()
    """The value of the quota."""


class DescribeClientQuotasEntryData(Struct):
    """Quotas of one entity: an element of `DescribeClientQuotasResponse.entries`.

    Source: `DescribeClientQuotasResponse.json`, struct `EntryData`.
    """

    entity: list[DescribeClientQuotasEntityData] = array(DescribeClientQuotasEntityData)
    """The entity: one element for each entity type."""

    values: list[DescribeClientQuotasValueData] = array(DescribeClientQuotasValueData)
    """The quotas of the entity."""


class DescribeClientQuotasResponse(Response, request=DescribeClientQuotasRequest):
    """Response to `DescribeClientQuotasRequest`.

    Version 1 is the first flexible version.

    Source: `DescribeClientQuotasResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    entries: list[DescribeClientQuotasEntryData] | None = array(
        DescribeClientQuotasEntryData, nullable_since=0
    )
    """The quotas of each entity that matches; null after an error."""
