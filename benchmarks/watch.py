"""The cost of one action: wall time, and the CPU time of the broker and of the load."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

_CPU_CLOCK: Final = 2
"""`CPUCLOCK_SCHED` of Linux: nanoseconds of all threads of a process, dead ones included."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far, user and system."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)  # the id that clock_getcpuclockid(3) returns


def peak_bytes() -> int:
    """Return this process's peak memory; `getrusage` returns the parent's if that was larger."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


class Watch:
    """A stopwatch that may be stopped and started again.

    Args:
        pid: the broker's process, if its CPU time is wanted.

    Attributes:
        bytes: bytes of batches, counted by the user of the watch.
        records: records, counted by the user of the watch.
    """

    def __init__(self, pid: int | None = None) -> None:
        self.bytes = self.records = 0
        self._pid = pid
        self._seconds = self._own = self._broker = 0.0

    def __enter__(self) -> None:
        self._note(-1)

    def __exit__(self, *_: object) -> None:
        self._note(1)

    def figures(self) -> dict[str, float]:
        """Return the measurements, for JSON."""
        return {
            "bytes": self.bytes,
            "records": self.records,
            "seconds": self._seconds,
            "load_cpu_seconds": self._own,
            "broker_cpu_seconds": self._broker,
        }

    def _note(self, sign: int) -> None:
        self._seconds += sign * time.perf_counter()
        self._own += sign * time.process_time()
        if self._pid is not None:
            self._broker += sign * cpu_seconds(self._pid)
