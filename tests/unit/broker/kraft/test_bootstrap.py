"""A log directory of aiokq handed over to Apache Kafka."""

from __future__ import annotations

import pytest

from aiokq.broker.kraft.bootstrap import hand_over
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.image import MetadataImage
from aiokq.broker.metadata.metadata_reader import MetadataReader
from aiokq.broker.metadata.topic_image import PartitionImage
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch
from tests.unit.broker.kraft.kafka_log import DIRECTORY, KafkaLog, partition, topic


def read_back(files: MemoryFiles, path: str) -> MetadataImage:
    """Return Kafka's metadata as replayed from a file."""
    files.mkdirs("/as/__cluster_metadata-0")
    name = f"{0:020d}-{0:010d}.checkpoint"
    files.write_atomic(f"/as/__cluster_metadata-0/{name}", files.read_bytes(path))
    return MetadataReader(files, "/as/__cluster_metadata-0", crc32c).read().image


async def test_kafka_is_told_of_every_topic() -> None:
    """The file has ids, configs, partitions with epochs, and the issued producer ids."""
    files = MemoryFiles()
    directories = ["/a", "/b"]
    async with Broker(files, directories=directories) as broker:
        await broker.create("orders", partitions=3)
        orders = broker.node.topics.get("orders")
        await broker.node.metadata.alter_topic_configs(orders, lambda _: {"retention.ms": "9"})
        await broker.produce("orders", batch(2))
        await broker.node.producer_ids.next()
        cluster_id = broker.node.cluster_id
        everywhere = broker.node.storage.directories.all
        ids = [parse_uuid(one.properties.directory_id) for one in everywhere]
        with pytest.raises(KafkaStorage, match="in use"):
            hand_over(files, directories, 0)
    done = hand_over(files, directories, 0)
    assert done == (cluster_id, 0, 1, 3, ("/a/bootstrap.checkpoint", "/b/bootstrap.checkpoint"))
    metadata = read_back(files, "/a/bootstrap.checkpoint")
    assert metadata.features["metadata.version"] == 25
    found = metadata.topics["orders"]
    assert found.topic_id == orders.topic_id
    plain = [one._replace(directories=()) for one in found.partitions]
    assert plain == [PartitionImage((0,), (0,), -1, 0)] * 3
    assert {one.directory_of(0) for one in found.partitions} == set(ids)
    assert metadata.topic_configs("orders") == {"retention.ms": "9"}
    assert metadata.next_producer_id == 1000
    async with Broker(files, directories=directories) as broker:
        assert broker.node.topics.partition("orders", 0).log.log_end_offset == 2
    with pytest.raises(ConfigError, match="name all log directories"):
        hand_over(files, ["/a"], 0)


async def test_metadata_of_kafkas_own_is_not_replaced() -> None:
    """Kafka would ignore aiokq's metadata."""
    log = KafkaLog(MemoryFiles())
    log.append(topic(), partition())
    async with Broker(log.files):
        pass
    with pytest.raises(ConfigError, match="move the directory away"):
        hand_over(log.files, ["/data"], 0)
    log.files.remove_tree(DIRECTORY)
    assert hand_over(log.files, ["/data"], 0).topics == 1


def test_what_is_no_directory_of_ours_is_refused() -> None:
    """The error names what the directory lacks."""
    files = MemoryFiles()
    with pytest.raises(ConfigError, match=r"no meta\.properties"):
        hand_over(files, ["/nothing"], 0)
    log = KafkaLog(files)
    files.remove_tree(DIRECTORY)
    with pytest.raises(ConfigError, match="start aiokq broker on the directory once"):
        hand_over(log.files, ["/data"], 0)
