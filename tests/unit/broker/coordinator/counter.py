"""A small coordinator for the runtime: named counters, stored as `__transaction_state` records."""

from __future__ import annotations

import asyncio

from aiokq.broker.coordinator.key_hash import partition_by_hash
from aiokq.broker.coordinator.outcome import Deferred, Outcome
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.broker.coordinator.runtime import CoordinatorRuntime
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.broker.coordinator.shard_load import ReplayingLoad
from aiokq.broker.coordinator.timers import Instant, Timers
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.core.errors import BrokerError, InvalidRequest
from aiokq.wire.codec import decode_prefixed, encode_prefixed
from aiokq.wire.transaction_records import TransactionLogKey, TransactionLogValue
from tests.unit.broker.harness import Broker

TOPIC = "__transaction_state"

COMMIT_TIMEOUT = 5.0
"""Seconds for which a write waits for other replicas."""


def record(name: str, value: int | None) -> CoordinatorRecord:
    """Return the record that sets a counter, or removes it."""
    return CoordinatorRecord(
        TransactionLogKey(transactional_id=name),
        None if value is None else TransactionLogValue(producer_id=value),
    )


class CounterShard:
    """A `Shard` of counters.

    Attributes:
        life: the runtime's notifications, in order.
    """

    def __init__(self, timers: Timers, leader_epoch: int) -> None:
        self.values: dict[str, int] = {}
        self.pending: dict[int, list[tuple[str, int]]] = {}
        self.life: list[str] = []
        self.leader_epoch = leader_epoch
        self._timers = timers
        self._waiting: list[tuple[str, int, Deferred[int]]] = []

    def __len__(self) -> int:
        return len(self.values)

    # Requests

    def add(self, name: str, amount: int) -> Outcome[int]:
        """Add to a counter; the result is its new value."""
        if amount < 0:
            raise InvalidRequest("counters count up")
        value = self.values.get(name, 0) + amount
        return Outcome([record(name, value)], value)

    def remove_all(self) -> Outcome[int]:
        """Remove all counters; the result is how many there were."""
        return Outcome([record(name, None) for name in self.values], len(self.values))

    def reach(self, name: str, value: int) -> Outcome[int]:
        """Wait until a counter is at least `value`; the result is the counter's value."""
        deferred: Deferred[int] = Deferred()
        self._waiting.append((name, value, deferred))
        return Outcome(deferred=deferred)

    def reset_later(self, name: str, seconds: float, instant: Instant) -> Outcome[int]:
        """Set a counter to zero after `seconds`."""

        def expire(now: Instant) -> Outcome[None]:
            self.life.append(f"expired {name}")
            return Outcome([record(name, 0)])

        self._timers.schedule(name, instant.now + seconds, expire)
        return Outcome(response=0)

    # Calls of the runtime

    def load(self, unreadable) -> ReplayingLoad:
        return ReplayingLoad(self, decode, unreadable)

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        assert isinstance(record.key, TransactionLogKey)
        name = record.key.transactional_id
        if record.value is None:
            self.values.pop(name, None)
            return
        assert isinstance(record.value, TransactionLogValue)
        value = record.value.producer_id
        if producer_id == NO_PRODUCER:
            self._set(name, value)
        else:
            self.pending.setdefault(producer_id, []).append((name, value))

    def _set(self, name: str, value: int) -> None:
        self.values[name] = value
        for waited, least, deferred in self._waiting:
            if waited == name and value >= least:
                deferred.complete(value)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for name, value in self.pending.pop(producer_id, []):
            if committed:
                self._set(name, value)

    def loaded(self, instant: Instant) -> None:
        self.life.append("loaded")

    def unloaded(self) -> None:
        """Requests that still wait are left to the runtime."""
        self.life.append("unloaded")


def decode(key, value) -> CoordinatorRecord:
    return CoordinatorRecord(
        decode_prefixed(TransactionLogKey, key),
        None if value is None else decode_prefixed(TransactionLogValue, value),
    )


