"""Damage to a log between two runs of a broker, as clients see it."""

from __future__ import annotations

import asyncio
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiokq
from aiokq.errors import CorruptRecord
from tests.peers.broker_process import BrokerProcess

TOPIC = "t"
COUNT = 40
VALUE = 64 * 1024
SEGMENT_BYTES = 1024 * 1024
LENGTH = struct.Struct(">i")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker whose small segments divide the topic's log into three, with a record per batch."""
    process = BrokerProcess(
        tmp_path / "data",
        *("--set", f"log.segment.bytes={SEGMENT_BYTES}", "--set", "log.index.interval.bytes=4096"),
    )
    process.start()
    try:
        yield process
    finally:
        process.stop()


def value(number: int) -> bytes:
    return b"%08d" % number * (VALUE // 8)


async def produce(bootstrap: str, first: int, count: int) -> list[int]:
    """Send numbered records one by one; return their offsets."""
    offsets = []
    async with aiokq.Producer(bootstrap, batch_size=2 * VALUE) as producer:
        for number in range(first, first + count):
            meta = await producer.send(TOPIC, value(number), partition=0)
            offsets.append(meta.offset)
    return offsets


async def read_all(bootstrap: str, start: int = 0) -> list[tuple[int, int]]:
    """Return offset and number of every record."""
    found = []
    async with aiokq.Cluster(bootstrap) as cluster:
        tp = aiokq.TopicPartition(TOPIC, 0)
        async for batch in cluster.read(tp, start, "latest"):
            found += [(record.offset, int(record.value[:8])) for record in batch]
    return found


async def since(bootstrap: str, timestamp_ms: int) -> int | None:
    async with aiokq.Cluster(bootstrap) as cluster:
        found = await cluster.offsets((TOPIC, 0), timestamp_ms)
        return None if found is None else found.offset


def fill(broker: BrokerProcess, number: int) -> Path:
    """Write the records, stop the broker with a signal, and return the partition's directory."""
    assert asyncio.run(produce(broker.bootstrap_servers, 0, COUNT)) == list(range(COUNT))
    broker.stop(number)
    directory = broker.data_dir / f"{TOPIC}-0"
    assert len(list(directory.glob("*.log"))) == 3
    return directory


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def offsets_in(path: Path) -> range:
    """Return the offsets in a segment whose batches have one record each."""
    data, position, count = path.read_bytes(), 0, 0
    while position < len(data):
        position += LENGTH.unpack_from(data, position + 8)[0] + 12
        count += 1
    return range(int(path.stem), int(path.stem) + count)


def check(broker: BrokerProcess, end: int) -> None:
    """Check that every record up to `end` exists once and in order, and that the next follows."""
    assert asyncio.run(read_all(broker.bootstrap_servers)) == [(n, n) for n in range(end)]
    assert asyncio.run(produce(broker.bootstrap_servers, end, 1)) == [end]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_between_records_loses_and_doubles_none(
    broker: BrokerProcess, number: int
) -> None:
    """An idempotent producer that outlives the broker continues with its sequence."""

    async def main() -> list[int]:
        offsets = []
        async with aiokq.Producer(broker.bootstrap_servers) as producer:
            for index in range(9):
                if index % 3 == 2:
                    broker.stop(number)
                    broker.port = int(str(broker.bootstrap_servers).rpartition(":")[2])
                    broker.start()
                offsets.append((await producer.send(TOPIC, value(index), partition=0)).offset)
        return offsets

    assert asyncio.run(main()) == list(range(9))
    check(broker, 9)


def test_a_torn_tail_is_cut(broker: BrokerProcess) -> None:
    """The kill came in the middle of a write, which therefore was not acknowledged."""
    log = logs(fill(broker, signal.SIGKILL))[-1]
    log.write_bytes(log.read_bytes()[: -VALUE // 2])
    broker.start()
    check(broker, COUNT - 1)
    assert not list(log.parent.glob("*.corrupt-*"))


def test_a_flipped_bit_is_found_by_the_reader_and_removed_by_recovery(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """The bit is in an old segment after a clean shutdown, when the start scans nothing."""
    directory = fill(broker, signal.SIGTERM)
    first, log, _ = logs(directory)
    damaged = offsets_in(log)[3]
    data = bytearray(log.read_bytes())
    data[3 * (len(data) // len(offsets_in(log))) + VALUE // 2] ^= 0x10
    log.write_bytes(data)
    broker.start()
    with pytest.raises(CorruptRecord):
        asyncio.run(read_all(broker.bootstrap_servers))
    found = asyncio.run(read_all(broker.bootstrap_servers, damaged + 1))
    assert found == [(n, n) for n in range(damaged + 1, COUNT)]
    (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    broker.stop(signal.SIGKILL)
    broker.start()
    check(broker, damaged)
    kept = {path.name.partition(".log")[0] for path in directory.glob("*.corrupt-*")}
    behind = COUNT - COUNT % len(offsets_in(first))
    assert kept == {log.stem, f"{behind:020d}"}
    errors = [line for line in capfd.readouterr().err.splitlines() if " ERROR " in line]
    for lost in (f"lost_offsets={damaged}-{behind - 1}", f"lost_offsets={behind}-{COUNT - 1}"):
        assert any(lost in line for line in errors), errors


def test_garbage_behind_the_log_is_removed(broker: BrokerProcess) -> None:
    """A broken file system may leave a block of other data."""
    log = logs(fill(broker, signal.SIGKILL))[-1]
    log.write_bytes(log.read_bytes() + bytes(range(256)) * 64)
    broker.start()
    check(broker, COUNT)
    assert len(list(log.parent.glob("*.corrupt-*"))) == 1  # kept, because its origin is unknown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_but_the_log_is_made_again(broker: BrokerProcess, number: int) -> None:
    """Indexes, producer snapshots and leader epochs are rebuilt."""
    directory = fill(broker, number)
    for path in directory.iterdir():
        if path.suffix != ".log":
            path.unlink()
    broker.start()
    check(broker, COUNT)
    assert asyncio.run(since(broker.bootstrap_servers, 0)) == 0
    for log in logs(directory)[:-1]:
        assert log.with_suffix(".index").stat().st_size % 8 == 0
        assert log.with_suffix(".index").stat().st_size > 0
        assert log.with_suffix(".timeindex").stat().st_size > 0
