"""UpdateFeatures (API key 57): change the levels of the cluster's features."""

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
    """Change of one feature: an element of `UpdateFeaturesRequest.feature_updates`.

    Source: `UpdateFeaturesRequest.json`, struct `FeatureUpdateKey`.
    """

    feature: str = string()
    """The name of the feature to change."""

    max_version_level: int = i16()
    """The new finalized level of the feature; a value below 1 deletes the finalized feature."""

    allow_downgrade: bool = boolean(until=0)
    """Whether a lower level and the deletion of the feature are allowed. Version 1 replaces this
    field by `upgrade_type`.
    """

    upgrade_type: int = i8(since=1, default=1)
    """The permitted change: 1 for an upgrade, 2 for a downgrade without loss of metadata, 3 for a
    downgrade that may lose metadata.
    """


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"]):
    """Request of the UpdateFeatures API.

    Version 1 adds ValidateOnly.

    From version 2 on, the response has no results for single features.

    Source: `UpdateFeaturesRequest.json`.
    """

    API_KEY = 57
    NAME = "UpdateFeatures"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    timeout_ms: int = i32(default=60000)
    """How long the broker waits for the request to complete, in milliseconds."""

    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    """The change for each feature."""

    validate_only: bool = boolean(since=1)
    """Whether to validate the request without changing anything."""


class UpdatableFeatureResult(Struct):
    """Result for one feature: an element of `UpdateFeaturesResponse.results`.

    Source: `UpdateFeaturesResponse.json`, struct `UpdatableFeatureResult`.
    """

    feature: str = string()
    """The name of the feature that was to change."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""


class UpdateFeaturesResponse(Response, request=UpdateFeaturesRequest):
    """Response to `UpdateFeaturesRequest`.

    Source: `UpdateFeaturesResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message of the whole request, or null if there was no error."""

    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, ignorable=True)
    """The result for each feature."""
