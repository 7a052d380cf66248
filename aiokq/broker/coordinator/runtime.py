"""The coordinator runtime: routes requests to the shards of the partitions that this node leads.

A shard exists from the election of the node as leader of the partition until the node resigns. The
definition of a coordinator contains its topic, key partitioning, records and shards.

Source: Kafka ``CoordinatorRuntime.java``.
Tests: ``tests/unit/broker/coordinator/test_runtime.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokq.broker.replica.partition import NO_LEADER
from aiokq.core.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.coordinator.definition import CoordinatorDefinition, ShardFactory
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.shard import Shard, TransactionalProducer
    from aiokq.broker.coordinator.shard_context import ShardContext
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.metadata.controller.topic_layout import TopicSpec
    from aiokq.broker.metadata.publisher.topics import Topic, TopicRegistry
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.records.control import EndTransactionMarker

__all__ = ["AppendedMarker", "CoordinatorRuntime"]

logger = logging.getLogger("aiokq.broker.coordinator")

S = TypeVar("S", bound="Shard")
R = TypeVar("R")


class AppendedMarker:
    """A transaction marker that was appended to a coordinator's own partition."""

    __slots__ = ("_context", "_end_offset")

    def __init__(self, context: ShardContext[Any], end_offset: int) -> None:
        self._context = context
        self._end_offset = end_offset

    @property
    def is_committed(self) -> bool:
        """Whether the marker is committed in the leadership that wrote it."""
        return self._context.log.is_committed(self._end_offset)

    async def committed(self) -> None:
        """Wait until the marker is committed.

        Raises:
            BrokerError: see `ShardContext.committed`.
        """
        if not self.is_committed:
            await self._context.committed(self._end_offset)


