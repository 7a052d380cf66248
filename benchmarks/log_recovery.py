"""Time of a log's recovery after a kill: `python -m benchmarks.log_recovery`, JSON lines.

A log of 1 KB records in batches of one size is opened as after a kill, without indexes and recovery
point. Its bytes are in the page cache, so that the broker is measured, not the disk. `fill DIR`
only writes the log, `recover DIR` only recovers it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from benchmarks.watch import peak_bytes
from tests.peers.apache_kafka import ROOT, java_command

RECORD_BYTES: Final = 1024
NOW_MS: Final = 1_700_000_000_000
TICK_SECONDS: Final = 0.001
READ_LOG: Final = ROOT / "tests" / "interop" / "kafka" / "ReadLog.java"
PARTITION: Final = TopicPartition("measured", 0)


def open_measured(directory: str, *, clean: bool) -> PartitionLog:
    """Return the log in a directory."""
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


def fill(log: PartitionLog, megabytes: int, batch_bytes: int) -> None:
    """Append batches of about this size."""
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


async def recover(directory: str) -> tuple[PartitionLog, float]:
    """Recover off the loop, as a node does; return the log and how long the loop was blocked."""
    longest = 0.0
    recovery = asyncio.get_running_loop().run_in_executor(
        None, lambda: open_measured(directory, clean=False)
    )
    while not recovery.done():
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.perf_counter() - began - TICK_SECONDS)
    return await recovery, longest


def forget_indexes(directory: Path) -> None:
    """Delete the indexes and producer snapshots of a log, as after the worst kill."""
    for suffix in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for path in directory.glob(suffix):
            path.unlink()


def by_aiokq(directory: Path, records: int) -> dict[str, float]:
    """Measure one recovery, and another while the loop runs a timer every millisecond."""
    forget_indexes(directory)
    before, began = time.process_time(), time.perf_counter()
    log = open_measured(str(directory), clean=False)
    seconds, cpu = time.perf_counter() - began, time.process_time() - before
    if records not in (0, log.log_end_offset):
        raise RuntimeError(f"recovered {log.log_end_offset} of {records} records")
    size = log.size_bytes
    log.close(clean=False)
    forget_indexes(directory)
    log, stall = asyncio.run(recover(str(directory)))
    log.close(clean=False)
    return {
        "compiled": COMPILED,
        "bytes": size,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "gigabytes_per_second": size / 1e9 / seconds,
        "longest_stall_seconds": stall,
        "peak_bytes": peak_bytes(),
    }


def by_apache(directory: Path) -> dict[str, float]:
    """Measure a recovery by Apache Kafka's log class, in a JVM whose start is not counted."""
    forget_indexes(directory)
    size = sum(path.stat().st_size for path in directory.glob("*.log"))
    command = java_command(
        str(READ_LOG),
        *(str(directory), "killed", str(2**30), "4096", str(NOW_MS)),
        heap="1G",
        optimised=True,
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    seconds = next(float(line.split()[1]) for line in done if line.startswith("seconds "))
    return {"bytes": size, "seconds": seconds, "gigabytes_per_second": size / 1e9 / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("fill", "recover", "both"), nargs="?", default="both")
    parser.add_argument("directory", type=Path, nargs="?", help="for `both` a temporary one")
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--batch-bytes", type=int, default=65536)
    parser.add_argument("--apache", action="store_true", help="recover it by Apache Kafka's log")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aiokq-recovery-") as place:
        directory: Path = options.directory or Path(place) / f"{PARTITION.topic}-0"
        records = 0
        if options.action != "recover":
            log = open_measured(str(directory), clean=True)
            fill(log, options.megabytes, options.batch_bytes)
            records = log.log_end_offset
            log.close(clean=False)
        if options.action != "fill":
            if options.apache:
                print(json.dumps(by_apache(directory)))
            else:
                print(json.dumps(by_aiokq(directory, records)))


if __name__ == "__main__":
    main()
