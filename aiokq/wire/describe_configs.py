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

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 adds IncludeSynonyms; in the response, ConfigSource replaces IsDefault.

    Version 2 is the same as version 1.

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
    """Whether the response should have the synonyms of each configuration."""

    include_documentation: bool = boolean(since=3)
    """Whether the response should have the documentation of each configuration."""


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
    """The number of the configuration's type: BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST,
    CLASS or PASSWORD.
    """

    documentation: str | None = string(since=3, nullable_since=0, ignorable=True)
    """The configuration documentation."""


class DescribeConfigsResult(Struct):
    """Element of `DescribeConfigsResponse.results`.

    Source: `DescribeConfigsResponse.json`, struct `DescribeConfigsResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""

    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)
    """Each listed configuration."""


class DescribeConfigsResponse(Response, request=DescribeConfigsRequest):
    """Response to `DescribeConfigsRequest`.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 adds ConfigSource and the synonyms.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 4 is the first flexible version.

    Source: `DescribeConfigsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
    """The results for each resource."""