class CoordinatorRuntime(Generic[S]):
    """One coordinator of one node. Used from the node's loop only, except `active_shards`.

    It is a `LeadershipListener`: `elected` begins to load a partition, `resigned` unloads it.

    Args:
        definition: the topic, key partitioning and shards of the coordinator.
        topics: the topics of the node.
        create_topic: creates the coordinator's topic.
        live_brokers: returns the number of brokers on which replicas can be placed.
        commit_timeout: seconds for which a write waits until other replicas have its records.
        cold_reads: reads log data that is not in the page cache, when shards are loaded.
        background: reports failures of loading and of timers, and determines the backoff.
        on_failure: called with the exception of a bug that stopped background work.
    """

    def __init__(
        self,
        definition: CoordinatorDefinition[S],
        *,
        environment: Environment,
        topics: TopicRegistry,
        create_topic: Callable[[TopicSpec], Awaitable[object]],
        live_brokers: Callable[[], int],
        commit_timeout: float,
        cold_reads: ColdReads,
        background: BackgroundWork,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._definition = definition
        self._partition_of = definition.partition_of
        self._clock = environment.clock
        self._offload = environment.offload
        self._topics = topics
        self._create_topic = create_topic
        self._live_brokers = live_brokers
        self._commit_timeout = commit_timeout
        self._cold_reads = cold_reads
        self._background = background
        self._contexts: dict[int, ShardContext[S]] = {}
        self._awaiting_import: dict[int, Partition] = {}
        """Partitions led by this node that wait until the modules of shards are imported."""
        self._factory: ShardFactory[S] | None = None
        self._importing = False
        self._partitions = 0
        """The number of partitions when the topic was first seen; 0 while there is no topic."""
        self._not_created = ""
        """The last logged reason for a failed creation of the topic."""
        self._closed = False
        self._supervisor = Supervisor(f"coordinator of {definition.noun}", on_failure=on_failure)
        topics.listeners.append(self._topic_changed)

    async def start(self) -> None:
        """Begin to load the partitions that this node leads.

        Requests fail with COORDINATOR_LOAD_IN_PROGRESS until their partition is loaded.
        """
        await self._supervisor.start()
        topic = self._topics.get(self._definition.topic)
        if topic is not None:
            self._topic_changed(topic)
            for partition in topic.partitions:
                if partition.is_online:
                    self.elected(partition)

    def stop(self) -> None:
        """Close all shards.

        Pending requests fail with NOT_COORDINATOR. Later requests fail with
        COORDINATOR_NOT_AVAILABLE.
        """
        self._closed = True
        self._unload()

    async def close(self) -> None:
        """Stop, and wait for background work to end. Idempotent."""
        self.stop()
        await self._supervisor.close()

    def spawn(self, work: Coroutine[object, None, R], *, name: str) -> asyncio.Task[R]:
        """Run work of the coordinator in the background, at most until the coordinator is closed.

        Raises:
            Closed: background work has not started, or has ended.
        """
        return self._supervisor.spawn(work, name=name)

    async def write(
        self,
        key: str,
        operation: Callable[[S, Instant], Outcome[R]],
        *,
        producer: TransactionalProducer | None = None,
        leader_epoch: int | None = None,
    ) -> R:
        """Run an operation on the key's shard, write its records, and return the response.

        The records are appended and replayed through the shard with no await in between; on return
        they are committed.

        Args:
            operation: decides from the current state of the shard which records to write. It must
                not await. It must not change durable state, unless its outcome has `replay` False.
            producer: the producer in whose transaction the records are written.
            leader_epoch: the leader epoch that the method `leader_epoch` returned when the caller
                began its work. If the leader epoch has changed since, the write fails with
                NOT_COORDINATOR.

        Raises:
            CoordinatorLoadInProgress: the shard is being loaded.
            CoordinatorNotAvailable: the shard cannot be used, too few replicas are in sync, or the
                in-sync replicas do not fetch the records in time.
            NotCoordinator: this node does not coordinate the key in the requested leader epoch, or
                resigns before the records are committed, or could not store the records.
            UnknownServer: the records are too large or cannot be encoded.
            BrokerError: the error that the operation raised.
        """
        context = (
            self._context(key) if leader_epoch is None else self._context_in(key, leader_epoch)
        )
        outcome, end_offset = context.write(operation, producer)
        if outcome.response is not None and (
            end_offset is None or context.log.is_committed(end_offset)
        ):
            return outcome.response  # the usual case: nothing to wait for
        return await context.answer(outcome, end_offset)

    def write_now(self, key: str, operation: Callable[[S, Instant], Outcome[R]]) -> R | None:
        """Run an operation as `write` does, unless the commit of its records may have to wait.

        Args:
            operation: as for `write`; its response must not be deferred.

        Returns:
            The response; None if the commit may have to wait. In that case, the operation was not
            run.

        Raises:
            BrokerError: see `write`.
        """
        context = self._context(key)
        if context.log.commits_late:
            return None
        outcome, _ = context.write(operation)
        return outcome.response

    def read(self, key: str, operation: Callable[[S], R]) -> R:
        """Run a read-only operation on the key's shard and return its result.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR
                as from `write`, or the error that the operation raises.
        """
        return operation(self._context(key).shard)

    async def write_all(
        self, operation: Callable[[S, Instant], Outcome[R]]
    ) -> dict[int, R | BrokerError]:
        """Run a write on every active shard; return the responses or errors by partition.

        All shards append before the first response is awaited. Shards that are not loaded are
        skipped, so their state must stay correct without the write.
        """
        answers: dict[int, R | BrokerError] = {}
        begun = []
        for index, context in list(self._contexts.items()):
            try:
                context.check_active()
                begun.append((index, context, *context.write(operation)))
            except BrokerError as error:
                if context.is_active:
                    answers[index] = error
        for index, context, outcome, end_offset in begun:
            try:
                answer = await context.answer(outcome, end_offset)
            except BrokerError as error:
                answers[index] = error
            else:
                answers[index] = answer
        return answers

    def read_all(self, operation: Callable[[S], list[R]]) -> list[R]:
        """Run a read-only operation on all shards of this node; concatenate the results.

        Raises:
            CoordinatorLoadInProgress: a shard is still being loaded.
            CoordinatorNotAvailable: a shard is unavailable, or the node is closing.
        """
        if self._closed:
            raise CoordinatorNotAvailable()
        answers: list[R] = []
        for index in range(self._partitions):
            try:
                context = self._context_of(index)
            except NotCoordinator:
                continue  # another node leads the partition
            answers += operation(context.shard)
        return answers

    def append(
        self,
        key: str,
        operation: Callable[[S, Instant], Outcome[R]],
        *,
        shard: S,
    ) -> R:
        """Run an operation as `write` does, but return its response before the commit.

        Args:
            shard: the shard for which the caller began its work. If the key has another shard now,
                the write fails with NOT_COORDINATOR. A comparison of leader epochs would not do:
                after a topic was deleted and created again, a new shard may have the same epoch.

        Raises:
            BrokerError: see `write`.
        """
        context = self._context_with(key, shard)
        outcome, _ = context.write(operation)
        return outcome.response  # type: ignore[return-value]  # None only if R permits it

    def leads(self, key: str, shard: S) -> bool:
        """Whether a shard is this node's current shard for a key; its log may be offline."""
        if self._closed or not self._partitions:
            return False
        context = self._contexts.get(self._partition_of(key, self._partitions))
        return context is not None and context.shard is shard

    def is_committed(self, key: str, end_offset: int, shard: S) -> bool:
        """Whether the records of a shard before an offset are committed.

        Raises:
            BrokerError: see `append`.
        """
        return self._context_with(key, shard).log.is_committed(end_offset)

    async def committed(self, key: str, end_offset: int, shard: S) -> None:
        """Wait until the records of a shard before an offset are committed.

        Raises:
            BrokerError: see `append`.
        """
        context = self._context_with(key, shard)
        if not context.log.is_committed(end_offset):
            await context.committed(end_offset)

    def append_marker(
        self,
        partition: int,
        producer: TransactionalProducer,
        marker: EndTransactionMarker,
        transaction_version: int,
    ) -> AppendedMarker:
        """Append a transaction marker of a producer to a partition, and apply it to the shard.

        Args:
            transaction_version: the level of `transaction.version` at which the transaction ended.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR
                as from `write`; INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if a newer
                epoch of the producer or of the transaction coordinator has written to the
                partition.
        """
        context = self._context_of(partition)
        return AppendedMarker(
            context, context.end_transaction(producer, marker, transaction_version)
        )

    def leader_epoch(self, key: str) -> int:
        """Return the leader epoch under which this node coordinates a key.

        Raises:
            BrokerError: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR
                as from `write`.
        """
        return self._context(key).leader_epoch

    async def locate(self, key: str) -> int:
        """Return the id of the node that coordinates a key; create the topic if it does not exist.

        Raises:
            CoordinatorNotAvailable: no node coordinates the key at present.
        """
        await self._ensure_topic()
        name = self._definition.topic
        topic = self._topics.get(name)
        index = self._partition_of(key, self._partitions) if self._partitions else 0
        partition = None if topic is None else topic.partition(index)
        context = self._contexts.get(index)
        if (
            partition is None
            or partition.leader == NO_LEADER
            or (context is not None and context.is_unusable)
        ):
            raise CoordinatorNotAvailable(f"partition {index} of {name} is offline")
        return partition.leader

    async def partition_of(self, key: str) -> TopicPartition:
        """Return the partition that coordinates a key; create the topic if it does not exist.

        Raises:
            CoordinatorNotAvailable: the topic cannot be created, the modules of shards cannot be
                imported, or the coordinator is closed.
        """
        await self._ensure_topic()
        return TopicPartition(self._definition.topic, self._partition_of(key, self._partitions))

    def active_shards(self) -> list[S]:
        """Return the shards that serve requests now. May be called from any thread."""
        return [context.shard for context in list(self._contexts.values()) if context.is_active]

    def _context(self, key: str) -> ShardContext[S]:
        """Return the context that serves a key now."""
        if self._closed:
            raise CoordinatorNotAvailable()
        if not self._partitions:
            raise NotCoordinator()  # the client sends FindCoordinator, which creates the topic
        index = self._partition_of(key, self._partitions)
        context = self._contexts.get(index)
        if context is None:
            raise self._unavailability(index)
        context.check_active()
        return context

    def _context_in(self, key: str, leader_epoch: int) -> ShardContext[S]:
        """Return the context that serves a key now, and check that it has this leader epoch.

        Raises:
            BrokerError: an error of `_context`, or NotCoordinator if the leader epoch has ended.
        """
        context = self._context(key)
        if leader_epoch != context.leader_epoch:
            raise NotCoordinator(
                f"leader epoch {leader_epoch} of {context.log.name} has ended: the current one "
                f"is {context.leader_epoch}"
            )
        return context

    def _context_with(self, key: str, shard: S) -> ShardContext[S]:
        """Return the context that serves a key now, and check that it has this shard.

        Raises:
            BrokerError: an error of `_context`, or NotCoordinator if the shard was replaced.
        """
        context = self._context(key)
        if context.shard is not shard:
            raise NotCoordinator(f"the leadership of {context.log.name} has ended, and begun again")
        return context

    def _context_of(self, index: int) -> ShardContext[S]:
        """Return the context of a partition; `_context` repeats this code for speed."""
        context = self._contexts.get(index)
        if context is None:
            raise self._unavailability(index)
        context.check_active()
        return context

    def _unavailability(self, index: int) -> BrokerError:
        if self._closed:
            return CoordinatorNotAvailable()
        if index in self._awaiting_import:
            return CoordinatorLoadInProgress()
        partition = self._topics.partition(self._definition.topic, index)
        if partition is None:
            return NotCoordinator()
        if partition.is_recovering:
            return CoordinatorLoadInProgress()
        if partition.leader == NO_LEADER:
            return CoordinatorNotAvailable(f"{partition.name} is offline")
        return NotCoordinator()

    def elected(self, partition: Partition) -> None:
        """Load the shard of a partition that this node now leads; ignore other topics.

        The new shard replaces a shard of an earlier leader epoch, or of a deleted topic of the same
        name. A shard of this leader epoch stays, and is not loaded again.
        """
        if self._closed or partition.topic.name != self._definition.topic:
            return
        if self._factory is not None:
            self._load(partition, self._factory)
            return
        self._awaiting_import[partition.index] = partition
        if not self._importing:
            self._importing = True
            self._supervisor.spawn(
                self._begin_to_load(), name=f"begin to load {self._definition.noun}"
            )

    def resigned(self, partition: Partition) -> None:
        """Close the shard of a partition that this node does not lead any more.

        Pending requests fail with NOT_COORDINATOR.
        """
        index = partition.index
        if self._awaiting_import.get(index) is partition:
            del self._awaiting_import[index]
        context = self._contexts.get(index)
        if context is not None and context.log.partition is partition:
            del self._contexts[index]
            context.close()

    async def _begin_to_load(self) -> None:
        """Import the modules of shards, then load the partitions that wait for the import."""
        task = self._background.task(f"load {self._definition.noun}")
        while not self._closed:
            try:
                await self._import()
                break
            except Exception as error:  # noqa: BLE001 - for example, no free file descriptors
                await asyncio.sleep(task.failed(error))
        self._importing = False

    async def _import(self) -> None:
        factory = await self._offload.run(self._import_modules)
        self._factory = factory
        awaiting, self._awaiting_import = self._awaiting_import, {}
        for partition in awaiting.values():
            self._load(partition, factory)

    def _import_modules(self) -> ShardFactory[S]:
        from aiokq.broker.coordinator import shard_context, shard_log  # noqa: F401

        return self._definition.shard_factory()

    def _load(self, partition: Partition, factory: ShardFactory[S]) -> None:
        from aiokq.broker.coordinator.shard_context import ShardContext, ShardState
        from aiokq.broker.coordinator.shard_log import ShardLog

        index, epoch = partition.index, partition.leader_epoch
        context = self._contexts.get(index)
        if context is not None:
            if context.log.partition is partition and context.leader_epoch >= epoch:
                return
            context.close()
        log = ShardLog(
            partition, factory, self._cold_reads, epoch, commit_timeout=self._commit_timeout
        )
        noun = self._definition.noun
        context = ShardContext(log, factory, noun, self._clock, self._background)
        self._contexts[index] = context
        if log.is_offline:
            context.state = ShardState.FAILED
        elif log.is_empty:
            context.activate()
        else:
            self._supervisor.spawn(context.load(), name=f"load {partition.name}")

    def _unload(self) -> None:
        self._awaiting_import.clear()
        contexts, self._contexts = self._contexts, {}
        for context in contexts.values():
            context.close()

    async def _ensure_topic(self) -> None:
        """Create the topic if it does not exist."""
        if self._closed:
            raise CoordinatorNotAvailable()
        if self._partitions:
            return
        if self._factory is None:
            try:
                await self._import()
            except Exception as error:  # for example, no free file descriptors
                noun = self._definition.noun
                self._background.task(f"load {noun}").failed(error)
                raise CoordinatorNotAvailable(
                    f"the modules of {noun} cannot be imported: {error}"
                ) from error
        name = self._definition.topic
        try:
            await self._create_topic(self._definition.topic_spec(self._live_brokers()))
        except BrokerError as error:
            # The topic exists despite the error if another request has created it, or if only some
            # of its partitions are offline.
            if not self._partitions:
                reason = f"{name} cannot be created: {error}"
                if reason != self._not_created:
                    self._not_created = reason
                    logger.warning("coordinator is not available: %s", reason)
                raise CoordinatorNotAvailable(reason) from error

    def _topic_changed(self, topic: Topic) -> None:
        if topic.name != self._definition.topic or self._closed:
            return
        if self._topics.get(topic.name) is not topic:
            self._partitions = 0
            self._unload()
        elif not self._partitions:
            # As in Kafka, partitions added later are not used until all brokers are restarted: with
            # another number of partitions, most keys would belong to another partition.
            self._partitions = len(topic.partitions)
