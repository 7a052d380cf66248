"""A scripted cluster with a transaction coordinator, which checks what a producer sends.

The coordinator keeps one transaction per id by Kafka's rules for `transaction.version` 0 to 2. A
late or wrong request gets Kafka's error code. `committed` returns what a `read_committed` consumer
would read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiokq import wire
from aiokq.producer.producer import Producer
from aiokq.records.header import read_header
from aiokq.wire.find_coordinator import Coordinator as CoordinatorAnswer
from tests.peers.scripted import Answer, Call, Close, Delay, Silence
from tests.sim.harness.simulation import Outcome, Simulation, run
from tests.sim.producer_world import BROKER, CLIENT, Appended, Attempt, Kafka, times

ID = "tx"


@dataclass
class Coordinated:
    """One transactional id at the coordinator."""

    producer_id: int
    epoch: int
    last_epoch: int = -1
    state: str = "Empty"
    """Empty, Ongoing, CompleteCommit or CompleteAbort."""
    last_id: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class TransactionalKafka(Kafka):
    """A cluster whose node 1 coordinates all transactional ids and groups.

    Attributes:
        level: `transaction.version`; connections that are made later learn of a change.
        ids: by transactional id.
        ended: (committed, producer id, epoch) of each transaction that was ended, by EndTxn or by a
            producer that took its id over.
        offsets: committed offsets by group and partition.
        first_epoch: the epoch of a new transactional id.
    """

    def __init__(self, nodes: int = 1, *, level: int = 2, **options: Any) -> None:
        super().__init__(nodes, **options)
        self.level = level
        self.features_epoch = 1
        self.ids: dict[str, Coordinated] = {}
        self.ended: list[tuple[bool, int, int]] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.pending_offsets: dict[int, dict[tuple[str, str, int], int]] = defaultdict(dict)
        self.first_epoch = 0
        self.outcomes: dict[tuple[int, int, str, int], list[tuple[bool, int]]] = defaultdict(list)
        """(committed, offset at the end) by producer id, epoch and partition."""
        self.on(wire.ApiVersionsRequest, self._versions)
        self.on(wire.FindCoordinatorRequest, self._find)
        self.on(wire.InitProducerIdRequest, self._initialize)
        self.on(wire.AddPartitionsToTxnRequest, self._add_partitions)
        self.on(wire.AddOffsetsToTxnRequest, self._add_offsets)
        self.on(wire.TxnOffsetCommitRequest, self._commit_offsets)
        self.on(wire.EndTxnRequest, self._end)

    def set_level(self, level: int) -> None:
        """Change `transaction.version`; clients learn of it when they connect again."""
        self.level = level
        self.features_epoch += 1

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def seen(self, request_class: Any) -> list[Any]:
        """Return the requests of one API to all nodes, and their versions."""
        return [
            seen
            for node in self.nodes.values()
            for seen in node.seen
            if isinstance(seen.request, request_class)
        ]

    def script(self, request_class: Any, *answers: Any) -> None:
        """Answer the next requests of an API to node 1 with `answers`, one each."""
        self[1].script(request_class, *answers)

    def lost(self, request_class: Any, count: int = 1, said: Answer | None = None) -> None:
        """Carry out the next requests of an API; answer with `said`, or close the connection."""
        handlers = {
            wire.InitProducerIdRequest: self._initialize,
            wire.AddPartitionsToTxnRequest: self._add_partitions,
            wire.AddOffsetsToTxnRequest: self._add_offsets,
            wire.TxnOffsetCommitRequest: self._commit_offsets,
            wire.EndTxnRequest: self._end,
        }

        def handle(request: Any, call: Call) -> Answer:
            handlers[request_class](request, call)
            return said or Close()

        self.script(request_class, *[handle] * count)

    def committed(self, topic: str) -> list[bytes | None]:
        """Return the values of a topic that a `read_committed` consumer would read now."""
        return [
            record.value
            for (name, partition), log in sorted(self.logs.items())
            if name == topic
            for batch in log.batches
            if self._is_committed(batch, topic, partition)
            for record in batch.records
        ]

    def _is_committed(self, batch: Appended, topic: str, partition: int) -> bool:
        header = batch.header
        if not header.is_transactional:
            return True
        key = (header.producer_id, header.producer_epoch, topic, partition)
        for committed, end in self.outcomes.get(key, ()):
            if batch.base_offset < end:
                return committed
        return False

    # -- handlers

    def _versions(self, request: Any, call: Call) -> Answer:
        answer: Any = call.node._api_versions(request, call)
        answer.finalized_features_epoch = self.features_epoch
        if self.level:
            answer.finalized_features = [
                wire.FinalizedFeatureKey(
                    name="transaction.version",
                    max_version_level=self.level,
                    min_version_level=self.level,
                )
            ]
        return answer

    def _find(self, request: Any, call: Call) -> Answer:
        port = self[1].port
        if call.version < 4:
            return wire.FindCoordinatorResponse(node_id=1, host=self.host, port=port)
        return wire.FindCoordinatorResponse(
            coordinators=[
                CoordinatorAnswer(key=key, node_id=1, host=self.host, port=port)
                for key in request.coordinator_keys
            ]
        )

    def _initialize(self, request: Any, call: Call) -> Answer:
        name = request.transactional_id
        if name is None:
            return super()._init_producer_id(request, call)
        known = self.ids.get(name)
        if known is None:
            self.producer_ids += 1
            known = self.ids[name] = Coordinated(999 + self.producer_ids, self.first_epoch)
        elif request.producer_id >= 0 and (request.producer_id, request.producer_epoch) == (
            known.producer_id,
            known.last_epoch,
        ):
            pass  # the answer was lost
        elif request.producer_id >= 0 and (request.producer_id, request.producer_epoch) != (
            known.producer_id,
            known.epoch,
        ):
            return wire.InitProducerIdResponse(error_code=90, producer_id=-1, producer_epoch=-1)
        else:
            if known.state == "Ongoing":
                # Kafka aborts with an epoch that nobody gets, so that a producer that asks again
                # with the epoch it has is fenced by itself.
                self._finish(known, committed=False)
                self._next_epoch(known)
                known.last_epoch = -1
                return wire.InitProducerIdResponse(error_code=51, producer_id=-1, producer_epoch=-1)
            self._next_epoch(known)
        return wire.InitProducerIdResponse(
            producer_id=known.producer_id, producer_epoch=known.epoch
        )

    def _next_epoch(self, known: Coordinated) -> None:
        known.last_id = known.producer_id
        known.last_epoch = known.epoch
        known.epoch += 1
        if known.epoch > 32766:
            self.producer_ids += 1
            known.producer_id = 999 + self.producer_ids
            known.epoch = 0

    def _checked(self, name: str, producer_id: int, epoch: int) -> Coordinated | int:
        known = self.ids.get(name)
        if known is None or known.producer_id != producer_id:
            return 49
        return known if known.epoch == epoch else 90

    def _add_partitions(self, request: Any, call: Call) -> Answer:
        assert call.version <= 3, "versions 4 and 5 are between brokers"
        known = self._checked(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
        )
        code = known if isinstance(known, int) else 0
        if isinstance(known, Coordinated):
            known.state = "Ongoing"
            for topic in request.v3_and_below_topics:
                known.partitions.update((topic.name, n) for n in topic.partitions)
        return partitions_answer(request, code)

    def _add_offsets(self, request: Any, call: Call) -> Answer:
        known = self._checked(request.transactional_id, request.producer_id, request.producer_epoch)
        if isinstance(known, int):
            return wire.AddOffsetsToTxnResponse(error_code=known)
        known.state = "Ongoing"
        known.groups.add(request.group_id)
        return wire.AddOffsetsToTxnResponse()

    def _commit_offsets(self, request: Any, call: Call) -> Answer:
        known = self._checked(request.transactional_id, request.producer_id, request.producer_epoch)
        code = known if isinstance(known, int) else 0
        if isinstance(known, Coordinated):
            if call.version >= 5:
                known.state = "Ongoing"
                known.groups.add(request.group_id)
            elif request.group_id not in known.groups:
                code = 48
            if not code:
                for topic in request.topics:
                    for part in topic.partitions:
                        key = (request.group_id, topic.name, part.partition_index)
                        self.pending_offsets[known.producer_id][key] = part.committed_offset
        return offsets_answer(request, code)

    def _end(self, request: Any, call: Call) -> Answer:
        known = self.ids.get(request.transactional_id)
        bumps = call.version >= 5
        if known is None:
            return wire.EndTxnResponse(error_code=49)
        now = (request.producer_id, request.producer_epoch)
        done = "CompleteCommit" if request.committed else "CompleteAbort"
        if now == (known.producer_id, known.epoch):
            if known.state == "Ongoing":
                self._finish(known, committed=request.committed)
                if bumps:
                    self._next_epoch(known)
            elif bumps and not request.committed:  # no partition was added (KIP-890)
                known.state = done
                self._next_epoch(known)
            elif known.state != done or bumps:
                return wire.EndTxnResponse(error_code=48)
        elif not (bumps and now == (known.last_id, known.last_epoch)):
            return wire.EndTxnResponse(error_code=90)
        elif known.state != done:
            return wire.EndTxnResponse(error_code=48)
        if not bumps:
            return wire.EndTxnResponse()
        return wire.EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _finish(self, known: Coordinated, *, committed: bool) -> None:
        self.ended.append((committed, known.producer_id, known.epoch))
        for topic, partition in known.partitions:
            log = self.log(topic, partition)
            key = (known.producer_id, known.epoch, topic, partition)
            self.outcomes[key].append((committed, log.next_offset))
        offsets = self.pending_offsets.pop(known.producer_id, {})
        if committed:
            self.offsets.update(offsets)
        known.partitions.clear()
        known.groups.clear()
        known.state = "CompleteCommit" if committed else "CompleteAbort"

    def _partition(self, node_id: int, name: str, part: Any, version: int) -> Any:
        header = read_header(part.records)
        known = next((c for c in self.ids.values() if c.producer_id == header.producer_id), None)
        if known is not None and header.producer_epoch < known.epoch:
            # A leader that does not know the epoch yet asks the coordinator (KIP-890).
            self.attempts.append(Attempt(node_id, name, part.index, header, self.now(), version))
            return wire.PartitionProduceResponse(index=part.index, error_code=47, base_offset=-1)
        before = self.log(name, part.index).next_offset
        answer = super()._partition(node_id, name, part, version)
        if not header.is_transactional or self.log(name, part.index).next_offset == before:
            return answer
        place = (name, part.index)
        assert known is not None
        assert header.producer_epoch == known.epoch, "a batch of another epoch was appended"
        if version >= 12:
            assert self.level >= 2, "Produce 12 needs version 2 of transactions"
            known.state = "Ongoing"
            known.partitions.add(place)
        assert place in known.partitions, "a batch outside of a transaction"
        return answer


def partitions_answer(request: Any, code: int) -> Answer:
    """Return the answer to AddPartitionsToTxn with the same code for all partitions."""
    return wire.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            wire.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    wire.AddPartitionsToTxnPartitionResult(
                        partition_index=n, partition_error_code=code
                    )
                    for n in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def offsets_answer(request: Any, code: int) -> Answer:
    """Return the answer to TxnOffsetCommit with the same code for all partitions."""
    return wire.TxnOffsetCommitResponse(
        topics=[
            wire.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    wire.TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index, error_code=code
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def simulate(
    body: Callable[[Simulation, TransactionalKafka], Coroutine[Any, Any, Any]],
    *,
    nodes: int = 1,
    level: int = 2,
    seed: int = 1,
    limit: float = 3600.0,
    topics: int = 1,
) -> Outcome[Any]:
    """Run `body(world, kafka)` in virtual time, with a topic "orders" led by node 1."""

    async def main(world: Simulation) -> Any:
        kafka = TransactionalKafka(
            nodes, level=level, environment=world.environment(BROKER), host=BROKER
        )
        async with kafka:
            kafka.topic("orders", [1] * topics)
            return await body(world, kafka)

    return run(seed, main, limit=limit)


def producer(world: Simulation, kafka: TransactionalKafka, **overrides: Any) -> Producer:
    """Return a transactional producer on a machine of its own."""
    settings = {"transactional_id": ID, "max_block_ms": 10_000, "request_timeout_ms": 3000}
    return Producer(
        kafka.bootstrap_servers,
        _environment=world.environment(CLIENT),
        **{**settings, **overrides},
    )


__all__ = [
    "ID",
    "Attempt",
    "Close",
    "Delay",
    "Silence",
    "TransactionalKafka",
    "offsets_answer",
    "partitions_answer",
    "producer",
    "simulate",
    "times",
]
