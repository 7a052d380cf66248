"""The records of a start and of a stop of the only voter, in each level of the metadata."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from aiokq.broker.metadata.controller.registration import (
    bootstrap_records,
    feature_records,
    lacks_registration,
    leadership_records,
    registration_records,
    stop_records,
)
from aiokq.broker.metadata.image.features import METADATA_VERSIONS
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.image.replay import MetadataReplay
from aiokq.broker.metadata.image.topic_image import PartitionImage
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from aiokq.wire.principal_records import UserScramCredentialRecord
from aiokq.wire.registration_records import (
    BrokerEndpoint,
    ControllerEndpoint,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from aiokq.wire.struct import Message
from tests.unit.broker.metadata.metadata_logs import config, memory, opened, read

NODE = 3
TOPIC = uuid.UUID(int=1001)
HERE = uuid.UUID("11111111-1111-4111-8111-111111111111")
GONE = uuid.UUID("22222222-2222-4222-8222-222222222222")
UNASSIGNED, LOST = uuid.UUID(int=1), uuid.UUID(int=2)


def replayed(image: MetadataImage, records: Sequence[Message], level: int) -> MetadataImage:
    """Return the image after the records, as a log of this level has them."""
    after = image.copy()
    replay = MetadataReplay(after)
    for record in records:
        replay.replay(encode_metadata_record(record, record_version(record, level)))
    assert not replay.in_transaction
    return after


def image_of(*partitions: PartitionImage, level: int = 25) -> MetadataImage:
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    for index, partition in enumerate(partitions):
        image.replay(partition.record(TOPIC, index))
    return image


def partition(
    leader: int = NODE,
    isr: tuple[int, ...] = (NODE,),
    elr: tuple[int, ...] = (),
    last_known_elr: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (NODE,),
    directory: uuid.UUID | None = HERE,
) -> PartitionImage:
    return PartitionImage(
        replicas,
        isr,
        leader,
        leader_epoch=7,
        partition_epoch=9,
        directories=() if directory is None else (directory,) * len(replicas),
        elr=elr,
        last_known_elr=last_known_elr,
    )


def led(image: MetadataImage, *, unclean: bool = False) -> list[PartitionChangeRecord]:
    was_clean = (lambda _: False) if unclean else None
    return leadership_records(image, NODE, was_clean=was_clean, online_directories={HERE})


def registered(level: int = 25, **changes: object) -> list[Message]:
    arguments: dict[str, object] = {
        "node_id": NODE,
        "broker_incarnation": uuid.UUID(int=501),
        "controller_incarnation": uuid.UUID(int=502),
        "broker_epoch": 13,
        "endpoints": [BrokerEndpoint(name="PLAIN", host="a", port=9092, security_protocol=0)],
        "controller_endpoints": [
            ControllerEndpoint(name="CONTROLLER", host="b", port=9093, security_protocol=0)
        ],
        "log_directories": [GONE, HERE],
        "rack": "r1",
    }
    return registration_records(level, **{**arguments, **changes})  # type: ignore[arg-type]


# --- the first records of a log


def test_a_new_log_begins_with_the_features_of_a_new_directory() -> None:
    """In one transaction; eligible leader replicas need a setting of the cluster."""
    image = MetadataImage()
    records = bootstrap_records(image, None, min_insync_replicas=2)
    assert records[0] == BeginTransactionRecord(name="Bootstrap records")
    assert records[-1] == EndTransactionRecord()
    after = replayed(image, records, 25)
    assert after.features == {
        "metadata.version": 25,
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
    }
    assert after.configs == {(4, ""): {"min.insync.replicas": "2"}}
    assert bootstrap_records(after, None, min_insync_replicas=2) == []


def test_the_records_of_the_checkpoint_are_taken_as_they_are() -> None:
    """Also those that are no features, and in their order."""
    user = UserScramCredentialRecord(name="alice", mechanism=1, iterations=4096)
    given = [*feature_records({"share.version": 1, "metadata.version": 29}.items()), user]
    records = bootstrap_records(MetadataImage(), given, min_insync_replicas=2)
    assert records[1:-1] == given, "no setting: eligible leader replicas are off"
    assert [record.name for record in given[:2] if isinstance(record, FeatureLevelRecord)] == [
        "metadata.version",
        "share.version",
    ]


def test_old_levels_have_no_transactions() -> None:
    """Level 13 brought them."""
    for level in (7, 12, 13):
        given = feature_records([("metadata.version", level)])
        records = bootstrap_records(MetadataImage(), given, min_insync_replicas=1)
        assert (records == given) == (level < 13)
        assert replayed(MetadataImage(), records, level).metadata_version == level


@pytest.mark.parametrize("levels", [{}, {"group.version": 1}])
def test_a_checkpoint_without_a_level_is_refused(levels: dict[str, int]) -> None:
    """Nothing could tell in which versions the next records are to be written."""
    with pytest.raises(CorruptRecord, match=r"bootstrap\.checkpoint has no metadata\.version"):
        bootstrap_records(MetadataImage(), feature_records(levels.items()), min_insync_replicas=1)


@pytest.mark.parametrize("level", [6, 30])
def test_a_checkpoint_with_an_unknown_level_is_refused(level: int) -> None:
    """The file is sound: Apache Kafka's tool formats a directory for a newer release."""
    found = feature_records([("metadata.version", level)])
    with pytest.raises(CorruptRecord, match=rf"version {level}, but .* 7 to 29: use a newer aiokq"):
        bootstrap_records(MetadataImage(), found, min_insync_replicas=1)


