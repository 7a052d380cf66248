"""What a node keeps on disk, opened and closed as one: log directory, metadata log, topics.

Owns the order of opening and closing, and what becomes of partitions that nobody knows.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokq.broker.log import names
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata_log import METADATA_LOG, MetadataLog
from aiokq.broker.producer_ids import ProducerIds
from aiokq.broker.topics import TopicRegistry
from aiokq.core.supervisor import shielded
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.partitions import Partition
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.environment import Environment
    from aiokq.core.types import TopicPartition

__all__ = ["Storage"]

logger = logging.getLogger("aiokq.broker")


class Storage:
    """An open data directory.

    Attributes:
        directory: its logs.
        topics: what they are the logs of.
        producer_ids: the source of producer ids.
    """

    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        metadata: MetadataLog,
        topics: TopicRegistry,
    ) -> None:
        self.directory = directory
        self.topics = topics
        self.producer_ids = ProducerIds(metadata, environment.offload)
        self._environment = environment
        self._metadata = metadata

    @classmethod
    async def open(
        cls,
        environment: Environment,
        settings: BrokerSettings,
        path: str,
        *,
        node_id: int | None,
        opened: Callable[[Partition], None],
        changed: Callable[[Partition], None],
    ) -> Storage:
        """Open a directory, off the loop: after a kill its logs are read through.

        Args:
            opened: called with each partition once it is there.
            changed: called with each partition that is deleted.

        Raises:
            KafkaStorage: the directory cannot be used; says what to do.
            ConfigError: it belongs to another node.
        """

        def open_directory() -> tuple[LogDirectory, MetadataLog]:
            directory = LogDirectory.open(
                environment.files,
                path,
                crc32c=crc32c,
                random=environment.random,
                node_id=node_id,
            )
            try:
                metadata = MetadataLog.open(environment.files, f"{path}/{METADATA_LOG}")
                _set_strays_aside(environment, directory, metadata)
            except BaseException:
                directory.close(clean=False)
                raise
            return directory, metadata

        directory, metadata = await shielded(
            environment.offload.run(open_directory), name="open the data directory"
        )
        topics = TopicRegistry(
            settings=settings,
            environment=environment,
            directory=directory,
            metadata=metadata,
            new_id=lambda: random_id(environment.random),
            opened=opened,
            changed=changed,
        )
        storage = cls(environment, directory, metadata, topics)
        try:
            await topics.load()
        except BaseException:
            await storage.close(clean=False)
            raise
        return storage

    async def close(self, clean: bool = True) -> None:
        """Close the logs; a clean close syncs them, so that the next start scans nothing.

        Raises:
            KafkaStorage: something could not be written; the next start recovers.
        """
        self._metadata.close()
        await shielded(
            self._environment.offload.run(self.directory.close, clean), name="close the logs"
        )


def _set_strays_aside(
    environment: Environment, directory: LogDirectory, metadata: MetadataLog
) -> None:
    """Rename partition directories that no topic owns, as Kafka does; nothing is deleted.

    They are left by a kill in the middle of a deletion, or were put there by hand.
    """
    for partition, topic_id in directory.partitions().items():
        topic = metadata.image.topics.get(partition.topic)
        if (
            topic is not None
            and partition.partition < topic.partitions
            and topic_id in (None, topic.topic_id)
        ):
            continue
        aside = _stray_directory(partition, random_id(environment.random))
        environment.files.rename(
            f"{directory.path}/{names.partition_directory(partition)}", f"{directory.path}/{aside}"
        )
        logger.warning(
            "no topic owns partition=%s topic_id=%s: its directory is now %s/%s",
            partition,
            topic_id,
            directory.path,
            aside,
        )


def _stray_directory(partition: TopicPartition, unique: uuid.UUID) -> str:
    suffix = f"-{partition.partition}.{unique.hex}{names.STRAY_DIRECTORY}"
    return partition.topic[: names.MAX_NAME - len(suffix)] + suffix
