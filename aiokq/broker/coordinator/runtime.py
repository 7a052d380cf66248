"""The group coordinator of a node: which shard a group belongs to, and when a shard may be asked.

Owns the shards of `__consumer_offsets`, their loading, their timers on the loop, and the order of
every change: written, replayed, answered. What a request means is the shard's matter.

Source: Kafka ``GroupCoordinatorService.java``, ``CoordinatorRuntime.java``.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.coordinator.group.registry_topic_view import RegistryView
from aiokq.broker.coordinator.slots import ShardState, Slot
from aiokq.broker.coordinator.timers import Action, Instant, Timers
from aiokq.broker.topic_layout import TopicSpec
from aiokq.core.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptRecord,
    KafkaStorage,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    RecordBatchTooLarge,
    RecordTooLarge,
    RequestTimeout,
    TopicExists,
    UnknownServer,
    UnknownTopicOrPartition,
)
from aiokq.core.frozen import frozen
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from aiokq.broker.coordinator.group.group import Group
    from aiokq.broker.coordinator.group.shard import GroupShard
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.group_configs import GroupConfigs
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.node import BrokerEndpoint
    from aiokq.broker.settings import BrokerSettings
    from aiokq.broker.topics import Topic, TopicRegistry
    from aiokq.core.background import BackgroundTask, BackgroundWork
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment

__all__ = ["OFFSETS_TOPIC", "CoordinatorRuntime", "partition_of"]

logger = logging.getLogger("aiokq.broker.coordinator")

R = TypeVar("R")

OFFSETS_TOPIC: Final = "__consumer_offsets"

TIMERS_PER_TURN: Final = 64
"""Timers that end in one turn of the loop; after a pause of the process it may be all of them."""

_TIMERS: Final = "timers of groups"
_LOAD: Final = "load groups"

RETRY_SECONDS: Final = 0.5
"""How long a timer whose records could not be written waits, as in Kafka."""


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that a group's records are in.

    Source: Kafka ``Utils.abs(groupId.hashCode()) % partitions``.
    """
    units = group_id.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    if value >= 2**31:
        value -= 2**32
    return 0 if value == -(2**31) else abs(value) % partitions


@frozen
class _Retry:
    """The action of a timer that failed, and its pauses; a timer that is set anew has none."""

    action: Action
    task: BackgroundTask

    def __call__(self, instant: Instant) -> Outcome[None] | None:
        return self.action(instant)