def test_a_transaction_that_a_kill_left_open_is_aborted() -> None:
    """The next records would be part of it, and no reader would ever apply them."""
    files = memory()
    first = bootstrap_records(MetadataImage(), None, min_insync_replicas=1)
    opened(files, lead=False).lead(first[:3])  # a power cut between two batches of a start
    files.crash()
    state = read(files)
    assert (state.in_transaction, state.image.metadata_version) == (True, None)
    log = opened(files, lead=False)
    log.lead(bootstrap_records(state.image, None, min_insync_replicas=1, in_transaction=True))
    log.append(config(1))
    state = read(files)
    assert (state.in_transaction, state.image.metadata_version) == (False, 25)
    assert list(state.image.records()) == list(log.image.records())

    opened(files).append(BeginTransactionRecord(name="of an operation"))
    files.crash()
    state = read(files)
    assert state.in_transaction
    records = bootstrap_records(state.image, None, min_insync_replicas=1, in_transaction=True)
    assert [record.NAME for record in records] == ["AbortTransactionRecord"]


# --- registration


def test_a_start_registers_the_controller_and_an_active_broker() -> None:
    """The node serves at once, so it is not fenced first, as a broker of Kafka is."""
    after = replayed(image_of(), registered(), 25)
    broker, controller = after.brokers[NODE], after.controllers[NODE]
    assert (broker.broker_epoch, broker.incarnation_id) == (13, uuid.UUID(int=501))
    assert (broker.fenced, broker.in_controlled_shutdown, broker.rack) == (False, False, "r1")
    assert [(one.name, one.host, one.port) for one in broker.end_points] == [("PLAIN", "a", 9092)]
    assert controller.incarnation_id == uuid.UUID(int=502)
    assert [(one.name, one.host, one.port) for one in controller.end_points] == [
        ("CONTROLLER", "b", 9093)
    ]
    ranges = [
        ("eligible.leader.replicas.version", 0, 1),
        ("group.version", 0, 1),
        ("kraft.version", 0, 1),
        ("metadata.version", 7, 29),
        ("transaction.version", 0, 2),
    ]
    for features in (broker.features, controller.features):
        found = [
            (one.name, one.min_supported_version, one.max_supported_version) for one in features
        ]
        assert found == ranges


