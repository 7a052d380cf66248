"""IncrementalAlterConfigs (API key 44): change single configs of topics, brokers or groups."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "IncrementalAlterConfigsAlterableConfig",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse",
    "IncrementalAlterConfigsResponse",
]


class IncrementalAlterConfigsAlterableConfig(Struct):
    """Element of `IncrementalAlterConfigsResource.configs`.

    Source: `IncrementalAlterConfigsRequest.json`, struct `AlterableConfig`.
    """

    name: str = string()
    """The configuration key name."""

    config_operation: int = i8()
    """The type (Set, Delete, Append, Subtract) of operation."""

    value: str | None = string(nullable_since=0)
    """The value to set for the configuration key."""


class IncrementalAlterConfigsResource(Struct):
    """Element of `IncrementalAlterConfigsRequest.resources`.

    Source: `IncrementalAlterConfigsRequest.json`, struct `AlterConfigsResource`.
    """

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""

    configs: list[IncrementalAlterConfigsAlterableConfig] = array(
        IncrementalAlterConfigsAlterableConfig
    )
    """The configurations."""


class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """Request of the IncrementalAlterConfigs API.

    Version 1 is the first flexible version.

    Source: `IncrementalAlterConfigsRequest.json`.
    """

    API_KEY = 44
    NAME = "IncrementalAlterConfigs"
    MIN_VERSION = 0
    MAX_VERSION = 1
    FLEXIBLE_SINCE = 1

    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    """The incremental updates for each resource."""

    validate_only: bool = boolean()
    """Whether to validate the request without changing anything."""


class IncrementalAlterConfigsResourceResponse(Struct):
    """Element of `IncrementalAlterConfigsResponse.responses`.

    Source: `IncrementalAlterConfigsResponse.json`, struct `AlterConfigsResourceResponse`.
    """

    error_code: int = i16()
    """The resource error code."""

    error_message: str | None = string(nullable_since=0)
    """The resource error message, or null if there was no error."""

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""


class IncrementalAlterConfigsResponse(Response, request=IncrementalAlterConfigsRequest):
    """Response to `IncrementalAlterConfigsRequest`.

    Version 1 is the first flexible version.

    Source: `IncrementalAlterConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    responses: list[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )
    """The responses for each resource."""
