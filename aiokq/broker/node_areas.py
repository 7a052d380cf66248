"""Implementations of the protocols in ``handlers.areas`` that combine several parts of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokq.broker.config.dynamic_settings import (
    effective_settings,
    is_store,
    listener_of_store,
)
from aiokq.broker.config.roles import DEFAULT_CONTROLLER
from aiokq.broker.endpoint import BrokerEndpoint
from aiokq.broker.metadata.image.features import KRAFT_VERSION, METADATA_VERSION, SUPPORTED_LEVELS
from aiokq.broker.metadata.quorum_description import (
    ControllerListener,
    FinalizedFeatures,
    QuorumDescription,
)
from aiokq.core.errors import ConfigError, InvalidRequest
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.quorum_records import VotersRecordEndpoint

if TYPE_CHECKING:
    from aiokq.broker.config.dynamic_settings import DynamicSettings
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.listening import NodeServers
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.changes import MetadataChanges
    from aiokq.broker.metadata.configs.config_sources import ConfigEntry, ConfiguredNode
    from aiokq.broker.metadata.configs.group_configs import GroupConfigs
    from aiokq.broker.metadata.controller.acl_changes import AclFilter
    from aiokq.broker.metadata.controller.feature_updates import FeatureUpdate
    from aiokq.broker.metadata.image.principals_image import AclValue
    from aiokq.broker.replica.fetch_sessions import FetchSessionCache
    from aiokq.broker.replica.purgatory import FetchPurgatory
    from aiokq.broker.security.authentication.sasl_login import SaslLogin
    from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
    from aiokq.broker.storage import Storage
    from aiokq.connection.request_context import CloseConnection, RequestContext
    from aiokq.connection.turn import Pace
    from aiokq.core.environment import Environment
    from aiokq.core.errors import BrokerError
    from aiokq.core.offload import Offload
    from aiokq.records.header import Checksum
    from aiokq.wire.alter_user_scram_credentials import (
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from aiokq.wire.principal_records import AccessControlEntryRecord
    from aiokq.wire.registration_records import ControllerEndpoint
    from aiokq.wire.sasl_authenticate import SaslAuthenticateResponse
    from aiokq.wire.sasl_handshake import SaslHandshakeResponse
    from aiokq.wire.struct import Response

__all__ = [
    "NodeAcls",
    "NodeCluster",
    "NodeConfigs",
    "NodeCredentials",
    "NodeHost",
    "NodeLogin",
    "NodeLogs",
    "NodeQuorum",
]


class NodeCluster:
    """The ids, API versions and brokers that the node's request handlers need.

    Implements `handlers.areas.Cluster`.
    """

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
        """Return the live brokers that advertise `listener`; see `Cluster.brokers` in `areas`."""
        return self._brokers(listener)


class NodeAcls:
    """The ACLs of the cluster. Implements `handlers.areas.Acls`."""

    __slots__ = ("_changes", "_enforcing")

    def __init__(self, changes: MetadataChanges, enforcing: StandardAuthorizer | None) -> None:
        self._changes = changes
        self._enforcing = enforcing

    @property
    def are_enforced(self) -> bool:
        return self._enforcing is not None

    async def matching(self, acl_filter: AclFilter, pace: Pace) -> list[AccessControlEntryRecord]:
        """Return the ACLs in force that match a filter."""
        found: list[AccessControlEntryRecord] = []
        for acl in [] if self._enforcing is None else list(self._enforcing.acls()):
            if acl_filter.matches(acl):
                found.append(acl)
            if pace.spend():
                await pace.next()
        return found

    async def create(self, acls: Sequence[AclValue], pace: Pace) -> list[BrokerError | None]:
        """Create ACLs; see `MetadataChanges.create_acls`."""
        return await self._changes.create_acls(acls, pace)

    async def delete(
        self, filters: Sequence[AclFilter], pace: Pace
    ) -> list[Sequence[AccessControlEntryRecord] | BrokerError]:
        """Delete the ACLs that match a filter; see `MetadataChanges.delete_acls`."""
        return await self._changes.delete_acls(filters, pace)


class NodeConfigs:
    """The settings of the node and of its groups."""

    __slots__ = ("_node", "_offload", "_servers", "dynamic_settings", "group_configs")

    def __init__(
        self,
        settings: DynamicSettings,
        group_configs: GroupConfigs,
        *,
        node: ConfiguredNode,
        servers: NodeServers,
        offload: Offload,
    ) -> None:
        self.dynamic_settings = settings
        self.group_configs = group_configs
        self._node = node
        self._servers = servers
        self._offload = offload

    @property
    def settings(self) -> BrokerSettings:
        return self.dynamic_settings.current

    async def check_stores(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Check the keys and certificates that a change of the node's settings names.

        Args:
            change: returns the node's own dynamic settings after the change, given those before the
                change.

        Raises:
            InvalidRequest: a listener has no TLS, or a store cannot be used.
            BrokerError: raised by ``change``.
        """
        dynamic = self.dynamic_settings
        stored = dynamic.stored_own
        wanted = {name: text.strip() for name, text in change(stored).items()}
        changed = [name for name, text in wanted.items() if stored.get(name) != text]
        listeners = {found: None for name in changed if (found := listener_of_store(name))}
        if not listeners and not any(map(is_store, stored.keys() - wanted.keys())):
            return
        after = effective_settings(dynamic.static, dynamic.stored_cluster, wanted).settings
        try:
            await self._servers.prepare_stores(after, listeners, self._offload)
        except ConfigError as error:
            raise InvalidRequest(f"Invalid dynamic configuration: {error.message}") from None

    def broker_entries(self) -> Iterable[ConfigEntry]:
        """Return the settings of the node with their sources; see `broker_config_entries`."""
        from aiokq.broker.metadata.configs.config_sources import broker_config_entries

        return broker_config_entries(self._node)


