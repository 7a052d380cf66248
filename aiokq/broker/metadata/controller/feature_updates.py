"""Decisions about UpdateFeatures requests, which change the levels of features.

`update_features` checks the levels and returns the metadata records to write. The functions depend
only on their arguments and have no side effects.

Source: Kafka ``FeatureControlManager.java``, ``ConfigurationControlManager.updateFeatures``,
``LeaderState.maybeAppendUpgradedKRaftVersion``; KIP-584, KIP-778, KIP-853, KIP-966.
Tests: ``tests/unit/broker/metadata/controller/test_feature_updates.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.controller.decision import Decision
from aiokq.broker.metadata.controller.registration import MIN_INSYNC_REPLICAS
from aiokq.broker.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_LEVELS,
    metadata_changed,
    supported_ranges,
)
from aiokq.broker.metadata.image.records import BROKER_CONFIG
from aiokq.core.errors import InvalidUpdateVersion
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import ConfigRecord, FeatureLevelRecord, NoOpRecord
from aiokq.wire.quorum_records import KRaftVersionRecord, VotersRecord

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.wire.registration_records import BrokerFeature, ControllerFeature
    from aiokq.wire.struct import Message

__all__ = [
    "SAFE_DOWNGRADE",
    "UNSAFE_DOWNGRADE",
    "UPGRADE",
    "FeatureUpdate",
    "update_features",
]

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3
"""``UPGRADE`` and the two constants after it are Kafka's upgrade types.

An upgrade type is the direction in which a request allows a level to change.
"""

_UPGRADE_TYPES: Final = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)


class FeatureUpdate(NamedTuple):
    """The level that a request sets for a feature.

    Attributes:
        level: 0 turns the feature off.
        upgrade_type: the direction that the request allows.
    """

    name: str
    level: int
    upgrade_type: int = UPGRADE


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    *,
    node_id: int,
    kraft_version: int,
    voters: VotersRecord,
    min_insync_replicas: int,
    validate_only: bool = False,
) -> Decision[None]:
    """Return the records that set all levels that a request names.

    If one of the levels cannot be set, no level changes. The control records of a new
    ``kraft.version`` come first. If the request names a feature twice, the last level counts.

    A feature that this broker does not implement keeps its level. A request may name this level, as
    Kafka's tool does when it downgrades all features to the levels of a release.

    Args:
        kraft_version: the level of ``kraft.version``, which is not in the image.
        voters: the voters to record in the log if ``kraft.version`` becomes 1.
        min_insync_replicas: ``min.insync.replicas`` of this node. If the request turns eligible
            leader replicas on, this value becomes the dynamic value for all brokers, unless there
            is one already, and dynamic values of this setting for single brokers are removed.

    Raises:
        InvalidUpdateVersion: a level cannot be set; the message says which, and why.
    """
    wanted = {update.name: update for update in updates}
    proposed = {**image.features, **{update.name: update.level for update in wanted.values()}}
    controls: list[Message] = []
    records: list[Message] = []
    for update in wanted.values():
        present = kraft_version if update.name == KRAFT_VERSION else _level(image, update.name)
        _check_direction(update, present, image, node_id)
        if update.name == METADATA_VERSION:
            _check_downgrade(update, present)
        elif update.name == KRAFT_VERSION:
            if update.level != present:
                controls = _kraft_upgrade(update, voters)
            continue
        elif update.name not in SUPPORTED_LEVELS:
            continue
        else:
            _check_dependencies(update, proposed)
        records.append(FeatureLevelRecord(name=update.name, feature_level=update.level))
    if validate_only:
        return Decision(None, ())
    if ELIGIBLE_LEADER_REPLICAS_VERSION in wanted and proposed[ELIGIBLE_LEADER_REPLICAS_VERSION]:
        records = [*_min_insync_replicas_records(image, min_insync_replicas), *records]
    return Decision(None, [*controls, *records])


def _level(image: MetadataImage, name: str) -> int:
    return image.features.get(name, 0)


def _check_direction(
    update: FeatureUpdate, present: int, image: MetadataImage, node_id: int
) -> None:
    """Check that all nodes support a level, and that the upgrade type allows the change to it."""
    if update.upgrade_type not in _UPGRADE_TYPES:
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    reason = _not_supported(update, present, image, node_id)
    if reason is not None:
        raise _invalid(update, reason)
    if update.level < present and update.upgrade_type == UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > present and update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")


def _not_supported(
    update: FeatureUpdate, present: int, image: MetadataImage, node_id: int
) -> str | None:
    """Return why a node does not support a level; None if every node supports it.

    Unlike in Kafka, a feature that this broker does not implement cannot be turned off. The feature
    keeps the level that Kafka has set.
    """
    own = supported_ranges().get(update.name)
    if own is None:
        return _not_kept(update, present, node_id)
    for who, (least, most) in _ranges(update.name, own, image, node_id):
        if not least <= update.level <= most:
            if not most:
                return f"{who} does not support this feature."
            return f"{who} only supports versions {_range_text(least, most)}"
    return None


def _not_kept(update: FeatureUpdate, present: int, node_id: int) -> str | None:
    """Return why a feature that this broker does not implement cannot get the requested level.

    The result is None if the feature is one of Kafka's and `present` is the requested level.
    """
    if update.level == present:
        return None if update.name in FEATURES else f"Feature {update.name} not found."
    reason = f"Local controller {node_id} does not support this feature"
    if present:
        reason += f", and keeps the level {present} that Apache Kafka has set"
    return f"{reason}."


def _ranges(
    name: str, own: tuple[int, int], image: MetadataImage, node_id: int
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each node that must support a feature, with its lowest and highest supported level."""
    yield f"Local controller {node_id}", own
    for broker in image.brokers.values():
        yield f"Broker {broker.broker_id}", _registered(broker.features, name)
    for controller in image.controllers.values():
        if controller.controller_id != node_id:
            yield f"Controller {controller.controller_id}", _registered(controller.features, name)


