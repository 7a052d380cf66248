"""ListConfigResources (API key 74): list the resources that have configs."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["ConfigResource", "ListConfigResourcesRequest", "ListConfigResourcesResponse"]


class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """Request of the ListConfigResources API.

    Version 0 was named ListClientMetricsResources, and lists only client metrics resources.

    Version 1 adds ResourceTypes (KIP-1142).

    Source: `ListConfigResourcesRequest.json`.
    """

    API_KEY = 74
    NAME = "ListConfigResources"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 0

    resource_types: list[int] = array(i8, since=1)
    """The types of the resources to list, as numbered in Kafka's ConfigResource.Type; empty for all
    supported types.
    """


class ConfigResource(Struct):
    """One resource that has configs: an element of `ListConfigResourcesResponse.config_resources`.

    Source: `ListConfigResourcesResponse.json`, struct `ConfigResource`.
    """

    resource_name: str = string()
    """The name of the resource that has configs."""

    resource_type: int = i8(since=1, default=16, ignorable=True)
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""


class ListConfigResourcesResponse(Response, request=ListConfigResourcesRequest):
    """Response to `ListConfigResourcesRequest`.

    Version 0 was named ListClientMetricsResources, and has only client metrics resources.

    Version 1 adds ResourceType to ConfigResources (KIP-1142).

    Source: `ListConfigResourcesResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    config_resources: list[ConfigResource] = array(ConfigResource)
    """The resources that have configs."""
