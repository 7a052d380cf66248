"""The DescribeConfigs API (key 32), all versions."""

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
    """Element of `DescribeConfigsRequest.resources`.

    Source: `DescribeConfigsRequest.json`, struct `DescribeConfigsResource`.
    """

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""

    configuration_keys: list[str] | None = array(string, nullable_since=0)
    """The configuration keys to list, or null to list all configuration keys."""


class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Request of the DescribeConfigs API.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 adds IncludeSynonyms and removes IsDefault.

    Version 2 is the same as version 1.

    Version 4 enables flexible versions.

    Source: `DescribeConfigsRequest.json`.
    """

    API_KEY = 32
    NAME = "DescribeConfigs"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    """The resources whose configurations we want to describe."""

    include_synonyms: bool = boolean(since=1)
    """True if we should include all synonyms."""

    include_documentation: bool = boolean(since=3)
    """True if we should include configuration documentation."""


class DescribeConfigsSynonym(Struct):
    """Element of `DescribeConfigsResourceResult.synonyms`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsSynonym`.
    """

    name: str = string(since=1)
    """The synonym name."""

    value: str | None = string(since=1, nullable_since=0)
    """The synonym value."""

    source: int = i8(since=1)
    """The synonym source."""


class DescribeConfigsResourceResult(Struct):
    """Element of `DescribeConfigsResult.configs`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsResourceResult`.
    """

    name: str = string()
    """The configuration name."""

    value: str | None = string(nullable_since=0)
    """The configuration value."""

    read_only: bool = boolean()
    """True if the configuration is read-only."""

    is_default: bool = boolean(until=0)
    """True if the configuration is not set."""

    config_source: int = i8(since=1, default=-1, ignorable=True)
    """The configuration source."""

    is_sensitive: bool = boolean()
    """True if this configuration is sensitive."""

    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, since=1, ignorable=True)
    """The synonyms for this configuration key."""

    config_type: int = i8(since=3, ignorable=True)
    """The configuration data type. Type can be one of the following values - BOOLEAN, STRING,
    INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD.
    """

    documentation: str | None = string(since=3, nullable_since=0, ignorable=True)
    """The configuration documentation."""


class DescribeConfigsResult(Struct):
    """Element of `DescribeConfigsResponse.results`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if we were able to successfully describe the configurations."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if we were able to successfully describe the configurations."""

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""

    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)
    """Each listed configuration."""


class DescribeConfigsResponse(Response, request=DescribeConfigsRequest):
    """Response to `DescribeConfigsRequest`.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 adds ConfigSource and the synonyms.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Version 4 enables flexible versions.

    Source: `DescribeConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
    """The results for each resource."""
