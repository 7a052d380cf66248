"""Describes the features of a cluster, and changes their levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated, timeout_ms
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import frozen_map
from aiokq.cluster.targets import ANY, CONTROLLER
from aiokq.core import limits
from aiokq.core.errors import (
    ConfigError,
    FeatureUpdateFailed,
    InvalidUpdateVersion,
    KafkaError,
    UnsupportedVersion,
    error_for,
    raise_for,
)
from aiokq.core.frozen import frozen
from aiokq.wire.api_versions import ApiVersionsRequest
from aiokq.wire.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

__all__ = [
    "FeatureMetadata",
    "FeatureUpdate",
    "FeatureUpdated",
    "FinalizedVersionRange",
    "SupportedVersionRange",
    "UpgradeType",
    "describe_features",
    "update_features",
]

UpgradeType: TypeAlias = Literal["upgrade", "safe_downgrade", "unsafe_downgrade"]

_TYPES: Final[Mapping[str, int]] = {"upgrade": 1, "safe_downgrade": 2, "unsafe_downgrade": 3}

_OF_A_FEATURE: Final = (InvalidUpdateVersion.code, FeatureUpdateFailed.code)
"""Top-level error codes of UpdateFeatures that are the result of each feature.

Version 2 returns them at the top level, because it has no errors per feature.
"""

FEATURES_SINCE: Final = 3
"""First ApiVersions version with features.

