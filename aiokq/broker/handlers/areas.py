"""Protocols for the areas of a node that handlers use, such as its topics or its logs.

A handler is a function ``handle(area, ..., request, call)``. Its parameters before ``request`` have
the names of fields of ``binding.Areas``. No handler has access to the node itself. Only type
checkers import this module.

Tests: ``tests/unit/broker/handlers/test_areas.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import uuid

    from aiokq.broker.config.dynamic_settings import DynamicSettings
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.shard import GroupShard
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.coordinator.transaction.shard import TransactionShard
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.endpoint import BrokerEndpoint
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.configs.config_sources import ConfigEntry
    from aiokq.broker.metadata.configs.group_configs import GroupConfigs
    from aiokq.broker.metadata.controller.acl_changes import AclFilter
    from aiokq.broker.metadata.controller.decision import Charge
    from aiokq.broker.metadata.controller.feature_updates import FeatureUpdate
    from aiokq.broker.metadata.controller.quota_changes import QuotaChange
    from aiokq.broker.metadata.controller.topic_layout import CreatedTopic, TopicSpec
    from aiokq.broker.metadata.image.principals_image import AclValue
    from aiokq.broker.metadata.publisher.topics import Topic
    from aiokq.broker.metadata.quorum_description import FinalizedFeatures, QuorumDescription
    from aiokq.broker.replica.fetch_sessions import FetchSessionCache
    from aiokq.broker.replica.partition import Partition
    from aiokq.broker.replica.purgatory import FetchPurgatory
    from aiokq.connection.request_context import CloseConnection, RequestContext
    from aiokq.connection.turn import Pace
    from aiokq.core.clock import Clock
    from aiokq.core.errors import BrokerError
    from aiokq.core.files import Files
    from aiokq.core.offload import Offload
    from aiokq.core.quota_keys import QuotaEntity
    from aiokq.core.types import TopicPartition
    from aiokq.records.control import EndTransactionMarker
    from aiokq.records.header import Checksum
    from aiokq.wire.alter_user_scram_credentials import (
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from aiokq.wire.principal_records import AccessControlEntryRecord
    from aiokq.wire.sasl_authenticate import SaslAuthenticateResponse
    from aiokq.wire.sasl_handshake import SaslHandshakeResponse
    from aiokq.wire.struct import Request, Response

__all__ = [
    "Acls",
    "Admission",
    "Changes",
    "ClientQuotas",
    "Cluster",
    "Configs",
    "Credentials",
    "Groups",
    "Handler",
    "Host",
    "Login",
    "Logs",
    "Markers",
    "ProducerIds",
    "Quorum",
    "Topics",
    "Transactions",
    "WrittenMarker",
]

R = TypeVar("R")

Handler = Callable[["Request[Response]", "Call"], Awaitable["Response | None"]]
"""A function that handles one request and returns its response.