class CounterInstance:
    """A `CoordinatorDefinition` and its `ShardFactory`."""

    topic = TOPIC
    noun = "counters"

    def __init__(self, partitions: int, topic_configs: dict[str, str]) -> None:
        self._partitions = partitions
        self._topic_configs = topic_configs
        self.shards: list[CounterShard] = []
        """All shards created so far, the newest last."""

    def topic_spec(self, live_brokers: int) -> TopicSpec:
        return TopicSpec(
            name=self.topic,
            partitions=self._partitions,
            replication_factor=min(3, live_brokers),
            configs={"cleanup.policy": "compact", **self._topic_configs},
        )

    def partition_of(self, key: str, partitions: int) -> int:
        return partition_by_hash(key, partitions)

    def shard_factory(self) -> CounterInstance:
        return self

    def new_shard(self, timers: Timers, leader_epoch: int) -> CounterShard:
        shard = CounterShard(timers, leader_epoch)
        self.shards.append(shard)
        return shard

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        value = None if record.value is None else encode_prefixed(record.value, 0)
        return encode_prefixed(record.key, 0), value


class CounterBroker(Broker):
    """A node with a coordinator of counters beside the group coordinator."""

    def __init__(self, files=None, *, partitions=1, topic_configs=None, **settings) -> None:
        super().__init__(files, profile="dev", **settings)
        self.instance = CounterInstance(partitions, topic_configs or {})
        self.failures: list[BaseException] = []
        self.runtime: CoordinatorRuntime[CounterShard]

    async def __aenter__(self) -> CounterBroker:
        await super().__aenter__()
        node = self.node
        self.runtime = CoordinatorRuntime(
            self.instance,
            environment=node.environment,
            topics=node.topics,
            create_topic=node.metadata.create_topic,
            live_brokers=lambda: 1,
            commit_timeout=COMMIT_TIMEOUT,
            cold_reads=node.cold_reads,
            background=node.background,
            on_failure=self.failures.append,
        )
        node.leadership_listeners.append(self.runtime)
        await self.runtime.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.runtime.close()
        await super().__aexit__(*exc_info)
        assert self.failures == []

    def partition(self, index: int = 0):
        """Return a partition of the counters' topic."""
        return self.node.topics.partition(TOPIC, index)

    @property
    def shard(self) -> CounterShard:
        """The newest shard."""
        return self.instance.shards[-1]

    async def add(self, name: str, amount: int = 1, **options) -> int:
        return await self.runtime.write(name, lambda shard, _: shard.add(name, amount), **options)

    def value(self, name: str) -> int | None:
        return self.runtime.read(name, lambda shard: shard.values.get(name))

    async def limit_batches(self, size: int) -> None:
        """Make the log reject larger batches."""
        await self.node.metadata.alter_topic_configs(
            self.node.topics.get(TOPIC), lambda configs: {**configs, "max.message.bytes": str(size)}
        )

    def resign(self, index: int = 0) -> None:
        """Make another node the leader of the partition."""
        partition = self.partition(index)
        partition.follow(partition.local_log, self.node.node_id + 1, partition.leader_epoch + 1)
        self.runtime.resigned(partition)

    def elect(self, index: int = 0) -> None:
        """Make this node the leader of the partition again, in the next epoch."""
        partition = self.partition(index)
        log, epoch = partition.local_log, partition.leader_epoch + 1
        partition.bring_online(log, self.node.node_id, epoch)
        self.runtime.elected(partition)

    async def loaded(self, name: str = "a") -> None:
        """Wait until the shard of the counter `name` is loaded."""
        for _ in range(10_000):
            if await code(self.add(name, 0)) != 14:
                return
            await asyncio.sleep(0)
        raise AssertionError("still loading")


async def code(answer) -> int:
    """Return the error code of an awaitable's outcome; 0 for success."""
    try:
        await answer
    except BrokerError as error:
        return error.code
    return 0
