"""CPU time of group requests in the broker's own code: `python -m benchmarks.micro.groups`.

There is no socket and no disk: frames go directly to the dispatcher, logs are ephemeral files.
Rows: offset commits, heartbeats of both protocols, and whole joins of a new group (two JoinGroups
and a SyncGroup). Microseconds per request; for joins, per group.

`--against DIR` also measures the package in another directory (a checkout with its compiled core),
interleaved, and shows the difference.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from aiokq import wire
from aiokq.broker.config.settings import broker_settings
from aiokq.broker.node import BrokerNode
from aiokq.connection.request_context import RequestContext
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Environment
from aiokq.core.ephemeral_files import EphemeralFiles
from aiokq.core.offload import InlineOffload
from aiokq.wire.codec import encode_prefixed
from aiokq.wire.consumer_protocol import ConsumerProtocolSubscription

REQUESTS: Final = 3000
JOINS: Final = 100
ROUNDS: Final = 5
PROCESSES: Final = 10
TIMEOUT_MS: Final = 30_000

T = TypeVar("T")


def frame(request: Any, version: int) -> bytes:
    """Return a request without its size prefix."""
    parts = wire.encode_request(request, version=version, correlation_id=1, client_id="bench")
    return b"".join(cast("list[bytes]", parts))[4:]


class Bench:
    """A broker without a listener, and the requests of one connection to it."""

    def __init__(self, directory: str) -> None:
        self._node = BrokerNode(
            broker_settings({}, profile="dev"),
            Environment(
                SystemClock(),
                random.Random(1),
                None,  # type: ignore[arg-type]  # opened, but not started: it has no listener
                EphemeralFiles(),
                InlineOffload(),
            ),
            data_dir=directory,
        )
        self._client = RequestContext(1, "127.0.0.1:1", "127.0.0.1", "PLAINTEXT")

    async def __aenter__(self) -> Bench:
        await self._node.open()
        topic = wire.CreatableTopic(name="t", num_partitions=4, replication_factor=1)
        await self.ask(wire.CreateTopicsRequest(topics=[topic]), 7)
        await self.ask(wire.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0), 4)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._node.close()

    async def send(self, request: bytes) -> Any:
        """Return the fragments of the response to a frame."""
        return await self._node.dispatcher.handle(self._client, memoryview(bytearray(request)))

    async def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request."""
        answer = b"".join(bytes(part) for part in await self.send(frame(request, version)))[4:]
        return wire.decode_response(type(request).RESPONSE, answer, version)[1]

    async def join(self, group: str) -> Any:
        """Create a group of one member with its assignment, and return the response to its join."""
        subscription = encode_prefixed(ConsumerProtocolSubscription(topics=["t"]), 1)
        request = wire.JoinGroupRequest(
            group_id=group,
            member_id="",
            session_timeout_ms=TIMEOUT_MS,
            rebalance_timeout_ms=TIMEOUT_MS,
            protocol_type="consumer",
            protocols=[wire.JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        request.member_id = (await self.ask(request, 9)).member_id
        joined = await self.ask(request, 9)
        synced = await self.ask(
            wire.SyncGroupRequest(
                group_id=group,
                member_id=joined.member_id,
                generation_id=joined.generation_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[
                    wire.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
                ],
            ),
            5,
        )
        assert synced.error_code == 0, synced
        return joined

    async def frames(self) -> dict[str, bytes]:
        """Return one request of each kind, of members that stay in their groups."""
        member = await self.join("classic")
        partition = wire.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        beat = wire.ConsumerGroupHeartbeatRequest(
            group_id="consumer",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        epoch = (await self.ask(beat, 1)).member_epoch
        return {
            "offset commit": frame(
                wire.OffsetCommitRequest(
                    group_id="classic",
                    member_id=member.member_id,
                    generation_id_or_member_epoch=member.generation_id,
                    topics=[wire.OffsetCommitRequestTopic(name="t", partitions=[partition])],
                ),
                9,
            ),
            "heartbeat, classic": frame(
                wire.HeartbeatRequest(
                    group_id="classic",
                    member_id=member.member_id,
                    generation_id=member.generation_id,
                ),
                4,
            ),
            "heartbeat, KIP-848": frame(
                wire.ConsumerGroupHeartbeatRequest(
                    group_id="consumer", member_id="m", member_epoch=epoch, rebalance_timeout_ms=-1
                ),
                1,
            ),
        }


async def cost(call: Callable[[T], Awaitable[Any]], arguments: Sequence[T]) -> float:
    """Return the CPU microseconds per call."""
    started = time.process_time()
    for argument in arguments:
        await call(argument)
    return (time.process_time() - started) / len(arguments) * 1e6


async def measure() -> dict[str, float]:
    """Return CPU microseconds by row, the least of the rounds."""
    costs: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        async with Bench(directory) as bench:
            frames = await bench.frames()
            gc.collect()
            gc.disable()
            for turn in range(ROUNDS):
                for name, data in frames.items():
                    spent = await cost(bench.send, [data] * REQUESTS)
                    costs.setdefault(name, []).append(spent)
                spent = await cost(bench.join, [f"{turn}-{n}" for n in range(JOINS)])
                costs.setdefault("join of a new group", []).append(spent)
                gc.collect()
    return {name: min(spent) for name, spent in costs.items()}


def in_process(directory: Path, benchmark: Path) -> dict[str, float]:
    """Measure the package in a directory by the rows of a benchmark, in a process of its own."""
    code = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1));"
        " runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory), str(benchmark), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=directory,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def compare(other: Path) -> None:
    """Measure both packages in turn, and print the medians."""
    mine = Path(__file__).resolve().parents[2]
    this = Path(__file__)
    runs = [(in_process(other, this), in_process(mine, this)) for _ in range(PROCESSES)]
    for name in runs[0][0]:
        before, after = (statistics.median(run[side][name] for run in runs) for side in (0, 1))
        print(f"{name:22} {before:7.1f} {after:7.1f} us  {after / before - 1:+.1%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--against", type=Path, help="a directory with another aiokq")
    given = parser.parse_args()
    if given.against is not None:
        compare(given.against.resolve())
    else:
        rows = asyncio.run(measure())
        if given.json:
            print(json.dumps(rows))
        else:
            for row, spent in rows.items():
                print(f"{row:22} {spent:7.1f} us")
