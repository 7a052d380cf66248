"""run(): one seed, one run of client and broker together; owns the world, not what is in it.

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
    """A task or callback failed unseen; the message has the end of the trace."""


class Simulation:
    """The world of one run: a loop, a network, and per machine a disk and a random source.

    Random sources are derived from the seed by name: one more draw in the network does not
    change what the clients draw.
    """

    def __init__(self, seed: int, loop: SimLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.clock = SimClock(loop)
        self.trace = Trace(loop.time)
        self.random = self.random_for("main")
        """For the test itself: when to cut what."""
        self.network = MemoryNetwork(loop, self.random_for("network"), self.trace)
        self._disks: dict[str, MemoryFiles] = {}
        self._lives: dict[str, int] = {}

    def random_for(self, name: str) -> random_module.Random:
        """A source of its own; equal for equal seed and name."""
        return random_module.Random(f"{self.seed}/{name}")

    def disk(self, host: str = LOOPBACK) -> MemoryFiles:
        """A machine's disk; it outlives the programs there."""
        if host not in self._disks:
            self._disks[host] = MemoryFiles(now_ms=self.clock.timestamp_ms)
        return self._disks[host]

    def environment(self, host: str = LOOPBACK) -> Environment:
        """What a program on that machine is handed; each call is one more program."""
        life = self._lives[host] = self._lives.get(host, 0) + 1
        return Environment(
            clock=self.clock,
            random=self.random_for(f"{host}/{life}"),
            network=self.network.at(host),
            files=ProgramFiles(self.disk(host)),
            offload=InlineOffload(),
        )

    def kill(self, host: str) -> None:
        """SIGKILL for all programs of a machine, as the network and the disk see it.

        Their tasks go on until they are cancelled, cut off from the network and the disk.
        """
        self.network.kill(host)
        self.disk(host).crash()

    def power_cut(self, host: str) -> None:
        """The same for the machine: what it did not sync is lost, in part, by chance."""
        self.network.power_off(host)
        self.disk(host).power_cut(self.random)


class Outcome(Generic[T]):
    """What a run came to."""

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
    """Runs `main(world)` to its end in virtual time.

    Args:
        limit: virtual seconds allowed.

    Raises:
        SimDeadlock, SimLivelock, SimTimeout: it does not end.
        SimulationFailed: it ended well, but something failed unseen.
    """
    # The collection below looks at what this run has made, not at the heap of thousands of tests.
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
    gc.collect()  # a lost exception is reported when its task is collected
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
