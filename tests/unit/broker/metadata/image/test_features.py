"""The levels of features, compared with Kafka's own classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aiokq.broker.metadata.image import features
from aiokq.broker.metadata.image.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    SUPPORTED_LEVELS,
    metadata_changed,
    metadata_version_text,
    new_levels,
    release_version,
    supported_ranges,
)
from aiokq.core.errors import ConfigError

GOLDEN = json.loads(
    (Path(__file__).parents[4] / "golden" / "metadata" / "features.json").read_text()
)
LEVELS = [one for one in GOLDEN["metadata_versions"] if one["production"]]


def test_the_levels_of_the_metadata_version_are_kafkas() -> None:
    """A level that is missing, or that Kafka has not released, would be refused or written."""
    assert (GOLDEN["minimum"], GOLDEN["latest_production"]) == (
        MINIMUM_METADATA_VERSION,
        LATEST_METADATA_VERSION,
    )
    assert {one["level"]: one["name"] for one in LEVELS} == METADATA_VERSIONS


def test_metadata_changes_between_the_levels_at_which_kafkas_changes() -> None:
    """A downgrade across such a level loses records."""
    changed = {tuple(pair) for pair in GOLDEN["metadata_changed"]}
    for one in METADATA_VERSIONS:
        for other in METADATA_VERSIONS:
            assert metadata_changed(one, other) == ((one, other) in changed)


def test_features_have_kafkas_levels_and_defaults() -> None:
    """`kafka-storage format` and ours must make the same directory of the same options."""
    assert list(FEATURES) == list(GOLDEN["features"])
    for name, golden in GOLDEN["features"].items():
        feature = FEATURES[name]
        assert (feature.name, golden["minimum"]) == (name, 0)
        assert feature.maximum == golden["latest_production"]
        on = [one for one in golden["levels"] if one["level"]]
        assert [one["level"] for one in on] == list(range(1, feature.maximum + 1))
        assert feature.default_since == tuple(one["bootstrap_metadata_version"] for one in on)
        for one in on:
            needs = {} if feature.needs == GOLDEN["minimum"] else {METADATA_VERSION: feature.needs}
            assert one["dependencies"] == needs
    for one in LEVELS:
        found = {name: feature.default_at(one["level"]) for name, feature in FEATURES.items()}
        assert found == one["defaults"], one["name"]


def test_the_names_of_features_are_constants() -> None:
    """A misspelled name would be a feature of its own."""
    names = {value for name, value in vars(features).items() if name.endswith("_VERSION")}
    strings = {name for name in names if isinstance(name, str)}
    assert strings == {METADATA_VERSION, *FEATURES}
    assert FEATURES[ELIGIBLE_LEADER_REPLICAS_VERSION].needs == 23


@pytest.mark.parametrize(("text", "level"), GOLDEN["release_versions"].items())
def test_release_versions_are_read_as_by_kafkas_format(text: str, level: int | None) -> None:
    """Kafka's own rules for `4.0`, `4.0.1` and `4.0-IV3`."""
    if level is not None:
        assert release_version(text) == level
        return
    with pytest.raises(ConfigError, match=r"from 3\.3-IV3 to 4\.2-IV1"):
        release_version(text)


def test_levels_are_shown_with_their_name() -> None:
    """A number alone tells nobody which release is needed."""
    assert metadata_version_text(25) == "25 (4.0-IV3)"
    assert metadata_version_text(31) == "31"


def test_new_directories_have_only_features_that_work_here() -> None:
    """And only at levels of metadata.version that have them, so that Kafka opens the directory."""
    assert new_levels() == {
        "metadata.version": 25,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    for golden in LEVELS:
        levels = new_levels(golden["level"])
        assert levels.pop("metadata.version") == golden["level"]
        for name, level in levels.items():
            assert level <= SUPPORTED_LEVELS[name] <= FEATURES[name].maximum
            assert golden["level"] >= FEATURES[name].needs
        for name in ("group.version", "transaction.version"):
            assert levels.get(name, 0) == golden["defaults"][name]


def test_the_ranges_that_a_node_announces_are_sorted() -> None:
    """They are part of records, which must be the same at each start."""
    ranges = supported_ranges()
    assert list(ranges) == sorted(ranges)
    assert ranges["metadata.version"] == (7, 29)
    assert ranges["group.version"] == (0, 1)
