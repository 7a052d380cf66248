"""Raw load on a broker from one blocking socket, which itself needs little CPU time.

Produce: one pre-encoded batch of 128 KB (1 KB records), repeated in Produce v7, acks=1, with eight
requests in flight over four partitions; options change the size of the records and the number of
partitions. Hot: Fetch v11 from offset 0 to the end, reading batch headers only. Cold: the same
after the logs were synced and dropped from the page cache. The CPU time of the load itself is
reported as well, to show that the broker is measured and not the load.
`python -m benchmarks.raw_load --help`; prints JSON.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar, cast

from aiokq.fastpath import crc32c
from aiokq.wire import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ProduceRequest,
    ProduceResponse,
    decode_response,
    encode_request,
)
from aiokq.wire.create_topics import CreatableTopic
from aiokq.wire.fetch import FetchPartition, FetchTopic
from aiokq.wire.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from aiokq.wire.produce import PartitionProduceData, TopicProduceData
from aiokq.wire.struct import Request, Response
from benchmarks.frames import joined
from benchmarks.touched import touch
from benchmarks.watch import Watch

ACTIONS: Final = ("produce", "hot", "cold", "delete")
PARTITIONS = 4
IN_FLIGHT = 8
BATCH_BYTES = 128 * 1024
FETCH_BYTES = 8 * 1024 * 1024
SLICE_BYTES = 32 * 1024 * 1024
PRODUCE_VERSION = 7
FETCH_VERSION = 11
R = TypeVar("R", bound=Response)


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def encode_batch(record_bytes: int, timestamp_ms: int) -> tuple[bytes, int]:
    """Return a batch of about 128 KB of records without keys, and the number of records."""
    records = bytearray()
    count = 0
    value = b"v" * record_bytes
    while len(records) + record_bytes < BATCH_BYTES:
        body = b"\0" + varint(0) + varint(count) + varint(-1) + varint(len(value)) + value + b"\0"
        records += varint(len(body)) + body
        count += 1
    fields = (0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    checked = struct.pack(">hiqqqhii", *fields) + records
    batch = struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked
    return batch, count


class RawClient:
    """A blocking connection that sends encoded requests and reads whole frames."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.partition(",")[0].rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(FETCH_BYTES * 2)

    def send(self, request: Request[Response], version: int) -> None:
        parts = encode_request(request, version=version, correlation_id=1, client_id="raw")
        self.socket.sendall(joined(parts))

    def receive(self) -> memoryview:
        view = memoryview(self.buffer)
        self._fill(view[:4])
        (size,) = struct.unpack_from(">i", self.buffer)
        if size > len(self.buffer):
            self.buffer = bytearray(size)
            view = memoryview(self.buffer)
        self._fill(view[:size])
        return view[:size]

    def _fill(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self.socket.recv_into(view[done:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            done += count

    def request(self, request: Request[R], version: int) -> R:
        self.send(request, version)
        return cast("R", decode_response(request.RESPONSE, self.receive(), version)[1])


def create_topic(client: RawClient, topic: str, partitions: int) -> None:
    new = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    response = client.request(CreateTopicsRequest(topics=[new], timeout_ms=10_000), 4)
    assert response.topics[0].error_code in (0, 36), response
    # A new partition may have no leader yet: a broker learns of the leader a moment later.
    deadline = time.monotonic() + 120
    wanted = {topic: range(partitions)}
    while any(each.error_code for each in end_offsets(client, wanted)[0].partitions):
        assert time.monotonic() < deadline, "the new topic has no leaders"
        time.sleep(0.05)


def delete_topic(client: RawClient, topic: str) -> None:
    """Delete a topic, so that its files are removed before the disk is full."""
    response = client.request(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 3)
    assert response.responses[0].error_code == 0, response


def end_offsets(
    client: RawClient, partitions: Mapping[str, Iterable[int]]
) -> list[ListOffsetsTopicResponse]:
    """Return the log end offset, or the error, of each partition, as in a ListOffsets response.

    Args:
        partitions: partition numbers by topic.
    """
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes
            ],
        )
        for topic, indexes in partitions.items()
    ]
    return client.request(ListOffsetsRequest(replica_id=-1, topics=topics), 1).topics


