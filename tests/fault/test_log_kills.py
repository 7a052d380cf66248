"""A broker killed repeatedly under producers keeps each acknowledged record once and in order.

The broker is a process of its own with its log on a disk of the machine. It is killed with SIGKILL
whenever another share of the records was acknowledged, and started again on the same port. The
producers are aiokq's and librdkafka's, both with acks=all and idempotence. Every record must be
acknowledged in the end, and be at the acknowledged offset. The checker of `aiokq.testing` judges
the history of the producer and of readers of the whole log.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import aiokq
from aiokq.testing import Recorder, check, confluent_delivery
from tests.peers.broker_process import BrokerProcess
from tests.peers.checked_topics import read_to_end

TOPIC = "t"
PARTITIONS = 3
VALUE = b"." * 90
SEGMENT_BYTES = 1024 * 1024
"""Small enough for several segments in each partition, so that recovery begins inside the log."""
PATIENCE = 120.0
"""Seconds that a producer keeps retrying; the restarts of one test take a tenth of it."""

Offsets = dict[int, int]
"""The acknowledged offset of each record, by its number."""


class KilledBroker:
    """A broker that is killed each time another share of the records was acknowledged.

    Attributes:
        kills: how often it was killed so far.
    """

    def __init__(self, data_dir: Path, records: int, kills: int, *, synced: bool) -> None:
        self.kills = 0
        settings = {"num.partitions": PARTITIONS, "log.segment.bytes": SEGMENT_BYTES}
        if synced:
            settings["log.flush.interval.messages"] = 1
        self._process = BrokerProcess(
            data_dir,
            *(word for name, value in settings.items() for word in ("--set", f"{name}={value}")),
        )
        self._share = records // (kills + 1)
        self._acknowledged = 0
        self._killer = ThreadPoolExecutor(1)

    @contextmanager
    def running(self) -> Iterator[KilledBroker]:
        self._process.start()
        self._process.port = int(self.bootstrap.rpartition(":")[2])
        try:
            yield self
            self.settle()
        finally:
            self._killer.shutdown()
            self._process.stop()

    @property
    def bootstrap(self) -> str:
        return self._process.bootstrap_servers

    @property
    def intended(self) -> int:
        """How often the broker should have been killed for the records acknowledged so far."""
        return self._acknowledged // self._share

    def acknowledged(self) -> None:
        """Count an acknowledged record, and kill the broker if a share is complete."""
        before = self.intended
        self._acknowledged += 1
        if self.intended > before:
            self._killer.submit(self._kill).add_done_callback(lambda done: done.result())

    def settle(self) -> None:
        """Wait for the last kill, which may still be under way, and for the start after it."""
        self._killer.submit(lambda: None).result()

    def _kill(self) -> None:
        self._process.stop(signal.SIGKILL)
        self.kills += 1
        self._process.start()


def value(number: int) -> bytes:
    return b"%d" % number + VALUE


async def ours(broker: KilledBroker, recorder: Recorder, records: int) -> Offsets:
    """Send with aiokq's producer, with defaults except for the timeouts; return the offsets."""
    deliveries: list[aiokq.Delivery] = []
    async with aiokq.Producer(
        broker.bootstrap, delivery_timeout_ms=int(PATIENCE * 1000), max_block_ms=60_000
    ) as producer:
        recorded = recorder.producer(producer, "aiokq")
        for number in range(records):
            delivery = await recorded.enqueue(TOPIC, value(number), partition=number % PARTITIONS)
            delivery.add_done_callback(lambda _: broker.acknowledged())
            deliveries.append(delivery)
            if number % 100 == 0:
                await asyncio.sleep(0)
        return {number: (await each).offset for number, each in enumerate(deliveries)}


def librdkafkas(broker: KilledBroker, recorder: Recorder, records: int) -> Offsets:
    """Send with confluent-kafka, idempotent; return the offsets."""
    from confluent_kafka import Message, Producer

    found: Offsets = {}
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": int(PATIENCE * 1000),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )

    def delivered(number: int) -> Callable[[object, Message], None]:
        start = recorder.clock()

        def note(error: object, message: Message) -> None:
            recorder.add(
                confluent_delivery(
                    error, message, process="librdkafka", start=start, end=recorder.clock()
                )
            )
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            found[number] = offset
            broker.acknowledged()

        return note

    for number in range(records):
        while True:
            try:
                producer.produce(
                    TOPIC, value(number), partition=number % PARTITIONS, callback=delivered(number)
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    return found


async def contents(bootstrap: str) -> Offsets:
    """Return the offset of each record; check that each exists once and in the order of sending."""
    found: Offsets = {}
    async with aiokq.Cluster(bootstrap) as cluster:
        for partition in range(PARTITIONS):
            last = -1
            async for batch in cluster.read(
                aiokq.TopicPartition(TOPIC, partition), "earliest", "latest"
            ):
                for record in batch:
                    assert record.value is not None
                    assert record.value.endswith(VALUE)
                    number = int(record.value[: -len(VALUE)])
                    assert number % PARTITIONS == partition
                    assert number not in found, f"record {number} is there twice"
                    assert number > last, f"record {number} came after {last}"
                    found[number] = record.offset
                    last = number
    return found


async def judge(bootstrap: str, recorder: Recorder) -> None:
    """Read the whole log, and fail if the checker condemns anything."""
    async with aiokq.Cluster(bootstrap) as cluster:
        await read_to_end(cluster, recorder, TOPIC, partitions=PARTITIONS)
    report = check(recorder.history)
    assert report.ok, str(report)


def by_ours(broker: KilledBroker, recorder: Recorder, records: int) -> Offsets:
    return asyncio.run(ours(broker, recorder, records))


@pytest.mark.parametrize(
    ("produce", "synced", "records", "kills"),
    [
        pytest.param(by_ours, True, 20_000, 3, id="aiokq synced"),
        pytest.param(librdkafkas, False, 20_000, 3, id="librdkafka"),
        *(
            pytest.param(
                produce,
                synced,
                100_000,
                10,
                marks=pytest.mark.torture,
                id=f"{name}{' synced' * synced} torture",
            )
            for produce, name in ((by_ours, "aiokq"), (librdkafkas, "librdkafka"))
            for synced in (False, True)
        ),
    ],
)
def test_each_acknowledged_record_is_there_once_and_in_order(
    tmp_path: Path,
    produce: Callable[[KilledBroker, Recorder, int], Offsets],
    synced: bool,
    records: int,
    kills: int,
) -> None:
    """The broker dies in the middle of appends and recovers from the log that it left.

    With a sync per append it mostly dies between append and sync: records that are in the log but
    were never acknowledged are sent again.
    """
    began = time.perf_counter()
    recorder = Recorder()
    with KilledBroker(tmp_path / "data", records, kills, synced=synced).running() as broker:
        acknowledged = produce(broker, recorder, records)
        took = time.perf_counter() - began
        broker.settle()
        found = asyncio.run(contents(broker.bootstrap))
        asyncio.run(judge(broker.bootstrap, recorder))
        assert sorted(found) == list(range(records)), f"{records - len(found)} records are lost"
        assert found == acknowledged
        assert broker.kills >= kills
    segments = list((tmp_path / "data").glob(f"{TOPIC}-*/*.log"))
    assert len(segments) >= 2 * PARTITIONS or records < 100_000
    print(f"{records} records, {broker.kills} kills, {took:.1f} s, {len(segments)} segments")
