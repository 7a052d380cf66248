"""The areas of ``handlers.areas`` that combine several parts of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.endpoint import BrokerEndpoint
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.config_sources import ConfigEntry, ConfiguredNode
    from aiokq.broker.metadata.group_configs import GroupConfigs
    from aiokq.broker.replica.fetch_sessions import FetchSessionCache
    from aiokq.broker.replica.purgatory import FetchPurgatory
    from aiokq.broker.storage import Storage
    from aiokq.core.environment import Environment
    from aiokq.records.header import Checksum

__all__ = ["NodeCluster", "NodeConfigs", "NodeHost", "NodeLogs"]


class NodeCluster:
    """The cluster as this node sees it."""

    __slots__ = ("_brokers", "advertised_versions", "cluster_id", "node_id")

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        advertised_versions: Sequence[tuple[int, int, int]],
        *,
        brokers: Callable[[str | None], list[BrokerEndpoint]],
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.advertised_versions = advertised_versions
        self._brokers = brokers

    def brokers(self, listener: str | None = None) -> list[BrokerEndpoint]:
        """Return the live brokers that advertise `listener`; None is the inter-broker listener."""
        return self._brokers(listener)


class NodeConfigs:
    """The settings of the node and of its groups."""

    __slots__ = ("_node", "group_configs", "settings")

    def __init__(
        self, settings: BrokerSettings, group_configs: GroupConfigs, *, node: ConfiguredNode
    ) -> None:
        self.settings = settings
        self.group_configs = group_configs
        self._node = node

    def broker_entries(self) -> Iterable[ConfigEntry]:
        """Return the settings of the node that have an effect, with their sources."""
        from aiokq.broker.metadata.config_sources import broker_config_entries

        return broker_config_entries(self._node)


class NodeHost:
    """The clock, threads and files of the node's environment."""

    __slots__ = ("clock", "crc32c", "files", "offload")

    def __init__(self, environment: Environment, crc32c: Checksum) -> None:
        self.clock = environment.clock
        self.offload = environment.offload
        self.files = environment.files
        self.crc32c = crc32c


class NodeLogs:
    """The logs of the node's storage, and the fetches that read them."""

    __slots__ = ("_sessions", "_storage", "cold_reads", "purgatory", "purge_later")

    def __init__(
        self,
        purgatory: FetchPurgatory,
        cold_reads: ColdReads,
        storage: Storage,
        *,
        sessions: Callable[[], FetchSessionCache],
        purge_later: Callable[[], None],
    ) -> None:
        self.purgatory = purgatory
        self.cold_reads = cold_reads
        self.purge_later = purge_later
        self._storage = storage
        self._sessions = sessions

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """The fetch sessions; created by the first fetch."""
        return self._sessions()

    @property
    def directories(self) -> LogDirectories:
        """The log directories."""
        return self._storage.directories

    async def save_log_starts(self) -> None:
        """Write the log start offsets to the checkpoint file."""
        await self._storage.save_log_starts()
