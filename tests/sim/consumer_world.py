"""A scripted cluster that serves logs to consumers, with sessions, epochs, replicas and faults.

A partition's log is the same on all nodes, unless a test sets another one for a node.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokq import wire
from aiokq.consumer.consumer import Consumer
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from tests.peers.scripted import Answer, Call, ScriptedCluster, ScriptedTopic
from tests.sim.harness.simulation import Outcome, Simulation, run

BROKER = "10.0.0.1"
CLIENT = "10.0.0.9"

COMMIT, ABORT = 1, 0


@dataclass
class StoredBatch:
    data: bytes
    base_offset: int
    next_offset: int
    epoch: int


@dataclass
class Log:
    """The batches of one partition, and the offsets that its leader knows."""

    batches: list[StoredBatch] = field(default_factory=list)
    log_start: int = 0
    next_offset: int = 0
    stable: int | None = None
    """Last stable offset; the log end offset if None."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer_id, first_offset)"""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, start offset); one entry of epoch 0 if not given."""

    @property
    def last_stable(self) -> int:
        return self.next_offset if self.stable is None else self.stable

    def append(
        self,
        values: Iterable[bytes | None],
        *,
        epoch: int = 0,
        timestamp_ms: int = 1_000,
        **options: Any,
    ) -> None:
        records = [
            RawRecord(self.next_offset + n, timestamp_ms + n, None, value)
            for n, value in enumerate(values)
        ]
        self.append_records(records, epoch=epoch, **options)

    def append_records(self, records: list[RawRecord], *, epoch: int = 0, **options: Any) -> None:
        data = encode_batch(records, crc32c=crc32c, leader_epoch=epoch, **options)
        end = records[-1].offset + 1
        self.batches.append(StoredBatch(data, records[0].offset, end, epoch))
        self.next_offset = end

    def append_marker(self, kind: int, producer_id: int) -> None:
        """Append a control batch that ends a transaction."""
        record = RawRecord(self.next_offset, 1_000, bytes([0, 0, 0, kind]), b"\0\0\0\0\0\0", ())
        self.append_records([record], attributes=0x30, producer_id=producer_id, producer_epoch=0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset), as OffsetForLeaderEpoch does."""
        epochs = self.epochs or [(0, self.log_start)]
        if epoch == epochs[-1][0]:
            return epoch, self.next_offset
        if epoch > epochs[-1][0]:
            return -1, -1
        if epoch < epochs[0][0]:
            return epoch, epochs[0][1]
        for (known, _), (_, end) in itertools.pairwise(epochs):
            if known <= epoch:
                found = known, end
        return found

    def truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.next_offset = offset


@dataclass
class Fetched:
    """One partition of a Fetch request."""

    node_id: int
    topic: str
    partition: int
    asked: wire.FetchPartition
    at: float
    version: int


Fault = Callable[[Fetched], "int | wire.FetchPartitionData | None"]


@dataclass
class Session:
    epoch: int
    partitions: dict[tuple[str, int], wire.FetchPartition]
    shown: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


