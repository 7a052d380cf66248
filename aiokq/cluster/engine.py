"""`ClusterEngine`: metadata of one cluster and connections to it, shared by its clients.

The engine creates its parts and connects them. The store holds the state and emits events. The
refresher decides when to request metadata, the source chooses the node to ask, and the applier
applies the responses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from aiokq.cluster.coordinators import Coordinators
from aiokq.cluster.event_stream import EventStream
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.loop_stalls import LoopStallWatch
from aiokq.cluster.metadata import ClusterMetadata, TopicInfo
from aiokq.cluster.metadata_applier import MetadataApplier
from aiokq.cluster.metadata_refresh import MetadataAsk, MetadataRefresher
from aiokq.cluster.metadata_source import MetadataSource, ask_node, check_bootstrap_servers
from aiokq.cluster.node_factory import NodeFactory
from aiokq.cluster.nodes import Nodes
from aiokq.cluster.recovery import RecoveryMonitor
from aiokq.cluster.reducer import CONNECTION_LOST, ClusterState
from aiokq.cluster.reducer_inputs import (
    EndpointsLearned,
    LeaderHint,
    MetadataReceived,
    PartitionErrored,
    PartitionServed,
)
from aiokq.cluster.router import Router
from aiokq.cluster.state_store import ClusterStateStore
from aiokq.cluster.targets import ANY, CoordinatorKind, Target
from aiokq.cluster.topic_lookup import TopicLookup
from aiokq.cluster.values import ClusterValues
from aiokq.cluster.watched_topics import WatchedTopics
from aiokq.connection.backoff import Backoff
from aiokq.connection.finalized_features import NO_FEATURES
from aiokq.connection.network import system_environment
from aiokq.connection.node import Node
from aiokq.core.counters import ClientCounters
from aiokq.core.environment import Environment
from aiokq.core.errors import BrokerError, Closed, ConfigError, ConnectionLost, KafkaError
from aiokq.core.outages import Outages
from aiokq.core.supervisor import Supervisor, shielded
from aiokq.core.types import TopicPartition
from aiokq.wire import Request, Response
from aiokq.wire.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from aiokq.cluster.partition_reader import PartitionReader

__all__ = ["ClusterEngine"]

logger = logging.getLogger("aiokq.cluster")

R = TypeVar("R", bound=Response)
T = TypeVar("T")

CLOSE_TIMEOUT = 5.0
"""Seconds that tasks of the engine may take to end once they are cancelled."""


class ClusterEngine:
    """The metadata, events and connections of one cluster.

    The constructor uses no event loop; `start` binds to the running loop.

    Args:
        settings: the settings of the cluster.
        environment: clock, random numbers, network, files and offload; default:
            `system_environment()`.

    Attributes:
        settings: the settings of the cluster.
        environment: the given environment or `system_environment()`.
        counters: counters of this cluster and of all clients made from it.
        supervisor: supervisor of the engine's tasks.
        outages: log of outages of this cluster and of all clients made from it.
        changes: the latest event of each key. Subscribers are called before other tasks run.
    """

    def __init__(self, settings: ClusterValues, environment: Environment | None = None) -> None:
        self.settings = settings
        self._owns_environment = environment is None
        self.environment = system_environment() if environment is None else environment
        self.counters = ClientCounters(settings.client_id)
        self.supervisor = Supervisor(
            f"cluster {settings.client_id}",
            on_failure=self._on_internal_failure,
            on_cancelled=self._on_cancelled,
        )
        self._binding = LoopBinding("this Cluster")
        self.store = ClusterStateStore(
            changed=self._changed, dropped=self._event_dropped, binding=self._binding
        )
        self.changes = self.store.changes
        self.outages = Outages(self.environment.clock.monotonic, logger)
        self._started = False
        self._closed: asyncio.Future[None] | None = None
        self._dead = False
        self._transactional_ids: set[str | None] = set()
        self.ending = False
        """Whether the shared Cluster is being closed, which also closes its clients."""
        clock = self.environment.clock
        self._stalls = LoopStallWatch(
            settings, self.counters, clock, self.store, self.environment.watchdog
        )
        random = self.environment.random
        self._node_factory = NodeFactory(
            settings,
            self.environment,
            self.supervisor,
            self.counters,
            self.store,
            outages=self.outages,
            lost=self._node_lost,
        )
        self.nodes = Nodes(self._node_factory.make, random=random)
        self.watched_topics = WatchedTopics()
        self._applier = MetadataApplier(
            self.store,
            self.watched_topics,
            self.counters,
            max_idle=settings.metadata_max_age_ms / 1000,
            now=self.now,
        )
        self._source = MetadataSource(self, last_success=lambda: self.refresher.last_success)
        self.refresher = MetadataRefresher(
            settings,
            self.watched_topics,
            ask=self._source.ask,
            apply=self._applier.take,
            metadata=lambda: self.metadata,
            outages=self.outages,
            random=random,
        )
        self.recovery = RecoveryMonitor(
            settings,
            state=lambda: self.store.state,
            apply=self.store.apply,
            refresh=self.refresh,
            ask_node=self._ask_node,
            spawn=self.spawn,
            random=random,
        )
        self.coordinators = Coordinators(
            settings,
            find=self._find_coordinator,
            learned=lambda brokers: self.store.apply(EndpointsLearned(brokers)),
            trouble=lambda: self.last_error,
            spawn=self.spawn,
            random=random,
        )
        self.topics = TopicLookup(self)
        self.router = Router(self)

    @cached_property
    def reader(self) -> PartitionReader:
        """The `PartitionReader`, which reads without using a consumer; imported on first use."""
        from aiokq.cluster.partition_reader import PartitionReader

        return PartitionReader(self)

    async def start(self) -> None:
        """Bind to the running loop, start the tasks of the engine, and wait for the first metadata.

        A later call only waits for the first metadata, if no metadata has arrived yet. If
        ``bootstrap_timeout_ms`` is 0, no call waits. If the first call fails or is
        cancelled, the engine is closed.

        Raises:
            BootstrapFailed: no address answered with metadata within ``bootstrap_timeout_ms``.
                Raised immediately if every address failed with an error that a retry cannot solve,
                or if a broker refused the credentials; the cause is then `AuthenticationFailed`.
            ConfigError: ``bootstrap_servers`` is not set.
            Closed: the engine was closed, or ended by a bug (see `__cause__`).
            WrongLoop: the engine was started on another loop or in a parent of this process.
        """
        self._binding.bind()
        self._raise_if_closed()
        check_bootstrap_servers(self.settings.bootstrap_addresses)
        begins = not self._started
        self._started = True
        try:
            if begins:
                await self.supervisor.start()
                self.spawn(self.refresher.run(), "metadata")
                self.spawn(self.recovery.run(), "recovery")
                if "loop_stall_ms" in self.settings.explicit:
                    self.watch_stalls()
            if self.settings.bootstrap_timeout_ms and self.refresher.last_success is None:
                timeout = self.settings.bootstrap_timeout_ms / 1000
                await self._source.first(self.refresher.refresh(), timeout)
        except BaseException:
            if begins:
                await self.close()
            raise

    async def close(self) -> None:
        """End all tasks, fail all waiters with `Closed`, close all sockets.

        May be called several times, concurrently, and on an engine that was never started.
        Cancelling the first call does not interrupt the shutdown. In a forked child the call does
        nothing, because the sockets belong to the parent.

        Raises:
            WrongLoop: called on another event loop.
        """
        if self._binding.forked:
            return
        if not self._binding.bound:
            self._dead = True
            return
        self._binding.check()
        if self._closed is not None:
            await asyncio.shield(self._closed)
            return
        self._closed = asyncio.get_running_loop().create_future()
        await shielded(self._shut_down(), name="close cluster")

    async def _shut_down(self) -> None:
        assert self._closed is not None
        try:
            self._stalls.stop()
            self._fail_waiters(Closed("the cluster was closed during the call"))
            # Tasks are ended first, because a running task could open a connection that nobody
            # closes.
            await self.supervisor.close(CLOSE_TIMEOUT)
            await self.nodes.close()
            if self._owns_environment:
                self.environment.offload.close()
        finally:
            self._closed.set_result(None)

    def watch_stalls(self) -> None:
        """Start to report stalls of the event loop. Does nothing if already started or closed.

        Group members need the reports, because a member whose loop is blocked for long is removed
        from its group. `start` calls this method if ``loop_stall_ms`` was set explicitly.
        """
        if not self.closed:
            self._stalls.start()

    def suspended(self, seconds: float) -> float:
        """Return for how many of the last `seconds` the process was suspended (SIGSTOP).

        The result is 0 if stalls are not watched; see `watch_stalls`.
        """
        return self._stalls.suspended(seconds)

    @property
    def forked(self) -> bool:
        """Whether the engine was started in a parent of this process."""
        return self._binding.forked

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._dead or self._closed is not None

    @property
    def started(self) -> bool:
        """Whether the engine is started and not closed."""
        return self._started and not self.closed

    def bind(self) -> None:
        """Check that the engine is open, and is used on its loop and in its process.

        Raises:
            Closed: the engine is not started, is closed, or was ended by a bug (see `__cause__`).
            WrongLoop: called on another event loop, or in a forked process.
        """
        self._binding.check()
        self._raise_if_closed()

    def check_loop(self) -> None:
        """Check that the engine, if it was started, is used on its loop and in its process.

        Raises:
            WrongLoop: called on another event loop, or in a forked process.
        """
        self._binding.check_bound()

    def check_declaring(self) -> None:
        """Check like `bind`, but also allow calls before `start`.

        Raises:
            Closed: the engine is closed, or was ended by a bug (see `__cause__`).
            WrongLoop: called on another event loop, or in a forked process.
        """
        self._binding.check_bound()
        self._raise_if_closed()

    def _raise_if_closed(self) -> None:
        if self.closed:
            raise Closed("the cluster is closed: create a new one")
        if self.supervisor.failed is not None:
            raise Closed("the cluster failed, see the cause") from self.supervisor.failed

    def _on_internal_failure(self, error: BaseException) -> None:
        failure = Closed(f"the cluster failed: {error!r}")
        failure.__cause__ = error
        self._fail_waiters(failure)

    def _on_cancelled(self) -> None:
        self._fail_waiters(
            Closed("the tasks of the cluster were cancelled: is the event loop being shut down?")
        )

    def _fail_waiters(self, error: KafkaError) -> None:
        self.refresher.fail_waiters(error)
        self.coordinators.fail_waiters(error)
        self.store.end(error)

    @property
    def metadata(self) -> ClusterMetadata:
        """The latest metadata snapshot; immutable."""
        return self.store.state.metadata

    @property
    def state(self) -> ClusterState:
        """The latest metadata snapshot, and the brokers and partitions that have failed."""
        return self.store.state

    @property
    def last_error(self) -> KafkaError | None:
        """The error of the latest metadata request, or None."""
        return self.refresher.last_error

    def events(self, *, limit: int = 10_000) -> EventStream:
        """Return a stream of typed events: first the latest event of each key, then new events.

        Args:
            limit: the maximum number of queued events. When the queue is full, the oldest event is
                dropped and counted.

        Raises:
            Closed: the engine is closed, or was ended by a bug (see `__cause__`).
            WrongLoop: called on another event loop, or in a forked process.
            ValueError, TypeError: ``limit`` is not an integer of at least 1.
        """
        self.check_declaring()
        return self.store.events(limit)

    def now(self) -> float:
        """Return the loop time in seconds. After `start`, any thread may call this method."""
        return self._binding.time()

    def new_backoff(self) -> Backoff:
        """Return a backoff from ``retry_backoff_ms`` to ``retry_backoff_max_ms``."""
        settings = self.settings
        return Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_max_ms / 1000,
            self.environment.random,
        )

    def spawn(self, coro: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task of the engine; an exception that the task raises ends the engine."""
        return self.supervisor.spawn(coro, name=name)

    async def topic(
        self, name: str, *, timeout: float | None = None, create: bool | None = None
    ) -> TopicInfo:
        """Return the topic from the snapshot, or wait until metadata has it.

        Args:
            timeout: seconds; default ``default_api_timeout_ms``.
            create: whether the request may create the topic; default ``allow_auto_create_topics``.

        Raises:
            UnknownTopicOrPartition: the topic did not exist within the timeout.
            RequestTimeout: no broker answered within the timeout; the cause is the last error.
            TopicAuthorization, InvalidTopic: the brokers refused the topic; raised immediately.
            BrokerError: the topic had another error, such as LeaderNotAvailable, until the timeout.
            AuthenticationFailed, BootstrapFailed: no broker can be used.
        """
        self.bind()
        info = self.metadata.topics.get(name)
        if info is not None and not info.error_code:
            self.watched_topics.used(name, self.now())
            return info
        return await self.topics.wait(
            name,
            timeout=self.settings.default_api_timeout if timeout is None else timeout,
            create=self.settings.allow_auto_create_topics if create is None else create,
        )

    def watch(self, topics: Iterable[str]) -> None:
        """Keep these topics in the metadata; each call is undone by one `unwatch`."""
        added = self.watched_topics.watch(topics)
        new = [name for name in added if name not in self.metadata.topics]
        if new and self.started:
            self.refresher.soon(new)

    def unwatch(self, topics: Iterable[str]) -> None:
        """Undo one `watch`."""
        self.watched_topics.unwatch(topics)

    def watch_all(self) -> None:
        """Keep all topics of the cluster in the metadata.

        Each call is undone by one `unwatch_all`.
        """
        if self.watched_topics.watch_all() and self.started:
            # The result is not awaited, because the refresher retries until a request succeeds.
            self.refresher.refresh()

    def unwatch_all(self) -> None:
        """Undo one `watch_all`."""
        self.watched_topics.unwatch_all()

    async def refresh(self, topics: Iterable[str] | None = None) -> None:
        """Wait for metadata that was requested after this call.

        Concurrent calls share requests. Failed requests are repeated without a time limit, so the
        caller should set a timeout.

        Args:
            topics: topics that the metadata must cover; None for all watched topics.

        Raises:
            AuthenticationFailed, BootstrapFailed, Closed: no metadata can be requested.
            InvalidTopic: a name is too long for a topic.
            WrongLoop: called on another event loop, or in a forked process.
        """
        self.bind()
        await self.refresher.refresh(topics, create=False)

    def partition_failed(
        self,
        tp: TopicPartition,
        error: KafkaError,
        *,
        leader_epoch: int | None = None,
        hint: LeaderHint | None = None,
    ) -> None:
        """Report a failed request about a partition.

        If `hint` names a newer leader whose address is known, that leader is stored in the
        metadata, and no recovery begins. Otherwise the first failure puts the partition into
        recovery and emits an event. If the metadata does not have the partition, the metadata of
        its topic is requested.

        Args:
            error: the error of the request.
            leader_epoch: leader epoch in which the request was sent. An error from an older epoch
                than the known leader epoch changes nothing.
            hint: the new leader, if the response named it.
        """
        name = error.name if isinstance(error, BrokerError) else type(error).__name__
        if isinstance(error, ConnectionLost):
            name = CONNECTION_LOST
        epoch = -1 if leader_epoch is None else leader_epoch
        self.store.apply(PartitionErrored(tp, name, epoch, hint))
        if tp not in self.store.state.failed and self.metadata.partition(tp) is None:
            self.refresher.soon([tp.topic])

    def partition_ok(self, tp: TopicPartition) -> None:
        """Report a successful request about a partition."""
        if tp in self.store.state.failed:
            self.store.apply(PartitionServed(tp))

    def failed(self, tp: TopicPartition) -> bool:
        """Return whether the partition is in recovery."""
        return tp in self.store.state.failed

    def node(self, node_id: int) -> Node:
        """Return the node with this id.

        Raises:
            ConnectionLost: the metadata has no such broker.
        """
        broker = self.metadata.brokers.get(node_id)
        if broker is not None:
            return self.nodes.get(broker)
        listed = ", ".join(map(str, sorted(self.metadata.brokers))) or "none yet"
        raise ConnectionLost(
            f"the cluster lists no broker {node_id} (it lists {listed})",
            may_have_been_written=False,
        )

    def any_node(self) -> Node:
        """Return the node of the known broker that `Nodes.by_preference` puts first.

        Raises:
            ConnectionLost: no broker is known yet.
        """
        nodes = self.nodes.by_preference(self.metadata.brokers.values(), self.store.state.down)
        if not nodes:
            raise ConnectionLost("no broker is known yet", may_have_been_written=False)
        return nodes[0]

    def leader_node(self, tp: TopicPartition) -> Node | None:
        """Return the leader's node; None if the partition has no leader or is unknown."""
        broker = self.metadata.brokers.get(self.metadata.leader(tp))
        return None if broker is None else self.nodes.get(broker)

    def claim_transactional_id(self, transactional_id: str) -> None:
        """Reserve a transactional id for one producer of this cluster object.

        Raises:
            ConfigError: another open producer of this object has the transactional id.
        """
        if transactional_id in self._transactional_ids:
            raise ConfigError(
                f"this Cluster has an open producer with transactional_id={transactional_id!r}: "
                "close it first, or give this one another id"
            )
        self._transactional_ids.add(transactional_id)

    def release_transactional_id(self, transactional_id: str | None) -> None:
        """Allow another producer to have the transactional id."""
        self._transactional_ids.discard(transactional_id)

    def finalized_level(self, feature: str) -> int:
        """Return the finalized level of a feature.

        The level is that of the ApiVersions response with the highest epoch; 0 if the feature is
        off, or if no broker was connected yet.
        """
        newest = NO_FEATURES
        for node in self.nodes:
            if node.finalized_features.epoch > newest.epoch:
                newest = node.finalized_features
        return newest.levels.get(feature, 0)

    async def request(
        self, message: Request[R], *, node: int | Target = ANY, timeout: float | None = None
    ) -> R:
        """Send a request on a shared connection and wait for the response.

        If a retriable error occurs before the request is sent, the request is retried, except if
        the target is a node id. A request that was sent is not repeated. Error codes inside the
        response are not checked.

        Args:
            message: any request that does not wait long at the broker. The request is sent in the
                newest common version that has all fields that the request sets. The client's name
                and version are added to an ApiVersions request.
            node: a node id, `ANY`, `CONTROLLER`, ``Leader(tp)`` or ``Coordinator(kind, key)``.
            timeout: seconds, retries included; default ``default_api_timeout_ms``. The response
                must also arrive within ``request_timeout_ms``.

        Raises:
            RequestTimeout: no response arrived within the timeout; the cause is the last error.
            ConnectionLost: the connection was lost before the response, or there is no such node.
            FieldNotSupported: no common version has all fields that the request sets.
            UnsupportedVersion, ProtocolError, AuthenticationFailed: the broker cannot be used.
            BrokerError: the topic of a leader, or a coordinator, could not be looked up.
        """
        self.bind()
        if timeout is None:
            timeout = self.settings.default_api_timeout
        return await self.router.send(message, node, timeout=timeout)

    async def coordinator(
        self, kind: CoordinatorKind, key: str, *, timeout: float | None = None
    ) -> int:
        """Return the node id of the coordinator of a group or transactional id.

        A coordinator that is not cached is looked up.

        Args:
            timeout: seconds; default ``default_api_timeout_ms``.

        Raises:
            RequestTimeout: no coordinator was found within the timeout; the cause is the last
                error.
            GroupAuthorization, TransactionalIdAuthorization, InvalidRequest: the lookup was
                refused.
        """
        self.bind()
        if timeout is None:
            timeout = self.settings.default_api_timeout
        return await self.coordinators.find(kind, key, timeout=timeout)

    def coordinator_failed(
        self, kind: CoordinatorKind, key: str, node_id: int | None = None
    ) -> None:
        """Forget a coordinator that could not be reached, or is no longer the coordinator.

        Args:
            node_id: id of the failed node; a cached coordinator on another node is kept. None to
                forget the coordinator on any node.
        """
        self.coordinators.forget(kind, key, node_id)

    def _changed(self, before: ClusterState, after: ClusterState) -> None:
        if after.metadata.brokers is not before.metadata.brokers:
            self.nodes.update(after.metadata.brokers.values())
            for broker in before.metadata.brokers.values():
                if broker.node_id not in after.metadata.brokers:
                    # The broker left the cluster, so its outage has ended.
                    self.outages.reached(broker.address)
        if after.failed is not before.failed or after.down is not before.down:
            self.recovery.wake()

    async def _ask_node(self, node_id: int, topics: frozenset[str]) -> MetadataReceived:
        return await ask_node(
            self.node(node_id), MetadataAsk(topics), timeout=self.settings.request_timeout
        )

    async def _find_coordinator(
        self, make: Callable[[int], FindCoordinatorRequest]
    ) -> FindCoordinatorResponse:
        return await self.router.request(
            make, FindCoordinatorRequest, ANY, timeout=self.settings.request_timeout
        )

    def _node_lost(self, node_id: int) -> None:
        self.coordinators.forget_node(node_id)

    def _event_dropped(self) -> None:
        self.counters.events_dropped += 1
