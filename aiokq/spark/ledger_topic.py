"""LedgerTopic: the compacted topic to which each transaction writes a summary of its rows.

This module creates the topic and reads its committed records; ledger.py and
exporting/transactions.py define the content of the records. All records are in partition 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from aiokq import ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from aiokq.errors import (
    ClusterAuthorization,
    ConfigError,
    RequestTimeout,
    TopicAuthorization,
    TopicExists,
)

if TYPE_CHECKING:
    from aiokq import Cluster

__all__ = ["LEDGER_TOPIC", "PARTITION", "LedgerTopic"]

LEDGER_TOPIC: Final = "aiokq-spark-ledger"
"""Default name of the topic."""

PARTITION: Final = 0
"""Number of the partition that has all records."""

CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    # Segments are small, because the log cleaner does not compact the active segment, and each new
    # process reads the whole topic.
    "segment.bytes": str(4 << 20),
}


class LedgerTopic:
    """Reads the ledger topic, and yields each committed record once; used on the event loop only.

    Args:
        option: name of the Spark option that names the topic, for error messages.

    Attributes:
        name: name of the topic.
    """

    def __init__(self, name: str, option: str) -> None:
        self.name = name
        self._option = option
        self._position: int | None = None

    async def added(
        self, cluster: Cluster, timeout: float
    ) -> AsyncIterator[tuple[bytes | None, bytes | None]]:
        """Yield key and value of each record that was committed since the last call.

        The first call creates the topic if it does not exist.

        Args:
            timeout: seconds to wait for the end of transactions that are open in the topic.

        Raises:
            ConfigError: the topic is not compacted, or was deleted and created again.
            RequestTimeout: a transaction in the topic was still open after `timeout`.
            KafkaError: the topic cannot be read or created.
        """
        place = TopicPartition(self.name, PARTITION)
        if self._position is None:
            await self._prepare(cluster)
            beginning = await cluster.offsets(place, "earliest")
            self._position = 0 if beginning is None else beginning.offset
        # The end is the high watermark, not the last stable offset, because committed records
        # behind an open transaction of another task must also be read.
        end = await cluster.offsets(place, "latest")
        assert end is not None
        if end.offset < self._position:
            self._position = None
            raise ConfigError(
                f"topic {self.name} was deleted and created again while it was in use: its "
                "entries are lost, so rows that are repeated may be written twice"
            )
        if end.offset == self._position:
            return
        try:
            async with asyncio.timeout(timeout):
                async for batch in cluster.read(
                    place, self._position, end.offset, isolation_level="read_committed"
                ):
                    for record in batch:
                        yield record.key, record.value
                    self._position = batch.next_offset
        except TimeoutError:
            raise RequestTimeout(
                f"a transaction in topic {self.name} is still open after {timeout:g} s: "
                "`aiokq transactions find-hanging` shows it"
            ) from None

    async def _prepare(self, cluster: Cluster) -> None:
        """Create the topic; if it exists, check that its cleanup.policy is compact."""
        async with cluster.admin() as admin:
            try:
                await admin.create_topics(
                    NewTopic(self.name, 1, configs=CONFIGS), raise_errors=True
                )
                return
            except (TopicExists, TopicAuthorization, ClusterAuthorization):
                # Without the permission to create topics, the topic must have been created before.
                pass
            resource = ConfigResource(ConfigResourceType.TOPIC, self.name)
            try:
                found = await admin.describe_configs([resource], raise_errors=True)
            except (TopicAuthorization, ClusterAuthorization):
                return
            policy = found[resource].entries["cleanup.policy"].value
        if policy != "compact":
            raise ConfigError(
                f"topic {self.name} has cleanup.policy={policy}, so the ledger would be deleted by "
                f"its age: set it to compact, or name another topic by {self._option}"
            )