class Kafka(ScriptedCluster):
    """A cluster whose topics are created by `topic(name, leaders)`, records by `append(...)`."""

    def __init__(self, nodes: int = 1, **options: Any) -> None:
        super().__init__(nodes, **options)
        self.logs: dict[tuple[str, int], Log] = {}
        self.node_logs: dict[tuple[int, str, int], Log] = {}
        """Logs of single nodes, which replace the shared log there."""
        self.faults: list[Fault] = []
        """Called in order for each fetched partition; the first result that is not None decides."""
        self.fetched: list[Fetched] = []
        """Each partition fetched, whether named in the request or only in its fetch session."""
        self.requests: list[tuple[int, wire.FetchRequest, int]] = []
        """(node id, request, version)"""
        self.delays: dict[int, float] = {}
        """Seconds that a node takes for a Fetch."""
        self.keeps_sessions = True
        self.sessions: dict[tuple[int, int], Session] = {}
        self.hints = False
        self.preferred: dict[tuple[str, int], int] = {}
        """Preferred read replicas that leaders return; these replicas serve fetches."""
        self.followers: set[int] = set()
        """Further nodes that serve fetches although no leader returns them."""
        self.max_bytes: int | None = None
        self._session_ids = 0
        self._names: dict[Any, str] = {}
        """Topic names by id, including deleted topics, which sessions remove by id."""
        self._appended = asyncio.Event()
        self.on(wire.FetchRequest, self._fetch)
        self.on(wire.ListOffsetsRequest, self._list_offsets)
        self.on(wire.OffsetForLeaderEpochRequest, self._epochs)

    def topic(self, name: str, leaders: list[int]) -> ScriptedTopic:
        self.topics[name] = topic = ScriptedTopic(leaders=leaders)
        return topic

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def append(self, topic: str, partition: int, *values: bytes | None, **options: Any) -> None:
        self.log(topic, partition).append(values, **options)
        self.wake()

    def wake(self) -> None:
        """Wake the fetches that wait for data."""
        self._appended.set()
        self._appended = asyncio.Event()

    def _log_on(self, node_id: int, topic: str, partition: int) -> Log:
        return self.node_logs.get((node_id, topic, partition)) or self.log(topic, partition)

    # -- Fetch

    async def _fetch(self, request: Any, call: Call) -> Answer:
        node_id, version = call.node.node_id, call.version
        self.requests.append((node_id, request, version))
        if delay := self.delays.get(node_id):
            await asyncio.sleep(delay)
        opened = self._open(node_id, request, version)
        if isinstance(opened, int):
            return wire.FetchResponse(error_code=opened)
        session_id, session, incremental = opened
        loop = asyncio.get_running_loop()
        for (topic, partition), asked in session.partitions.items():
            self.fetched.append(Fetched(node_id, topic, partition, asked, loop.time(), version))
        deadline = loop.time() + request.max_wait_ms / 1000
        while True:
            changed = self._appended
            found = {
                tp: await self._read(node_id, *tp, asked, request, version)
                for tp, asked in session.partitions.items()
            }
            size = sum(len(data.records or b"") for data in found.values())
            immediate = any(
                data.error_code or data.diverging_epoch or data.preferred_read_replica >= 0
                for data in found.values()
            )
            left = deadline - loop.time()
            if size >= max(1, request.min_bytes) or immediate or left <= 0 or not found:
                break
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                pass
        return self._response(session_id, session, incremental, found, request, version)

    def _open(self, node_id: int, request: Any, version: int) -> Any:
        ids = self._names
        ids.update({topic.topic_id: name for name, topic in self.topics.items()})

        def name_of(topic: Any) -> str:
            return str(topic.topic) if version < 13 else ids.get(topic.topic_id, "?")

        asked = {
            (name_of(topic), partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch <= 0 or version < 7:
            if request.session_id:
                self.sessions.pop((node_id, request.session_id), None)
            session = Session(1, asked)
            if request.session_epoch < 0 or version < 7 or not self.keeps_sessions:
                return 0, session, False
            self._session_ids += 1
            self.sessions[node_id, self._session_ids] = session
            return self._session_ids, session, False
        kept = self.sessions.get((node_id, request.session_id))
        if kept is None:
            return 70
        if kept.epoch != request.session_epoch:
            return 71
        kept.epoch += 1
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                kept.partitions.pop((name_of(topic), partition), None)
                kept.shown.pop((name_of(topic), partition), None)
        kept.partitions.update(asked)
        return request.session_id, kept, True

    async def _read(
        self, node_id: int, name: str, partition: int, asked: Any, request: Any, version: int
    ) -> wire.FetchPartitionData:
        def answer(code: int = 0, **values: Any) -> wire.FetchPartitionData:
            values.setdefault("high_watermark", -1)
            return wire.FetchPartitionData(partition_index=partition, error_code=code, **values)

        now = asyncio.get_running_loop().time()
        for fault in self.faults:
            said = fault(Fetched(node_id, name, partition, asked, now, version))
            if inspect.isawaitable(said):
                said = await said
            if isinstance(said, int):
                return answer(said)
            if said is not None:
                said.partition_index = partition
                return said
        topic = self.topics.get(name)
        if topic is None:
            return answer(100 if version >= 13 else 3)
        if partition >= len(topic.leaders):
            return answer(3)
        leads = topic.leaders[partition] == node_id
        replica = self.preferred.get((name, partition), -1)
        if not leads and replica != node_id and node_id not in self.followers:
            return answer(6)
        epoch = topic.epoch(partition)
        if version >= 9 and 0 <= asked.current_leader_epoch != epoch:
            return answer(74 if asked.current_leader_epoch < epoch else 75)
        log = self._log_on(node_id, name, partition)
        offset = asked.fetch_offset
        if not log.log_start <= offset <= log.next_offset:
            return answer(1)
        ends: dict[str, Any] = {
            "high_watermark": log.next_offset,
            "last_stable_offset": log.last_stable,
            "log_start_offset": log.log_start,
        }
        if version >= 12 and asked.last_fetched_epoch >= 0:
            known, end = log.end_of_epoch(asked.last_fetched_epoch)
            if known < asked.last_fetched_epoch or end < offset:
                return answer(
                    **ends,
                    diverging_epoch=wire.FetchEpochEndOffset(epoch=known, end_offset=end),
                )
        if leads and version >= 11 and request.rack_id and 0 <= replica != node_id:
            return answer(**ends, preferred_read_replica=replica)
        visible = log.last_stable if request.isolation_level else log.next_offset
        room = min(asked.partition_max_bytes, self.max_bytes or 2**31)
        records = b""
        for batch in log.batches:
            if batch.next_offset > offset and batch.base_offset < visible:
                if records and len(records) + len(batch.data) > room:
                    break
                records += batch.data
        aborted = None
        if request.isolation_level and version >= 4:
            aborted = [
                wire.AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in log.aborted
            ]
        return answer(**ends, records=records, aborted_transactions=aborted)

    def _response(
        self,
        session_id: int,
        session: Session,
        incremental: bool,
        found: dict[tuple[str, int], wire.FetchPartitionData],
        request: Any,
        version: int,
    ) -> wire.FetchResponse:
        response = wire.FetchResponse(session_id=session_id, responses=[])
        for (name, partition), data in found.items():
            ends = (data.high_watermark, data.log_start_offset)
            news = (
                data.records
                or data.error_code
                or data.diverging_epoch
                or data.preferred_read_replica >= 0
                or session.shown.get((name, partition)) != ends
            )
            session.shown[name, partition] = ends
            if incremental and not news:
                continue
            topic = self.topics.get(name)
            if data.error_code == 6 and self.hints and topic is not None:
                leader = topic.leaders[partition]
                data.current_leader = wire.FetchLeaderIdAndEpoch(
                    leader_id=leader, leader_epoch=topic.epoch(partition)
                )
                if not any(n.node_id == leader for n in response.node_endpoints):
                    response.node_endpoints.append(
                        wire.FetchNodeEndpoint(
                            node_id=leader, host=self.host, port=self[leader].port
                        )
                    )
            ids = {known: topic_id for topic_id, known in self._names.items()}
            topic_id = ids.get(name) if topic is None else topic.topic_id
            extra: dict[str, Any] = {} if topic_id is None else {"topic_id": topic_id}
            response.responses.append(
                wire.FetchableTopicResponse(topic=name, partitions=[data], **extra)
            )
        if request.session_epoch < 0:
            response.session_id = 0
        return response

    # -- offsets

    def _list_offsets(self, request: Any, call: Call) -> Answer:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                partition = asked.partition_index
                known = self.topics.get(topic.name)
                if known is None or known.leaders[partition] != call.node.node_id:
                    answers.append(
                        wire.ListOffsetsPartitionResponse(
                            partition_index=partition, error_code=6 if known else 3
                        )
                    )
                    continue
                log = self._log_on(call.node.node_id, topic.name, partition)
                offset, timestamp = self._offset_at(log, asked.timestamp, request.isolation_level)
                answers.append(
                    wire.ListOffsetsPartitionResponse(
                        partition_index=partition,
                        error_code=0,
                        offset=offset,
                        timestamp=timestamp,
                        leader_epoch=known.epoch(partition),
                    )
                )
            topics.append(wire.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return wire.ListOffsetsResponse(topics=topics)

    def _offset_at(self, log: Log, timestamp: int, isolation_level: int) -> tuple[int, int]:
        if timestamp == -1:
            return (log.last_stable if isolation_level else log.next_offset), -1
        if timestamp == -2:
            return log.log_start, -1
        from aiokq.records.header import read_header
        from aiokq.records.record import iter_records

        for batch in log.batches:
            for record in iter_records(batch.data, read_header(batch.data)):
                if record.timestamp_ms >= timestamp and record.offset >= log.log_start:
                    return record.offset, record.timestamp_ms
        return -1, -1

    def _epochs(self, request: Any, call: Call) -> Answer:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                known = self.topics[topic.topic]
                if known.leaders[asked.partition] != call.node.node_id:
                    answers.append(
                        wire.OffsetForLeaderEpochEndOffset(partition=asked.partition, error_code=6)
                    )
                    continue
                log = self._log_on(call.node.node_id, topic.topic, asked.partition)
                epoch, end = log.end_of_epoch(asked.leader_epoch)
                answers.append(
                    wire.OffsetForLeaderEpochEndOffset(
                        partition=asked.partition, error_code=0, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(wire.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return wire.OffsetForLeaderEpochResponse(topics=topics)


def times(count: int, said: Any, *, when: Callable[[Fetched], bool] | None = None) -> Fault:
    """Return a fault that occurs `count` times."""
    left = count

    def fault(fetched: Fetched) -> Any:
        nonlocal left
        if left and (when is None or when(fetched)):
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


def consumer(world: Simulation, kafka: Kafka, *topics: Any, **overrides: Any) -> Consumer:
    """Return a consumer on a machine of its own; it reads from the beginning by default."""
    overrides.setdefault("auto_offset_reset", "earliest")
    return Consumer(
        *topics,
        bootstrap_servers=kafka.bootstrap_servers,
        _environment=world.environment(CLIENT),
        **overrides,
    )


async def read(source: Any, count: int, *, timeout: float = 60.0) -> list[Any]:
    """Read `count` records of an async iterator within `timeout` virtual seconds."""
    found: list[Any] = []
    async with asyncio.timeout(timeout):
        async for record in source:
            found.append(record)
            if len(found) == count:
                break
    return found


def values(records: Iterable[Any]) -> list[Any]:
    return [record.value for record in records]


__all__ = [
    "ABORT",
    "COMMIT",
    "Fetched",
    "Kafka",
    "Log",
    "consumer",
    "read",
    "simulate",
    "times",
    "values",
]