It returns None for a Produce request with acks=0, which gets no response.
"""


class Topics(Protocol):
    """The topics and partitions of the node."""

    def sorted(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        ...

    def get(self, name: str) -> Topic | None:
        """Return the topic of this name; None if there is none."""
        ...

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic of this id; None if there is none."""
        ...

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return the partition of a topic by its index; None if it does not exist."""
        ...


class Changes(Protocol):
    """Changes of topics and settings; see ``metadata.changes.MetadataChanges``."""

    async def create_topic(
        self, spec: TopicSpec, *, validate_only: bool = False, charge: Charge | None = None
    ) -> CreatedTopic: ...

    async def create_topic_if_allowed(
        self, name: str, *, allowed: bool, charge: Charge | None = None
    ) -> None: ...

    async def delete_topic(self, topic: Topic, *, charge: Charge | None = None) -> None: ...

    async def create_partitions(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        charge: Charge | None = None,
    ) -> None: ...

    async def alter_topic_configs(
        self,
        topic: Topic,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None: ...

    async def alter_group_configs(
        self,
        group_id: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None: ...

    async def alter_broker_configs(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], Mapping[str, str]],
        *,
        named: Collection[str],
        validate_only: bool = False,
    ) -> None: ...


class Groups(Protocol):
    """The group coordinator; see ``coordinator.runtime.CoordinatorRuntime``."""

    async def write(
        self,
        key: str,
        operation: Callable[[GroupShard, Instant], Outcome[R]],
        *,
        producer: TransactionalProducer | None = None,
    ) -> R: ...

    def read(self, key: str, operation: Callable[[GroupShard], R]) -> R: ...

    def read_all(self, operation: Callable[[GroupShard], list[R]]) -> list[R]: ...

    async def locate(self, key: str) -> int: ...

    async def partition_of(self, key: str) -> TopicPartition: ...


class Transactions(Protocol):
    """The transaction coordinator; see ``coordinator.transaction.coordinator``."""

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: TransactionalProducer | None
    ) -> TransactionalProducer: ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None: ...

    def verify(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, BrokerError | None]: ...

    async def end(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        *,
        committed: bool,
        client_version: int,
    ) -> TransactionalProducer: ...

    def describe(self, transactional_id: str) -> TransactionMetadata: ...

    def read_all(self, operation: Callable[[TransactionShard], list[R]]) -> list[R]: ...

    async def locate(self, key: str) -> int: ...


class Admission(Protocol):
    """Adds partitions to transactions; see ``coordinator.transaction.coordinator``."""

    def add_now(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> bool: ...

    async def ensure(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partition: TopicPartition,
        *,
        add: Collection[TopicPartition],
    ) -> None: ...


class WrittenMarker(Protocol):
    """A transaction marker in the log of a partition."""

    @property
    def is_committed(self) -> bool:
        """Whether the marker is committed."""
        ...

    async def committed(self) -> None:
        """Wait until the marker is committed.

        Raises:
            BrokerError: the leadership of the partition ended before the commit, or the wait took
                too long.
        """
        ...


class Markers(Protocol):
    """Writes transaction markers; see ``coordinator.transaction.markers.LocalMarkers``."""

    def write(
        self,
        partition: TopicPartition,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> WrittenMarker | None:
        """Append a marker; return None if the partition does not exist.

        Raises:
            BrokerError: the marker was not appended.
        """
        ...


class Logs(Protocol):
    """The log directories, the fetches that read from them, and the removal of deleted files."""

    @property
    def purgatory(self) -> FetchPurgatory:
        """The fetches that wait for records."""
        ...

    @property
    def cold_reads(self) -> ColdReads:
        """Reads log data that is not in the page cache, without blocking the loop."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """The fetch sessions of KIP-227."""
        ...

    @property
    def directories(self) -> LogDirectories:
        """The log directories of this node."""
        ...

    async def save_log_starts(self) -> None:
        """Write the log start offsets to their checkpoint.

        Raises:
            KafkaStorage: an I/O error.
        """
        ...

    def purge_later(self) -> None:
        """Schedule the removal of deleted files, and return without waiting.

        Files of segments are removed after the `file.delete.delay.ms` of the topic. Directories of
        deleted partitions are removed after the broker's `log.segment.delete.delay.ms`.
        """
        ...


class ClientQuotas(Protocol):
    """The quotas of users, client ids and addresses; see ``node_quotas``."""

    @property
    def stored(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The quotas in the metadata, which are in effect."""
        ...

    async def alter(
        self, changes: Sequence[QuotaChange], pace: Pace, *, validate_only: bool
    ) -> Sequence[BrokerError | None]:
        """Change quotas; return the error of each change, None for success.

        Raises:
            KafkaStorage: the changes could not be recorded; nothing has changed.
        """
        ...


class Cluster(Protocol):
    """The cluster as clients see it."""

    @property
    def node_id(self) -> int:
        """The id of this node, which is also the controller."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, as in ``meta.properties``."""
        ...

    @property
    def advertised_versions(self) -> Sequence[tuple[int, int, int]]:
        """Key, oldest and newest version of each API."""
        ...

    def brokers(self, listener: str | None = None) -> list[BrokerEndpoint]:
        """Return the live brokers that advertise a listener, with their addresses on this listener.

        Args:
            listener: the listener's name; None for the inter-broker listener, which all brokers
                advertise.
        """
        ...