def _registered(
    features: Sequence[BrokerFeature] | Sequence[ControllerFeature], name: str
) -> tuple[int, int]:
    for feature in features:
        if feature.name == name:
            return feature.min_supported_version, feature.max_supported_version
    return 0, 0


def _range_text(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least}-{most}"


def _check_downgrade(update: FeatureUpdate, present: int) -> None:
    """Check that no metadata is lost by a change of metadata.version."""
    if update.level >= present or not metadata_changed(update.level, present):
        return
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        reason = "Unsafe metadata downgrade is not supported in this version."
    else:
        reason = (
            "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    raise InvalidUpdateVersion(
        f"Unsupported metadata.version downgrade from {present} to {update.level}. {reason}"
    )


def _kraft_upgrade(update: FeatureUpdate, voters: VotersRecord) -> list[Message]:
    """Return the records that put the voters of the quorum into the log."""
    if update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade the version of this feature.")
    # Kafka also appends a NoOpRecord: its controller waits until the offset of this record is
    # committed.
    return [KRaftVersionRecord(k_raft_version=update.level), voters, NoOpRecord()]


def _check_dependencies(update: FeatureUpdate, proposed: dict[str, int]) -> None:
    """Check that metadata.version has, or gets, the level that a feature needs."""
    needed = FEATURES[update.name].needs
    if update.level and proposed.get(METADATA_VERSION, 0) < needed:
        raise _invalid(
            update,
            f"{update.name} could not be set to {update.level} because it depends on "
            f"{METADATA_VERSION} level {needed}",
        )


def _min_insync_replicas_records(image: MetadataImage, static: int) -> Iterator[Message]:
    """Yield the records that give all brokers the same ``min.insync.replicas``.

    While eligible leader replicas are on, the controller decides by this setting which replicas are
    eligible.
    """
    if MIN_INSYNC_REPLICAS not in image.cluster_configs():
        yield _min_insync_replicas_record("", str(static))
    for (kind, name), configs in image.configs.items():
        if kind == BROKER_CONFIG and name and MIN_INSYNC_REPLICAS in configs:
            yield _min_insync_replicas_record(name, None)


def _min_insync_replicas_record(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=BROKER_CONFIG, resource_name=name, name=MIN_INSYNC_REPLICAS, value=value
    )


def _invalid(update: FeatureUpdate, reason: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(
        f"Invalid update version {update.level} for feature {update.name}. {reason}"
    )
