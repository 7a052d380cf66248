"""Runs `benchmarks.raw_load` on a server, from the core that is the load's."""

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
    """What one action came to.

    Attributes:
        megabytes: a second, of batches.
        cpu: seconds of the broker per GB.
        load_busy: share of the time that the load itself was on its core; at 1 it is the limit.
    """

    megabytes: float
    cpu: float
    load_busy: float

    @classmethod
    def median(cls, rates: Sequence[Rate]) -> Rate:
        """Each figure by itself."""
        return cls(*(statistics.median(values) for values in zip(*rates, strict=True)))


def raw_load(
    server: Server,
    *actions: str,
    topic: str,
    megabytes: int,
    record_bytes: int = 1024,
    partitions: int = 4,
) -> dict[str, Rate]:
    """Each action that measures something, in the order given.

    Raises:
        RuntimeError: the broker refused; its words.
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
