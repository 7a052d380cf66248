"""Conversion between metadata records and records of the metadata file, in both directions."""

from __future__ import annotations

import random
import uuid

import pytest

from aiokq.broker.metadata.file_adapter import (
    file_records,
    file_records_of_image,
    replay_line,
)
from aiokq.broker.metadata.file_records import (
    GroupLine,
    TopicDeletedLine,
    TopicLine,
    decode_records,
)
from aiokq.broker.metadata.image import MetadataImage
from aiokq.broker.metadata.metadata_file import read_image
from aiokq.broker.metadata.metadata_log import MetadataLog
from aiokq.broker.metadata.records import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    DirectoriesKnown,
    KafkaTakenOver,
    MetadataRecord,
    StartedUnclean,
    TopicTakenOver,
    partition_record,
)
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.file_samples import RECORDED, recorded_run

ID, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


async def test_the_file_is_byte_for_byte_what_the_last_release_writes():
    """The last release must be able to read the directory again."""
    assert await recorded_run() == RECORDED.read_bytes()


def test_a_recorded_file_is_read_line_by_line_to_what_it_says():
    """Each line has everything about its topic, and files of the last release stay readable."""
    image = MetadataImage()
    for line in RECORDED.read_text().splitlines()[1:]:
        for one in decode_records(line[9:]):
            replay_line(one, image, 7)
            if isinstance(one, TopicLine):
                topic = image.topics[one.name]
                assert (topic.topic_id, len(topic.partitions)) == (one.topic_id, one.partitions)
                assert image.topic_configs(one.name) == one.configs
                assert {partition.replicas for partition in topic.partitions} == {(7,)}
            elif isinstance(one, TopicDeletedLine):
                assert one.name not in image.topics
                assert not image.topic_configs(one.name)
    assert not image.topics


def content(image: MetadataImage) -> list[str]:
    """Return all content of an image, without the order of resources and of their configs."""
    lines = []
    for line in file_records_of_image(image):
        if isinstance(line, TopicLine | GroupLine):
            line = line._replace(configs=dict(sorted(line.configs.items())))
        lines.append(repr(line))
    return sorted(lines)


def random_append(rng: random.Random, image: MetadataImage) -> list[MetadataRecord]:
    """Random records for one append, as a controller or a takeover may make them."""
    after = image.copy()
    records: list[MetadataRecord] = []

    def give(record: MetadataRecord) -> None:
        after.replay(record)
        records.append(record)

    def config(kind: int, name: str) -> None:
        value = rng.choice([None, "1", "2"])
        give(
            ConfigRecord(
                resource_type=kind, resource_name=name, name=rng.choice("xyz"), value=value
            )
        )

    for _ in range(rng.randint(1, 6)):
        topics = list(after.topics.values())
        match rng.randint(0, 7):
            case 0:
                name = f"t{rng.randint(0, 3)}"
                if name not in after.topics:
                    topic_id = uuid.UUID(int=rng.getrandbits(128))
                    give(TopicRecord(name=name, topic_id=topic_id))
                    for index in range(rng.randint(1, 3)):
                        give(partition_record(topic_id, index, 0))
            case 1 if topics:
                give(RemoveTopicRecord(topic_id=rng.choice(topics).topic_id))
            case 2 if topics:
                topic = rng.choice(topics)
                give(partition_record(topic.topic_id, len(topic.partitions), 0))
            case 3 if topics:
                config(TOPIC_CONFIG, rng.choice(topics).name)
            case 4:
                config(GROUP_CONFIG, f"g{rng.randint(0, 2)}")
            case 5:
                config(BROKER_CONFIG, "")
            case 6 if topics:
                epochs = tuple(rng.randint(-1, 3) for _ in range(rng.randint(0, 2)))
                give(TopicTakenOver(rng.choice(topics).topic_id, (rng.randint(0, 3),), epochs))
            case 7:
                give(
                    rng.choice(
                        [
                            ProducerIdsRecord(next_producer_id=after.next_producer_id + 1000),
                            StartedUnclean(after.unclean_starts + 1),
                            KafkaTakenOver(rng.randint(0, 9), 1, ("a",)),
                            DirectoriesKnown({"A": "/a", "B": f"/{rng.randint(0, 9)}"}),
                        ]
                    )
                )
    return records


@pytest.mark.parametrize("seed", range(40))
def test_what_is_appended_is_read_back(seed: int):
    """Read back from the records, by a start, and after a compaction."""
    rng, files = random.Random(seed), MemoryFiles()
    log = MetadataLog.open(files, "/metadata")
    replayed = MetadataImage()
    for _ in range(40):
        records = random_append(rng, log.image)
        if not records:
            continue
        log.append(*records)
        replayed.replay_append(records)
        assert content(log.image) == content(replayed)
    read, size = read_image(files.read_bytes("/metadata"), "/metadata")
    assert size == len(files.read_bytes("/metadata"))
    assert content(read) == content(log.image)
    assert content(log.copy_image()) == content(log.image)


def test_all_that_one_append_says_of_a_topic_is_one_record_of_the_file():
    """The last release cannot read a topic that is split over two records."""
    image = MetadataImage()
    records = [
        TopicRecord(name="t", topic_id=ID),
        ConfigRecord(resource_type=TOPIC_CONFIG, resource_name="t", name="a", value="1"),
        partition_record(ID, 0, 0),
        partition_record(ID, 1, 0),
    ]
    assert file_records(records, image) == [TopicLine("t", ID, 2, {"a": "1"})]
    image.replay_append(records)
    again = [
        RemoveTopicRecord(topic_id=ID),
        TopicRecord(name="t", topic_id=OTHER),
        partition_record(OTHER, 0, 0),
    ]
    assert file_records(again, image) == [TopicDeletedLine("t", ID), TopicLine("t", OTHER, 1)]


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(partition_id=0, topic_id=ID, replicas=[0, 1], isr=[0, 1], leader=0),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        ConfigRecord(resource_type=BROKER_CONFIG, resource_name="1", name="a", value="b"),
    ],
)
def test_what_the_file_cannot_say_is_refused(record):
    """If it were left out, it would be gone after a restart."""
    log = MetadataLog.open(MemoryFiles(), "/metadata")
    with pytest.raises(ValueError, match="the metadata file cannot represent"):
        log.append(record)
    assert log.image.appends == 0


@pytest.mark.parametrize(
    "appends",
    [
        [[TopicRecord(name="a", topic_id=ID), TopicRecord(name="b", topic_id=ID)]],
        [[TopicRecord(name="a", topic_id=ID)], [TopicRecord(name="b", topic_id=ID)]],
        [
            [TopicRecord(name="a", topic_id=ID)],
            [RemoveTopicRecord(topic_id=ID), TopicRecord(name="b", topic_id=ID)],
        ],
    ],
)
def test_a_topic_id_that_another_topic_has_is_refused(appends):
    """The file would keep the line of only one of the two topics."""
    log = MetadataLog.open(MemoryFiles(), "/metadata")
    *before, last = appends
    for records in before:
        log.append(*records)
    with pytest.raises(ValueError, match=r"topic 'b' cannot be written: its id .* of topic 'a'"):
        log.append(*last)
    assert log.image.appends == len(before)
    assert "b" not in log.image.topics