class Configs(Protocol):
    """The settings of the node and of groups."""

    @property
    def settings(self) -> BrokerSettings:
        """The settings in effect on this node."""
        ...

    @property
    def dynamic_settings(self) -> DynamicSettings:
        """The settings in effect, with the static and dynamic values from which they result."""
        ...

    @property
    def group_configs(self) -> GroupConfigs:
        """The settings that apply to individual groups."""
        ...

    async def check_stores(self, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Check the keys and certificates that a change of the node's settings names.

        Args:
            change: returns the node's own dynamic settings after the change, given those before the
                change.

        Raises:
            InvalidRequest: a listener has no TLS, or a store cannot be used.
            BrokerError: raised by ``change``.
        """
        ...

    def broker_entries(self) -> Iterable[ConfigEntry]:
        """Return the node's settings that have an effect, and all its stored dynamic settings."""
        ...


class Quorum(Protocol):
    """The metadata quorum, and the features and registrations that it records."""

    def describe(self) -> QuorumDescription:
        """Return the state of the metadata quorum."""
        ...

    def features(self) -> FinalizedFeatures:
        """Return the levels of the finalized features that this broker implements."""
        ...

    def fenced_brokers(self, listener: str) -> list[BrokerEndpoint]:
        """Return the fenced brokers, with their addresses on a listener.

        A broker without an address on the listener is left out.
        """
        ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool
    ) -> None:
        """Change levels of features; with `validate_only`, only check the changes.

        Raises:
            InvalidUpdateVersion: a level cannot be set; no level was changed.
            KafkaStorage: the change could not be recorded.
        """
        ...

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker.

        Raises:
            BrokerIdNotRegistered: no broker with this id is registered.
            InvalidRequest: the broker is this node.
            KafkaStorage: the change could not be recorded.
        """
        ...


class Acls(Protocol):
    """The ACLs of the cluster."""

    @property
    def are_enforced(self) -> bool:
        """Whether the node has an authorizer that decides by ACLs."""
        ...

    async def matching(self, acl_filter: AclFilter, pace: Pace) -> list[AccessControlEntryRecord]:
        """Return the ACLs in force that match a filter."""
        ...

    async def create(self, acls: Sequence[AclValue], pace: Pace) -> list[BrokerError | None]:
        """Create ACLs; see `MetadataChanges.create_acls`."""
        ...

    async def delete(
        self, filters: Sequence[AclFilter], pace: Pace
    ) -> list[Sequence[AccessControlEntryRecord] | BrokerError]:
        """Delete the ACLs that match a filter; see `MetadataChanges.delete_acls`."""
        ...


class Login(Protocol):
    """The logins of clients by SASL; see ``authentication.sasl_login.SaslLogin``."""

    def handshake(
        self, connection: RequestContext, mechanism: str, *, sends_tokens: bool
    ) -> SaslHandshakeResponse: ...

    async def authenticate(
        self, connection: RequestContext, message: bytes
    ) -> SaslAuthenticateResponse: ...

    def authenticate_at_once(
        self, connection: RequestContext, message: bytes
    ) -> tuple[bytes, int] | None: ...

    async def token(self, connection: RequestContext, message: bytes) -> bytes: ...

    def failure(self, reason: str, response: Response | None) -> CloseConnection: ...


class Credentials(Protocol):
    """The SCRAM credentials of users."""

    def scram(self) -> list[tuple[str, int, int]]:
        """Return the user name, mechanism number and iterations of each credential."""
        ...

    async def alter_scram(
        self,
        deletions: Sequence[ScramCredentialDeletion],
        upsertions: Sequence[ScramCredentialUpsertion],
        pace: Pace,
    ) -> Mapping[str, BrokerError | None]:
        """Set and delete credentials; return an error or None for each user.

        Raises:
            KafkaStorage: the changes could not be recorded; nothing has changed.
        """
        ...


class ProducerIds(Protocol):
    """The source of new producer ids."""

    async def next(self) -> int:
        """Return a producer id that was never given to a producer before.

        Raises:
            KafkaStorage: a block of ids could not be reserved.
            Closed: the node reserves no more producer ids.
        """
        ...


class Host(Protocol):
    """The clock, threads and files of the machine."""

    @property
    def clock(self) -> Clock:
        """Wall-clock and monotonic time."""
        ...

    @property
    def offload(self) -> Offload:
        """The threads for work that would block the event loop."""
        ...

    @property
    def files(self) -> Files:
        """The file system of the log directories."""
        ...

    @property
    def crc32c(self) -> Checksum:
        """The function that computes the checksum of record batches."""
        ...