@pytest.mark.parametrize("level", sorted(METADATA_VERSIONS))
def test_each_level_has_the_registrations_that_its_records_allow(level: int) -> None:
    """Controllers came with level 15, directories with level 17."""
    records = registered(level)
    assert len(records) == 1 + (level >= 15)
    after = replayed(image_of(level=level), records, level)
    assert bool(after.controllers) == (level >= 15)
    assert after.brokers[NODE].log_dirs == ([HERE, GONE] if level >= 17 else [])


def test_directories_are_in_kafkas_order() -> None:
    """Kafka compares the halves of ids as signed numbers, so one that begins with f is first."""
    ids = [
        uuid.UUID("00000000-0000-4000-8000-000000000001"),
        uuid.UUID("00000000-0000-4000-0000-000000000001"),
        uuid.UUID("7fffffff-0000-4000-8000-000000000001"),
        uuid.UUID("f0000000-0000-4000-8000-000000000001"),
        uuid.UUID("80000000-0000-4000-8000-000000000001"),
    ]
    (broker,) = (
        record
        for record in registered(log_directories=random.Random(1).sample(ids, 5))
        if isinstance(record, RegisterBrokerRecord)
    )
    assert broker.log_dirs == [ids[4], ids[3], ids[0], ids[1], ids[2]]


def test_a_restart_replaces_the_registrations() -> None:
    """Only the newest incarnation counts."""
    first = replayed(image_of(), registered(), 25)
    again = registered(broker_epoch=40, controller_incarnation=uuid.UUID(int=777))
    after = replayed(first, again, 25)
    assert after.brokers[NODE].broker_epoch == 40
    assert isinstance(again[0], RegisterControllerRecord)
    assert after.controllers == {NODE: again[0]}


# --- leadership


def test_a_clean_start_with_nothing_changed_writes_no_partition() -> None:
    """A start with 10,000 partitions would write 10,000 records otherwise."""
    image = image_of(partition(), partition(replicas=(NODE, 4), isr=(NODE, 4)))
    assert led(image) == []


def test_only_partitions_of_a_directory_that_was_not_closed_cleanly_get_a_new_epoch() -> None:
    """The others lost nothing."""
    image = image_of(partition(), partition())
    records = leadership_records(
        image, NODE, was_clean=lambda one: one.partition == 0, online_directories={HERE}
    )
    assert [record.partition_id for record in records] == [1]


def test_an_unclean_start_raises_the_leader_epoch_of_every_partition_it_leads() -> None:
    """A power cut may have removed records that readers saw in the old epoch."""
    image = image_of(
        partition(), partition(leader=4, isr=(4,), replicas=(4, NODE)), partition(directory=None)
    )
    records = led(image, unclean=True)
    assert records == [
        PartitionChangeRecord(partition_id=index, topic_id=TOPIC, leader=NODE) for index in (0, 2)
    ]
    after = replayed(image, records, 25).topics["t"].partitions
    assert [one.leader_epoch for one in after] == [8, 7, 8]
    assert [one.leader for one in after] == [NODE, 4, NODE]


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        (partition(leader=-1), {}),
        (partition(leader=-1, isr=(4, NODE), replicas=(4, NODE)), {"isr": [NODE]}),
        (
            partition(leader=-1, isr=(), elr=(4, NODE), replicas=(4, NODE)),
            {"isr": [NODE], "eligible_leader_replicas": []},
        ),
        (
            partition(leader=-1, isr=(), elr=(NODE,), last_known_elr=(NODE,)),
            {"isr": [NODE], "eligible_leader_replicas": [], "last_known_elr": []},
        ),
        (
            partition(leader=-1, isr=(), last_known_elr=(NODE,), replicas=(4, NODE)),
            {"isr": [NODE], "last_known_elr": [], "leader_recovery_state": 1},
        ),
    ],
)
@pytest.mark.parametrize("unclean", [False, True])
def test_a_partition_without_a_leader_gets_this_node(
    given: PartitionImage, changes: dict[str, Any], unclean: bool
) -> None:
    """Kafka leaves it so at a controlled shutdown, and elects the node when it is back."""
    image = image_of(given)
    records = led(image, unclean=unclean)
    assert records == [
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=NODE, **changes)
    ]
    (after,) = replayed(image, records, 25).topics["t"].partitions
    assert after == given._replace(
        leader=NODE,
        isr=(NODE,),
        leader_epoch=8,
        partition_epoch=10,
        elr=(),
        last_known_elr=(),
        leader_recovery_state=changes.get("leader_recovery_state", 0),
    )


