"""Faults of the broker's process, its limits, its disk and its network, one coroutine per kind."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from tests.fault.misuse.hostile import connections
from tests.fault.misuse.world import World

Fault = Callable[[World, Random, float], Awaitable[None]]
"""Called with the round, the source of all further random choices, and the duration in seconds."""


async def kill(world: World, random: Random, lasts: float) -> None:
    """SIGKILL, and a restart after a while."""
    async with world.broker.busy:
        await world.broker.restart(signal.SIGKILL, lasts / 2)


async def restart(world: World, random: Random, lasts: float) -> None:
    """SIGTERM, and a restart after a while."""
    async with world.broker.busy:
        await world.broker.restart(signal.SIGTERM, lasts / 2)


async def pause(world: World, random: Random, lasts: float) -> None:
    """SIGSTOP: connections stay open and requests get no response."""
    async with world.broker.busy:
        world.broker.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts)
        finally:
            world.broker.signal(signal.SIGCONT)


async def descriptors(world: World, random: Random, lasts: float) -> None:
    """Limit the broker to few descriptors and open connections, often more than that."""
    async with world.broker.busy:
        limit = random.choice([64, 96, 128, 256])
        world.broker.explained.add("descriptors")
        world.broker.limit(resource.RLIMIT_NOFILE, limit)
        try:
            async with connections(world, random.randint(limit // 2, limit * 2)):
                await asyncio.sleep(lasts)
        finally:
            world.broker.limit(resource.RLIMIT_NOFILE, None)


async def disk_full(world: World, random: Random, lasts: float) -> None:
    """Fill the disk of the second log directory; free space again and restart the broker."""
    broker = world.broker
    if not broker.disk.mounted:
        world.counts["disk_full left out: this process may not mount"] += 1
        return
    async with broker.busy:
        broker.explained.add("disk_full")
        await asyncio.to_thread(broker.disk.fill, random.choice([0, 4096, 100_000, 1_000_000]))
        try:
            await asyncio.sleep(lasts)
        finally:
            broker.disk.free()
        await broker.restart(random.choice([signal.SIGTERM, signal.SIGKILL]))


async def file_size(world: World, random: Random, lasts: float) -> None:
    """Limit the size of files, so that all log directories fail; the broker may exit."""
    broker = world.broker
    async with broker.busy:
        broker.explained.add("file_size")
        with ending(world):
            broker.limit(resource.RLIMIT_FSIZE, random.choice([1000, 100_000, 900_000]))
            try:
                await asyncio.sleep(lasts)
            finally:
                broker.limit(resource.RLIMIT_FSIZE, None)
            await broker.restart(random.choice([signal.SIGTERM, signal.SIGKILL]))


async def memory(world: World, random: Random, lasts: float) -> None:
    """Make allocations fail. The broker may exit or stop working, so it is killed afterwards.

    What it had acknowledged must still be there, and what it wrote must be sound.
    """
    broker = world.broker
    async with broker.busy:
        broker.explained.add("memory")
        with ending(world):
            if broker.alive:
                room = random.choice([0, 1, 8, 32]) * 1024 * 1024
                broker.limit(resource.RLIMIT_AS, broker.address_space() + room)
                await asyncio.sleep(lasts)
            await broker.restart(signal.SIGKILL)


@contextlib.contextmanager
def ending(world: World) -> Iterator[None]:
    """Allow the broker to exit while the block runs."""
    world.broker.may_end = True
    try:
        yield
    finally:
        world.broker.may_end = False


# The network


async def cut(world: World, random: Random, lasts: float) -> None:
    """Reset all connections, up to five times."""
    assert world.proxy is not None
    for _ in range(random.randint(1, 5)):
        world.proxy.cut()
        await asyncio.sleep(lasts / 5)


async def mid_frame(world: World, random: Random, lasts: float) -> None:
    """Cut a connection after some more bytes in one direction."""
    assert world.proxy is not None
    for _ in range(random.randint(1, 5)):
        direction = random.choice([world.proxy.to_server, world.proxy.to_client])
        direction.limit = direction.passed + random.choice([1, 10, 1000, random.randint(1, 60_000)])
        await asyncio.sleep(lasts / 5)
        direction.limit = None


async def delay(world: World, random: Random, lasts: float) -> None:
    """Delay every piece of data."""
    assert world.proxy is not None
    direction = random.choice([world.proxy.to_server, world.proxy.to_client])
    direction.delay = random.choice([0.01, 0.1, 0.7])
    try:
        await asyncio.sleep(lasts)
    finally:
        direction.delay = 0.0


async def trickle(world: World, random: Random, lasts: float) -> None:
    """Pass on a few bytes at a time."""
    assert world.proxy is not None
    direction = random.choice([world.proxy.to_server, world.proxy.to_client])
    direction.piece = random.choice([1, 7, 100])
    try:
        await asyncio.sleep(min(lasts, 1.0))
    finally:
        direction.piece = 0


async def half_open(world: World, random: Random, lasts: float) -> None:
    """Close the broker's side of all connections without telling the clients."""
    assert world.proxy is not None
    world.proxy.half_open()


async def stall(world: World, random: Random, lasts: float) -> None:
    """Pass nothing on and close nothing."""
    assert world.proxy is not None
    world.proxy.stall()
    try:
        await asyncio.sleep(lasts)
    finally:
        world.proxy.resume()


async def refuse(world: World, random: Random, lasts: float) -> None:
    """Reset all connections and refuse new ones."""
    assert world.proxy is not None
    world.proxy.refusing = True
    world.proxy.cut()
    try:
        await asyncio.sleep(lasts)
    finally:
        world.proxy.refusing = False


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        *(kill, restart, pause, descriptors, disk_full, file_size, memory),
        *(cut, mid_frame, delay, trickle, half_open, stall, refuse),
    )
}
