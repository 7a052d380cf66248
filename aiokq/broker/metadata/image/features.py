"""Feature levels: the levels of metadata.version, and the other features of Kafka 4.2.

The level of `metadata.version` decides which records a metadata log may have. All levels but that
of `kraft.version` are set by a `FeatureLevelRecord`; `kraft.version` has a control record.

Source: Kafka `MetadataVersion.java`, `Feature.java` and its `FeatureVersion` classes.
Tests: `tests/unit/broker/metadata/image/test_features.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokq.broker.metadata.image.records import METADATA_VERSION
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "CONTROLLER_REGISTRATION",
    "DEFAULT_METADATA_VERSION",
    "DIRECTORY_ASSIGNMENT",
    "ELIGIBLE_LEADER_REPLICAS",
    "ELIGIBLE_LEADER_REPLICAS_VERSION",
    "FEATURES",
    "GROUP_VERSION",
    "KRAFT_VERSION",
    "LATEST_METADATA_VERSION",
    "METADATA_TRANSACTIONS",
    "METADATA_VERSION",
    "METADATA_VERSIONS",
    "MINIMUM_METADATA_VERSION",
    "NO_EPOCH_BUMP_ON_SHRINK",
    "SCRAM_CREDENTIALS",
    "SHARE_VERSION",
    "STREAMS_VERSION",
    "SUPPORTED_LEVELS",
    "TRANSACTION_VERSION",
    "Feature",
    "metadata_changed",
    "metadata_version_text",
    "new_levels",
    "release_version",
    "supported_ranges",
]

KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"

MINIMUM_METADATA_VERSION: Final = 7
LATEST_METADATA_VERSION: Final = 29
"""The highest supported level of metadata.version; level 30 is unstable in Kafka 4.2."""

DEFAULT_METADATA_VERSION: Final = 25
"""The default level of metadata.version of a new directory; every Kafka 4 release supports it."""

NO_EPOCH_BUMP_ON_SHRINK: Final = 12
"""The lowest level of metadata.version at which the leader epoch does not rise when a replica
leaves the in-sync replicas.
"""

SCRAM_CREDENTIALS: Final = 11
METADATA_TRANSACTIONS: Final = 13
CONTROLLER_REGISTRATION: Final = 15
DIRECTORY_ASSIGNMENT: Final = 17
ELIGIBLE_LEADER_REPLICAS: Final = 23
"""Each of these constants is the first level of metadata.version that supports what it names."""

METADATA_VERSIONS: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
}
"""Kafka's name of each level of metadata.version."""

_CHANGED: Final = frozenset((7, 8, 11, 13, 14, 15, 17, 23))
"""All levels of metadata.version that introduced records or fields of records."""


class Feature(NamedTuple):
    """A feature besides metadata.version. Level 0, the lowest, means that the feature is off.

    Attributes:
        default_since: for each level of the feature from 1 on, the lowest metadata.version at which
            Kafka's default for a new directory is at least this level.
        needs: the lowest level of metadata.version at which the feature may be on.
    """

    name: str
    default_since: tuple[int, ...]
    needs: int = MINIMUM_METADATA_VERSION

    @property
    def maximum(self) -> int:
        return len(self.default_since)

    def default_at(self, metadata_version: int) -> int:
        """Return the level that Kafka sets by default in a new directory at `metadata_version`."""
        return sum(since <= metadata_version for since in self.default_since)


FEATURES: Final[Mapping[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, (21,)),
        Feature(TRANSACTION_VERSION, (24, 24)),
        Feature(GROUP_VERSION, (22,)),
        Feature(ELIGIBLE_LEADER_REPLICAS_VERSION, (26,), needs=ELIGIBLE_LEADER_REPLICAS),
        Feature(SHARE_VERSION, (28,)),
        Feature(STREAMS_VERSION, (29,)),
    )
}
"""The features besides metadata.version, by name."""

SUPPORTED_LEVELS: Final[Mapping[str, int]] = {
    KRAFT_VERSION: 1,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    ELIGIBLE_LEADER_REPLICAS_VERSION: 1,
}
"""For each feature besides metadata.version, the highest level that this broker implements.

Levels of other features, which Kafka may have set, are kept and have no effect.
"""


def supported_ranges() -> dict[str, tuple[int, int]]:
    """Return the lowest and highest level of each feature that this broker implements, by name."""
    ranges = {name: (0, most) for name, most in SUPPORTED_LEVELS.items()}
    ranges[METADATA_VERSION] = MINIMUM_METADATA_VERSION, LATEST_METADATA_VERSION
    return dict(sorted(ranges.items()))


def new_levels(metadata_version: int = DEFAULT_METADATA_VERSION) -> dict[str, int]:
    """Return the levels, by name, of the features that are on by default in a new directory.

    The result has the features that this broker implements and that Kafka turns on in a new
    directory at ``metadata_version``. Eligible leader replicas are on at each metadata.version that
    allows them; Kafka turns them on from 26 (4.1) on. ``kraft.version`` is left out, because its
    level depends on the kind of quorum.
    """
    levels = {METADATA_VERSION: metadata_version}
    if metadata_version >= FEATURES[ELIGIBLE_LEADER_REPLICAS_VERSION].needs:
        levels[ELIGIBLE_LEADER_REPLICAS_VERSION] = 1
    for name in (GROUP_VERSION, TRANSACTION_VERSION):
        level = FEATURES[name].default_at(metadata_version)
        if level:
            levels[name] = level
    return levels


def metadata_version_text(level: int) -> str:
    """Return a level of metadata.version as messages show it, such as `25 (4.0-IV3)`."""
    name = METADATA_VERSIONS.get(level)
    return f"{level} ({name})" if name else f"{level}"


def metadata_changed(first: int, second: int) -> bool:
    """Whether records or fields differ between two known levels of metadata.version.

    Kafka refuses a downgrade between such levels, because metadata would be lost.
    """
    low, high = sorted((first, second))
    return any(low < level <= high for level in _CHANGED)


def release_version(text: str) -> int:
    """Return the level of metadata.version for a value of `--release-version`.

    A release, such as `4.0` or `4.0.1`, stands for its highest level; `4.0-IV3` is the name of a
    level. As in Kafka, only the first two parts of `4.0-IV3.1` count.

    Raises:
        ConfigError: Kafka 4.2 has no such release or level.
    """
    parts = text.rstrip(".").split(".")
    name = ".".join(parts[:2]) if len(parts) > 2 else text
    found = None
    for level, known in METADATA_VERSIONS.items():
        if name in (known, known.partition("-")[0]):
            found = level
    if found is None:
        oldest = METADATA_VERSIONS[MINIMUM_METADATA_VERSION]
        newest = METADATA_VERSIONS[LATEST_METADATA_VERSION]
        raise ConfigError(
            f"unknown release version {text!r}: give a release such as 4.0, or a metadata version "
            f"from {oldest} to {newest}"
        )
    return found
