"""DescribeConfigs (API key 32): describe the configs of topics, brokers or groups."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribeConfigsRequest",
    "DescribeConfigsResource",
    "DescribeConfigsResourceResult",
    "DescribeConfigsResponse",
    "DescribeConfigsResult",
    "DescribeConfigsSynonym",
]


class DescribeConfigsResource(Struct):
    """Resource whose configurations to describe: an element of `DescribeConfigsRequest.resources`.

    Source: `DescribeConfigsRequest.json`, struct `DescribeConfigsResource`.
    """

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource whose configs to describe."""

    configuration_keys: list[str] | None = array(string, nullable_since=0)
    """The names of the configurations to describe, or null for all configurations."""


class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Request of the DescribeConfigs API.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds IncludeSynonyms; in the response, ConfigSource replaces IsDefault.

    Version 2 is the same as version 1.

    Version 3 adds IncludeDocumentation.

    Version 4 is the first flexible version.

    Source: `DescribeConfigsRequest.json`.
    """

    API_KEY = 32
    NAME = "DescribeConfigs"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    """The resources whose configurations to describe."""

    include_synonyms: bool = boolean(since=1)
    """Whether the response should list the synonyms of each configuration."""

    include_documentation: bool = boolean(since=3)
    """Whether the response should have the documentation of each configuration."""


class DescribeConfigsSynonym(Struct):
    """Configuration from which the value of another configuration can come: an element of
    `DescribeConfigsResourceResult.synonyms`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsSynonym`.
    """

    name: str = string(since=1)
    """The name of a configuration from which the value can come."""

    value: str | None = string(since=1, nullable_since=0)
    """The value of the synonym."""

    source: int = i8(since=1)
    """The source of the synonym's value, as numbered in Kafka's ConfigSource."""


class DescribeConfigsResourceResult(Struct):
    """Description of one configuration: an element of `DescribeConfigsResult.configs`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsResourceResult`.
    """

    name: str = string()
    """The configuration name."""

    value: str | None = string(nullable_since=0)
    """The configuration value, or null."""

    read_only: bool = boolean()
    """Whether the configuration cannot be changed while the broker runs."""

    is_default: bool = boolean(until=0)
    """Whether the value is the default, because the configuration is not set."""

    config_source: int = i8(since=1, default=-1, ignorable=True)
    """The source of the value, as numbered in Kafka's ConfigSource; -1 if it is not given."""

    is_sensitive: bool = boolean()
    """Whether the configuration is sensitive, such as a password; its value is then null."""

    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    """The configurations from which the value can come, in order of precedence."""

    config_type: int = i8(since=3, ignorable=True)
    """The type of the value: 1 BOOLEAN, 2 STRING, 3 INT, 4 SHORT, 5 LONG, 6 DOUBLE, 7 LIST, 8
    CLASS, 9 PASSWORD; 0 if unknown.
    """

    documentation: str | None = string(since=3, nullable_since=0, ignorable=True)
    """The documentation of the configuration."""


class DescribeConfigsResult(Struct):
    """Configurations of one resource: an element of `DescribeConfigsResponse.results`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    resource_type: int = i8()
    """The type of the resource, as numbered in Kafka's ConfigResource.Type."""

    resource_name: str = string()
    """The name of the resource that has the configs."""

    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)
    """The configurations of the resource."""


class DescribeConfigsResponse(Response, request=DescribeConfigsRequest):
    """Response to `DescribeConfigsRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds ConfigSource and the synonyms.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 adds the type and the documentation of each configuration.

    Version 4 is the first flexible version.

    Source: `DescribeConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
    """The result for each resource."""
