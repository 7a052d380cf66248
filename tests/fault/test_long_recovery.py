"""A broker killed with gigabytes after its recovery point checks them all, and serves meanwhile.

The log is a topic of one partition on a disk of the machine. Its recovery point is deleted, so that
every byte is read and every CRC checked. Meanwhile another partition accepts records.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

import aiokq
from aiokq import TopicPartition
from tests.peers.broker_process import BrokerProcess

RECORD_BYTES = 1024
CHUNK = 10_000
LARGE = TopicPartition("large", 0)
SMALL = TopicPartition("small", 0)
LONGEST_STALL_S = 1.0
"""The longest allowed response time; recovery on the event loop would take far longer."""


async def fill(bootstrap: str, records: int) -> None:
    """Fill both topics, and wait until all records are acknowledged."""
    async with aiokq.Producer(bootstrap, batch_size=256 * 1024) as producer:
        await producer.send(SMALL.topic, b"first")
        value = bytes(RECORD_BYTES)
        for _ in range(records // CHUNK):
            await producer.send_many(LARGE.topic, [(None, value)] * CHUNK)
        await producer.flush()


async def recovered(bootstrap: str, records: int) -> tuple[int, float, float]:
    """Send to the small topic until the large one has recovered.

    Returns the number of records sent, the longest response time, and the duration of the recovery,
    in seconds from when the broker accepted connections.
    """
    began = time.monotonic()
    async with (
        aiokq.Cluster(bootstrap) as cluster,
        aiokq.Producer(bootstrap, linger_ms=0) as producer,
    ):
        end = asyncio.ensure_future(cluster.offsets(LARGE, -1))
        taken, longest = 0, 0.0
        while not end.done():
            before = time.monotonic()
            await producer.send(SMALL.topic, b"meanwhile")
            longest = max(longest, time.monotonic() - before)
            taken += 1
        found = await end
        assert found is not None
        assert found.offset == records
    return taken, longest, time.monotonic() - began


@pytest.mark.torture
@pytest.mark.timeout(1800)
def test_ten_gigabytes_are_recovered_while_another_partition_is_served(tmp_path: Path) -> None:
    """Recovery on the loop, or of one partition after another, would be an outage of the broker."""
    records = 10 * 1_000_000_000 // RECORD_BYTES // CHUNK * CHUNK
    process = BrokerProcess(tmp_path, "--set", "num.partitions=1")
    process.start()
    try:
        asyncio.run(fill(process.bootstrap_servers, records))
        process.stop(signal.SIGKILL)
        (tmp_path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        process.start()
        taken, longest, seconds = asyncio.run(recovered(process.bootstrap_servers, records))
    finally:
        process.stop()
    print(
        f"{taken} records meanwhile, longest answer {longest:.3f} s, recovered in {seconds:.1f} s"
    )
    assert taken > 1
    assert longest < LONGEST_STALL_S
