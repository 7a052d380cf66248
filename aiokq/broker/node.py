"""One broker node: its log directories, topics, coordinators, listeners and background jobs.

The node opens, starts and closes its parts. The node and its parts run on one event loop.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.authorizer_settings import AUTHORIZER
from aiokq.broker.config.dynamic_settings import DynamicSettings, is_store
from aiokq.broker.config.listeners import Listeners
from aiokq.broker.config.roles import voter_address
from aiokq.broker.coordinator.group.coordinator import GroupCoordinator
from aiokq.broker.coordinator.transaction.coordinator import (
    TRANSACTIONS_TOPIC,
    TransactionCoordinator,
)
from aiokq.broker.coordinator.transaction.markers import LocalMarkers
from aiokq.broker.coordinator.transaction.transaction_recovery import TransactionRecovery
from aiokq.broker.directory_failures import DirectoryFailures
from aiokq.broker.dispatch import AskingDispatcher, Dispatcher
from aiokq.broker.endpoint import BrokerEndpoint
from aiokq.broker.gate import Gate
from aiokq.broker.handlers import advertised_versions
from aiokq.broker.handlers.binding import Areas
from aiokq.broker.listening import NodeServers
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.file_deletion import FileDeletion
from aiokq.broker.log.retention import KAFKA_POLICIES, RetentionPolicy
from aiokq.broker.maintenance import CleanerJobs, Maintenance, jobs
from aiokq.broker.metadata.image.features import TRANSACTION_VERSION
from aiokq.broker.metadata.start.metadata_start import NodeRegistration
from aiokq.broker.node_areas import (
    NodeAcls,
    NodeCluster,
    NodeConfigs,
    NodeCredentials,
    NodeHost,
    NodeLogin,
    NodeLogs,
    NodeQuorum,
)
from aiokq.broker.node_quotas import NodeQuotas
from aiokq.broker.replica.purgatory import FetchPurgatory
from aiokq.broker.security.audit import Audit
from aiokq.broker.storage import Storage
from aiokq.broker.storage_gauges import StorageGauges
from aiokq.broker.warm_up import warm_up
from aiokq.connection.request_context import SessionState
from aiokq.connection.turn import Turn
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import Closed, ConfigError
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.fastpath import crc32c
from aiokq.wire.quorum_records import VotersRecordEndpoint

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.gate import Authorizer
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.changes import MetadataChanges
    from aiokq.broker.metadata.configs.group_configs import GroupConfigs
    from aiokq.broker.metadata.producer_ids import ProducerIds
    from aiokq.broker.metadata.publisher.topics import TopicRegistry
    from aiokq.broker.replica.fetch_sessions import FetchSessionCache
    from aiokq.broker.replica.leadership_listener import LeadershipListener
    from aiokq.broker.replica.partition import Partition
    from aiokq.broker.security.authentication.own_check import Authenticate
    from aiokq.broker.security.authentication.sasl_login import SaslLogin
    from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
    from aiokq.broker.security.quotas.caller_quotas import QuotaCallable
    from aiokq.core.acls import Acl
    from aiokq.core.environment import Environment

__all__ = ["BrokerNode"]

logger = logging.getLogger("aiokq.broker")


RECOVERY_MOMENT: Final = 1.0
"""Maximum number of seconds that `start` waits for recovery before it accepts clients.

