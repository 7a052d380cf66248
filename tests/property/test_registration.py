"""Whatever Kafka left, a start of the only voter lowers no epoch and drops no replica."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.metadata.controller.registration import leadership_records
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.image.replay import MetadataReplay
from aiokq.broker.metadata.image.topic_image import PartitionImage
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord, TopicRecord

NODE = 1
TOPIC = uuid.UUID(int=1001)
DIRECTORIES = [uuid.UUID(int=number) for number in (0, 1, 2, 200, 201)]
NODES = st.integers(1, 3)
SOME = st.lists(NODES, unique=True, max_size=3).map(tuple)


@st.composite
def partitions(draw: st.DrawFn, with_elr: bool) -> PartitionImage:
    replicas = draw(st.lists(NODES, unique=True, min_size=1, max_size=3))
    return PartitionImage(
        tuple(replicas),
        draw(SOME),
        draw(st.sampled_from([-1, 1, 2])),
        draw(st.integers(0, 100)),
        draw(st.integers(0, 100)),
        tuple(draw(st.sampled_from(DIRECTORIES)) for _ in replicas),
        elr=draw(SOME) if with_elr else (),
        last_known_elr=draw(SOME) if with_elr else (),
    )


@given(st.data(), st.sampled_from([17, 22, 23, 25, 29]))
def test_leader_epochs_never_decrease(data: st.DataObject, level: int) -> None:
    """Over any starts, and they grow whenever the leader changes or a start was unclean."""
    image = MetadataImage()
    image.replay(FeatureLevelRecord(name="metadata.version", feature_level=level))
    image.replay(TopicRecord(name="t", topic_id=TOPIC))
    for index, one in enumerate(data.draw(st.lists(partitions(level >= 23), max_size=4))):
        image.replay(one.record(TOPIC, index))
    for _ in range(3):
        unclean = data.draw(st.booleans())
        online = data.draw(st.sets(st.sampled_from(DIRECTORIES[3:])))
        before = list(image.topics["t"].partitions)
        records = leadership_records(
            image, NODE, was_clean=(lambda _: False) if unclean else None, online_directories=online
        )
        replay = MetadataReplay(image)
        for record in records:
            replay.replay(encode_metadata_record(record, record_version(record, level)))
        changed = {record.partition_id for record in records}
        for index, (old, new) in enumerate(zip(before, image.topics["t"].partitions, strict=True)):
            assert new.leader_epoch == old.leader_epoch + (index in changed)
            assert (new.replicas, new.directories) == (old.replicas, old.directories)
            if index in changed:
                assert new.leader == NODE
                assert NODE in new.replicas or old.leader == NODE
            if old.leader not in (NODE, -1) or (old.leader == NODE and not unclean):
                assert new == old
        again = leadership_records(image, NODE, was_clean=None, online_directories=online)
        assert again == [], "a clean start after it has nothing to change"
