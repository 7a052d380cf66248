"""How fast a log is compacted: `python -m benchmarks.log_compaction`, JSON lines.

Owns one measurement: a log of keyed records, each key written several times, cleaned once by
aiokq's cleaner in a process with an idle loop, and, with --apache, a copy of it by Apache Kafka's,
class against class in a JVM of its own. Its bytes are in the page cache, so that the cleaners are
measured, not the disk. `megabytes_per_second` counts the bytes of the log, which both read twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.settings import broker_settings
from aiokq.connection.network import system_environment
from aiokq.core.counters import BrokerCounters
from aiokq.core.files import OsFiles
from aiokq.core.types import TopicPartition
from aiokq.fastpath import COMPILED, crc32c
from aiokq.records.compression import codec_id
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch

ROOT: Final = Path(__file__).parents[1]
NOW_MS: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("measured", 0)
SEGMENT_BYTES: Final = 64 * 1024 * 1024
TIMES_WRITTEN: Final = 4
"""How often each key was, on average."""
CONFIG: Final = LogConfig()._replace(
    cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, min_cleanable_dirty_ratio=0.0
)


def opened(path: Path) -> LogDirectory:
    directory = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=random.Random(1), now=time.monotonic
    )
    directory.open_partition(PARTITION, None, CONFIG, now_ms=NOW_MS)
    return directory


def fill(path: Path, megabytes: int, record_bytes: int, batch_bytes: int, codec: int) -> int:
    """Write the log; how many records it has."""
    rng = random.Random(1)
    directory = opened(path)
    log = directory.logs[PARTITION]
    # half of each value is random: real ones compress to half
    noise = rng.randbytes(1 << 20)
    per_batch = max(batch_bytes // record_bytes, 1)
    total = megabytes * 1_000_000 // record_bytes
    keys = max(total // TIMES_WRITTEN, 1)
    size = record_bytes - 30

    def value() -> bytes:
        at = rng.randrange(len(noise) - size)
        return noise[at : at + size // 2] + bytes(size - size // 2)

    for _ in range(total // per_batch):
        data = encode_batch(
            [
                RawRecord(n, NOW_MS, b"key-%016d" % rng.randrange(keys), value())
                for n in range(per_batch)
            ],
            crc32c=crc32c,
            codec=codec,
        )
        log.append(memoryview(data), list(iter_headers(data)), leader_epoch=0, now_ms=NOW_MS)
    log.roll(NOW_MS)
    end = log.log_end_offset
    directory.close()
    return end


async def clean(path: Path) -> dict[str, object]:
    """One run of aiokq's cleaner, and how long it held up the loop."""
    environment = system_environment()
    directory = opened(path)
    cleaner = LogCleaner(
        environment,
        broker_settings(),
        lambda: [directory],
        swapped=lambda: None,
        counters=BrokerCounters(),
    )
    size = directory.logs[PARTITION].size_bytes
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began - 0.001)

    watcher = asyncio.get_running_loop().create_task(watch())
    before, began = time.process_time(), time.perf_counter()
    statistics = await cleaner.clean_dirtiest()
    seconds, cpu = time.perf_counter() - began, time.process_time() - before
    watcher.cancel()
    assert statistics is not None
    directory.close()
    environment.offload.close()
    return {
        "who": "aiokq" if COMPILED else "aiokq, pure",
        "bytes": size,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "megabytes_per_second": size / 1e6 / seconds,
        "records": [statistics.records_read, statistics.records_kept],
        "bytes_left": statistics.bytes_written,
        "longest_stall_ms": longest * 1000,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def clean_by_apache(path: Path) -> dict[str, object]:
    """One run of Apache Kafka's cleaner."""
    from tests.peers.apache_kafka import java_command

    partition = path / f"{PARTITION.topic}-{PARTITION.partition}"
    size = sum(file.stat().st_size for file in partition.glob("*.log"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        java_command(
            str(ROOT / "tests" / "peers" / "JavaCleaner.java"),
            str(partition),
            "0",
            str(int(time.time() * 1000)),
            str(134_217_728),
            f"segment.bytes={SEGMENT_BYTES}",
            heap="1G",
            optimised=True,
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    match = re.search(r"seconds=([\d.E-]+)", done.stdout)
    assert match is not None, done.stdout
    seconds = float(match[1])
    return {
        "who": "Apache Kafka",
        "bytes": size,
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "megabytes_per_second": size / 1e6 / seconds,
        "bytes_left": sum(file.stat().st_size for file in partition.glob("*.log")),
    }


def measure(
    megabytes: int,
    record_bytes: int,
    batch_bytes: int,
    codec: str = "none",
    *,
    apache: bool = False,
    parent: Path | None = None,
) -> list[dict[str, object]]:
    """The same log cleaned by each."""
    place = Path(tempfile.mkdtemp(prefix="aiokq-compaction-", dir=parent))
    try:
        fill(place / "a", megabytes, record_bytes, batch_bytes, codec_id(codec))
        if apache:
            shutil.copytree(place / "a", place / "b")
        results = [asyncio.run(clean(place / "a"))]
        if apache:
            results.append(clean_by_apache(place / "b"))
    finally:
        shutil.rmtree(place)
    about = {"record_bytes": record_bytes, "batch_bytes": batch_bytes, "codec": codec}
    return [about | result for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--batch-bytes", type=int, default=16384)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--apache", action="store_true", help="also Apache Kafka's cleaner")
    parser.add_argument("--directory", type=Path, help="where to write; default: the system's")
    options = parser.parse_args()
    for result in measure(
        options.megabytes,
        options.record_bytes,
        options.batch_bytes,
        options.codec,
        apache=options.apache,
        parent=options.directory,
    ):
        print(json.dumps(result))


if __name__ == "__main__":
    main()
