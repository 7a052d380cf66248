"""`python -m benchmarks.resets`: time and memory of many resets of an embedded cluster.

Before each reset five topics are created. Only `reset()` is timed, also as CPU time of the process,
which does not depend on the load of the machine. The cluster has no directory, as in the tests of
an application.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from pathlib import Path

from aiokq.broker.embedded import EmbeddedCluster

TOPICS = 5
PAGE_KB = 4


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_KB / 1024


async def measure(resets: int, step: int) -> None:
    print("resets  median ms  CPU ms  99 % ms  longest ms  memory MB")
    async with EmbeddedCluster() as kafka:
        await asyncio.sleep(3)  # deferred imports
        times: list[float] = []
        cpu: list[float] = []
        for number in range(1, resets + 1):
            for topic in range(TOPICS):
                await kafka.create_topic(f"t{topic}")
            began, used = time.perf_counter(), time.process_time()
            await kafka.reset()
            times.append(1000 * (time.perf_counter() - began))
            cpu.append(1000 * (time.process_time() - used))
            if number % step == 0:
                gc.collect()
                times.sort()
                late = times[int(len(times) * 0.99)]
                print(
                    f"{number:6d}  {statistics.median(times):9.2f}"
                    f"  {statistics.median(cpu):6.2f}  {late:7.2f}  {times[-1]:10.1f}"
                    f"  {resident_mb():9.1f}",
                    flush=True,
                )
                times, cpu = [], []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resets", description=__doc__)
    parser.add_argument("--resets", type=int, default=10_000)
    parser.add_argument("--step", type=int, default=1_000)
    options = parser.parse_args()
    asyncio.run(measure(options.resets, options.step))


if __name__ == "__main__":
    main()