class NodeCredentials:
    """The SCRAM credentials of users in the node's metadata.

    Implements `handlers.areas.Credentials`.
    """

    __slots__ = ("_storage",)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def scram(self) -> list[tuple[str, int, int]]:
        """Return the user name, mechanism number and iterations of each credential."""
        principals = self._storage.metadata.image.principals
        return [
            (one.name, one.mechanism, one.iterations)
            for one in list(principals.scram_credentials.values())
        ]

    async def alter_scram(
        self,
        deletions: Sequence[ScramCredentialDeletion],
        upsertions: Sequence[ScramCredentialUpsertion],
        pace: Pace,
    ) -> Mapping[str, BrokerError | None]:
        """Set and delete credentials; see `MetadataChanges.alter_scram_credentials`."""
        return await self._storage.changes.alter_scram_credentials(deletions, upsertions, pace)


class NodeHost:
    """The clock, threads and files of the node's environment, and the CRC-32C function."""

    __slots__ = ("clock", "crc32c", "files", "offload")

    def __init__(self, environment: Environment, crc32c: Checksum) -> None:
        self.clock = environment.clock
        self.offload = environment.offload
        self.files = environment.files
        self.crc32c = crc32c


class NodeLogin:
    """The node's `SaslLogin`, made at the start if a listener uses SASL, else at its first use.

    Implements `handlers.areas.Login`.

    Args:
        make: returns the `SaslLogin`; called once.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], SaslLogin]) -> None:
        self._make = make
        self._made: SaslLogin | None = None

    def make_now(self) -> SaslLogin:
        """Return the `SaslLogin`; the first call makes it."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def handshake(
        self, connection: RequestContext, mechanism: str, *, sends_tokens: bool
    ) -> SaslHandshakeResponse:
        """Begin a login; see `SaslLogin.handshake`."""
        return self.make_now().handshake(connection, mechanism, sends_tokens=sends_tokens)

    async def authenticate(
        self, connection: RequestContext, message: bytes
    ) -> SaslAuthenticateResponse:
        """Continue a login; see `SaslLogin.authenticate`."""
        return await self.make_now().authenticate(connection, message)

    def authenticate_at_once(
        self, connection: RequestContext, message: bytes
    ) -> tuple[bytes, int] | None:
        """Continue a login if it need not wait; see `SaslLogin.authenticate_at_once`."""
        return self.make_now().authenticate_at_once(connection, message)

    async def token(self, connection: RequestContext, message: bytes) -> bytes:
        """Continue a login with a token that has no request header; see `SaslLogin.token`."""
        return await self.make_now().token(connection, message)

    def failure(self, reason: str, response: Response | None) -> CloseConnection:
        """Return the error of a failed login; see `SaslLogin.failure`."""
        return self.make_now().failure(reason, response)


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
        """The fetch sessions; created at their first use."""
        return self._sessions()

    @property
    def directories(self) -> LogDirectories:
        return self._storage.directories

    async def save_log_starts(self) -> None:
        """Write the log start offset of each log to its directory's checkpoint file."""
        await self._storage.save_log_starts()


