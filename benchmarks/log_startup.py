"""How fast a broker of many partitions accepts: `python -m benchmarks.log_startup`, a JSON line.

Owns one measurement: a data directory with partitions that each hold some records, closed clean or
killed, and an `aiokq broker` started on it. Ready means that each partition has a leader.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import aiokq

TOPIC: Final = "measured"
VALUE: Final = b"v" * 1000


class StartedBroker:
    """A broker process on a directory, and how long it took to accept."""

    def __init__(self, directory: str) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "aiokq", "broker", "--port", "0", "--json"]
            + ["--data-dir", directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.began = began
        self.seconds = time.perf_counter() - began
        self.bootstrap: str = json.loads(line)["bootstrap_servers"]

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def stop(self, number: int) -> float:
        """Seconds until it was gone."""
        began = time.perf_counter()
        self.process.send_signal(number)
        self.process.wait(120)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return time.perf_counter() - began


async def fill(bootstrap: str, partitions: int, records: int) -> None:
    async with aiokq.Admin(bootstrap) as admin:
        await admin.create_topics(TOPIC, num_partitions=partitions, raise_errors=True)
    async with aiokq.Producer(bootstrap) as producer:
        for partition in range(partitions):
            for _ in range(records):
                await producer.enqueue(TOPIC, VALUE, partition=partition)
        await producer.flush()


async def until_led(bootstrap: str, partitions: int) -> None:
    """Wait until a leader is told for each partition."""
    async with aiokq.Cluster(bootstrap) as cluster:
        while True:
            known = (await cluster.refresh(TOPIC)).topics.get(TOPIC)
            if known is not None and len(known.partitions) == partitions and not known.leaderless:
                return
            await asyncio.sleep(0.01)


def measure(partitions: int, records: int, rounds: int, clean: bool) -> dict[str, object]:
    """Medians of several starts on one directory."""
    accepted, ready, stopped, resident = [], [], [], []
    number = signal.SIGTERM if clean else signal.SIGKILL
    with tempfile.TemporaryDirectory(prefix="aiokq-startup-") as directory:
        for round_number in range(rounds + 1):
            broker = StartedBroker(directory)
            try:
                if round_number == 0:
                    asyncio.run(fill(broker.bootstrap, partitions, records))
                else:
                    asyncio.run(until_led(broker.bootstrap, partitions))
                    ready.append(time.perf_counter() - broker.began)
                    accepted.append(broker.seconds)
                    resident.append(broker.resident_bytes)
            finally:
                stopped.append(broker.stop(number))
    return {
        "partitions": partitions,
        "clean": clean,
        "accepts_seconds": statistics.median(accepted),
        "ready_seconds": statistics.median(ready),
        "stop_seconds": statistics.median(stopped),
        "resident_bytes": statistics.median(resident),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--records", type=int, default=10, help="in each partition")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--killed", action="store_true", help="not after a clean stop")
    options = parser.parse_args()
    print(
        json.dumps(measure(options.partitions, options.records, options.rounds, not options.killed))
    )


if __name__ == "__main__":
    main()
