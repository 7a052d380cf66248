"""A scripted cluster that stores produced records by the rules of a real broker.

It has a log per partition that survives leader changes, checks sequences like Kafka (last five
batches, epochs), and has hooks for faults.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.producer.producer import Producer
from aiokq.records.header import BatchHeader, read_header, verify_crc
from aiokq.records.record import RawRecord, iter_records
from tests.peers.scripted import Answer, Call, Close, ScriptedCluster, ScriptedTopic, Silence
from tests.sim.harness.simulation import Outcome, Simulation, run

BROKER = "10.0.0.1"
CLIENT = "10.0.0.9"


@dataclass
class Appended:
    """A batch in the log."""

    header: BatchHeader
    records: list[RawRecord]
    base_offset: int
    codec: int


@dataclass
class ProducerEntry:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """(first sequence, last sequence, base offset)"""


@dataclass
class PartitionLog:
    batches: list[Appended] = field(default_factory=list)
    next_offset: int = 0
    producers: dict[int, ProducerEntry] = field(default_factory=dict)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in batch.records]

    def append(self, data: memoryview) -> tuple[int, int]:
        """Return (error code, base offset), as a leader without faults would."""
        header = read_header(data)
        assert verify_crc(data, header, crc32c)
        assert header.size == len(data)
        if header.producer_id >= 0:
            entry = self.producers.get(header.producer_id)
            if entry is None:
                entry = self.producers[header.producer_id] = ProducerEntry(header.producer_epoch)
            else:
                for first, last, offset in entry.batches:
                    if (header.producer_epoch, header.base_sequence, header.last_sequence) == (
                        entry.epoch, first, last
                    ):  # fmt: skip
                        return 0, offset
                if header.producer_epoch < entry.epoch:
                    return 47, -1
                if header.producer_epoch > entry.epoch:
                    if header.base_sequence != 0:
                        return 45, -1
                    entry.epoch = header.producer_epoch
                    entry.batches.clear()
                elif entry.batches and header.base_sequence != (entry.batches[-1][1] + 1) % 2**31:
                    return 45, -1
            entry.batches.append((header.base_sequence, header.last_sequence, self.next_offset))
        offset = self.next_offset
        records = list(iter_records(data, header))
        self.batches.append(Appended(header, records, offset, header.codec))
        self.next_offset += len(records)
        return 0, offset


@dataclass
class Attempt:
    """One batch as a broker received it."""

    node_id: int
    topic: str
    partition: int
    header: BatchHeader
    at: float
    version: int


Fault = Callable[[Attempt], "int | Answer | wire.PartitionProduceResponse | None"]
"""Called before the append; returns an error code, a response for the request, or None."""


class Kafka(ScriptedCluster):
    """A cluster with topics created by `topic(name, leaders)`."""

    def __init__(self, nodes: int = 1, **options: Any) -> None:
        super().__init__(nodes, **options)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.attempts: list[Attempt] = []
        self.faults: list[Fault] = []
        """Called in order; the first result that is not None decides."""
        self.after_append: list[Fault] = []
        """Like `faults`, but called after the append: the response is lost or wrong."""
        self.delays: dict[int, float] = {}
        """Seconds that a node takes for a Produce request."""
        self.producer_ids = 0
        self.hints = False
        self.on(wire.ProduceRequest, self._produce)
        self.on(wire.InitProducerIdRequest, self._init_producer_id)

    def topic(self, name: str, leaders: list[int]) -> ScriptedTopic:
        self.topics[name] = topic = ScriptedTopic(leaders=leaders)
        return topic

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.logs.setdefault((topic, partition), PartitionLog())

    def values(self, topic: str) -> list[bytes | None]:
        return [
            v for (name, _), log in sorted(self.logs.items()) if name == topic for v in log.values
        ]

    def _init_producer_id(self, request: Any, call: Call) -> Answer:
        self.producer_ids += 1
        return wire.InitProducerIdResponse(producer_id=999 + self.producer_ids, producer_epoch=0)

    async def _produce(self, request: Any, call: Call) -> Answer:
        node_id = call.node.node_id
        if delay := self.delays.get(node_id):
            await asyncio.sleep(delay)
        by_id = {topic.topic_id: name for name, topic in self.topics.items()}
        response = wire.ProduceResponse(responses=[])
        for data in request.topic_data:
            name = data.name if call.version < 13 else by_id.get(data.topic_id, "")
            answers = []
            for part in data.partition_data:
                answer = self._partition(node_id, name, part, call.version)
                if not isinstance(answer, wire.PartitionProduceResponse):
                    return answer
                if answer.error_code == 6 and self.hints and name in self.topics:
                    self._hint(answer, self.topics[name], response)
                answers.append(answer)
            response.responses.append(
                wire.TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=answers
                )
            )
        return None if request.acks == 0 else response

    def _partition(self, node_id: int, name: str, part: Any, version: int) -> Any:
        header = read_header(part.records)
        loop = asyncio.get_running_loop()
        attempt = Attempt(node_id, name, part.index, header, loop.time(), version)
        self.attempts.append(attempt)

        def answer(code: int, offset: int = -1) -> wire.PartitionProduceResponse:
            return wire.PartitionProduceResponse(
                index=part.index, error_code=code, base_offset=offset
            )

        for fault in self.faults:
            said = fault(attempt)
            if isinstance(said, int):
                return answer(said)
            if said is not None:
                if isinstance(said, wire.PartitionProduceResponse):
                    said.index = part.index
                return said
        topic = self.topics.get(name)
        if topic is None:
            return answer(100 if version >= 13 else 3)
        if topic.leaders[part.index] != node_id:
            return answer(6)
        code, offset = self.log(name, part.index).append(part.records)
        if not code:
            for fault in self.after_append:
                said = fault(attempt)
                if isinstance(said, int):
                    return answer(said)
                if said is not None:
                    return said
        return answer(code, offset)

    def _hint(
        self, answer: wire.PartitionProduceResponse, topic: ScriptedTopic, response: Any
    ) -> None:
        leader = topic.leaders[answer.index]
        answer.current_leader = wire.ProduceLeaderIdAndEpoch(
            leader_id=leader, leader_epoch=topic.epoch(answer.index)
        )
        node = self[leader]
        response.node_endpoints = [
            wire.ProduceNodeEndpoint(node_id=leader, host=self.host, port=node.port, rack=None)
        ]


def times(count: int, said: Any, *, when: Callable[[Attempt], bool] | None = None) -> Fault:
    """Return a fault that occurs `count` times."""
    left = count

    def fault(attempt: Attempt) -> Any:
        nonlocal left
        if left and (when is None or when(attempt)):
            left -= 1
            return said
        return None

    return fault


def simulate(
    body: Callable[[Simulation, Kafka], Coroutine[Any, Any, Any]],
    *,
    nodes: int = 1,
    seed: int = 1,
    limit: float = 3600.0,
) -> Outcome[Any]:
    """Run `body(world, kafka)` in virtual time, on a running cluster."""

    async def main(world: Simulation) -> Any:
        async with Kafka(nodes, environment=world.environment(BROKER), host=BROKER) as kafka:
            return await body(world, kafka)

    return run(seed, main, limit=limit)


def producer(world: Simulation, kafka: Kafka, **overrides: Any) -> Producer:
    """Return a producer on a machine of its own."""
    return Producer(kafka.bootstrap_servers, _environment=world.environment(CLIENT), **overrides)


__all__ = ["Attempt", "Close", "Kafka", "Silence", "producer", "simulate", "times"]