class NodeQuorum:
    """The metadata quorum of which the node is the only voter."""

    __slots__ = ("_first_end_offset", "_servers", "_storage")

    def __init__(self, storage: Storage, servers: NodeServers) -> None:
        self._storage = storage
        self._servers = servers
        # From the start, the feature levels reflect all records before this offset, even while
        # `publisher.end_offset` is lower.
        self._first_end_offset = storage.metadata.high_watermark

    def describe(self) -> QuorumDescription:
        log = self._storage.metadata
        named = log.kraft_version > 0
        return QuorumDescription(
            log.node_id,
            log.epoch,
            self._storage.directories.metadata.directory_id if named else ZERO_UUID,
            log.end_offset,
            log.high_watermark,
            [ControllerListener(one.name, one.host, one.port) for one in self._controllers()],
        )

    def features(self) -> FinalizedFeatures:
        """Return the levels of the finalized features that this broker implements."""
        log, publisher = self._storage.metadata, self._storage.publisher
        levels = {
            name: level
            for name, level in publisher.features.items()
            if name in SUPPORTED_LEVELS or name == METADATA_VERSION
        }
        if log.kraft_version:
            levels[KRAFT_VERSION] = log.kraft_version
        end_offset = max(publisher.end_offset, self._first_end_offset)
        return FinalizedFeatures(levels, end_offset - 1)

    def fenced_brokers(self, listener: str) -> list[BrokerEndpoint]:
        """Return the registered brokers that have a listener, except this node.

        Each broker is returned with its address on the listener. This node is the only active
        broker, so all other registered brokers are fenced.
        """
        log = self._storage.metadata
        return [
            BrokerEndpoint(broker.broker_id, address.host, address.port, broker.rack)
            for broker in list(log.image.brokers.values())
            if broker.broker_id != log.node_id
            for address in broker.end_points
            if address.name == listener
        ]

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool
    ) -> None:
        """Change levels of features; the new levels are in effect on return.

        Raises:
            BrokerError: see `MetadataChanges.update_features`.
        """
        from aiokq.broker.metadata.log.voters import only_voter

        storage, controllers = self._storage, self._controllers()
        directories = storage.directories
        addresses = [
            VotersRecordEndpoint(name=one.name, host=one.host, port=one.port) for one in controllers
        ]
        default = VotersRecordEndpoint(**DEFAULT_CONTROLLER._asdict())
        voters = only_voter(
            storage.metadata.node_id, directories.metadata.directory_id, addresses or [default]
        )
        await storage.changes.update_features(
            updates,
            voters=voters,
            controller_endpoints=controllers,
            log_directories=directories.online_ids,
            validate_only=validate_only,
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker.

        Raises:
            BrokerError: see `MetadataChanges.unregister_broker`.
        """
        await self._storage.changes.unregister_broker(broker_id)

    def _controllers(self) -> list[ControllerEndpoint]:
        return self._servers.controller_records()