@pytest.mark.parametrize(
    "given",
    [
        partition(leader=4, isr=(4,), replicas=(4, NODE)),
        partition(leader=-1, isr=(4,), replicas=(4, NODE)),
        partition(leader=-1, isr=(4,), elr=(NODE,), replicas=(4, NODE)),
        partition(leader=-1, isr=(), elr=(4,), last_known_elr=(NODE,), replicas=(4, NODE)),
        partition(leader=-1, isr=(), last_known_elr=(4, NODE), replicas=(4, NODE)),
        partition(leader=-1, isr=(), replicas=(4, NODE)),
        partition(leader=-1, isr=(NODE,), replicas=(4,)),
    ],
)
@pytest.mark.parametrize("unclean", [False, True])
def test_a_partition_of_which_others_may_know_more_keeps_its_state(
    given: PartitionImage, unclean: bool
) -> None:
    """To lead it would drop acknowledged records."""
    assert led(image_of(given), unclean=unclean) == []


@pytest.mark.parametrize("leader", [-1, NODE])
@pytest.mark.parametrize(
    ("directory", "is_online"),
    [(HERE, True), (GONE, False), (LOST, False), (UNASSIGNED, True), (uuid.UUID(int=0), True)],
)
def test_a_partition_in_an_offline_directory_keeps_its_state(
    leader: int, directory: uuid.UUID, is_online: bool
) -> None:
    """The node cannot serve it; it is elected when the directory is back."""
    image = image_of(partition(leader=leader, directory=directory))
    assert bool(led(image, unclean=True)) == is_online


def test_levels_without_eligible_replicas_get_no_field_for_them() -> None:
    """The record could not be written."""
    image = image_of(partition(leader=-1, isr=(), elr=(NODE,), directory=None), level=16)
    records = led(image)
    (after,) = replayed(image, records, 16).topics["t"].partitions
    assert (after.leader, after.isr, after.leader_epoch) == (NODE, (NODE,), 8)


# --- stop


@pytest.mark.parametrize("level", sorted(METADATA_VERSIONS))
def test_a_clean_stop_fences_the_broker(level: int) -> None:
    """Kafka's next registration is refused for a session timeout otherwise."""
    image = replayed(image_of(level=level), registered(level), level)
    (record,) = stop_records(image, NODE)
    assert record_version(record, level) == 0
    after = replayed(image, [record], level)
    assert after.brokers[NODE].fenced
    assert stop_records(after, NODE) == [], "a second stop has nothing to add"


def test_a_node_that_never_registered_has_nothing_to_fence() -> None:
    """A start that failed early stops as well."""
    assert stop_records(image_of(), NODE) == []


@pytest.mark.parametrize(
    ("level", "has_controller", "directories", "lacks"),
    [
        (14, False, [], False),
        (15, False, [], True),
        (15, True, [], False),
        (17, True, [], True),
        (17, False, [HERE], True),
        (17, True, [HERE], False),
        (29, True, [HERE], False),
    ],
)
def test_a_node_registers_again_when_records_can_say_more(
    level, has_controller, directories, lacks
):
    """Its first registration was without controller, or without directories."""
    image = MetadataImage()
    image.features["metadata.version"] = level
    assert not lacks_registration(image, NODE), "a start registers the node first"
    image.brokers[NODE] = RegisterBrokerRecord(broker_id=NODE, log_dirs=directories)
    if has_controller:
        image.controllers[NODE] = RegisterControllerRecord(controller_id=NODE)
    assert lacks_registration(image, NODE) is lacks
