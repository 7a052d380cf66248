"""Rate of log compaction: `python -m benchmarks.log_compaction`, JSON lines.

A log of keyed records, each key written several times, is cleaned once by aiokq's cleaner in a
process with an idle loop, or with --apache by Apache Kafka's cleaner class in a JVM. A first copy
of the log is cleaned before, in the same process, to warm up the cleaner. The log's bytes are in
the page cache, so that the cleaners are measured, not the disk. `megabytes_per_second` counts the
bytes of the log, which both cleaners read twice. `fill DIR` only writes the log, `clean DIR` only
cleans it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from aiokq.broker.config.settings import broker_settings
from aiokq.broker.log.cleaner.cleaner import LogCleaner
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.directory import LogDirectory
from aiokq.connection.network import system_environment
from aiokq.core.counters import BrokerCounters
from aiokq.core.files import OsFiles
from aiokq.core.types import TopicPartition
from aiokq.fastpath import COMPILED, crc32c
from aiokq.records.compression import codec_id
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch
from benchmarks.watch import peak_bytes
from tests.peers.apache_kafka import ROOT, java_command

NOW_MS: Final = 1_700_000_000_000
PARTITION: Final = TopicPartition("measured", 0)
SEGMENT_BYTES: Final = 64 * 1024 * 1024
TIMES_WRITTEN: Final = 4
"""How often each key was written, on average."""
CONFIG: Final = LogConfig()._replace(
    cleanup_policy=("compact",), segment_bytes=SEGMENT_BYTES, min_cleanable_dirty_ratio=0.0
)


def opened(path: Path) -> LogDirectory:
    directory = LogDirectory.open(
        OsFiles(), str(path), crc32c=crc32c, random=random.Random(1), now=time.monotonic
    )
    directory.begin()
    log = directory.open_partition(PARTITION, None, CONFIG, now_ms=NOW_MS)
    log.high_watermark = log.log_end_offset  # as with a sole replica, so that all may be compacted
    return directory


def fill(path: Path, megabytes: int, record_bytes: int, batch_bytes: int, codec: int) -> int:
    """Write the log, and return its number of records."""
    rng = random.Random(1)
    directory = opened(path)
    log = directory.logs[PARTITION]
    # Half of each value is random, because real values compress to half.
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
    end = log.high_watermark = log.log_end_offset
    directory.close()
    return end


async def clean(path: Path) -> dict[str, object]:
    """Run aiokq's cleaner once, and measure how long it blocked the loop."""
    environment = system_environment()
    directory = opened(path)
    cleaner = LogCleaner(
        environment,
        lambda: broker_settings(),
        lambda: [directory],
        swapped=lambda: None,
        cold_reads=ColdReads(environment.offload),
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
        "peak_bytes": peak_bytes(),
    }


def clean_by_apache(directories: list[Path]) -> dict[str, object]:
    """Run Apache Kafka's cleaner on one directory after the other; the last run counts."""
    partitions = [path / f"{PARTITION.topic}-{PARTITION.partition}" for path in directories]
    size = sum(file.stat().st_size for file in partitions[-1].glob("*.log"))
    done = subprocess.run(
        java_command(
            str(ROOT / "tests" / "peers" / "JavaCleaner.java"),
            os.pathsep.join(map(str, partitions)),
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
    seconds = float(re.findall(r"seconds=([\d.E-]+)", done.stdout)[-1])
    return {
        "who": "Apache Kafka",
        "bytes": size,
        "seconds": seconds,
        "megabytes_per_second": size / 1e6 / seconds,
        "bytes_left": sum(file.stat().st_size for file in partitions[-1].glob("*.log")),
    }


def copied(source: Path, target: Path) -> Path:
    """Copy the log; link its segments, which a cleaner replaces but does not change."""

    def copy(file: str, to: str) -> None:
        if file.endswith(".log"):
            os.link(file, to)
        else:
            shutil.copy2(file, to)

    shutil.copytree(source, target, copy_function=copy)
    return target


def measure(source: Path, place: Path, *, apache: bool) -> dict[str, object]:
    """Clean two copies of a log, the first to warm up."""
    directories = [copied(source, place / name) for name in ("warm-up", "measured")]
    if apache:
        return clean_by_apache(directories)
    return [asyncio.run(clean(directory)) for directory in directories][-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("fill", "clean", "both"), nargs="?", default="both")
    parser.add_argument("directory", type=Path, nargs="?", help="for `both` a temporary one")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--record-bytes", type=int, default=1024)
    parser.add_argument("--batch-bytes", type=int, default=16384)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--apache", action="store_true", help="by Apache Kafka's cleaner")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="aiokq-compaction-", dir=options.directory and options.directory.parent
    ) as temporary:
        place = Path(temporary)
        directory: Path = options.directory or place / "log"
        if options.action != "clean":
            codec = codec_id(options.codec)
            fill(directory, options.megabytes, options.record_bytes, options.batch_bytes, codec)
        if options.action != "fill":
            print(json.dumps(measure(directory, place, apache=options.apache)))


if __name__ == "__main__":
    main()
