"""What a disk does to a log between two lives of a broker, seen by a client: scenarios 13 to 17."""

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
    """A broker with one topic of three segments, a record in each batch."""
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
    """Records one by one; their offsets."""
    offsets = []
    async with aiokq.Producer(bootstrap, batch_size=2 * VALUE) as producer:
        for number in range(first, first + count):
            meta = await producer.send(TOPIC, value(number), partition=0)
            offsets.append(meta.offset)
    return offsets


async def read_all(bootstrap: str, start: int = 0) -> list[tuple[int, int]]:
    """Offset and number of every record."""
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
    """Records in the log and the broker stopped by a signal; the partition's directory."""
    assert asyncio.run(produce(broker.bootstrap_servers, 0, COUNT)) == list(range(COUNT))
    broker.stop(number)
    directory = broker.data_dir / f"{TOPIC}-0"
    assert len(list(directory.glob("*.log"))) == 3
    return directory


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def offsets_in(path: Path) -> range:
    """The offsets of a segment of which each batch has one record."""
    data, position, count = path.read_bytes(), 0, 0
    while position < len(data):
        position += LENGTH.unpack_from(data, position + 8)[0] + 12
        count += 1
    return range(int(path.stem), int(path.stem) + count)


def check(broker: BrokerProcess, end: int) -> None:
    """Every record up to `end` is there once and in order, and the next one follows."""
    assert asyncio.run(read_all(broker.bootstrap_servers)) == [(n, n) for n in range(end)]
    assert asyncio.run(produce(broker.bootstrap_servers, end, 1)) == [end]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_between_records_loses_and_doubles_none(
    broker: BrokerProcess, number: int
) -> None:
    """Scenario 13: an idempotent producer that lives through it goes on where it was."""

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
    """Scenario 14: the kill came in the middle of a write, so nobody was told of it."""
    log = logs(fill(broker, signal.SIGKILL))[-1]
    log.write_bytes(log.read_bytes()[: -VALUE // 2])
    broker.start()
    check(broker, COUNT - 1)
    assert not list(log.parent.glob("*.corrupt-*"))


def test_a_flipped_bit_is_found_by_the_reader_and_removed_by_recovery(
    broker: BrokerProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """Scenario 15: in an old segment, after a clean stop, when nothing is scanned."""
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
    """Scenario 16: a block of something else, as a broken file system leaves."""
    log = logs(fill(broker, signal.SIGKILL))[-1]
    log.write_bytes(log.read_bytes() + bytes(range(256)) * 64)
    broker.start()
    check(broker, COUNT)
    assert len(list(log.parent.glob("*.corrupt-*"))) == 1  # nobody knows what it was


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_but_the_log_is_made_again(broker: BrokerProcess, number: int) -> None:
    """Scenario 17: indexes, producer snapshots, epochs."""
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
