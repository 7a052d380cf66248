"""What a node keeps on disk, opened and closed as one: log directory, metadata log, topics.

Owns the order of opening and closing, and what becomes of partitions that nobody knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.broker.group_configs import GroupConfigs
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.metadata_log import METADATA_LOG, MetadataLog
from aiokq.broker.producer_ids import ProducerIds
from aiokq.broker.topics import TopicRegistry
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.fastpath import crc32c

if TYPE_CHECKING:
    from aiokq.broker.partitions import Partition
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.environment import Environment

__all__ = ["Storage"]

logger = logging.getLogger("aiokq.broker")

CLOSERS: Final = 4
"""Logs closed at the same time. Four syncs at once are ten times as fast as one by one; more gain
little."""


class Storage:
    """An open data directory.

    Attributes:
        directory: its logs.
        topics: what they are the logs of.
        producer_ids: the source of producer ids.
        group_configs: the settings of single groups.
    """

    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        metadata: MetadataLog,
        topics: TopicRegistry,
        settings: BrokerSettings,
    ) -> None:
        self.directory = directory
        self.topics = topics
        self.producer_ids = ProducerIds(metadata, environment.offload)
        self.group_configs = GroupConfigs(metadata, environment.offload, settings)
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
        deleted: Callable[[Partition], None],
    ) -> Storage:
        """Open a directory, off the loop: after a kill its logs are read through.

        Args:
            opened: called with each partition once it is there.
            deleted: called with each partition that is deleted.

        Raises:
            KafkaStorage: the directory cannot be used; says what to do.
            ConfigError: it belongs to another node.
        """

        found: list[tuple[LogDirectory, MetadataLog]] = []

        def open_directory() -> None:
            directory = LogDirectory.open(
                environment.files,
                path,
                crc32c=crc32c,
                random=environment.random,
                now=environment.clock.monotonic,
                node_id=node_id,
            )
            try:
                metadata = MetadataLog.open(environment.files, f"{path}/{METADATA_LOG}")
                _set_strays_aside(directory, metadata)
            except BaseException:
                directory.close(clean=False)
                raise
            found.append((directory, metadata))

        try:
            await shielded(environment.offload.run(open_directory), name="open the data directory")
        except asyncio.CancelledError:
            for directory, metadata in found:  # or nobody could open it again
                metadata.close()
                directory.close(clean=False)
            raise
        [(directory, metadata)] = found
        topics = TopicRegistry(
            settings=settings,
            environment=environment,
            directory=directory,
            metadata=metadata,
            new_id=lambda: random_id(environment.random),
            opened=opened,
            deleted=deleted,
        )
        storage = cls(environment, directory, metadata, topics, settings)
        try:
            await topics.load()
        except BaseException:
            await storage.close(clean=False)
            raise
        return storage

    async def close(self, clean: bool = True) -> None:
        """Close the logs; a clean close syncs them, so that the next start scans nothing.

        A change to topics that is in work is finished first, whoever asked for it and left.

        Raises:
            KafkaStorage: something could not be written; the next start recovers.
        """
        await shielded(self._close(clean), name="close the logs")

    async def _close(self, clean: bool) -> None:
        """Several at a time: each waits for the disk, which commits what came meanwhile at once."""
        await self.topics.close()
        self._metadata.close()
        offload = self._environment.offload
        logs = list(self.directory.logs.values())
        async with Supervisor("close the logs") as supervisor:
            shares = [
                supervisor.spawn(
                    offload.run(self.directory.close_logs, share, clean), name="close logs"
                )
                for share in (logs[first::CLOSERS] for first in range(CLOSERS))
                if share
            ]
            for share in shares:
                await share
        await offload.run(self.directory.close, clean)

    async def save_log_starts(self) -> None:
        """Make durable, off the loop, that the records before each log's start are deleted.

        Raises:
            KafkaStorage: the disk refused.
        """
        self.directory.note_log_starts()
        await self._environment.offload.run(self.directory.save_log_starts)


def _set_strays_aside(directory: LogDirectory, metadata: MetadataLog) -> None:
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
        logger.warning(
            "no topic owns partition=%s topic_id=%s: its directory is now %s",
            partition,
            topic_id,
            directory.set_aside(partition),
        )
