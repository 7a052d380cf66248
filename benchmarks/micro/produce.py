"""CPU time of a Produce request in the broker's own code: `python -m benchmarks.micro.produce`.

There is no socket and no disk: a stub transport feeds a connection with whole frames, and the log's
file drops all writes after its first batch. Rows: batches of 128 KB and of one small record, plain
and of an idempotent producer, one request per turn of the loop and several. Each also shows a
floor: the cost of the copy into the connection's memory and of the CRC. The last rows show
admission and authorization (`BrokerNode.gate`) of a request for one topic, without an authorizer
and with one that allows everything. Microseconds per request.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Never, cast

import uvloop

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.node import BrokerNode
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.connection.request_context import RequestContext
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Acceptor, Address, Environment, Listener
from aiokq.core.ephemeral_files import EphemeralFile, EphemeralFiles
from aiokq.core.files import OsFile
from aiokq.core.offload import InlineOffload
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire import (
    CreateTopicsRequest,
    ProduceRequest,
    ProduceResponse,
    decode_response,
    encode_request,
)
from aiokq.wire.create_topics import CreatableTopic
from aiokq.wire.produce import PartitionProduceData, TopicProduceData

if TYPE_CHECKING:
    from aiokq.core.files import Path
    from aiokq.core.types import Buffer

TOPIC: Final = "load"
ROUND_BYTES: Final = 8 * 1024 * 1024
ROUND_REQUESTS: Final = 400
ROUNDS: Final = 60
VERSION: Final = 9
PRODUCE: Final = 0
GATE_REQUESTS: Final = 20_000
_API_AND_VERSION: Final = struct.Struct(">I").unpack_from
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_COVERS: Final = 21
_PRODUCER: Final = struct.Struct(">qhi")  # its id, its epoch, the batch's sequence
_PRODUCER_AT: Final = 43


class Row(NamedTuple):
    """One kind of request."""

    name: str
    records: int
    record_bytes: int
    idempotent: bool
    at_once: int


ROWS: Final = (
    Row("128 KB", 127, 1024, False, 1),
    Row("128 KB, 4 at once", 127, 1024, False, 4),
    Row("128 KB idempotent, 4 at once", 127, 1024, True, 4),
    Row("one record", 1, 100, False, 1),
    Row("one record, 8 at once", 1, 100, False, 8),
    Row("one record idempotent, 8 at once", 1, 100, True, 8),
)


GATE_ROWS: Final = {"gate": False, "gate with an authorizer": True}


class AllowAll:
    """An authorizer that allows everything."""

    asks_caller = False

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        return names

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        return -1


class ForgetfulFile(EphemeralFile):
    """A file that keeps the first batch, which the log reads, and drops the others."""

    __slots__ = ("_forgets",)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        if position and not hasattr(self, "_forgets"):
            self._forgets = True
            os.dup2(os.open(os.devnull, os.O_RDWR), self._fd)
        return super().pwritev(buffers, position)


class ForgetfulFiles(EphemeralFiles):
    """Ephemeral files, in which a log is a `ForgetfulFile`."""

    __slots__ = ()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> OsFile:
        file = super().open(path, create=create, exclusive=exclusive, writable=writable)
        if not os.fspath(path).endswith("0.log"):
            return file
        descriptor, file._fd = file._fd, -1
        return ForgetfulFile(descriptor, os.fspath(path))


class Sink(asyncio.Transport):
    """The peer of a connection, which takes its responses."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0
        self._answers: list[Buffer] = []

    def take(self) -> bytes:
        """Return the bytes written since the last call."""
        answers, self._answers, self.nbytes = self._answers, [], 0
        return b"".join(answers)

    def write(self, data: Buffer) -> None:
        self._answers.append(data)
        self.nbytes += len(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    abort = close


class Door:
    """A network of one listener, whose connections the benchmark creates."""

    port = 1
    hosts = ("127.0.0.1",)

    def __init__(self) -> None:
        self._acceptor: Acceptor

    async def resolve(self, host: str, port: int) -> list[Address]:
        raise AssertionError("a broker of one node looks up nobody")

    async def connect(self, *_: object, **__: object) -> Never:
        raise AssertionError("a broker of one node connects to nobody")

    async def listen(self, acceptor: Acceptor, *_: object, **__: object) -> Listener:
        self._acceptor = acceptor
        return self

    async def start_serving(self) -> None:
        pass

    def knock(self) -> asyncio.BufferedProtocol:
        """Return the server's side of a new connection."""
        protocol = self._acceptor.accept(Address("127.0.0.1", 1), make_room=None)
        assert isinstance(protocol, asyncio.BufferedProtocol)
        return protocol

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class Requests:
    """Requests of one row, each with its size prefix."""

    def __init__(self, row: Row) -> None:
        now_ms = int(time.time() * 1000)
        records = [
            RawRecord(index, now_ms, None, b"v" * row.record_bytes) for index in range(row.records)
        ]
        batch = encode_batch(records, crc32c=crc32c)
        data = PartitionProduceData(index=0, records=batch)
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        parts = encode_request(request, version=VERSION, correlation_id=1, client_id="bench")
        self._row = row
        self._frame = b"".join(cast("list[bytes]", parts))
        self._start = self._frame.index(batch)
        self._end = self._start + len(batch)
        self._sequence = 0
        self.size = len(self._frame)

    @property
    def frame(self) -> memoryview:
        """A request without its size, as the dispatcher receives it."""
        return memoryview(self._frame)[4:]

    def make(self, number: int) -> list[bytes]:
        """Return `number` requests; those that arrive at once are joined."""
        at_once, frames = self._row.at_once, self._frames(number)
        if not self._row.idempotent:
            return [b"".join(frames[:at_once])] * (number // at_once)
        return [b"".join(frames[at : at + at_once]) for at in range(0, number, at_once)]

    def _frames(self, number: int) -> list[bytes]:
        """Return frames; those of an idempotent producer have consecutive sequences."""
        if not self._row.idempotent:
            return [self._frame] * number
        frames = []
        for _ in range(number):
            frame = bytearray(self._frame)
            batch = memoryview(frame)[self._start : self._end]
            _PRODUCER.pack_into(batch, _PRODUCER_AT, 7, 0, self._sequence)
            _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_CRC_COVERS:]))
            frames.append(bytes(frame))
            self._sequence += self._row.records
        return frames