Kafka 2.4 introduced the version; Kafka 2.7 added the features to it as tagged fields (KIP-584), so
Kafka 2.4 to 2.6 return none.
"""

UPGRADE_TYPES_SINCE: Final = 1
"""First UpdateFeatures version with unsafe downgrades and with `validate_only`."""


@frozen
class FinalizedVersionRange:
    """The finalized levels of a feature (KIP-584); the cluster uses `max_version_level`."""

    min_version_level: int
    max_version_level: int


@frozen
class SupportedVersionRange:
    """The levels of a feature that a broker supports."""

    min_version: int
    max_version: int


@frozen
class FeatureMetadata:
    """The features of a cluster, by name. ``finalized_features`` lacks features at level 0 (off).

    Attributes:
        finalized_features: levels in force in the cluster.
        finalized_features_epoch: offset in the metadata log up to which the broker has applied
            changes of features; None if unknown.
        supported_features: levels that the queried broker supports.
    """

    finalized_features: Mapping[str, FinalizedVersionRange]
    finalized_features_epoch: int | None
    supported_features: Mapping[str, SupportedVersionRange]


@frozen
class FeatureUpdate:
    """A change of a feature's level.

    Attributes:
        max_version_level: the new level; 0 turns the feature off and needs a downgrade type.
        upgrade_type: "upgrade"; "safe_downgrade", which is refused if metadata would be lost; or
            "unsafe_downgrade", which may lose metadata.
    """

    max_version_level: int
    upgrade_type: UpgradeType = "upgrade"


@frozen
class FeatureUpdated:
    """The result of changing the level of one feature."""

    feature: str
    error: KafkaError | None = None


async def describe_features(
    engine: ClusterEngine, node_id: int | None, *, timeout: float | None
) -> FeatureMetadata:
    """Implement `Admin.describe_features`."""
    if node_id is not None:
        limits.count(node_id, "node_id", 0)

    def request(version: int) -> ApiVersionsRequest:
        if version < FEATURES_SINCE:
            raise UnsupportedVersion(
                "the broker is older than 2.7: it has no features", api="ApiVersions"
            )
        return ApiVersionsRequest()

    async def ask(remaining: float) -> FeatureMetadata:
        response = await engine.router.request(
            request, ApiVersionsRequest, ANY if node_id is None else node_id, timeout=remaining
        )
        raise_for(response.error_code, api="ApiVersions")
        epoch = response.finalized_features_epoch
        return FeatureMetadata(
            frozen_map(
                (each.name, FinalizedVersionRange(each.min_version_level, each.max_version_level))
                for each in sorted(response.finalized_features, key=lambda each: each.name)
            ),
            None if epoch < 0 else epoch,
            frozen_map(
                (each.name, SupportedVersionRange(each.min_version, each.max_version))
                for each in sorted(response.supported_features, key=lambda each: each.name)
            ),
        )

    return await repeated(engine, ask, api="ApiVersions", timeout=timeout)


async def update_features(
    engine: ClusterEngine,
    updates: Mapping[str, int | FeatureUpdate],
    *,
    validate_only: bool,
    timeout: float | None,
) -> Results[str, FeatureUpdated]:
    """Implement `Admin.update_features`."""
    wanted = {name: _checked(name, update) for name, update in updates.items()}

    async def attempt(
        left: Mapping[str, FeatureUpdate], remaining: float
    ) -> dict[str, FeatureUpdated | KafkaError]:
        response = await engine.router.request(
            lambda version: _request(
                left,
                version,
                validate_only=validate_only,
                broker_timeout_ms=timeout_ms(engine, remaining),
            ),
            UpdateFeaturesRequest,
            CONTROLLER,
            timeout=remaining,
        )
        return _outcomes(left, response)

    outcomes = await per_item(engine, wanted, attempt, api="UpdateFeatures", timeout=timeout)
    return results_of(outcomes, FeatureUpdated)


def _checked(name: str, update: int | FeatureUpdate) -> FeatureUpdate:
    if not isinstance(name, str):
        raise TypeError(f"updates must have names of features (str) as keys, not {name!r}")
    if not isinstance(update, FeatureUpdate):
        update = FeatureUpdate(update)
    level, kind = update.max_version_level, update.upgrade_type
    limits.whole(level, f"level of {name}", 0, limits.INT16_MAX)
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ConfigError(f"{name}: upgrade_type must be one of {', '.join(_TYPES)}, not {kind!r}")
    if level == 0 and kind == "upgrade":
        raise ConfigError(
            f"{name}: level 0 turns the feature off, which is a downgrade: use "
            "FeatureUpdate(0, 'safe_downgrade') or FeatureUpdate(0, 'unsafe_downgrade')"
        )
    return update


def _request(
    updates: Mapping[str, FeatureUpdate],
    version: int,
    *,
    validate_only: bool,
    broker_timeout_ms: int,
) -> UpdateFeaturesRequest:
    typed = version >= UPGRADE_TYPES_SINCE
    if not typed:
        unsafe = any(update.upgrade_type == "unsafe_downgrade" for update in updates.values())
        if validate_only or unsafe:
            lacking = (
                "update features with validate_only" if validate_only else "downgrade unsafely"
            )
            raise UnsupportedVersion(
                f"the broker is older than 3.3: it cannot {lacking}", api="UpdateFeatures"
            )
    return UpdateFeaturesRequest(
        timeout_ms=broker_timeout_ms,
        feature_updates=[
            FeatureUpdateKey(
                feature=name,
                max_version_level=update.max_version_level,
                **(
                    {"upgrade_type": _TYPES[update.upgrade_type]}
                    if typed
                    else {"allow_downgrade": update.upgrade_type != "upgrade"}
                ),
            )
            for name, update in updates.items()
        ],
        validate_only=validate_only,
    )


def _outcomes(
    updates: Mapping[str, FeatureUpdate], response: UpdateFeaturesResponse
) -> dict[str, FeatureUpdated | KafkaError]:
    code, message = response.error_code, response.error_message
    if code in _OF_A_FEATURE:
        return {name: error_for(code, message, api="UpdateFeatures") for name in updates}
    raise_for(code, message, api="UpdateFeatures")
    found: dict[str, FeatureUpdated | KafkaError] = {}
    for result in response.results:
        found[result.feature] = (
            error_for(result.error_code, result.error_message, api="UpdateFeatures")
            if result.error_code
            else FeatureUpdated(result.feature)
        )
    return found or {name: FeatureUpdated(name) for name in updates}
