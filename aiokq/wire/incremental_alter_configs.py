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
    """Change of one configuration: an element of `IncrementalAlterConfigsResource.configs`.

    Source: `IncrementalAlterConfigsRequest.json`, struct `AlterableConfig`.
    """

    name: str = string()
    """The name of the configuration."""

    config_operation: int = i8()
    """The operation: 0 to set, 1 to delete, 2 to append to a list, 3 to subtract from a list."""

    value: str | None = string(nullable_since=0)
    """The value to set, to append or to subtract; null to delete."""


class IncrementalAlterConfigsResource(Struct):
    """Changes of the configurations of one resource: an element of
    `IncrementalAlterConfigsRequest.resources`.

    Source: `IncrementalAlterConfigsRequest.json`, struct `AlterConfigsResource`.
    """

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource whose configs to change."""

    configs: list[IncrementalAlterConfigsAlterableConfig] = array(
        IncrementalAlterConfigsAlterableConfig
    )
    """The configurations to change."""


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
    """The changes for each resource."""

    validate_only: bool = boolean()
    """Whether to validate the request without changing anything."""


class IncrementalAlterConfigsResourceResponse(Struct):
    """Result for one resource: an element of `IncrementalAlterConfigsResponse.responses`.

    Source: `IncrementalAlterConfigsResponse.json`, struct `AlterConfigsResourceResponse`.
    """

    error_code: int = i16()
    """The error code for the resource, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message for the resource, or null if there was no error."""

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource whose configs were to change."""


class IncrementalAlterConfigsResponse(Response, request=IncrementalAlterConfigsRequest):
    """Response to `IncrementalAlterConfigsRequest`.

    Version 1 is the first flexible version.

    Source: `IncrementalAlterConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    responses: list[IncrementalAlterConfigsResourceResponse] = array(
        IncrementalAlterConfigsResourceResponse
    )
    """The result for each resource."""
