"""Partition logs for a scripted cluster: Fetch and ListOffsets served from a test's batches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiokq import wire
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.record import RawRecord, encode_batch
from tests.unit.cluster.scripted import ScriptedBroker, ScriptedCluster

TRANSACTIONAL = 0x10


@dataclass
class Log:
    """The batches of one partition, in order; a record's timestamp is 1000 times its offset."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    last_stable: int | None = None

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(
        self, *values: bytes, codec: int = 0, producer_id: int = -1, at: int | None = None
    ) -> None:
        first = self.end if at is None else at
        records = [
            RawRecord(first + n, (first + n) * 1000, None, value) for n, value in enumerate(values)
        ]
        data = encode_batch(
            records,
            crc32c=crc32c,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=-1 if producer_id < 0 else 0,
            attributes=TRANSACTIONAL if producer_id >= 0 else 0,
            leader_epoch=0,
        )
        self.batches.append((first, first + len(values), data))

    def abort(self, producer_id: int, first_offset: int) -> None:
        offset = self.end
        data = encode_marker(
            EndTransactionMarker(ControlType.ABORT, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=offset * 1000,
            crc32c=crc32c,
            base_offset=offset,
        )
        self.batches.append((offset, offset + 1, data))
        self.aborted.append((producer_id, first_offset))


class ScriptedLogs:
    """Fetch and ListOffsets handlers; each code in `errors` is returned once, in order."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.logs: dict[tuple[str, int], Log] = {}
        self.errors: dict[tuple[str, int], list[int]] = {}
        self.hints = False
        cluster.handlers[wire.FetchRequest] = self.fetch
        cluster.handlers[wire.ListOffsetsRequest] = self.list_offsets

    def log(self, topic: str, partition: int) -> Log:
        return self.logs.setdefault((topic, partition), Log())

    def _error(self, broker: ScriptedBroker, topic: str, partition: int) -> int:
        errors = self.errors.get((topic, partition))
        if errors:
            return errors.pop(0)
        known = self.cluster.topics[topic].partitions[partition]
        return 0 if known.leader == broker.node_id else 6

    async def fetch(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        (asked,) = request.topics
        topic = asked.topic or next(
            (name for name, t in self.cluster.topics.items() if t.topic_id == asked.topic_id), None
        )
        (p,) = asked.partitions
        data = wire.FetchPartitionData(partition_index=p.partition, high_watermark=-1)
        response = wire.FetchResponse(
            responses=[
                wire.FetchableTopicResponse(
                    topic=topic or "", topic_id=asked.topic_id, partitions=[data]
                )
            ]
        )
        if topic is None:
            data.error_code = 100  # UNKNOWN_TOPIC_ID
            return response
        data.error_code = self._error(broker, topic, p.partition)
        if data.error_code:
            if self.hints and version >= 16:
                info = self.cluster.topics[topic].partitions[p.partition]
                leader = self.cluster.brokers[info.leader]
                data.current_leader = wire.FetchLeaderIdAndEpoch(
                    leader_id=info.leader, leader_epoch=info.leader_epoch
                )
                response.node_endpoints = [
                    wire.FetchNodeEndpoint(
                        node_id=leader.node_id, host=leader.host, port=leader.port
                    )
                ]
            return response
        log = self.log(topic, p.partition)
        if not log.start <= p.fetch_offset <= log.end:
            data.error_code = 1
            return response
        if p.fetch_offset == log.end and request.max_wait_ms:
            deadline = self.cluster.loop.time() + request.max_wait_ms / 1000
            while log.end == p.fetch_offset and self.cluster.loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        committed = request.isolation_level == 1
        end = log.end if not committed or log.last_stable is None else log.last_stable
        taken, size = [], 0
        for first, after, batch in log.batches:
            if after <= p.fetch_offset or first >= end:
                continue
            if taken and size + len(batch) > p.partition_max_bytes:
                break
            taken.append(batch)
            size += len(batch)
        data.high_watermark = log.end
        data.last_stable_offset = end
        data.log_start_offset = log.start
        data.records = b"".join(taken)
        if committed:
            data.aborted_transactions = [
                wire.AbortedTransaction(producer_id=pid, first_offset=first)
                for pid, first in log.aborted
            ]
        return response

    def list_offsets(self, broker: ScriptedBroker, request: Any, version: int) -> Any:
        return wire.ListOffsetsResponse(
            topics=[
                wire.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._offset(broker, topic.name, p) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _offset(self, broker: ScriptedBroker, topic: str, asked: Any) -> Any:
        answer = wire.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
        answer.error_code = self._error(broker, topic, asked.partition_index)
        if answer.error_code:
            return answer
        log = self.log(topic, asked.partition_index)
        if asked.timestamp == -1:
            answer.offset = log.end
        elif asked.timestamp == -2:
            answer.offset = log.start
        else:
            offset = -(-asked.timestamp // 1000)
            if offset < log.end:
                answer.offset, answer.timestamp, answer.leader_epoch = offset, offset * 1000, 0
        return answer
