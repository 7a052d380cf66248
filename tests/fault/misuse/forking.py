"""A program that forks while it has clients or an embedded broker.

`python -m tests.fault.misuse.forking client|embedded SERVERS SEED` prints a JSON list of
complaints. A child exits at once, after a garbage collection, or after running its finalizers as
`multiprocessing` does.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import aiokq
from aiokq import KafkaError

TOPIC = "forked"
CHILD_WITHIN = 30.0

complaints: list[str] = []


async def main(what: str, servers: str, random: Random) -> None:
    if what == "client":
        await of_clients(servers, random)
    else:
        await of_an_embedded_broker(random)


async def of_clients(servers: str, random: Random) -> None:
    try:
        cluster = aiokq.Cluster(servers, bootstrap_timeout_ms=30_000, request_timeout_ms=3000)
        await cluster.start()
    except KafkaError:  # faults of the round may make this call fail
        return
    producer = cluster.producer(delivery_timeout_ms=40_000)
    await producer.start()
    deliveries = [await producer.enqueue(TOPIC, b"%d" % n) for n in range(20)]
    for _ in range(random.randint(1, 3)):
        await child(random, lambda: uses(producer))
        deliveries += [await producer.enqueue(TOPIC, b"%d" % n) for n in range(20)]
    for delivery in deliveries:
        try:
            await delivery
        except KafkaError:
            pass  # a documented error, in time, is allowed
    await producer.close()
    await cluster.close()


async def uses(producer: aiokq.Producer[Any, Any]) -> None:
    """Exit with code 3 unless the producer rejects a call in the child."""
    try:
        producer.send_nowait(TOPIC, b"child")
    except (KafkaError, RuntimeError):
        pass
    else:
        os._exit(3)


async def of_an_embedded_broker(random: Random) -> None:
    kafka = aiokq.EmbeddedCluster()
    async with kafka:
        async with aiokq.Producer(kafka.bootstrap_servers) as producer:
            placed = [await producer.send(TOPIC, b"%d" % n) for n in range(10)]
            for _ in range(random.randint(1, 3)):
                await child(random, lambda: uses(producer))
            placed += [await producer.send(TOPIC, b"%d" % n) for n in range(10, 20)]
        found: list[bytes | None] = []
        async with aiokq.Cluster(kafka.bootstrap_servers) as cluster:
            async for batch in cluster.read((TOPIC, 0), "earliest", "latest"):
                found += [record.value for record in batch]
        if found != [b"%d" % n for n in range(20)]:
            complaints.append(f"{len(placed)} records acknowledged, {len(found)} in the log")
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topics("after", raise_errors=True)  # the directory exists


async def child(random: Random, use: Callable[[], Awaitable[None]]) -> None:
    """Fork; the child runs `use` and exits in one of three ways. Wait for its exit."""
    way = random.choice(["at once", "finalizers", "collection"])
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 4
        try:
            # The child cannot run its parent's loop, so `use` runs to its first await only.
            coro = use()
            try:
                coro.send(None)  # type: ignore[attr-defined]
            except StopIteration:
                pass
            if way != "at once":
                gc.collect()
            if way == "finalizers":
                atexit._run_exitfuncs()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    deadline = time.monotonic() + CHILD_WITHIN
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  does not block
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)  # noqa: ASYNC222  already killed
            complaints.append(f"a child did not end ({way})")
            return
        await asyncio.sleep(0.02)
    if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
        meaning = {3: "used its parent's producer", 4: "raised"}.get(os.WEXITSTATUS(status), "")
        complaints.append(f"a child ended with {status} ({way}) {meaning}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Random(int(sys.argv[3]))))
    print(json.dumps(complaints))
