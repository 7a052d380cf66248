"""The levels that UpdateFeatures sets and refuses, compared with Kafka's controller."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.metadata.controller.feature_updates import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    update_features,
)
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.core.errors import InvalidUpdateVersion
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord, NoOpRecord
from aiokq.wire.quorum_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)
from aiokq.wire.registration_records import (
    BrokerFeature,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from aiokq.wire.struct import Message
from tests.unit.broker.metadata.kafka_decisions import DECISIONS, NODE, image_of, java_text

VOTERS = VotersRecord(
    voters=[
        VotersRecordVoter(
            voter_id=NODE,
            voter_directory_id=uuid.UUID(int=7001),
            endpoints=[],
            k_raft_version_feature=KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        )
    ]
)


def asked(
    image: MetadataImage,
    *updates: FeatureUpdate,
    kraft: int = 0,
    validate_only: bool = False,
) -> list[Message]:
    decision = update_features(
        image,
        updates,
        node_id=NODE,
        kraft_version=kraft,
        voters=VOTERS,
        min_insync_replicas=1,
        validate_only=validate_only,
    )
    return list(decision.records)


def register(image: MetadataImage, peers: dict[str, list[int]]) -> None:
    """Register brokers (`b4`) and controllers (`c5`) that know some levels of features."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for key, found in peers.items():
        node, _, feature = key.partition(":")
        ranges.setdefault(node, {})[feature] = found
    for node, features in ranges.items():
        number = int(node[1:])
        if node[0] == "b":
            image.brokers[number] = RegisterBrokerRecord(
                broker_id=number,
                features=[
                    BrokerFeature(name=n, min_supported_version=low, max_supported_version=high)
                    for n, (low, high) in features.items()
                ],
            )
        else:
            image.controllers[number] = RegisterControllerRecord(
                controller_id=number,
                features=[
                    ControllerFeature(name=n, min_supported_version=low, max_supported_version=high)
                    for n, (low, high) in features.items()
                ],
            )


@pytest.mark.parametrize("case", DECISIONS["features"], ids=lambda case: str(case["updates"]))
def test_levels_are_set_and_refused_as_by_kafka(case: dict) -> None:
    """Tools show the messages, and the records have to fit Kafka's next start."""
    image = image_of(case["known"], case["configs"])
    # Before registrations of controllers exist, Kafka does not look at them.
    known = case["known"]["metadata.version"] >= 15
    register(image, {key: v for key, v in case["peers"].items() if key[0] == "b" or known})
    updates = [FeatureUpdate(*update) for update in case["updates"]]
    kraft, only = case["kraft"], case["validate_only"]
    if case["error"]:
        with pytest.raises(InvalidUpdateVersion) as refused:
            asked(image, *updates, kraft=kraft, validate_only=only)
        assert (refused.value.code, refused.value.message) == (case["error"], case["message"])
        return
    records = asked(image, *updates, kraft=kraft, validate_only=only)
    kafka = case["records"]
    if any(update.name == "kraft.version" for update in updates):
        # Kafka writes the control records elsewhere, and the empty record also without a change.
        upgraded = updates[0].level > kraft
        assert kafka in (["NoOpRecord()"], [])
        assert records == (
            [KRaftVersionRecord(k_raft_version=1), VOTERS, NoOpRecord()] if upgraded else []
        )
    else:
        assert sorted(java_text(records)) == sorted(kafka)
        for record in records:
            image.replay(record)


def test_settings_come_before_the_level_that_needs_them() -> None:
    """A reader that stops in between must not find eligible replicas without the setting."""
    image = image_of({"metadata.version": 25}, {"3:min.insync.replicas": "2"})
    records = asked(image, FeatureUpdate("eligible.leader.replicas.version", 1))
    assert java_text(records) == [
        "ConfigRecord(resourceType=4, resourceName='', name='min.insync.replicas', value='1')",
        "ConfigRecord(resourceType=4, resourceName='3', name='min.insync.replicas', value=null)",
        "FeatureLevelRecord(name='eligible.leader.replicas.version', featureLevel=1)",
    ]


UNSUPPORTED = ("share.version", "streams.version")


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize(("level", "kind"), [(0, SAFE_DOWNGRADE), (2, UPGRADE)])
def test_a_feature_that_does_not_work_here_is_not_touched(name: str, level: int, kind: int) -> None:
    """Kafka may have set it, and would lose it if it were turned off here."""
    image = image_of({"metadata.version": 29, name: 1})
    kept = "3 does not support this feature, and keeps the level 1 that Apache Kafka has set"
    with pytest.raises(InvalidUpdateVersion, match=kept):
        asked(image, FeatureUpdate(name, level, kind))


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("kind", [UPGRADE, SAFE_DOWNGRADE])
def test_a_feature_that_does_not_work_here_may_be_named_with_its_level(
    level: int, kind: int
) -> None:
    """Kafka's tool names all features of a release, with level 0 for those that it lacks."""
    image = image_of({"metadata.version": 29, **dict.fromkeys(UNSUPPORTED, level)})
    updates = [FeatureUpdate(name, level, kind) for name in UNSUPPORTED]
    records = asked(image, FeatureUpdate("metadata.version", 28, SAFE_DOWNGRADE), *updates)
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=28)]


def test_a_feature_that_kafka_does_not_have_is_not_found() -> None:
    """Kafka 4.2 says so for level 0, and for other levels that it is not supported."""
    image = image_of({"metadata.version": 25})
    for level, kind, reason in (
        (0, SAFE_DOWNGRADE, "Feature x not found."),
        (1, UPGRADE, "Local controller 3 does not support this feature."),
    ):
        with pytest.raises(InvalidUpdateVersion) as refused:
            asked(image, FeatureUpdate("x", level, kind))
        assert refused.value.message == f"Invalid update version {level} for feature x. {reason}"


def test_the_last_of_two_updates_of_one_feature_counts() -> None:
    """The request is a map in Kafka."""
    records = asked(
        image_of({"metadata.version": 22}),
        FeatureUpdate("metadata.version", 24),
        FeatureUpdate("metadata.version", 23, UPGRADE),
    )
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=23)]


def test_one_wrong_level_changes_none() -> None:
    """An update of several features is one change."""
    with pytest.raises(InvalidUpdateVersion, match=r"group\.version"):
        asked(
            image_of({"metadata.version": 22}),
            FeatureUpdate("metadata.version", 24),
            FeatureUpdate("group.version", 9),
        )


def test_control_records_come_first() -> None:
    """They are in a batch of their own, which is written before the data batch."""
    records = asked(
        image_of({"metadata.version": 22}),
        FeatureUpdate("metadata.version", 23),
        FeatureUpdate("kraft.version", 1),
    )
    assert [type(record).__name__ for record in records] == [
        "KRaftVersionRecord",
        "VotersRecord",
        "NoOpRecord",
        "FeatureLevelRecord",
    ]
