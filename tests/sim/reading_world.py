"""Readers of a damaged log, compared step by step with the model in reading_model.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import CorruptRecord
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.header import HEADER_SIZE, LOG_OVERHEAD, computed_crc, pack_header, read_header
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aiokq.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from aiokq.wire.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.peers.scripted import Call
from tests.sim.consumer_world import BROKER, CLIENT, Kafka, StoredBatch
from tests.sim.harness.simulation import Simulation, run
from tests.sim.reading_model import (
    BATCHES,
    END,
    NOTHING,
    OVER,
    Batch,
    Iteration,
    Log,
    Model,
    Outcome,
)

T0, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MODES: dict[str, dict[str, Any]] = {
    "none": {},
    "auto": {"group_id": "g", "auto_commit_interval_ms": 1_000},
    "manual": {"group_id": "g", "enable_auto_commit": False},
    "explicit": {"group_id": "g", "auto_commit_interval_ms": 1_000, "ack_mode": "explicit"},
}
INTERVAL = 1.2
"""Seconds within which an automatic commit takes place."""
GIVE_UP = 0.7
"""Seconds after which no more records are expected."""


class PoisonError(Exception):
    """Raised by the deserializers of these tests."""


class PanicError(BaseException):
    """Raised by the deserializers too: panics of Rust extensions do not derive from Exception."""


def _number(data: bytes) -> int:
    if data.startswith(b"!"):
        raise PoisonError(data)
    if data.startswith(b"?"):
        raise PanicError(data)
    return int(data)


class Store:
    """The committed offsets of one group, stored by a coordinator without members."""

    def __init__(self, kafka: Kafka) -> None:
        self.offsets: dict[int, int] = {}
        self._kafka = kafka
        kafka.on(FindCoordinatorRequest, self._found)
        kafka.on(OffsetFetchRequest, self._fetched)
        kafka.on(OffsetCommitRequest, self._committed)

    def _found(self, request: Any, call: Call) -> FindCoordinatorResponse:
        host, port = self._kafka.host, self._kafka[1].port
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host=host, port=port)
                for key in request.coordinator_keys
            ]
        )

    def _fetched(self, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(
                    group_id=group.group_id,
                    topics=[
                        OffsetFetchResponseTopics(
                            name=topic.name,
                            topic_id=topic.topic_id,
                            partitions=[
                                OffsetFetchResponsePartitions(
                                    partition_index=p,
                                    committed_offset=self.offsets.get(p, -1),
                                    metadata="",
                                )
                                for p in topic.partition_indexes
                            ],
                        )
                        for topic in group.topics or ()
                    ],
                )
                for group in request.groups
            ]
        )

    def _committed(self, request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            for p in topic.partitions:
                self.offsets[p.partition_index] = p.committed_offset
            topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=p.partition_index, error_code=0
                        )
                        for p in topic.partitions
                    ],
                )
            )
        return OffsetCommitResponse(topics=topics)


def _rewritten(data: bytes, payload: bytes, attributes: int = 0) -> bytes:
    """Return a batch with `payload` as its records and a valid checksum."""
    header = read_header(data)
    header = header._replace(
        attributes=header.attributes | attributes,
        length=HEADER_SIZE - LOG_OVERHEAD + len(payload),
    )
    whole = pack_header(header) + payload
    header = header._replace(crc=computed_crc(memoryview(whole), header, crc32c))
    return pack_header(header) + payload


def fill(kafka: Kafka, log: Log, part: str) -> None:
    """Put the log into partition 0.

    Args:
        part: what fails to deserialize: "key", "value", or "panic" for a value whose deserializer
            raises a BaseException.
    """
    kafka.topic("t", [1, 1])
    for first, end in zip(BATCHES, (*BATCHES[1:], END), strict=True):
        records = []
        for n in range(first, end):
            said = {"key": b"%d" % n, "value": b"%d" % n}
            if n in log.poison:
                if part == "panic":
                    said["value"] = b"?%d" % n
                else:
                    said[part] = b"!%d" % n
            records.append(RawRecord(n, 1_000 + n, said["key"], said["value"]))
        data = encode_batch(records, crc32c=crc32c, leader_epoch=0)
        damage = log.damage
        if damage is not None and first <= damage.offset < end:
            payload = data[HEADER_SIZE:]
            if damage.kind == "crc":
                data = data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]
            elif damage.kind == "decompress":
                data = _rewritten(data, b"no gzip: " + payload, attributes=1)
            else:
                size = len(encode_batch(records[: damage.offset - first], crc32c=crc32c))
                data = _rewritten(data, payload[: size - HEADER_SIZE + 2])
        kafka.log("t").batches.append(StoredBatch(data, first, end, 0))
        kafka.log("t").next_offset = end


class Pair:
    """A consumer and the model, driven step by step.

    Args:
        form: "consumer", or "stream" for one of its streams.
        mode: one of MODES.
    """

    def __init__(
        self, world: Simulation, kafka: Kafka, store: Store, log: Log, *, mode: str, form: str
    ) -> None:
        self.world = world
        self.kafka = kafka
        self.store = store
        self.log = log
        self.mode = mode
        self.form = form
        self.model = Model(log, explicit=mode == "explicit")
        self.consumer = self.another(CLIENT)
        self.source: Any = self.consumer
        self.seen: set[int] = set()
        """Offsets of all delivered records."""
        self.errors: list[Outcome] = []
        self.given: list[Any] = []
        """Records, batches and errors for `ack`, oldest first, each with that of the model."""
        self.loop: AsyncIterator[Any] | None = None
        self.batch: tuple[Any, Batch] | None = None
        self.iterations: list[tuple[Any, Iteration]] = []

    def another(self, host: str) -> Consumer:
        """Return another consumer of the group, on a machine of its own."""
        options = dict(MODES[self.mode])
        if self.log.poison:
            options |= {"key_deserializer": _number, "value_deserializer": _number}
        return Consumer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            _environment=self.world.environment(host),
            auto_offset_reset="earliest",
            **options,
        )

    async def start(self) -> None:
        await self.consumer.start()
        self.consumer.assign([T0, OTHER])
        await self.consumer.position(T0)
        if self.form == "stream":
            streams = self.consumer.streams(2)
            (self.source,) = (s for s in streams if T0 in s.assignment())
        await asyncio.sleep(INTERVAL)  # until all is fetched, and the start committed

    async def step(self, name: str, *args: Any) -> Outcome:
        """Do one step with the consumer and the model; compare results and positions."""
        got = await getattr(self, name)(*args)
        expected, real = got
        assert real == expected, (name, args, real, expected)
        if real[0] in ("poison", "corrupt"):
            self.errors.append(real)
        if real[0] == "record":
            self.seen.add(real[1])
        if real[0] == "records":
            self.seen.update(real[1])
        position = await self.consumer.position(T0)
        assert self.model.same(position) == self.model.position, (name, args)
        return real

    # -- requests for more records: result of the consumer, and of the model

    async def one(self) -> tuple[Outcome, Outcome]:
        """`getone`."""
        return self.model.one(), await self._record(lambda: self.source.getone())

    async def again(self) -> tuple[Outcome, Outcome]:
        """The first record of a new `async for`."""
        self.loop = aiter(self.source)
        return await self.on()

    async def on(self) -> tuple[Outcome, Outcome]:
        """The next record of the current `async for`."""
        if self.loop is None:
            self.loop = aiter(self.source)
        loop = self.loop
        return self.model.one(), await self._record(lambda: anext(loop))

    async def many(self, limit: int) -> tuple[Outcome, Outcome]:
        """`getmany`, which streams do not have."""
        if self.form == "stream":
            return await self.one()
        expected = self.model.many(limit)
        self._left()
        try:
            got = await self.consumer.getmany(timeout=GIVE_UP, max_records=limit)
        except (PoisonError, PanicError, CorruptRecord) as error:
            return expected, self._error(error)
        records = [record for some in got.values() for record in some]
        self.given += [(record, record.offset) for record in records]
        offsets = [record.offset for record in records]
        return expected, ("records", offsets) if offsets else NOTHING

    async def next_batch(self) -> tuple[Outcome, Outcome]:
        """`batches`."""
        expected = self.model.next_batch()
        self._left()
        try:
            async with asyncio.timeout(GIVE_UP):
                batch = await anext(aiter(self.source.batches()))
        except TimeoutError:
            return expected, NOTHING
        except CorruptRecord as error:
            return expected, self._error(error)
        assert self.model.batch is not None, "there should be none"
        self.batch = batch, self.model.batch
        self.iterations = []
        self.given.append((batch, self.model.batch))
        return expected, ("batch", batch.base_offset, batch.next_offset)

    # -- the current batch

    async def record(self) -> tuple[Outcome, Outcome]:
        """The next record of the current iteration."""
        if self.batch is None:
            return NOTHING, NOTHING
        if not self.iterations:
            return await self.iterate()
        (iterator, mine), (_, batch) = self.iterations[-1], self.batch
        expected = batch.step(mine)
        try:
            got = next(iterator)
        except StopIteration:
            return expected, OVER
        except (PoisonError, PanicError, CorruptRecord) as error:
            return expected, self._error(error, given=False)
        return expected, ("record", got.offset)

    async def iterate(self) -> tuple[Outcome, Outcome]:
        """The first record of a new `for record in batch`."""
        if self.batch is None:
            return NOTHING, NOTHING
        batch, model = self.batch
        self.iterations.append((iter(batch), model.iterate()))
        return await self.record()

    async def outer(self) -> tuple[Outcome, Outcome]:
        """The next record of the iteration around the current one."""
        if self.batch is None or len(self.iterations) < 2:
            return NOTHING, NOTHING
        self.iterations[-2:] = reversed(self.iterations[-2:])
        return await self.record()

    async def records(self) -> tuple[Outcome, Outcome]:
        """`batch.records`."""
        if self.batch is None:
            return NOTHING, NOTHING
        batch, model = self.batch
        expected = model.all_records()
        try:
            got = ("records", [record.offset for record in batch.records])
        except (PoisonError, PanicError, CorruptRecord) as error:
            return expected, self._error(error, given=False)
        assert len(batch) == len(got[1])
        self.iterations = []
        return expected, got

    async def arrow(self) -> tuple[Outcome, Outcome]:
        """`batch.to_arrow`."""
        if self.batch is None:
            return NOTHING, NOTHING
        batch, model = self.batch
        expected = model.arrow()
        try:
            got = batch.to_arrow(["offset"])
        except CorruptRecord as error:
            return expected, self._error(error, given=False)
        return expected, ("records", got.column("offset").to_pylist())

    # -- other things

    async def seek(self, offset: int) -> tuple[Outcome, Outcome]:
        self.model.seek(offset)
        self.consumer.seek(T0, offset)
        self.given.clear()
        await asyncio.sleep(GIVE_UP)  # until the records are fetched again
        return NOTHING, NOTHING

    async def pause(self) -> tuple[Outcome, Outcome]:
        self.model.paused = True
        self.consumer.pause(T0)
        return NOTHING, NOTHING

    async def resume(self) -> tuple[Outcome, Outcome]:
        self.model.paused = False
        self.consumer.resume(T0)
        return NOTHING, NOTHING

    async def commit(self) -> tuple[Outcome, Outcome]:
        """Commit all delivered records."""
        if self.mode == "none":
            return NOTHING, NOTHING
        await self.consumer.commit()
        return ("at", self.model.handed), ("at", self.committed)

    async def wait(self) -> tuple[Outcome, Outcome]:
        """Wait for an automatic commit."""
        before = self.store.offsets.get(0)
        await asyncio.sleep(INTERVAL)
        if self.mode in ("auto", "explicit"):
            return ("at", self.model.finished), ("at", self.committed)
        assert self.store.offsets.get(0) == before
        return NOTHING, NOTHING

    async def ack(self, place: int) -> tuple[Outcome, Outcome]:
        """Acknowledge one delivered item that was not acknowledged."""
        if self.mode == "explicit" and self.given:
            item, model = self.given[place % len(self.given)]
            self.consumer.ack(item)
            self.model.ack(model)
        return NOTHING, NOTHING

    @property
    def committed(self) -> int | None:
        offset = self.store.offsets.get(0)
        return None if offset is None else self.model.same(offset)

    # -- the end, and what follows

    async def close(self, *, normal: bool) -> None:
        """Leave the `async with` block."""
        before = self.store.offsets.get(0)
        try:
            async with self.consumer:
                if not normal:
                    raise LookupError
        except LookupError:
            pass
        self.model.close(normal=normal)
        if self.mode in ("auto", "explicit"):
            assert self.committed == self.model.finished
        else:
            assert self.store.offsets.get(0) == before

    async def crash(self) -> None:
        """Partition the consumer's machine from the network for good."""
        self.world.network.partition(CLIENT)

    async def successor(self) -> set[int]:
        """Return the offsets that another consumer of the group reads after the last commit."""
        start = self.store.offsets.get(0, 0) if self.mode != "none" else 0
        seen: set[int] = set()
        errors = 0
        async with self.another("10.0.0.7") as other:
            other.assign([T0])
            assert await other.position(T0) == start
            while errors < 20:
                try:
                    record = await asyncio.wait_for(other.getone(), GIVE_UP)
                except TimeoutError:
                    break
                except (PoisonError, PanicError):
                    errors += 1
                except CorruptRecord:
                    errors += 1
                    assert self.log.damage is not None
                    other.seek(T0, self.log.damage.beyond)
                else:
                    seen.add(record.offset)
        assert seen == {offset for offset in self.log.good() if offset >= start}
        return seen

    # -- inside

    def _left(self) -> None:
        self.loop = None

    async def _record(self, ask: Callable[[], Any]) -> Outcome:
        try:
            async with asyncio.timeout(GIVE_UP):
                record = await ask()
        except TimeoutError:
            return NOTHING
        except (PoisonError, PanicError, CorruptRecord) as error:
            return self._error(error)
        self.given.append((record, record.offset))
        return ("record", record.offset)

    def _error(self, error: Any, *, given: bool = True) -> Outcome:
        if isinstance(error, CorruptRecord):
            assert error.topic_partition == T0
            assert f"at or after offset {self._at(error)} of t-0" in str(error)
            return ("corrupt", self._at(error))
        record = error.record
        note = f"deserializing the record at offset {record.offset} of t-0; "
        assert error.__notes__ == [note + "reading continues without it"]
        if given:
            self.given.append((record, record.offset))
        return ("poison", record.offset)

    @staticmethod
    def _at(error: CorruptRecord) -> int:
        return int(str(error).split("at or after offset ")[1].split(" ")[0])


def simulate(
    body: Callable[[Pair], Any],
    log: Log,
    *,
    mode: str,
    form: str = "consumer",
    part: str = "value",
) -> None:
    """Run `body(pair)` in virtual time."""

    async def main(world: Simulation) -> None:
        async with Kafka(1, environment=world.environment(BROKER), host=BROKER) as kafka:
            fill(kafka, log, part)
            pair = Pair(world, kafka, Store(kafka), log, mode=mode, form=form)
            try:
                await pair.start()
                await body(pair)
            finally:
                await pair.consumer.close()

    run(1, main, limit=3_600)
