"""run(): runs client and broker together in one simulation, determined by its seed.

::

    async def main(world: Simulation) -> None:
        broker = BrokerNode(..., environment=world.environment("10.0.0.1"))
        ...

    trace = run(seed, main)
"""

from __future__ import annotations

import asyncio
import gc
import random as random_module
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from aiokq.core.environment import Environment
from aiokq.core.offload import InlineOffload
from tests.sim.harness.files import MemoryFiles, ProgramFiles
from tests.sim.harness.loop import SimClock, SimLoop
from tests.sim.harness.network import LOOPBACK, MemoryNetwork
from tests.sim.harness.trace import Trace

T = TypeVar("T")


class SimulationFailed(AssertionError):
    """A task or callback failed unnoticed; the message ends with the end of the trace."""


class Simulation:
    """The parts of one run: a loop, a network, and a disk and random sources for each machine.

    Random sources are derived from the seed by name: one more draw in the network does not
    change what the clients draw.
    """

    def __init__(self, seed: int, loop: SimLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = SimClock(loop)
        self.trace = Trace(loop.time)
        self.random = self.random_for("main")
        """The random source of the test itself."""
        self.network = MemoryNetwork(loop, self.random_for("network"), self.trace)
        self._disks: dict[str, MemoryFiles] = {}
        self._lives: dict[str, int] = {}

    def random_for(self, name: str) -> random_module.Random:
        """Return a random source that depends on the seed and `name` only."""
        return random_module.Random(f"{self.seed}/{name}")

    def disk(self, host: str = LOOPBACK) -> MemoryFiles:
        """Return a machine's disk, which outlives the programs there."""
        if host not in self._disks:
            self._disks[host] = MemoryFiles(now_ms=self.clock.timestamp_ms)
        return self._disks[host]

    def environment(self, host: str = LOOPBACK) -> Environment:
        """Return the environment of a new program on that machine."""
        life = self._lives[host] = self._lives.get(host, 0) + 1
        return Environment(
            clock=self.clock,
            random=self.random_for(f"{host}/{life}"),
            network=self.network.at(host),
            files=ProgramFiles(self.disk(host)),
            offload=InlineOffload(),
            secure_random=self.random_for(f"{host}/{life}/secure"),
        )

    def kill(self, host: str) -> None:
        """Kill all programs of a machine, as the network and the disk see it.

        Their tasks run until they are cancelled, without the network and the disk.
        """
        self.network.kill(host)
        self.disk(host).crash()

    def power_cut(self, host: str) -> None:
        """Cut a machine's power: a random part of its unsynced data is lost."""
        self.network.power_off(host)
        self.disk(host).power_cut(self.random)


class Outcome(Generic[T]):
    """The result of a run."""

    def __init__(self, value: T, trace: Trace, duration: float) -> None:
        self.value = value
        self.trace = trace
        self.duration = duration
        """Virtual seconds."""


def run(
    seed: int,
    main: Callable[[Simulation], Coroutine[Any, Any, T]],
    *,
    limit: float = 3600.0,
) -> Outcome[T]:
    """Run `main(world)` in virtual time until it ends.

    Args:
        limit: virtual seconds allowed.

    Raises:
        SimDeadlock, SimLivelock, SimTimeout: `main` does not end.
        SimulationFailed: `main` ended, but a task or callback failed unnoticed.
    """
    # The garbage collection below examines only the objects of this run, not those of earlier
    # tests.
    gc.freeze()
    loop = SimLoop(limit=limit)
    world = Simulation(seed, loop)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            value = runner.run(main(world))
        except BaseException as error:
            error.add_note(f"seed {seed}; the trace ends:\n{_tail(world.trace)}")
            raise
        duration = loop.time()
    gc.collect()  # a lost exception is reported when its task is garbage collected
    if loop.errors:
        first = loop.errors[0]
        cause = first.get("exception")
        raise SimulationFailed(
            f"seed {seed}: {len(loop.errors)} unseen failures, the first: {first['message']} "
            f"{cause!r}\n{_tail(world.trace)}"
        ) from cause
    return Outcome(value, world.trace, duration)


def _tail(trace: Trace, lines: int = 30) -> str:
    return "\n".join(map(str, trace.events[-lines:]))
