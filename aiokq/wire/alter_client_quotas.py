"""AlterClientQuotas (API key 49): change the quotas of users, client ids and addresses."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, f64, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "AlterClientQuotasEntityData",
    "AlterClientQuotasEntryData",
    "AlterClientQuotasOpData",
    "AlterClientQuotasRequest",
    "AlterClientQuotasResponse",
    "AlterClientQuotasResponseEntryData",
]


class AlterClientQuotasEntityData(Struct):
    """Type and name of an entity: an element of `AlterClientQuotasEntryData.entity` and of
    `AlterClientQuotasResponseEntryData.entity`.

    Source: `AlterClientQuotasRequest.json`, struct `EntityData`.
    """

    entity_type: str = string()
    """The entity type: `user`, `client-id` or `ip`."""

    entity_name: str | None = string(nullable_since=0)
    """The name of the entity, or null for the default entity of its type."""


class AlterClientQuotasOpData(Struct):
    """Change of one quota: an element of `AlterClientQuotasEntryData.ops`.

    Source: `AlterClientQuotasRequest.json`, struct `OpData`.
    """

    key: str = string()
    """The name of the quota, such as `producer_byte_rate`."""

    value: float = f64()
    """The new value of the quota; ignored if `remove` is true."""

    remove: bool = boolean()
    """Whether to remove the quota instead of setting it."""


class AlterClientQuotasEntryData(Struct):
    """Changes of the quotas of one entity: an element of `AlterClientQuotasRequest.entries`.

    Source: `AlterClientQuotasRequest.json`, struct `EntryData`.
    """

    entity: list[AlterClientQuotasEntityData] = array(AlterClientQuotasEntityData)
    """The entity whose quotas change: one element for each entity type."""

    ops: list[AlterClientQuotasOpData] = array(AlterClientQuotasOpData)
    """The changes of the entity's quotas."""


class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """Request of the AlterClientQuotas API.

    Version 1 is the first flexible version.

    Source: `AlterClientQuotasRequest.json`.
    """

    API_KEY = 49
    NAME = "AlterClientQuotas"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1

    entries: list[AlterClientQuotasEntryData] = array(AlterClientQuotasEntryData)
    """The changes for each entity."""

    validate_only: bool = boolean()
    """Whether to validate the request without changing anything."""


class AlterClientQuotasResponseEntryData(Struct):
    """Result for one entity: an element of `AlterClientQuotasResponse.entries`.

    Source: `AlterClientQuotasResponse.json`, struct `EntryData`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    entity: list[AlterClientQuotasEntityData] = array(AlterClientQuotasEntityData)
    """The entity, as in the request."""


class AlterClientQuotasResponse(Response, request=AlterClientQuotasRequest):
    """Response to `AlterClientQuotasRequest`.

    Version 1 is the first flexible version.

    Source: `AlterClientQuotasResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
    """The result for each entity."""
