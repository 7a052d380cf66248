"""How fast a log is made sound after a kill: `python -m benchmarks.log_recovery`, one JSON line.

Owns one measurement: a log of 1 KB records in batches of one size, left as a kill leaves it (no
index of the newest segment, no recovery point), opened again. Its bytes are in the page cache, so
that the broker is measured, not the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from aiokq.broker.log.config import LogConfig
from aiokq.broker.log.disk_trouble import DiskTrouble
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.recovery import open_log
from aiokq.core.files import OsFiles
from aiokq.core.types import TopicPartition
from aiokq.fastpath import COMPILED, crc32c
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch
from tests.peers.apache_kafka import LIBS, ROOT

RECORD_BYTES: Final = 1024
NOW_MS: Final = 1_700_000_000_000
TICK_SECONDS: Final = 0.001
READ_LOG: Final = ROOT / "tests" / "interop" / "kafka" / "ReadLog.java"
PARTITION: Final = TopicPartition("measured", 0)


def open_measured(directory: str, *, clean: bool) -> PartitionLog:
    """The log in a directory."""
    return open_log(
        OsFiles(),
        directory,
        PARTITION,
        config=LogConfig(),
        crc32c=crc32c,
        now_ms=NOW_MS,
        disk=DiskTrouble(time.monotonic),
        open_files=OpenFiles(),
        clean=clean,
    )


def fill(log: PartitionLog, megabytes: int, batch_bytes: int) -> int:
    """Append batches of about this size; how many bytes that were."""
    value = bytes(RECORD_BYTES - 20)
    count = max(batch_bytes // RECORD_BYTES, 1)
    data = memoryview(
        encode_batch(
            [RawRecord(number, NOW_MS + number, None, value) for number in range(count)],
            crc32c=crc32c,
        )
    )
    headers = list(iter_headers(data))
    batches = megabytes * 1_000_000 // len(data)
    for _ in range(batches):
        log.append(data, headers, leader_epoch=0, now_ms=NOW_MS)
    return batches * len(data)


async def recover(directory: str) -> tuple[PartitionLog, float]:
    """Recover off the loop, as a node does, while the loop is busy; how long it stood still."""
    longest = 0.0
    recovery = asyncio.get_running_loop().run_in_executor(
        None, lambda: open_measured(directory, clean=False)
    )
    while not recovery.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.perf_counter() - began - TICK_SECONDS)
    return await recovery, longest


def by_kafka(directory: str) -> float:
    """Seconds that Apache Kafka's own log takes to recover; the JVM's start is not counted."""
    command = ["java", "-Xmx1G", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["-cp", f"{LIBS}/*", str(READ_LOG), directory, "killed", str(2**30), "4096"]
    done = subprocess.run(
        [*command, str(NOW_MS)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return next(float(line.split()[1]) for line in done if line.startswith("seconds "))


def measure(
    megabytes: int, batch_bytes: int, parent: Path | None = None, *, kafka: bool = False
) -> dict[str, object]:
    """One recovery."""
    root = tempfile.mkdtemp(prefix="aiokq-recovery-", dir=parent)
    directory = f"{root}/measured-0"
    kafka_seconds = None
    try:
        log = open_measured(directory, clean=True)
        size = fill(log, megabytes, batch_bytes)
        end = log.log_end_offset
        log.close(clean=False)
        before, began = time.process_time(), time.perf_counter()
        log = open_measured(directory, clean=False)
        seconds, cpu = time.perf_counter() - began, time.process_time() - before
        if log.log_end_offset != end:
            raise RuntimeError(f"recovered {log.log_end_offset} of {end} records")
        log.close(clean=False)
        log, stall = asyncio.run(recover(directory))
        log.close(clean=False)
        if kafka:
            kafka_seconds = by_kafka(directory)
    finally:
        shutil.rmtree(root)
    return {
        "compiled": COMPILED,
        "bytes": size,
        "batch_bytes": batch_bytes,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "gigabytes_per_second": size / 1e9 / seconds,
        "longest_stall_seconds": stall,
        "kafka_gigabytes_per_second": kafka_seconds and size / 1e9 / kafka_seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--batch-bytes", type=int, default=65536)
    parser.add_argument("--directory", type=Path, help="where to write; default: the system's")
    parser.add_argument("--kafka", action="store_true", help="recover it by Apache Kafka, too")
    options = parser.parse_args()
    figures = measure(
        options.megabytes, options.batch_bytes, options.directory, kafka=options.kafka
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
