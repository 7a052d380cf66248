"""UpdateFeatures (57), versions 0-2: change levels of features.

Either all changes of a request are made, or none.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_UPDATE_VERSION, KAFKA_STORAGE_ERROR. KIP-584, KIP-778.

v0  a flag that allows downgrades   v1  upgrade types, validate only   v2  no result per feature

Source: Kafka ``QuorumController.updateFeatures``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.controller.feature_updates import SAFE_DOWNGRADE, UPGRADE, FeatureUpdate
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Quorum
    from aiokq.broker.handlers.call import Call

FIRST_WITH_UPGRADE_TYPES: Final = 1
LAST_WITH_RESULTS: Final = 1


async def handle(
    quorum: Quorum, request: UpdateFeaturesRequest, call: Call
) -> UpdateFeaturesResponse:
    """Change the finalized levels of features; with `validate_only`, only check the changes."""
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
    except BrokerError as error:
        return UpdateFeaturesResponse(
            error_code=error.code, error_message=error.message, results=[]
        )
    updates = [_update(key, call.version) for key in request.feature_updates]
    try:
        await quorum.update_features(updates, validate_only=request.validate_only)
    except BrokerError as error:
        return UpdateFeaturesResponse(
            error_code=error.code,
            error_message="The update failed for all features since the following feature had an "
            f"error: {error.message}",
            results=[],
        )
    results = []
    if call.version <= LAST_WITH_RESULTS:
        results = [
            UpdatableFeatureResult(feature=update.name, error_code=0, error_message=None)
            for update in updates
        ]
    return UpdateFeaturesResponse(error_code=0, error_message=None, results=results)


def _update(key: FeatureUpdateKey, version: int) -> FeatureUpdate:
    upgrade_type = key.upgrade_type
    if version < FIRST_WITH_UPGRADE_TYPES:
        upgrade_type = SAFE_DOWNGRADE if key.allow_downgrade else UPGRADE
    return FeatureUpdate(key.feature, key.max_version_level, upgrade_type)
