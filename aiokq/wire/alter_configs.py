"""AlterConfigs (API key 33): replace all configs of topics, brokers or groups."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "AlterConfigsAlterableConfig",
    "AlterConfigsRequest",
    "AlterConfigsResource",
    "AlterConfigsResourceResponse",
    "AlterConfigsResponse",
]


class AlterConfigsAlterableConfig(Struct):
    """New value of one configuration: an element of `AlterConfigsResource.configs`.

    Source: `AlterConfigsRequest.json`, struct `AlterableConfig`.
    """

    name: str = string()
    """The name of the configuration."""

    value: str | None = string(nullable_since=0)
    """The value to set, or null."""


class AlterConfigsResource(Struct):
    """New configurations of one resource: an element of `AlterConfigsRequest.resources`.

    Source: `AlterConfigsRequest.json`, struct `AlterConfigsResource`.
    """

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource whose configs to change."""

    configs: list[AlterConfigsAlterableConfig] = array(AlterConfigsAlterableConfig)
    """All configurations of the resource; a missing configuration is reset to its default."""


class AlterConfigsRequest(Request["AlterConfigsResponse"]):
    """Request of the AlterConfigs API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Source: `AlterConfigsRequest.json`.
    """

    API_KEY = 33
    NAME = "AlterConfigs"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    """The new configurations of each resource."""

    validate_only: bool = boolean()
    """Whether to validate the request without changing anything."""


class AlterConfigsResourceResponse(Struct):
    """Result for one resource: an element of `AlterConfigsResponse.responses`.

    Source: `AlterConfigsResponse.json`, struct `AlterConfigsResourceResponse`.
    """

    error_code: int = i16()
    """The error code for the resource, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message for the resource, or null if there was no error."""

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource whose configs were to change."""


class AlterConfigsResponse(Response, request=AlterConfigsRequest):
    """Response to `AlterConfigsRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Source: `AlterConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
    """The result for each resource."""