It is also the maximum number of seconds that `open` waits for `TransactionRecovery`.
"""


class BrokerNode:
    """One broker.

    Args:
        settings: the settings with which the node starts, as returned by
            `config.settings.broker_settings`; dynamic settings in the metadata override them.
        environment: clock, random, network, files and offload.
        data_dir: the node's log directory or directories, created if they are missing.
        listeners: addresses to listen on and to advertise; None for a free port of 127.0.0.1.
        node_id: id of the node; None for the id stored in the directories, or 0 if these are new.
        features: the level of each feature in a new metadata log; None for the defaults.
        authorizer: decides which operations clients may perform; None for the authorizer that the
            settings name.
        acls: ACLs to create before the first client connects, if the metadata does not have them.
        quota: a function that gives quotas of clients; None for none.
        users: passwords by user name, stored as SCRAM credentials before clients are accepted.
        authenticate: checks the passwords and tokens of clients; see `security.authentication`.

    Attributes:
        dynamic_settings: the settings in effect, and the static and dynamic values from which they
            result.
        servers: the node's listeners.
        purgatory: fetches that wait for records.
        cold_reads: runs those reads of logs that may have to wait for the disk.
        leadership_listeners: notified when the node begins or stops leading a partition. Listeners
            must be added before the node is opened.
        retention_policies: decide which old segments are deleted. Policies may be added.
        counters: the node's metrics.
        background: notified of failures of background jobs.
        gate: decides which requests are handled, and which resources they may use.
        turn: limits the requests handled per event loop iteration, so that other tasks can run.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        environment: Environment,
        *,
        data_dir: str | Sequence[str],
        listeners: Listeners | None = None,
        node_id: int | None = None,
        features: Mapping[str, int] | None = None,
        authorizer: Authorizer | None = None,
        acls: Sequence[Acl] = (),
        quota: QuotaCallable | None = None,
        users: Mapping[str, str] | None = None,
        authenticate: Authenticate | None = None,
    ) -> None:
        self.dynamic_settings = DynamicSettings(settings)
        self.environment = environment
        self.crc32c = crc32c
        self.counters = BrokerCounters()
        self.advertised_versions = tuple(advertised_versions(settings.legacy))
        self.gate = Gate(
            self.advertised_versions,
            max_frame_bytes=settings.socket_request_max_bytes,
            max_login_frame_bytes=settings.sasl_server_max_receive_size,
        )
        self._acls = acls
        self._standard_authorizer = None if authorizer is not None else _authorizer_of(settings)
        self.gate.authorizer = authorizer or self._standard_authorizer
        self.gate.audit = Audit(environment.clock.monotonic)
        self.turn = Turn()
        self.purgatory = FetchPurgatory()
        self.cold_reads = ColdReads(environment.offload)
        self.leadership_listeners: list[LeadershipListener] = []
        self.retention_policies: list[RetentionPolicy] = list(KAFKA_POLICIES)
        self._data_dirs = (data_dir,) if isinstance(data_dir, str) else tuple(data_dir)
        self._given_node_id = node_id
        self._new_features = features
        self._users = users
        self._login = NodeLogin(self._make_login)
        self._authenticate = authenticate
        self.servers = NodeServers(listeners or Listeners.plaintext(), settings)
        self._storage: Storage | None = None
        self._dispatcher: Dispatcher | None = None
        self._group_coordinator: GroupCoordinator | None = None
        self._transaction_coordinator: TransactionCoordinator | None = None
        self._transaction_recovery: TransactionRecovery | None = None
        self._supervisor = Supervisor("broker", on_failure=self._fail)
        self._quotas = NodeQuotas(
            settings,
            environment,
            self.gate,
            self.servers,
            self.counters,
            spawn=lambda work, name: self._supervisor.spawn(work, name=name),
            quota=quota,
        )
        self.background = BackgroundWork(
            self.counters, environment.clock.monotonic, fatal=self._fail
        )
        self._failure: asyncio.Future[None] | None = None
        self._deletion: FileDeletion | None = None
        self._purge_handle: asyncio.Handle | None = None
        self._pid = os.getpid()

    @property
    def settings(self) -> BrokerSettings:
        """The settings in effect."""
        return self.dynamic_settings.current

    @property
    def node_id(self) -> int:
        return self.storage.directories.properties.node_id

    @property
    def cluster_id(self) -> str:
        return self.storage.directories.properties.cluster_id

    @property
    def log_directories(self) -> Sequence[LogDirectory]:
        """The log directories, including those that are offline."""
        return self.storage.directories.all

    def brokers(self, listener: str | None = None) -> list[BrokerEndpoint]:
        """Return the live nodes of the cluster that advertise a listener.

        Args:
            listener: the name of the listener whose addresses are returned; None for the
                inter-broker listener, which every node has.
        """
        endpoint = self.servers.advertised(listener)
        if endpoint is None:
            return []
        return [
            BrokerEndpoint(self.node_id, endpoint.host, endpoint.port, self.settings.broker_rack)
        ]

    def _racks(self) -> dict[int, str | None]:
        return {broker.node_id: broker.rack for broker in self.brokers()}

    @property
    def storage(self) -> Storage:
        """The open log directories, their logs and the metadata.

        Raises:
            Closed: the node is not open.
        """
        if self._storage is None:
            raise Closed("this broker is not running")
        return self._storage

    @property
    def dispatcher(self) -> Dispatcher:
        """The handler of client requests.

        Raises:
            Closed: the node was not opened.
        """
        if self._dispatcher is None:
            raise Closed("this broker is not running")
        return self._dispatcher

    @property
    def topics(self) -> TopicRegistry:
        return self.storage.topics

    @property
    def metadata(self) -> MetadataChanges:
        """The interface for changes of the metadata, such as topics and settings."""
        return self.storage.changes

    @functools.cached_property
    def fetch_sessions(self) -> FetchSessionCache:
        """The fetch sessions; created at their first use, so that no start waits for the import."""
        from aiokq.broker.replica.fetch_sessions import FetchSessionCache

        return FetchSessionCache(
            self.settings.max_incremental_fetch_session_cache_slots,
            clock=self.environment.clock,
            rng=self.environment.random,
        )

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """The coordinator of groups.

        Raises:
            Closed: the node was not opened.
        """
        if self._group_coordinator is None:
            raise Closed("this broker is not running")
        return self._group_coordinator

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The coordinator of transactions.

        Raises:
            Closed: the node was not opened.
        """
        if self._transaction_coordinator is None:
            raise Closed("this broker is not running")
        return self._transaction_coordinator

    @property
    def group_configs(self) -> GroupConfigs:
        return self.storage.group_configs

    @property
    def producer_ids(self) -> ProducerIds:
        return self.storage.producer_ids

    async def open(self) -> None:
        """Open the directories and all logs in them; recover logs that were not closed cleanly.

        Raises:
            KafkaStorage: the metadata log or its directory cannot be used, no log directory can be
                used, or another broker uses a log directory; the message says what to do.
            ConfigError: a directory belongs to another node; or see `roles.voter_address`.
        """
        await self._open()
        try:
            await self._recover()
        except BaseException:
            await shielded(self.close(), name="close the broker that did not open")
            raise

    async def _open(self) -> None:
        """Open the directories and the logs that need no recovery; start coordinators and jobs.

        Raises:
            KafkaStorage, ConfigError: see `open`.
        """
        await self._supervisor.start()
        try:
            self._storage = await Storage.open(
                self.environment,
                self.dynamic_settings,
                self._data_dirs,
                node_id=self._given_node_id,
                registration=self._registration(),
                supervisor=self._supervisor,
                background=self.background,
                elected=self._elected,
                resigned=self._resigned,
                visible=self.purgatory.appended,
                deleted=self.purge_later,
            )
            DirectoryFailures(lambda: self._storage, self._fail).watch(self._storage.directories)
            await self._load_acls()
            self._deletion = FileDeletion(
                self.environment.offload, self._supervisor, self.background
            )
            self._group_coordinator = GroupCoordinator(
                settings=self.settings,
                environment=self.environment,
                topics=self.topics,
                create_topic=self.metadata.create_topic,
                racks=self._racks,
                group_configs=self.group_configs,
                cold_reads=self.cold_reads,
                counters=self.counters,
                background=self.background,
                on_failure=self._fail,
            )
            self.leadership_listeners.append(self._group_coordinator)
            self._transaction_coordinator = TransactionCoordinator(
                settings=self.settings,
                version=self._transaction_version,
                next_producer_id=self.producer_ids.next,
                markers=self._markers(),
                environment=self.environment,
                topics=self.topics,
                create_topic=self.metadata.create_topic,
                live_brokers=lambda: len(self._racks()),
                cold_reads=self.cold_reads,
                counters=self.counters,
                background=self.background,
                on_failure=self._fail,
            )
            self.leadership_listeners.append(self._transaction_coordinator)
            self._watch_transactions(self._transaction_coordinator)
            await self._group_coordinator.start()
            await self._transaction_coordinator.start()
            self._start_quotas()
            if any(one.uses_sasl for one in self.servers.configured.security.values()):
                self._login.make_now()  # so that a wrong setting fails the start
            dispatcher = AskingDispatcher if self.gate.asks_caller else Dispatcher
            self._dispatcher = dispatcher(self._areas(), self.gate, self.counters)
            self._start_jobs()
        except BaseException:
            await shielded(self.close(), name="close the broker that did not open")
            raise
        self.counters.name = str(self.node_id)
        self.counters.fetches_waiting.add_source(self.purgatory.__len__)
        StorageGauges(lambda: self._storage).add_to(self.counters)

    async def _load_acls(self) -> None:
        """Load the ACLs into the authorizer, and let it follow their changes.

        Raises:
            ConfigError: an ACL given to this object is not valid.
            KafkaStorage: the ACLs given to this object could not be recorded.
        """
        authorizer = self._standard_authorizer
        acls = self.storage.metadata.image.principals.acls
        if authorizer is None:
            if acls:
                logger.warning(
                    "kept in the metadata and NOT enforced here: %d ACLs; set %s",
                    len(acls),
                    AUTHORIZER,
                )
            return
        authorizer.load(acls.values())
        self.storage.publisher.principal_listeners.append(authorizer.change)
        if self._acls:
            values = [
                (
                    int(acl.resource_type),
                    acl.resource_name,
                    int(acl.pattern_type),
                    acl.principal,
                    acl.host,
                    int(acl.operation),
                    int(acl.permission_type),
                )
                for acl in self._acls
            ]
            results = await self.metadata.create_acls(values)
            for acl, error in zip(self._acls, results, strict=True):
                if error is not None:
                    raise ConfigError(f"ACL {acl}: {error.message}")

    def _start_quotas(self) -> None:
        """Apply the quotas in the metadata, and follow their changes."""
        publisher = self.storage.publisher
        publisher.quotas_changed = lambda: self._quotas.apply(publisher.quotas)
        self._quotas.start(self.metadata, publisher.quotas)

    def _watch_transactions(self, coordinator: TransactionCoordinator) -> None:
        """Compare open transactions in recovered logs with the transaction coordinator's state.

        The comparison begins when this node is elected leader of the recovered partition. Logs that
        are already open were closed cleanly and need no comparison.
        """
        self._transaction_recovery = TransactionRecovery(
            was_clean=self.storage.directories.was_clean,
            coordinator=coordinator,
            own_topic=TRANSACTIONS_TOPIC,
            markers=self._markers(),
            spawn=lambda work, name: self._supervisor.spawn(work, name=name),
            background=self.background,
            counter=self.counters.transactions_recovered,
        )
        self.leadership_listeners.append(self._transaction_recovery)

    async def _recover(self) -> None:
        """Recover the logs that were not closed cleanly, then wait for `TransactionRecovery`.

        The wait ends after `RECOVERY_MOMENT` seconds at the latest, because the transaction
        coordinator may be unable to load its log. `TransactionRecovery` then continues in the
        background.

        Raises:
            KafkaStorage: see `open`.
        """
        await self.storage.publisher.recover()
        if self._transaction_recovery is not None:
            await self._transaction_recovery.finished(RECOVERY_MOMENT)

    def _markers(self) -> LocalMarkers:
        return LocalMarkers(self.topics, self.group_coordinator, self.environment.clock)

    def _transaction_version(self) -> int:
        """Return the finalized level of ``transaction.version``."""
        return self.storage.publisher.features.get(TRANSACTION_VERSION, 0)

    def _registration(self) -> NodeRegistration:
        """Return the node's registration for the metadata; the ports must be bound.

        Raises:
            ConfigError: see `roles.voter_address`.
        """
        settings = self.settings
        voter = voter_address(settings, self.servers.configured)
        return NodeRegistration(
            endpoints=self.servers.endpoint_records(),
            controller_endpoints=self.servers.controller_records(),
            rack=settings.broker_rack,
            min_insync_replicas=settings.min_insync_replicas,
            voter=None if voter is None else VotersRecordEndpoint(**voter._asdict()),
            features=self._new_features,
        )

    def _start_jobs(self) -> None:
        """Start the periodic jobs, and apply settings that change from now on."""
        maintenance = Maintenance(self._supervisor, self.background)
        cleaners = CleanerJobs(self)
        maintenance.start(jobs(self, cleaners))

        def limit_connections() -> None:
            if self.servers.limit_connections(self.settings):
                self._supervisor.spawn(
                    self.servers.find_hosts(self.environment.offload),
                    name="resolve the hosts of limits",
                )

        def settings_changed(names: frozenset[str]) -> None:
            if "log.cleaner.threads" in names:
                maintenance.start(cleaners())
            if any("max.connection" in name for name in names):
                limit_connections()
            if any(map(is_store, names)):
                self.servers.change_stores(self.settings)

        for name, (given, value) in self.dynamic_settings.overridden().items():
            logger.warning(
                "setting given at the start has no effect: setting=%s given=%s in_effect=%s; a "
                "dynamic value comes before it, see aiokq cluster configs",
                name,
                given,
                value,
            )
        self.dynamic_settings.listeners.append(settings_changed)
        # The limits, keys and certificates may have dynamic values.
        limit_connections()
        self.servers.change_stores(self.settings)

    def _make_login(self) -> SaslLogin:
        """Return the `SaslLogin` of the node, and begin to fetch the keys of tokens.

        Raises:
            ConfigError: see `listener_logins`.
        """
        from aiokq.broker.security.authentication.sasl_login import ListenerLogin, SaslLogin

        listeners: Mapping[str, ListenerLogin] = {}
        security = self.servers.configured.security
        if any(one.uses_sasl for one in security.values()):
            from aiokq.broker.security.authentication.listener_logins import (
                LoginResources,
                listener_logins,
            )

            metadata, directories = self.storage.metadata, self.storage.directories
            listeners, keys = listener_logins(
                security,
                LoginResources(
                    credentials=lambda: metadata.image.principals.scram_credentials,
                    shapes=lambda: metadata.image.principals.scram_shapes,
                    # The secret makes the salts of unknown users, so that a client cannot find out
                    # which users exist. The directory's id can be the secret, because a client that
                    # may read the id may also list all users, and the files that have it can be
                    # read by their owner only.
                    secret=directories.metadata.directory_id.bytes,
                    clock=self.environment.clock,
                    offload=self.environment.offload,
                    authenticate=self._authenticate,
                ),
            )
            for one in keys:
                one.start(lambda work, name: self._supervisor.spawn(work, name=name))
        return SaslLogin(
            listeners,
            clock=self.environment.clock,
            counters=self.counters,
            failure_delay=lambda: self.settings.connection_failed_authentication_delay_ms / 1000,
            failed=None if self.gate.audit is None else self.gate.audit.login_failed,
        )

    async def _store_users(self, users: Mapping[str, str]) -> None:
        """Store the SCRAM credentials of users, unless they are stored already.

        Raises:
            BrokerError: a credential cannot be stored.
        """
        from aiokq.broker.security.authentication.user_passwords import missing_credentials

        stored = self.storage.metadata.image.principals.scram_credentials
        for upsertions in await self.environment.offload.run(
            missing_credentials, users, dict(stored)
        ):
            if upsertions:
                outcomes = await self.metadata.alter_scram_credentials((), upsertions)
                for error in outcomes.values():
                    if error is not None:
                        raise error

    def _areas(self) -> Areas:
        """Return the areas for the handlers; the node has to be open."""
        cluster = NodeCluster(
            self.node_id, self.cluster_id, self.advertised_versions, brokers=self.brokers
        )
        return Areas(
            topics=self.topics,
            changes=self.metadata,
            groups=self.group_coordinator,
            transactions=self.transaction_coordinator,
            admission=self.transaction_coordinator,
            markers=self._markers(),
            logs=NodeLogs(
                self.purgatory,
                self.cold_reads,
                self.storage,
                sessions=lambda: self.fetch_sessions,
                purge_later=self.purge_later,
            ),
            cluster=cluster,
            configs=NodeConfigs(
                self.dynamic_settings,
                self.group_configs,
                node=self,
                servers=self.servers,
                offload=self.environment.offload,
            ),
            acls=NodeAcls(self.metadata, self._standard_authorizer),
            producer_ids=self.producer_ids,
            quorum=NodeQuorum(self.storage, self.servers),
            client_quotas=self._quotas,
            login=self._login,
            credentials=NodeCredentials(self.storage),
            host=NodeHost(self.environment, self.crc32c),
            turn=self.turn,
        )

    async def start(self) -> None:
        """Open the directories, then accept clients.

        After an unclean shutdown, `start` waits for recovery at most `RECOVERY_MOMENT` seconds. A
        partition has no leader until its log is recovered; clients retry, as during an election.

        Raises:
            OSError: a listener cannot be opened, for example because its port is in use.
            KafkaStorage, ConfigError: see `open` and `NodeServers.bind`.
            BrokerError: a credential of `users` cannot be stored.
        """
        self._failure = asyncio.get_running_loop().create_future()
        try:
            # The ports are bound first, because the registration of the node contains them.
            await self.servers.bind(
                self.environment,
                self.counters,
                turn=self.turn,
                max_frame_bytes=self.gate.frame_limit(SessionState.READY),
                failed=None if self.gate.audit is None else self.gate.audit.login_failed,
                on_failure=self._fail,
            )
            await self._open()
            recovery = self._supervisor.spawn(self._recover(), name="recover logs")
            await asyncio.wait([recovery], timeout=RECOVERY_MOMENT)
            if recovery.done():
                recovery.result()
            if self._users:
                await self._store_users(self._users)
            dispatcher = self.dispatcher
            await self.servers.serve(self._quotas.holding(dispatcher), dispatcher.handle_login)
            self.servers.warn_of_exposure()
            self._supervisor.spawn(
                warm_up(self.background, fatal=self._fail), name="import modules"
            )
        except BaseException:
            await shielded(self.close(), name="close the broker that did not start")
            raise
        advertised = self.servers.all_advertised()
        logger.info(
            "broker started: node=%d cluster=%s address=%s listeners=%s topics=%d",
            self.node_id,
            self.cluster_id,
            advertised[0].address,
            ",".join(map(str, advertised)),
            len(self.topics),
        )

    async def reset(self) -> None:
        """Delete all topics and records, all groups, committed offsets and producer state.

        Connections stay open. Waiting fetches get the error of an unknown topic, and waiting group
        members get NOT_COORDINATOR. The ids of topics and producers are not reused.

        Raises:
            KafkaStorage: an I/O error.
        """
        await self.metadata.delete_all_topics()
        self.fetch_sessions.clear()
        self._purge()
        if self._deletion is not None:
            self._deletion.hurry()

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait until `stop` is set or the node fails.

        Raises:
            Exception: the error with which the node failed before `stop` was set.
        """
        assert self._failure is not None
        self._supervisor.spawn(self._end_with(stop, self._failure), name="until stopped")
        await self._failure

    @staticmethod
    async def _end_with(stop: asyncio.Event, end: asyncio.Future[None]) -> None:
        await stop.wait()
        if not end.done():
            end.set_result(None)

    async def close(self) -> None:
        """Complete pending requests, close all connections, and close the logs cleanly. Idempotent.

        Cancellation ends the wait for clients, but not the closing of the logs. In a forked child,
        the call does nothing, because the logs belong to the parent.
        """
        if os.getpid() != self._pid:
            return
        self.purgatory.close()
        if self._group_coordinator is not None:
            self._group_coordinator.stop()  # ends pending joins, which may wait for minutes
        if self._transaction_coordinator is not None:
            self._transaction_coordinator.stop()
        try:
            await self.servers.close()
        finally:
            await shielded(self._close_storage(), name="close the storage")

    async def _close_storage(self) -> None:
        if self._storage is not None:
            self._storage.publisher.stop_recovery()
        if self._purge_handle is not None:
            self._purge_handle.cancel()
        if self._deletion is not None:
            self._deletion.stop()
        await self._supervisor.close()
        if self._transaction_coordinator is not None:
            await self._transaction_coordinator.close()
        if self._group_coordinator is not None:
            await self._group_coordinator.close()
        if self._storage is not None:
            # Before the purge, because a deletion in progress adds files for it to remove.
            await self._storage.changes.close()
        if self._deletion is not None:
            self._purge()
            await self._deletion.close()
        storage, self._storage = self._storage, None
        if storage is not None:
            await storage.close()
            logger.info("broker stopped: node=%d", storage.directories.properties.node_id)

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # otherwise asyncio logs the error if no task awaits it

    def _elected(self, partition: Partition) -> None:
        for listener in self.leadership_listeners:
            listener.elected(partition)
        self.purgatory.wake(partition.name)

    def _resigned(self, partition: Partition) -> None:
        for listener in self.leadership_listeners:
            listener.resigned(partition)
        self.purgatory.wake(partition.name)

    def purge_later(self) -> None:
        """Schedule the removal of deleted files, each after its delay.

        Several calls in one iteration of the loop schedule the removal once.
        """
        if self._purge_handle is None:
            self._purge_handle = asyncio.get_running_loop().call_soon(self._purge)

    def _purge(self) -> None:
        if self._purge_handle is not None:
            self._purge_handle.cancel()
            self._purge_handle = None
        if self._storage is not None and self._deletion is not None:
            delay_ms = self.settings.log_segment_delete_delay_ms
            self._deletion.later(self._storage.directories.removals(delay_ms))


def _authorizer_of(settings: BrokerSettings) -> StandardAuthorizer | None:
    """Return the authorizer that the settings name; None if they name none."""
    if not settings.authorizer_class_name:
        return None
    from aiokq.broker.config.authorizer_settings import super_users
    from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer

    return StandardAuthorizer(
        super_users(settings.super_users),
        allows_without_acl=settings.allow_everyone_if_no_acl_found,
    )