class CoordinatorRuntime:
    """The group coordinator of one node. Used from the node's loop only.

    Args:
        brokers: the live nodes, for the racks of partitions.
        group_configs: the settings of single groups.
        cold_reads: reads the logs that are loaded.
        counters: what metrics show of the node.
        background: told where timers and loading fail.
        on_failure: told of a bug that stopped the loading.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        environment: Environment,
        topics: TopicRegistry,
        brokers: Callable[[], Iterable[BrokerEndpoint]],
        group_configs: GroupConfigs,
        cold_reads: ColdReads,
        counters: BrokerCounters,
        background: BackgroundWork,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._clock = environment.clock
        self._random = environment.random
        self._offload = environment.offload
        self._topics = topics
        self._brokers = brokers
        self._group_configs = group_configs
        self._cold_reads = cold_reads
        self._counters = counters
        self._background = background
        self._view = RegistryView(topics, brokers)
        self._slots: dict[int, Slot] = {}
        self._partitions = 0
        self._closed = False
        self._supervisor = Supervisor("group coordinator", on_failure=on_failure)
        topics.listeners.append(self._topic_changed)
        counters.groups.add_source(self._count_groups)
        counters.group_members.add_source(self._count_members)

    # its life

    async def start(self) -> None:
        """Begin to load what the log has; requests are answered with 14 until that is done."""
        await self._supervisor.start()
        topic = self._topics.get(OFFSETS_TOPIC)
        if topic is not None:
            self._partitions = len(topic.partitions)
            self._supervisor.spawn(self._begin(topic), name="begin to load groups")

    async def _begin(self, topic: Topic) -> None:
        task = self._background.task(_LOAD)
        while not self._closed and self._topics.get(OFFSETS_TOPIC) is topic:
            try:
                await self._offload.run(_import_machines)
                if not self._closed and self._topics.get(OFFSETS_TOPIC) is topic:
                    self._take_partitions(topic)
                return
            except Exception as error:  # noqa: BLE001 - such as an import without descriptors
                await asyncio.sleep(task.failed(error))

    def stop(self) -> None:
        """Coordinate no longer: who waits is told to look for another coordinator (16)."""
        self._closed = True
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()

    async def close(self) -> None:
        """`stop`, and wait for what still runs. Safe twice."""
        self.stop()
        await self._supervisor.close()

    # requests

    async def write(
        self, group_id: str, operation: Callable[[GroupShard, Instant], Outcome[R]]
    ) -> R:
        """Ask the group's shard something that may change it; the answer, once that is written.

        Raises:
            BrokerError: 14, 15 or 16 if the shard cannot be asked, or -1 if the records are too
                large or have no form in the log; what the operation raises.
        """
        slot = self._slot(group_id)
        instant = self._instant()
        try:
            outcome = operation(slot.shard, instant)
            try:
                self._apply(slot, outcome, instant)
            except BrokerError:
                if outcome.deferred is None or not outcome.deferred.done:
                    raise
        finally:
            self._wind(slot)
        if outcome.records:
            try:
                await slot.log.durable()
            except KafkaStorage as error:
                raise _told(error) from error
        if outcome.deferred is None:
            assert outcome.response is not None
            return outcome.response
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def give(response: R) -> None:
            if not answer.done():  # a client that went away is not waited for
                answer.set_result(response)

        outcome.deferred.on_complete(give)
        return await answer

    def read(self, group_id: str, operation: Callable[[GroupShard], R]) -> R:
        """Ask the group's shard something that changes nothing.

        Raises:
            BrokerError: 14, 15 or 16; what the operation raises.
        """
        return operation(self._slot(group_id).shard)

    def read_all(self, operation: Callable[[GroupShard], list[R]]) -> list[R]:
        """Ask every shard, and put their answers together.

        Raises:
            CoordinatorLoadInProgress: one is still loading.
            CoordinatorNotAvailable: one cannot be loaded, or the node is closing.
        """
        if self._closed:
            raise CoordinatorNotAvailable()
        if len(self._slots) < self._partitions:
            raise CoordinatorLoadInProgress()
        answers = []
        for slot in self._slots.values():
            self._check(slot)
            answers += operation(slot.shard)
        return answers

    async def locate(self, group_id: str) -> int:
        """The node that coordinates a group; makes `__consumer_offsets` if nobody has yet.

        Raises:
            CoordinatorNotAvailable: there is none at present; says why.
        """
        await self._ensure_topic()
        topic = self._topics.get(OFFSETS_TOPIC)
        index = partition_of(group_id, self._partitions) if self._partitions else 0
        partition = None if topic is None else topic.partition(index)
        slot = self._slots.get(index)
        failed = slot is not None and slot.state is ShardState.FAILED
        if partition is None or not partition.is_online or partition.log.failed or failed:
            raise CoordinatorNotAvailable(f"partition {index} of {OFFSETS_TOPIC} is offline")
        return partition.leader

    def _slot(self, group_id: str) -> Slot:
        if self._closed:
            raise CoordinatorNotAvailable()
        if not self._partitions:
            raise NotCoordinator()  # whoever asks for the coordinator makes it
        if not self._slots:
            raise CoordinatorLoadInProgress()  # it has not begun
        index = partition_of(group_id, self._partitions)
        slot = self._slots.get(index)
        if slot is None:
            partition = self._topics.partition(OFFSETS_TOPIC, index)
            if partition is not None and partition.is_recovering:
                raise CoordinatorLoadInProgress()
            raise NotCoordinator()
        self._check(slot)
        return slot

    @staticmethod
    def _check(slot: Slot) -> None:
        if slot.state is ShardState.LOADING:
            raise CoordinatorLoadInProgress()
        if slot.state is ShardState.FAILED or slot.log.is_offline:
            raise CoordinatorNotAvailable(f"the partition of {OFFSETS_TOPIC} is offline")
        if slot.state is ShardState.CLOSED:
            raise NotCoordinator()

    # changes

    def _instant(self) -> Instant:
        return Instant(self._clock.monotonic(), self._clock.timestamp_ms())

    def _apply(self, slot: Slot, outcome: Outcome[R], instant: Instant) -> None:
        """Write an outcome's records and take them over, in this order.

        Raises:
            BrokerError: they are not written, by the code that clients of a coordinator get.
        """
        failure: BrokerError | None = None
        if outcome.records:
            try:
                for offset, record in slot.log.append(
                    outcome.records, atomic=outcome.atomic, now_ms=instant.timestamp_ms
                ):
                    if outcome.replay:
                        slot.shard.replay(record, offset=offset)
            except (BrokerError, ProtocolError) as error:
                failure = _told(error)
                # That a disk refuses the log has said, once for all that it refuses.
                level = logging.DEBUG if isinstance(error, KafkaStorage) else logging.WARNING
                logger.log(
                    level,
                    "records were not written: partition=%s records=%d error=%s",
                    slot.partition.name,
                    len(outcome.records),
                    error,
                )
        if outcome.written is not None:
            outcome.written(failure)
        if failure is not None:
            raise failure

    # timers

    def _wind(self, slot: Slot) -> None:
        """Let the loop wake us for the shard's first timer."""
        at = slot.timers.next_at
        if slot.handle is not None:
            if at is not None and slot.wakes_at <= at:
                return  # early enough, and it winds anew
            slot.handle.cancel()
            slot.handle = None
        if at is not None and slot.state is ShardState.ACTIVE:
            delay = max(at - self._clock.monotonic(), 0.0)
            slot.wakes_at = at
            slot.handle = asyncio.get_running_loop().call_later(delay, self._run_timers, slot)

    def _run_timers(self, slot: Slot) -> None:
        slot.handle = None
        instant = self._instant()
        try:
            for _ in range(TIMERS_PER_TURN):
                due = slot.timers.take_due(instant.now)
                if due is None:
                    break
                self._run_timer(slot, *due, instant)
        finally:
            self._wind(slot)  # a bug in one group's timer is not the end of all others'

    def _run_timer(self, slot: Slot, key: Hashable, action: Action, instant: Instant) -> None:
        retry_in: float | None = None
        task: BackgroundTask | None = None
        if isinstance(action, _Retry):
            task, action = action.task, action.action
        again: Action = action
        try:
            outcome = action(instant)
            try:
                if outcome is not None:
                    self._apply(slot, outcome, instant)
            except BrokerError:
                # A machine whose state comes from the log alone has not moved: run it again.
                retry_in = RETRY_SECONDS if outcome is not None and outcome.replay else None
        except Exception as error:  # noqa: BLE001 - one group's; the others' timers go on
            task = task or self._background.task(_TIMERS)
            retry_in = task.failed(error)
            again = _Retry(action, task)
        if retry_in is not None and key not in slot.timers:
            slot.timers.schedule(key, instant.now + retry_in, again)

    # what metrics show of it, asked from any thread

    def _count_groups(self) -> dict[tuple[str, ...], int]:
        return Counter((group.type.value, group.state_name) for group in self._groups())

    def _count_members(self) -> dict[tuple[str, ...], int]:
        members: Counter[tuple[str, ...]] = Counter()
        for group in self._groups():
            members[(group.type.value,)] += group.members_count
        return members

    def _groups(self) -> list[Group]:
        return [
            group
            for slot in list(self._slots.values())
            if slot.state is ShardState.ACTIVE
            for group in list(slot.shard.groups.values())
        ]

    # the topic

    async def _ensure_topic(self) -> None:
        """Make `__consumer_offsets` if it is not there.

        Raises:
            CoordinatorNotAvailable: it cannot be made.
        """
        if self._closed:
            raise CoordinatorNotAvailable()
        if self._partitions:
            return
        await self._offload.run(_import_machines)
        settings = self._settings
        spec = TopicSpec(
            name=OFFSETS_TOPIC,
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=min(settings.offsets_topic_replication_factor, self._live_brokers()),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
        )
        try:
            await self._topics.create(spec)
        except TopicExists:
            pass  # somebody else asked at the same time
        except BrokerError as error:
            raise CoordinatorNotAvailable(f"{OFFSETS_TOPIC} cannot be made: {error}") from error

    def _live_brokers(self) -> int:
        return sum(1 for _ in self._brokers())

    def _topic_changed(self, topic: Topic) -> None:
        if self._closed:
            return
        present = self._topics.get(topic.name) is topic
        if topic.name == OFFSETS_TOPIC:
            if present:
                self._take_partitions(topic)
            else:
                self._let_go()
        elif not present:
            self._forget_offsets(topic)

    def _take_partitions(self, topic: Topic) -> None:
        """Coordinate the groups of each partition that we do not coordinate yet."""
        from aiokq.broker.coordinator.shard_log import ShardLog

        if not self._partitions:
            # As in Kafka partitions that come later have no groups until all brokers were
            # restarted: with another count every group would be somewhere else.
            self._partitions = len(topic.partitions)
        for partition in topic.partitions:
            if partition.index in self._slots or partition.is_recovering:
                continue  # told of again when it is recovered
            timers = Timers()
            slot = self._slots[partition.index] = Slot(
                partition, ShardLog(partition, self._cold_reads), self._new_shard(timers), timers
            )
            if slot.log.is_offline:
                slot.state = ShardState.FAILED
            elif slot.log.is_empty:
                self._activate(slot)
            else:
                self._supervisor.spawn(self._load(slot), name=f"load {partition.name}")

    def _new_shard(self, timers: Timers) -> GroupShard:
        """A shard of which nothing is loaded yet."""
        from aiokq.broker.coordinator.group.shard import GroupShard

        return GroupShard(
            settings=self._settings,
            timers=timers,
            topics=self._view,
            rng=self._random,
            timeouts=self._group_configs,
            rebalances=self._counters.group_rebalances,
        )

    async def _load(self, slot: Slot) -> None:
        """Replay the log; after an error that may pass, replay it again from its start.

        Errors that do not pass: the log is damaged, or offline until the node starts again.
        """
        task = self._background.task(_LOAD)
        while True:
            began = self._clock.monotonic()
            try:
                records = await slot.log.replay(slot.shard)
                if slot.state is not ShardState.LOADING:
                    return
                self._activate(slot)
                break
            except Exception as error:  # noqa: BLE001 - the other shards go on
                if slot.state is ShardState.CLOSED:
                    return
                slot.state = ShardState.FAILED
                if isinstance(error, CorruptRecord | EOFError) or slot.log.is_offline:
                    logger.error(
                        "groups cannot be loaded: partition=%s: %s", slot.partition.name, error
                    )
                    return
                await asyncio.sleep(task.failed(error))
            if slot.state is ShardState.CLOSED:
                return
            slot.timers = Timers()
            slot.shard = self._new_shard(slot.timers)
            slot.state = ShardState.LOADING
        logger.info(
            "groups loaded: partition=%s records=%d groups=%d seconds=%.3f",
            slot.partition.name,
            records,
            len(slot.shard.groups),
            self._clock.monotonic() - began,
        )

    def _activate(self, slot: Slot) -> None:
        slot.state = ShardState.ACTIVE
        slot.shard.loaded(self._instant())
        self._wind(slot)

    def _let_go(self) -> None:
        for slot in self._slots.values():
            slot.close()
        self._slots.clear()
        self._partitions = 0

    def _forget_offsets(self, topic: Topic) -> None:
        """A topic was deleted: no group has offsets in it any more."""
        gone = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
        for slot in self._slots.values():
            if slot.state is not ShardState.ACTIVE:
                continue  # what it loads later is recognized by the topic's id
            instant = self._instant()
            try:
                self._apply(slot, slot.shard.partitions_deleted(gone), instant)
            except BrokerError as error:
                logger.error("offsets of deleted topic=%s stay: %s", topic.name, error)


def _import_machines() -> None:
    """Import what coordinates groups: tens of milliseconds, which a broker without groups saves."""
    importlib.import_module("aiokq.broker.coordinator.group.shard")
    importlib.import_module("aiokq.broker.coordinator.shard_log")


def _told(error: BrokerError | ProtocolError) -> BrokerError:
    """What a client is told of a failed append.

    Source: Kafka ``CoordinatorOperationExceptionHelper``: the codes that clients of a coordinator
    know what to do about.
    """
    if isinstance(error, UnknownTopicOrPartition | NotEnoughReplicas | RequestTimeout):
        return CoordinatorNotAvailable(str(error))
    if isinstance(error, NotLeaderOrFollower | KafkaStorage):
        return NotCoordinator(str(error))
    if isinstance(error, RecordTooLarge | RecordBatchTooLarge | ProtocolError):
        return UnknownServer(str(error))
    return error
