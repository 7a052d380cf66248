"""Requests that write every kind of metadata-file record that a request can cause.

`RECORDED` is the file that the last release writes for these requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aiokq import wire
from aiokq.broker.metadata.file_records import (
    FileRecord,
    GroupLine,
    ProducerIdsLine,
    SettingLine,
    TopicDeletedLine,
    TopicLine,
)
from aiokq.broker.metadata.image import MetadataImage
from aiokq.broker.metadata.records import MetadataRecord, config_records, partition_record
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.broker.harness import Broker

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND = 0, 1, 2
FILE = "/data/aiokq-metadata.log"

RECORDED: Final = Path(__file__).with_name("metadata_file.txt")


async def _alter(broker: Broker, kind: int, name: str, *changes: tuple[str, int, str | None]):
    response = await broker.ask(
        wire.IncrementalAlterConfigsRequest(
            resources=[
                wire.IncrementalAlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        wire.IncrementalAlterConfigsAlterableConfig(
                            name=setting, config_operation=operation, value=value
                        )
                        for setting, operation, value in changes
                    ],
                )
            ]
        ),
        1,
    )
    assert [one.error_code for one in response.responses] == [0]


async def _grow(broker: Broker, topic: str, count: int) -> None:
    response = await broker.ask(
        wire.CreatePartitionsRequest(
            topics=[wire.CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout_ms=1000,
        ),
        3,
    )
    assert [one.error_code for one in response.results] == [0]


async def change_everything(broker: Broker) -> None:
    """Make changes of each kind, the last of them a deletion."""
    await broker.create("orders", 3, retention_ms=1000, cleanup_policy="compact")
    await broker.create("plain", 1)
    await _grow(broker, "orders", 5)
    await _alter(
        broker,
        TOPIC,
        "orders",
        ("retention.ms", DELETE, None),
        ("cleanup.policy", APPEND, "delete"),
        ("max.message.bytes", SET, " 70000 "),
    )
    await broker.ask(
        wire.AlterConfigsRequest(
            resources=[
                wire.AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="orders",
                    configs=[
                        wire.AlterConfigsAlterableConfig(name="cleanup.policy", value="delete")
                    ],
                )
            ]
        ),
        2,
    )
    await _alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "60000"))
    await _alter(
        broker,
        GROUP,
        "g",
        ("consumer.session.timeout.ms", DELETE, None),
        ("consumer.heartbeat.interval.ms", SET, "6000"),
    )
    await _alter(broker, GROUP, "g", ("consumer.heartbeat.interval.ms", DELETE, None))
    await broker.ask(wire.InitProducerIdRequest(transactional_id=None), 4)
    await broker.create("again", 2)
    deleted = await broker.ask(
        wire.DeleteTopicsRequest(topics=[wire.DeleteTopicState(name="again")]), 6
    )
    assert [one.error_code for one in deleted.responses] == [0]


async def recorded_run() -> bytes:
    """Return the metadata file after all of these changes, a kill and a reset."""
    broker = Broker()
    async with broker:
        await change_everything(broker)
    broker = Broker(broker.files)
    await broker.node.open()
    await broker.create("third", 1)
    broker.files.crash()
    async with Broker(broker.files) as again:
        await again.node.reset()
        return again.files.read_bytes(FILE)


def records_of(line: FileRecord, image: MetadataImage) -> list[MetadataRecord]:
    """Return the metadata records that change an image as a line of the file does."""
    match line:
        case TopicLine(name, topic_id, count, configs):
            known = image.topics.get(name)
            if known is not None and known.topic_id != topic_id:
                return [
                    RemoveTopicRecord(topic_id=known.topic_id),
                    *records_of(line, MetadataImage()),
                ]
            present = 0 if known is None else len(known.partitions)
            return [
                *([TopicRecord(name=name, topic_id=topic_id)] if known is None else []),
                *(partition_record(topic_id, index, 0) for index in range(present, count)),
                *config_records(TOPIC, name, image.topic_configs(name), configs),
            ]
        case TopicDeletedLine(_, topic_id):
            known = topic_id in image.topics_by_id
            return [RemoveTopicRecord(topic_id=topic_id)] if known else []
        case ProducerIdsLine(next_producer_id):
            return [ProducerIdsRecord(next_producer_id=next_producer_id)]
        case SettingLine(name, value):
            return [ConfigRecord(resource_type=BROKER, resource_name="", name=name, value=value)]
        case GroupLine(group_id, configs):
            present = image.group_configs().get(group_id, {})
            return list(config_records(GROUP, group_id, present, configs))
    return [line]
