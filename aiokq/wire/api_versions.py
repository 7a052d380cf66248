"""ApiVersions (API key 18): return the APIs and versions that a broker supports."""

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

    Versions 0 to 2 are the same.

    Version 3 is the first flexible version and adds ClientSoftwareName and
    ClientSoftwareVersion.

    From version 4 on, the response may have supported features with a minimum version of 0
    (KAFKA-17011).

    Source: `ApiVersionsRequest.json`.
    """

    API_KEY = 18
    NAME = "ApiVersions"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 3

    client_software_name: str = string(since=3, ignorable=True)
    """The name of the client software, such as `aiokq`."""

    client_software_version: str = string(since=3, ignorable=True)
    """The version of the software that `client_software_name` names."""


class ApiVersion(Struct):
    """One API and its supported versions: an element of `ApiVersionsResponse.api_keys`.

    Source: `ApiVersionsResponse.json`, struct `ApiVersion`.
    """

    api_key: int = i16()
    """The key of an API that the broker supports."""

    min_version: int = i16()
    """The oldest version that the broker supports."""

    max_version: int = i16()
    """The newest version that the broker supports."""


class SupportedFeatureKey(Struct):
    """Levels of one feature that the broker supports: an element of
    `ApiVersionsResponse.supported_features`.

    Source: `ApiVersionsResponse.json`, struct `SupportedFeatureKey`.
    """

    name: str = string(since=3)
    """The name of the feature."""

    min_version: int = i16(since=3)
    """The lowest level of the feature that the broker supports."""

    max_version: int = i16(since=3)
    """The highest level of the feature that the broker supports."""


class FinalizedFeatureKey(Struct):
    """Finalized level of one feature: an element of `ApiVersionsResponse.finalized_features`.

    Source: `ApiVersionsResponse.json`, struct `FinalizedFeatureKey`.
    """

    name: str = string(since=3)
    """The name of the feature."""

    max_version_level: int = i16(since=3)
    """The highest finalized level of the feature in the cluster."""

    min_version_level: int = i16(since=3)
    """The lowest finalized level of the feature in the cluster."""


class ApiVersionsResponse(Response, request=ApiVersionsRequest):
    """Response to `ApiVersionsRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 is the first flexible version. Its header has no tagged fields: a client sends the
    request before it knows the broker's versions, so the size of the response header must not
    change.

    From Apache Kafka 2.4 on (KIP-511), a response with the error UNSUPPORTED_VERSION has the
    supported versions of ApiVersions in ApiKeys.

    From version 4 on, supported features may have a minimum version of 0 (KAFKA-17011).

    Source: `ApiVersionsResponse.json`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    api_keys: list[ApiVersion] = array(ApiVersion)
    """The APIs that the broker supports."""

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, ignorable=True
    )
    """The features that the broker supports. Version 3 of the response leaves out features with a
    minimum version of 0.
    """

    finalized_features_epoch: int = i64(since=3, default=-1, tag=1, ignorable=True)
    """The epoch of the finalized features, which increases with each change; -1 if unknown."""

    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, ignorable=True
    )
    """The finalized features of the cluster; valid only if `finalized_features_epoch` is not -1."""

    zk_migration_ready: bool = boolean(since=3, tag=3, ignorable=True)
    """Whether the answering KRaft controller is configured for the migration from ZooKeeper."""
