"""The UpdateFeatures API (key 57), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "FeatureUpdateKey",
    "UpdatableFeatureResult",
    "UpdateFeaturesRequest",
    "UpdateFeaturesResponse",
]


class FeatureUpdateKey(Struct):
    """Element of `UpdateFeaturesRequest.feature_updates`.

    Source: `UpdateFeaturesRequest.json`, struct `FeatureUpdateKey`.
    """

    feature: str = string()
    """The name of the finalized feature to be updated."""

    max_version_level: int = i16()
    """The new maximum version level for the finalized feature. A value >= 1 is valid. A value <
    1, is special, and can be used to request the deletion of the finalized feature.
    """

    allow_downgrade: bool = boolean(until=0)
    """DEPRECATED in version 1 (see DowngradeType). When set to true, the finalized feature
    version level is allowed to be downgraded/deleted. The downgrade request will fail if the
    new maximum version level is a value that's not lower than the existing maximum finalized
    version level.
    """

    upgrade_type: int = i8(since=1, default=1)
    """Determine which type of upgrade will be performed: 1 will perform an upgrade only
    (default), 2 is safe downgrades only (lossless), 3 is unsafe downgrades (lossy).
    """


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """Request of the UpdateFeatures API.

    Version 1 adds validate only field.

    Version 2 changes the response to not return feature level results.

    Source: `UpdateFeaturesRequest.json`.
    """

    API_KEY = 57
    NAME = "UpdateFeatures"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    timeout_ms: int = i32(default=60000)
    """How long to wait in milliseconds before timing out the request."""

    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    """The list of updates to finalized features."""

    validate_only: bool = boolean(since=1)
    """True if we should validate the request, but not perform the upgrade or downgrade."""


class UpdatableFeatureResult(Struct):
    """Element of `UpdateFeaturesResponse.results`.

    Source: `UpdateFeaturesResponse.json`, struct `UpdatableFeatureResult`.
    """

    feature: str = string()
    """The name of the finalized feature."""

    error_code: int = i16()
    """The feature update error code or `0` if the feature update succeeded."""

    error_message: str | None = string(nullable_since=0)
    """The feature update error, or `null` if the feature update succeeded."""


class UpdateFeaturesResponse(Response, request=UpdateFeaturesRequest):
    """Response to `UpdateFeaturesRequest`.

    Source: `UpdateFeaturesResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The top-level error code, or `0` if there was no top-level error."""

    error_message: str | None = string(nullable_since=0)
    """The top-level error message, or `null` if there was no top-level error."""

    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
    """Results for each feature update."""