def produce(
    client: RawClient,
    topic: str,
    total_bytes: int,
    record_bytes: int,
    partitions: int,
    watch: Watch,
) -> None:
    """Send `total_bytes` of batches, with `IN_FLIGHT` requests in flight.

    The bytes are sent in slices. Between them the clock is stopped while memory for the page cache
    is touched.
    """
    batch, count = encode_batch(record_bytes, int(time.time() * 1000))
    requests = []
    for partition in range(partitions):
        data = PartitionProduceData(index=partition, records=batch)
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        parts = encode_request(request, version=PRODUCE_VERSION, correlation_id=1, client_id="raw")
        requests.append(joined(parts))
    number = max(IN_FLIGHT, total_bytes // len(batch))
    slice_requests = max(IN_FLIGHT, SLICE_BYTES // len(batch))
    for first in range(0, number, slice_requests):
        end = min(first + slice_requests, number)
        touch((end - first) * len(batch))
        with watch:
            for index in range(first, end + IN_FLIGHT):
                if index >= first + IN_FLIGHT:
                    frame = client.receive()
                    _, response = decode_response(ProduceResponse, frame, PRODUCE_VERSION)
                    error = response.responses[0].partition_responses[0].error_code
                    assert error == 0, f"Produce answered error {error}"
                if index < end:
                    client.socket.sendall(requests[index % partitions])
    watch.bytes += number * len(batch)
    watch.records += number * count


def fetch(client: RawClient, topic: str, partitions: int, watch: Watch) -> None:
    """Fetch each partition from its start to its end, decoding batch headers only."""
    (found,) = end_offsets(client, {topic: range(partitions)})
    ends = {each.partition_index: each.offset for each in found.partitions}
    positions = dict.fromkeys(ends, 0)
    with watch:
        while pending := [each for each in positions if positions[each] < ends[each]]:
            wanted = [
                FetchPartition(
                    partition=each,
                    fetch_offset=positions[each],
                    partition_max_bytes=max(FETCH_BYTES // partitions, BATCH_BYTES),
                )
                for each in pending
            ]
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=wanted)],
            )
            client.send(request, FETCH_VERSION)
            _, response = decode_response(FetchResponse, client.receive(), FETCH_VERSION)
            for partition in response.responses[0].partitions:
                data = partition.records
                assert data is None or isinstance(data, memoryview)
                assert partition.error_code == 0, partition.error_code
                position = 0
                while data is not None and position + 61 <= len(data):
                    base, length = struct.unpack_from(">qi", data, position)
                    if position + 12 + length > len(data):
                        break
                    (last_delta,) = struct.unpack_from(">i", data, position + 23)
                    positions[partition.partition_index] = base + last_delta + 1
                    watch.records += last_delta + 1
                    position += 12 + length
                watch.bytes += position


def drop_from_cache(directory: Path, topic: str) -> None:
    """Drop a topic's files from the page cache, so that reads come from the disk."""
    size = 0
    # glob, not Path.rglob, which fails if directories of deleted topics disappear meanwhile.
    for path in glob.iglob(f"{directory}/**/{topic}-*[0-9]/*.log", recursive=True):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # only written data can be dropped
            size += os.fstat(descriptor).st_size
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    touch(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("actions", nargs="*", help=f"of {', '.join(ACTIONS)}; default: all")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--pid", type=int, help="the broker's process: its CPU time is told, too")
    parser.add_argument("--directory", type=Path, help="the broker's logs: needed for cold")
    parser.add_argument("--topic", default="raw")
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    options = parser.parse_args()
    actions = options.actions or [each for each in ACTIONS if each != "cold" or options.directory]
    if wrong := set(actions) - set(ACTIONS):
        parser.error(f"no such action: {', '.join(wrong)}")
    client = RawClient(options.bootstrap)
    topic, partitions = options.topic, options.partitions
    measured: dict[str, dict[str, float]] = {}
    for action in actions:
        watch = Watch(options.pid)
        if action == "produce":
            create_topic(client, topic, partitions)
            total = options.megabytes << 20
            produce(client, topic, total, options.record_bytes, partitions, watch)
        elif action == "delete":
            delete_topic(client, topic)
            continue
        else:
            if action == "cold":
                drop_from_cache(options.directory, topic)
            fetch(client, topic, partitions, watch)
        measured[action] = watch.figures()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
