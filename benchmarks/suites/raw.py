"""Runs `benchmarks.raw_load` on a server, from the core of the clients."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.rounds import CLIENT_CORE, bind_to_core
from benchmarks.servers import Server


class Rate(NamedTuple):
    """The result of one action.

    Attributes:
        megabytes: megabytes of batches per second.
        cpu: CPU seconds of the broker per GB.
        load_busy: fraction of the time that the load used its core; at 1 the load is the limit.
    """

    megabytes: float
    cpu: float
    load_busy: float

    @classmethod
    def median(cls, rates: Sequence[Rate]) -> Rate:
        """Return the median of each figure."""
        return cls(*(statistics.median(values) for values in zip(*rates, strict=True)))


def raw_load(
    server: Server,
    *actions: str,
    topic: str,
    megabytes: int,
    record_bytes: int = 1024,
    partitions: int = 4,
) -> dict[str, Rate]:
    """Return the rate of each measured action, in the order given.

    Raises:
        RuntimeError: the load failed, for example because the broker returned an error; the message
            is what the load wrote to stderr.
    """
    command = [sys.executable, "-m", "benchmarks.raw_load", *actions]
    command += ["--bootstrap", server.bootstrap, "--pid", str(server.pid)]
    command += ["--directory", server.directory, "--topic", topic, "--megabytes", str(megabytes)]
    command += ["--record-bytes", str(record_bytes), "--partitions", str(partitions)]
    done = subprocess.run(
        command, capture_output=True, text=True, preexec_fn=bind_to_core(CLIENT_CORE)
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    measured: dict[str, dict[str, float]] = json.loads(done.stdout)
    return {
        action: Rate(
            found["bytes"] / 1e6 / found["seconds"],
            found["broker_cpu_seconds"] / (found["bytes"] / 1e9),
            found["load_cpu_seconds"] / found["seconds"],
        )
        for action, found in measured.items()
    }
