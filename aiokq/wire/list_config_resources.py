"""The ListConfigResources API (key 74), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["ConfigResource", "ListConfigResourcesRequest", "ListConfigResourcesResponse"]


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """Request of the ListConfigResources API.

    Version 0 is used as ListClientMetricsResourcesRequest which only lists client metrics
    resources.

    Version 1 adds ResourceTypes field (KIP-1142). If there is no specified ResourceTypes, it
    should return all configuration resources.

    Source: `ListConfigResourcesRequest.json`.
    """

    API_KEY = 74
    NAME = "ListConfigResources"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    resource_types: list[int] = array(i8, since=1)
    """The list of resource type. If the list is empty, it uses default supported config resource
    types.
    """


class ConfigResource(Struct):
    """Element of `ListConfigResourcesResponse.config_resources`.

    Source: `ListConfigResourcesResponse.json`, struct `ConfigResource`.
    """

    resource_name: str = string()
    """The resource name."""

    resource_type: int = i8(since=1, default=16, ignorable=True)
    """The resource type."""


class ListConfigResourcesResponse(Response, request=ListConfigResourcesRequest):
    """Response to `ListConfigResourcesRequest`.

    Version 0 is used as ListClientMetricsResourcesResponse which returns all client metrics
    resources.

    Version 1 adds ResourceType to ConfigResources (KIP-1142).

    Source: `ListConfigResourcesResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    config_resources: list[ConfigResource] = array(ConfigResource)
    """Each config resource in the response."""