class Bench:
    """A broker, and one connection to it."""

    def __init__(self, directory: str) -> None:
        self._door = Door()
        self._sink = Sink()
        self._node = BrokerNode(
            broker_settings({}, profile="kafka"),
            Environment(
                SystemClock(), random.Random(1), self._door, ForgetfulFiles(), InlineOffload()
            ),
            data_dir=directory,
        )

    async def __aenter__(self) -> Bench:
        await self._node.start()
        self._protocol = self._door.knock()
        self._protocol.connection_made(self._sink)
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        parts = encode_request(request, version=4, correlation_id=1, client_id="bench")
        self._feed(b"".join(cast("list[bytes]", parts)))
        while not self._sink.nbytes:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._protocol.connection_lost(None)
        await self._node.close()

    def _feed(self, data: bytes) -> None:
        """Pass received data to the connection, as a transport does."""
        protocol, view = self._protocol, memoryview(data)
        while view:
            into = memoryview(protocol.get_buffer(-1))
            count = min(len(into), len(view))
            into[:count] = view[:count]
            protocol.buffer_updated(count)
            view = view[count:]

    async def _send(self, requests: list[bytes], answer_bytes: int) -> None:
        """Send each request, and wait for `answer_bytes` of response before the next."""
        sink, due = self._sink, 0
        for request in requests:
            self._feed(request)
            due += answer_bytes
            while sink.nbytes < due:  # noqa: ASYNC110  a turn of the loop each
                await asyncio.sleep(0)

    async def measure(self, row: Row, rounds: int) -> tuple[float, float]:
        """Return the CPU microseconds per request: the least of the rounds, and their median."""
        requests, sink = Requests(row), self._sink
        number = min(ROUND_REQUESTS, ROUND_BYTES // requests.size)
        number -= number % row.at_once
        sink.take()
        await self._send(requests.make(row.at_once), 1)
        answer_bytes = row.at_once * _check(sink.take(), row.at_once)
        costs = []
        for _ in range(rounds):
            frames = requests.make(number)
            started = time.process_time()
            await self._send(frames, answer_bytes)
            costs.append((time.process_time() - started) / number * 1e6)
            _check(sink.take(), number)
        return min(costs), statistics.median(costs)

    def measure_gate(self, *, authorizer: bool, rounds: int) -> tuple[float, float]:
        """Return CPU microseconds of the gate per request: the least of the rounds, their median.

        The statements are those of `Dispatcher.handle` and `OrdinaryProduce`.
        """
        gate, frame = self._node.gate, Requests(ROWS[3]).frame
        context = RequestContext(1, "127.0.0.1:1", "127.0.0.1", "PLAINTEXT")
        gate.authorizer = AllowAll() if authorizer else None
        repeated, costs = range(GATE_REQUESTS), []
        for _ in range(rounds):
            started = time.process_time()
            for _ in repeated:
                pass
            empty = time.process_time() - started
            started = time.process_time()
            for _ in repeated:
                (api_and_version,) = _API_AND_VERSION(frame)
                if not gate.admit(context, api_and_version, len(frame)):
                    raise AssertionError("the gate does not admit the request")
                if gate.authorizer is not None and TOPIC not in gate.authorize(
                    context, PRODUCE, Operation.WRITE, ResourceType.TOPIC, {TOPIC}
                ):
                    raise AssertionError("the gate does not permit the request")
                if gate.quotas is not None:
                    raise AssertionError("the benchmark has no quotas")
            costs.append((time.process_time() - started - empty) / GATE_REQUESTS * 1e6)
        gate.authorizer = None
        return min(costs), statistics.median(costs)


def _check(answers: bytes, number: int) -> int:
    """Check that all requests were accepted; return the size of a response."""
    view, size = memoryview(answers), 0
    for _ in range(number):
        size = 4 + int.from_bytes(view[:4], "big")
        _, response = decode_response(ProduceResponse, view[4:size], VERSION)
        assert response.responses[0].partition_responses[0].error_code == 0, response
        view = view[size:]
    assert not view
    return size


def floor(row: Row) -> float:
    """Return the microseconds that no implementation can avoid: copy and CRC."""
    frame = Requests(row).make(row.at_once)[0]
    into = memoryview(bytearray(len(frame)))
    number = max(1, ROUND_BYTES // len(frame)) if row.records > 1 else ROUND_REQUESTS
    costs = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(number):
            into[:] = frame
            crc32c(into)
        costs.append((time.process_time() - started) / number / row.at_once * 1e6)
    return min(costs)


async def main(rounds: int, only: str) -> None:
    for row in ROWS:
        if only in row.name:
            with tempfile.TemporaryDirectory() as directory:
                async with Bench(directory) as bench:
                    least, median = await bench.measure(row, rounds)
            print(f"{row.name:34} {least:7.1f}  median {median:7.1f}  floor {floor(row):6.1f}")
    for name, authorizer in GATE_ROWS.items():
        if only in name:
            with tempfile.TemporaryDirectory() as directory:
                async with Bench(directory) as bench:
                    least, median = bench.measure_gate(authorizer=authorizer, rounds=rounds)
            print(f"{name:34} {least:7.2f}  median {median:7.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    given = parser.parse_args()
    uvloop.run(main(given.rounds, given.only))
