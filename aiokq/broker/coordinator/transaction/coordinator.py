"""The transaction coordinator of a node: the coordinator runtime on `__transaction_state`.

Source: Kafka ``TransactionCoordinator.scala``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.coordinator.key_hash import partition_by_hash
from aiokq.broker.coordinator.runtime import CoordinatorRuntime
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.metadata.image.topic_names import TRANSACTIONS_TOPIC
from aiokq.broker.replica.commits import COMMIT_TIMEOUT
from aiokq.core.errors import (
    BrokerError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTxnTimeout,
    KafkaStorage,
    PolicyViolation,
    TransactionalIdNotFound,
)
from aiokq.records.header import NO_PRODUCER_ID

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.shard import TransactionalProducer
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.coordinator.transaction.completion import MarkerLog
    from aiokq.broker.coordinator.transaction.lost_transactions import Found
    from aiokq.broker.coordinator.transaction.shard import PreparedTransaction, TransactionShard
    from aiokq.broker.coordinator.transaction.shard_factory import TransactionShardFactory
    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.metadata.publisher.topics import TopicRegistry
    from aiokq.core.background import BackgroundWork
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.types import TopicPartition

__all__ = ["TRANSACTIONS_TOPIC", "TransactionCoordinator"]

R = TypeVar("R")

ADDING_VERSION: Final = 2
"""The first ``transaction.version`` in which Produce adds partitions to the transaction."""

MAX_ID_LENGTH: Final = 4096
"""The maximum number of characters of a transactional id."""


class _TransactionCoordinatorDefinition:
    """The `CoordinatorDefinition` of transactions."""

    topic: Final = TRANSACTIONS_TOPIC
    noun: Final = "transactions"
    partition_of = staticmethod(partition_by_hash)

    def __init__(
        self,
        settings: BrokerSettings,
        version: Callable[[], int],
        prepared: Callable[[PreparedTransaction], None],
        counters: BrokerCounters,
    ) -> None:
        self._settings = settings
        self._version = version
        self._prepared = prepared
        self._counters = counters

    def topic_spec(self, live_brokers: int) -> TopicSpec:
        settings = self._settings
        replicas = min(settings.transaction_state_log_replication_factor, live_brokers)
        return TopicSpec(
            name=self.topic,
            partitions=settings.transaction_state_log_num_partitions,
            replication_factor=replicas,
            configs={
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(min(settings.transaction_state_log_min_isr, replicas)),
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            },
        )

    def shard_factory(self) -> TransactionShardFactory:
        # Import here, because the import takes time, and a broker may have no transactions.
        from aiokq.broker.coordinator.transaction.shard_factory import TransactionShardFactory

        return TransactionShardFactory(
            self._settings, self._version, self._prepared, self._counters
        )


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    """The transaction coordinator of one node.

    Args:
        settings: the settings of the broker.
        version: returns the finalized level of ``transaction.version``.
        next_producer_id: reserves a producer id.
        markers: writes the markers that end transactions.
        counters: metrics, to which the number of transactional ids by state is added.

    The other arguments are those of `CoordinatorRuntime`.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        version: Callable[[], int],
        next_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerLog,
        environment: Environment,
        topics: TopicRegistry,
        create_topic: Callable[[TopicSpec], Awaitable[object]],
        live_brokers: Callable[[], int],
        cold_reads: ColdReads,
        counters: BrokerCounters,
        background: BackgroundWork,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        from aiokq.broker.coordinator.transaction.completion import TransactionCompletion

        self._completion = TransactionCompletion(
            self,
            markers,
            spawn=lambda work, name: self.spawn(work, name=name),
            background=background,
        )
        super().__init__(
            _TransactionCoordinatorDefinition(
                settings, version, self._completion.prepared, counters
            ),
            environment=environment,
            topics=topics,
            create_topic=create_topic,
            live_brokers=live_brokers,
            commit_timeout=COMMIT_TIMEOUT,
            cold_reads=cold_reads,
            background=background,
            on_failure=on_failure,
        )
        self._settings = settings
        self._next_producer_id = next_producer_id
        self._retry_seconds = settings.add_partitions_to_txn_retry_backoff_max_ms / 1000
        counters.transactional_ids.add_source(self._count_ids)

    def stop(self) -> None:
        """Close all shards; see `CoordinatorRuntime.stop`."""
        super().stop()
        self._completion.close()

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: TransactionalProducer | None
    ) -> TransactionalProducer:
        """Return a producer id and epoch for a transactional id, and fence earlier producers.

        Args:
            timeout_ms: milliseconds after which the coordinator aborts a transaction of the
                producer.
            expected: the id and epoch that the producer has; None for a new producer.

        Raises:
            InvalidRequest: the transactional id is empty or longer than `MAX_ID_LENGTH`.
            InvalidTxnTimeout: the timeout is not between 1 and
                ``transaction.max.timeout.ms``.
            ConcurrentTransactions: a transaction of the transactional id is being ended; the client
                retries.
            ProducerFenced: ``expected`` is an earlier producer.
            PolicyViolation: the transactional id is new, and this node already coordinates
                ``max.transactional.ids`` transactional ids.
            BrokerError: see `write`.
        """
        if not 0 < len(transactional_id) <= MAX_ID_LENGTH:
            raise InvalidRequest(f"a transactional id has 1 to {MAX_ID_LENGTH} characters")
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            raise InvalidTxnTimeout(
                f"the transaction timeout must be between 1 and transaction.max.timeout.ms, "
                f"{self._settings.transaction_max_timeout_ms}, not {timeout_ms}"
            )

        def operation(
            shard: TransactionShard, spare_id: int | None, instant: Instant
        ) -> Outcome[TransactionalProducer]:
            # Check in each run of the operation: while a producer id is reserved between two runs,
            # other transactional ids may be added.
            if transactional_id not in shard.transactions:
                self._check_room()
            return shard.initialize(transactional_id, timeout_ms, expected, spare_id, instant)

        # If a transaction is open, the first iteration aborts it. If its markers can be written
        # immediately, the second iteration returns the producer.
        for _ in range(2):
            producer = await self._write_with_id(transactional_id, operation)
            if producer.producer_id != NO_PRODUCER_ID:
                return producer
            self._completion.run()
        raise ConcurrentTransactions()

    async def add_partitions(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        """Add partitions to a producer's transaction; the first partitions begin the transaction.

        Raises:
            InvalidRequest: the transactional id is empty.
            BrokerError: see `TransactionShard.add_partitions` and `write`.
        """
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        await self.write(
            transactional_id,
            lambda shard, instant: shard.add_partitions(
                transactional_id, producer, partitions, client_version, instant
            ),
        )

    def add_now(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> bool:
        """Add partitions to a transaction of version 2, if nothing has to be awaited.

        Returns:
            Whether the partitions are in the transaction. If not, call `ensure`, which may wait.
        """
        try:
            added = self.write_now(
                transactional_id,
                lambda shard, instant: shard.add_partitions(
                    transactional_id, producer, partitions, ADDING_VERSION, instant
                ),
            )
        except BrokerError:
            return False
        return added is not None

    async def ensure(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partition: TopicPartition,
        *,
        add: Collection[TopicPartition],
    ) -> None:
        """Ensure that a partition is in a producer's transaction.

        The method does not await after the last check, so the caller may append to the partition
        immediately.

        Args:
            add: the partitions to add to the transaction together; empty for clients of
                ``transaction.version`` 0 or 1. While the markers of the previous transaction are
                being written, the method waits before it adds the partitions, at most
                ``add.partitions.to.txn.retry.backoff.max.ms``.

        Raises:
            InvalidPidMapping, ProducerFenced, ConcurrentTransactions: see `TransactionShard`.
            TransactionAbortable: the partition is not in the transaction.
            BrokerError: see `write`.
        """
        if add:
            deadline = asyncio.get_running_loop().time() + self._retry_seconds
            while True:
                try:
                    await self.add_partitions(transactional_id, producer, add, ADDING_VERSION)
                    break
                except ConcurrentTransactions:
                    try:
                        async with asyncio.timeout_at(deadline):
                            await self._completed(transactional_id)
                    except TimeoutError:
                        raise ConcurrentTransactions() from None
        error = self.verify(transactional_id, producer, (partition,))[partition]
        if error is not None:
            raise error

    async def _completed(self, transactional_id: str) -> None:
        """Wait until the markers of a prepared transaction are written."""
        await self.write(transactional_id, lambda shard, _: shard.completion(transactional_id))

    def verify(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, BrokerError | None]:
        """Return for each partition None if it is in the producer's transaction, else an error.

        Raises:
            InvalidRequest: the transactional id is empty.
            BrokerError: see `TransactionShard.verify` and `read`.
        """
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        return self.read(
            transactional_id, lambda shard: shard.verify(transactional_id, producer, partitions)
        )

    async def end(
        self,
        transactional_id: str,
        producer: TransactionalProducer,
        *,
        committed: bool,
        client_version: int,
    ) -> TransactionalProducer:
        """Commit or abort a transaction; return the producer of the next transaction.

        On return, the decision is in the log. The markers are written after the response is sent.

        Raises:
            InvalidRequest: the transactional id is empty.
            BrokerError: see `TransactionShard.end` and `write`.
        """
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")

        def operation(
            shard: TransactionShard, spare_id: int | None, instant: Instant
        ) -> Outcome[TransactionalProducer]:
            return shard.end(
                transactional_id,
                producer,
                committed=committed,
                client_version=client_version,
                spare_id=spare_id,
                instant=instant,
            )

        return await self._write_with_id(transactional_id, operation)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the metadata of a transactional id.

        Raises:
            InvalidRequest: the transactional id is empty.
            TransactionalIdNotFound: the transactional id is unknown, or has expired.
            BrokerError: see `read`.
        """
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        found = self.read(transactional_id, lambda shard: shard.transactions.get(transactional_id))
        if found is None:
            raise TransactionalIdNotFound(f"there is no transactional id {transactional_id}")
        return found

    # `transaction_recovery` calls the following public methods after an unclean shutdown.

    def find(self, producer_id: int) -> Found | None:
        """Return the coordinator's data about a producer id; None if no shard has the id.

        Raises:
            CoordinatorLoadInProgress, CoordinatorNotAvailable: no active shard has the id as a
                current producer id, and another shard is being loaded or cannot be used.
        """
        from aiokq.broker.coordinator.transaction.lost_transactions import Found

        shards = self.active_shards()
        found = (
            (shard, metadata)
            for shard in shards
            if (metadata := shard.by_producer(producer_id)) is not None
        )
        before = (
            (shard, metadata)
            for shard in shards
            if (metadata := shard.by_previous_producer(producer_id)) is not None
        )
        one = next(found, None)
        if one is None:
            self.read_all(lambda shard: [])
            one = next(before, None)
        if one is None:
            return None
        shard, metadata = one
        ended = shard.ended_partitions(metadata.transactional_id)
        return Found(metadata, shard.coordinator_epoch, ended)

    def find_current(self, producer_id: int) -> TransactionMetadata | None:
        """Return the metadata with this current producer id; None if no shard has such metadata.

        Raises:
            CoordinatorLoadInProgress, CoordinatorNotAvailable: no active shard has the id, and
                another shard is being loaded or cannot be used.
        """
        for shard in self.active_shards():
            metadata = shard.by_producer(producer_id)
            if metadata is not None:
                return metadata
        self.read_all(lambda shard: [])
        return None

    async def restore_partition(
        self, found: TransactionMetadata, partition: TopicPartition
    ) -> bool:
        """Add a partition that an open transaction has lost; return False if `found` is outdated.

        See `repairs`.

        Raises:
            BrokerError: see `write`.
        """
        from aiokq.broker.coordinator.transaction.repairs import adding_partition

        return await self.write(
            found.transactional_id,
            lambda shard, instant: shard.repair(found, adding_partition(partition), instant),
        )

    async def restore_epoch(self, found: TransactionMetadata, seen_epoch: int) -> bool:
        """Restore a producer epoch that a partition has and the coordinator's log has lost.

        Return False if the repair does not apply. See `repairs`.

        Raises:
            BrokerError: see `write`.
        """
        from aiokq.broker.coordinator.transaction.repairs import taking_epoch

        done = await self.write(
            found.transactional_id,
            lambda shard, instant: shard.repair(found, taking_epoch(seen_epoch), instant),
        )
        self._completion.run()
        return done

    async def abandon(
        self, found: TransactionMetadata, partition: TopicPartition, seen_epoch: int
    ) -> bool:
        """Abort a transaction that is open in a partition and that the coordinator's log has lost.

        Return False if `found` is outdated. See `repairs`.

        Raises:
            BrokerError: see `write`.
        """
        from aiokq.broker.coordinator.transaction.repairs import abandoning

        done = await self.write(
            found.transactional_id,
            lambda shard, instant: shard.repair(found, abandoning(partition, seen_epoch), instant),
        )
        self._completion.run()
        return done

    async def _write_with_id(
        self,
        transactional_id: str,
        operation: Callable[[TransactionShard, int | None, Instant], Outcome[R]],
    ) -> R:
        """Run an operation; if it needs a new producer id, reserve one and run it again.

        Raises:
            CoordinatorNotAvailable: no producer id can be reserved.
            BrokerError: see `write`.
        """
        from aiokq.broker.coordinator.transaction.decisions import NeedsProducerId

        try:
            return await self.write(
                transactional_id, lambda shard, instant: operation(shard, None, instant)
            )
        except NeedsProducerId:
            pass
        try:
            spare_id = await self._next_producer_id()
        except KafkaStorage as error:
            raise CoordinatorNotAvailable(f"no producer id can be reserved: {error}") from error
        return await self.write(
            transactional_id, lambda shard, instant: operation(shard, spare_id, instant)
        )

    def _check_room(self) -> None:
        """Refuse another transactional id if there are too many.

        Raises:
            PolicyViolation: see `initialize`.
        """
        most = self._settings.max_transactional_ids
        if sum(map(len, self.active_shards())) >= most:
            raise PolicyViolation(
                f"this broker has {most} transactional ids, as many as max.transactional.ids allows"
            )

    # --- metrics, read from any thread

    def _count_ids(self) -> dict[tuple[str, ...], int]:
        return Counter(
            (metadata.state.kafka_name,)
            for shard in self.active_shards()
            for metadata in list(shard.transactions.values())
        )
