"""The ApiVersions API (key 18), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ApiVersion",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "FinalizedFeatureKey",
    "SupportedFeatureKey",
]


class ApiVersionsRequest(Request["ApiVersionsResponse"]):
    """Request of the ApiVersions API.

    Versions 0 through 2 of ApiVersionsRequest are the same.

    Version 3 is the first flexible version and adds ClientSoftwareName and
    ClientSoftwareVersion.

    Version 4 fixes KAFKA-17011, which blocked SupportedFeatures.MinVersion in the response
    from being 0.

    Source: `ApiVersionsRequest.json`.
    """

    API_KEY = 18
    NAME = "ApiVersions"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3

    client_software_name: str = string(since=3, ignorable=True)
    """The name of the client."""

    client_software_version: str = string(since=3, ignorable=True)
    """The version of the client."""


class ApiVersion(Struct):
    """Element of `ApiVersionsResponse.api_keys`.

    Source: `ApiVersionsResponse.json`, struct `ApiVersion`.
    """

    api_key: int = i16()
    """The API index."""

    min_version: int = i16()
    """The minimum supported version, inclusive."""

    max_version: int = i16()
    """The maximum supported version, inclusive."""


class SupportedFeatureKey(Struct):
    """Element of `ApiVersionsResponse.supported_features`.

    Source: `ApiVersionsResponse.json`, struct `SupportedFeatureKey`.
    """

    name: str = string(since=3)
    """The name of the feature."""

    min_version: int = i16(since=3)
    """The minimum supported version for the feature."""

    max_version: int = i16(since=3)
    """The maximum supported version for the feature."""


class FinalizedFeatureKey(Struct):
    """Element of `ApiVersionsResponse.finalized_features`.

    Source: `ApiVersionsResponse.json`, struct `FinalizedFeatureKey`.
    """

    name: str = string(since=3)
    """The name of the feature."""

    max_version_level: int = i16(since=3)
    """The cluster-wide finalized max version level for the feature."""

    min_version_level: int = i16(since=3)
    """The cluster-wide finalized min version level for the feature."""


class ApiVersionsResponse(Response, request=ApiVersionsRequest):
    """Response to `ApiVersionsRequest`.

    Version 1 adds throttle time to the response.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Version 3 is the first flexible version. Tagged fields are only supported in the body but
    not in the header. The length of the header must not change in order to guarantee the
    backward compatibility.

    Starting from Apache Kafka 2.4 (KIP-511), ApiKeys field is populated with the supported
    versions of the ApiVersionsRequest when an UNSUPPORTED_VERSION error is returned.

    Version 4 fixes KAFKA-17011, which blocked SupportedFeatures.MinVersion from being 0.

    Source: `ApiVersionsResponse.json`.
    """

    error_code: int = i16()
    """The top-level error code."""

    api_keys: list[ApiVersion] = array(ApiVersion)
    """The APIs supported by the broker."""

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    """Features supported by the broker. Note: in v0-v3, features with MinSupportedVersion = 0
    are omitted.
    """

    finalized_features_epoch: int = i64(since=3, default=-1, tag=1, ignorable=True)
    """The monotonically increasing epoch for the finalized features information. Valid values
    are >= 0. A value of -1 is special and represents unknown epoch.
    """

    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    """List of cluster-wide finalized features. The information is valid only if
    FinalizedFeaturesEpoch >= 0.
    """

    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
    """Set by a KRaft controller if the required configurations for ZK migration are present."""
