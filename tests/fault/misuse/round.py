"""One round: `python -m tests.fault.misuse.round SEED DIR` runs the plan of a seed and judges it.

Phases: the load with its faults; the end of the faults; the broker is healthy again and every group
reads everything; the clients are gone, the broker is inspected and stopped, and its log verified.
The result is written to `DIR/result.json`. Exit code 0: no violation.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import faulthandler
import gc
import json
import logging
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import uvloop

import aiokq
from aiokq import KafkaError
from tests.fault.misuse import foreign
from tests.fault.misuse.broker import BrokerUnderTest
from tests.fault.misuse.checked import condemned
from tests.fault.misuse.checker import Aftermath, Violation, check, unread
from tests.fault.misuse.clients import MISUSE, Mistake, NotStarted
from tests.fault.misuse.consumers import LoadGroup
from tests.fault.misuse.faults import FAULTS
from tests.fault.misuse.history import Commit, State
from tests.fault.misuse.hostile import HOSTILE
from tests.fault.misuse.plan import KINDS, TOPICS, Action, Plan, make_plan
from tests.fault.misuse.producers import LoadProducer
from tests.fault.misuse.world import HANG, World
from tests.fault.proxy import FaultProxy
from tests.fault.support import open_sockets
from tests.peers.ports import free_ports

UNREAD = "in the log, and not read by a group though nothing is in its way"
UNHEALTHY = "the broker did not serve again after the faults"
NOISE = "an error that nobody caught, or logged as one, in the clients' process"

HEALTHY_WITHIN = 60.0
"""Seconds after the last fault within which a call must succeed."""
PROGRESS_WITHIN = 90.0
"""Seconds within which the groups must have read something while any of them has lag."""
QUIET_WITHIN = 30.0
"""Seconds after the last client within which the broker must have closed its connections."""
HARD_LIMIT = 900.0
"""Seconds after which a round ends itself and prints the stacks of its threads."""

ACTIONS = {**FAULTS, **HOSTILE, **MISUSE}


class Noise(logging.Handler):
    """Collects what the clients log with tracebacks, and all errors that asyncio logs.

    Errors of a program's own callbacks are left out. So are ERROR lines of clients without a
    traceback, of records that could not be delivered: they are part of a client's job.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Mistake) or (error is None and record.name != "asyncio"):
            return
        trace = "" if error is None else "".join(traceback.format_exception(error))[-1500:]
        self.lines.append(f"{record.name}: {record.getMessage()} {trace}")


async def run_round(plan: Plan, root: Path) -> tuple[World, list[Violation]]:
    """Run a round; return its world and the violations."""
    loop = asyncio.get_running_loop()
    # Threads of confluent-kafka's clients must not delay starts and stops of the broker.
    loop.set_default_executor(ThreadPoolExecutor(32))
    noise = Noise()
    logging.getLogger("aiokq").addHandler(noise)
    logging.getLogger("asyncio").addHandler(noise)
    [port] = free_ports(1)
    after = Aftermath()
    async with contextlib.AsyncExitStack() as stack:
        proxy = None
        if plan.proxied:
            proxy = await stack.enter_async_context(FaultProxy("127.0.0.1", port))
        advertised = port if proxy is None else proxy.port
        broker = BrokerUnderTest(root, port, advertised, plan.broker_settings)
        stack.callback(broker.disk.unmount)
        await asyncio.to_thread(broker.start)
        stack.push_async_callback(asyncio.to_thread, _killed, broker)
        world = World(plan, root, broker, proxy)
        watching = [
            stack.enter_context(_running(world.note_delays())),
            stack.enter_context(_running(broker.watch())),
        ]
        loop.set_exception_handler(
            lambda _, what: world.history.complain(
                NOISE, f"{what.get('message')} {what.get('exception')!r}"
            )
        )
        after.sockets = (broker.sockets(), 0)
        after.memory = (broker.memory(), 0)
        await _topics(world)
        gc.collect()
        sockets = open_sockets()
        await _clients(world, after)
        left = asyncio.all_tasks() - {asyncio.current_task(), *watching}
        after.tasks = [f"{task!r}" for task in left if not _of_proxy(task)]
        gc.collect()
        await asyncio.sleep(0.1)
        after.client_sockets = (sockets, open_sockets())
        await _settle(world, after)
        async with broker.busy:
            await asyncio.to_thread(_stopped, broker)
        world.phase("the broker is stopped")
        after.exits = list(broker.exits)
        after.log_lines = broker.complaints()
        after.damage = await asyncio.to_thread(broker.damage)
        world.phase("its log is verified")
        for line in noise.lines:
            world.history.complain(NOISE, line)
        violations = check(world.history, after) + condemned(world.history, after)
        world.phase("all is judged")
        if violations:
            await asyncio.to_thread(_keep, broker, root)
    return world, violations


@contextlib.contextmanager
def _running(coro: Coroutine[Any, Any, None]) -> Any:
    task = asyncio.get_running_loop().create_task(coro)
    try:
        yield task
    finally:
        task.cancel()


def _of_proxy(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.endswith(("proxy.py", "streams.py"))


def _killed(broker: BrokerUnderTest) -> None:
    if broker.alive:
        broker.end(signal.SIGKILL)


def _stopped(broker: BrokerUnderTest) -> None:
    broker.signal(signal.SIGCONT)
    code = broker.end(signal.SIGTERM)
    if code != 0:
        broker.exits.append(f"SIGTERM at the end: exit code {code}")


def _keep(broker: BrokerUnderTest, root: Path) -> None:
    """Copy the files of the small disk, which are lost when it is unmounted."""
    import shutil

    if broker.disk.mounted:
        shutil.copytree(broker.disk.path, root / "disk-copy", dirs_exist_ok=True)


async def _topics(world: World) -> None:
    async with aiokq.Admin(f"127.0.0.1:{world.broker.port}") as admin:
        for name, partitions in TOPICS.items():
            await admin.create_topics(name, num_partitions=partitions, raise_errors=True)


async def _clients(world: World, after: Aftermath) -> None:
    """Run all that uses clients: the load, the faults, and reading to the end."""
    plan = world.plan
    groups = [
        foreign.consume(world, group)
        if group.style == "confluent"
        else LoadGroup(world, group).run()
        for group in plan.groups
    ]
    producers = [
        foreign.produce(world, producer)
        if producer.style == "confluent"
        else LoadProducer(world, producer).run()
        for producer in plan.producers
    ]
    loop = asyncio.get_running_loop()
    members = [loop.create_task(each) for each in groups]
    load = [loop.create_task(each) for each in producers]
    observing = loop.create_task(_observe(world))
    try:
        acting = [loop.create_task(_act(world, action)) for action in plan.actions]
        await asyncio.sleep(plan.seconds)
        world.load_over.set()
        world.phase("the load is over")
        await _ended(world, acting, "faults and misuse", 180)
        world.phase("faults and misuse are over")
        await _healed(world)
        world.phase("the broker is healthy")
        await _ended(world, load, "producers", 240)
        world.phase("producers are closed")
        await _read(world, after, members)
        world.phase("all is read")
    finally:
        world.load_over.set()
        world.finished.set()
        observing.cancel()
        await _ended(world, members, "groups", 180)
        await asyncio.gather(observing, return_exceptions=True)


async def _ended(
    world: World, tasks: Collection[asyncio.Task[None]], what: str, seconds: float
) -> None:
    """Wait for all tasks; an error is a violation, or a bug of this suite."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:
        world.history.complain(HANG, f"{what}: {task!r}")
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            world.unexpected(what, outcome)
            traceback.print_exception(outcome)


async def _act(world: World, action: Action) -> None:
    await asyncio.sleep(action.at)
    if world.load_over.is_set():
        return
    world.counts[action.kind] += 1
    start = world.now()
    try:
        await ACTIONS[action.kind](world, Random(action.seed), action.lasts)
    except asyncio.CancelledError:
        if asyncio.current_task().cancelling():  # type: ignore[union-attr]
            raise
        # a call exceeded its time, was cancelled, and has been recorded
    except NotStarted:
        world.counts[f"{action.kind}: no broker to start with"] += 1
    except Exception as error:
        world.unexpected(f"{action.kind} (seed {action.seed})", error)
        traceback.print_exception(error)
    world.phase(f"{action.kind}, which took {world.now() - start:.1f} s")


async def _observe(world: World) -> None:
    """Record the committed offsets of the groups repeatedly; missing responses are no violation."""
    groups = [group.name for group in world.plan.groups]
    settings: dict[str, Any] = {"request_timeout_ms": 2000, "default_api_timeout_ms": 3000}
    while True:
        try:
            async with aiokq.Admin(world.servers, bootstrap_timeout_ms=3000, **settings) as admin:
                while True:
                    for group, partition, offset in await _committed(admin, groups):
                        seen = Commit(group, partition, offset, world.now())
                        world.history.commits.append(seen)
                    await asyncio.sleep(0.3)
        except KafkaError:
            await asyncio.sleep(0.1)


async def _committed(
    admin: aiokq.Admin, groups: list[str]
) -> list[tuple[str, tuple[str, int], int]]:
    results = await admin.list_group_offsets(groups)
    return [
        (group, (tp.topic, tp.partition), stored.offset)
        for group, found in results.items()
        for tp, stored in found.offsets.items()
        if stored is not None
    ]


async def _healed(world: World) -> None:
    """Wait until a call of a new client succeeds and each partition has a leader."""
    broker = world.broker
    async with broker.busy:
        broker.signal(signal.SIGCONT)
    deadline = world.now() + HEALTHY_WITHIN
    error: BaseException | None = None
    while world.now() < deadline:
        try:
            async with aiokq.Admin(world.servers, bootstrap_timeout_ms=5000) as admin:
                found = await admin.describe_topics(list(TOPICS), timeout=5, raise_errors=True)
            leaders = [p.leader for topic in found.values() for p in topic.partitions]
            if all(leader >= 0 for leader in leaders):
                return
            error = None
        except KafkaError as now:
            error = now
        await asyncio.sleep(0.3)
    world.history.complain(UNHEALTHY, f"{error!r}")
    async with broker.busy:
        await broker.restart(signal.SIGKILL)


async def _read(world: World, after: Aftermath, members: Collection[asyncio.Task[None]]) -> None:
    """Read the whole log, and wait until every group has read it."""
    log: dict[tuple[str, int], dict[int, bytes]] = {}
    ends: dict[tuple[str, int], int] = {}
    async with aiokq.Cluster(world.servers, default_api_timeout_ms=60_000) as cluster:
        for topic, partitions in TOPICS.items():
            for number in range(partitions):
                records = log[topic, number] = {}
                async for batch in cluster.read((topic, number), "earliest", "latest"):
                    for record in batch:
                        assert record.value is not None
                        records[record.offset] = record.value
                end = await cluster.offsets((topic, number), "latest")
                assert end is not None
                ends[topic, number] = end.offset
    after.log, after.ends = log, ends
    topics = {group.name: set(group.topics) for group in world.plan.groups}
    left = sum(_behind(world, after, topics).values())
    moved = world.now()
    while left:
        await asyncio.sleep(0.3)
        behind = _behind(world, after, topics)
        now = sum(behind.values())
        if now != left:
            left, moved = now, world.now()
        elif world.now() - moved - world.history.held_up(moved, world.now()) > PROGRESS_WITHIN:
            for name, count in behind.items():
                if count:
                    missing = unread(world.history, name, after, topics[name])
                    world.history.complain(UNREAD, f"{name}: {count} records, {missing}")
            break
    world.finished.set()
    await _ended(world, members, "groups", 180)
    async with aiokq.Admin(world.servers) as admin:
        after.committed = {
            (group, partition): offset
            for group, partition, offset in await _committed(admin, list(topics))
        }


def _behind(world: World, after: Aftermath, topics: dict[str, set[str]]) -> dict[str, int]:
    return {
        name: sum(unread(world.history, name, after, wanted).values())
        for name, wanted in topics.items()
    }


async def _settle(world: World, after: Aftermath) -> None:
    """Wait until the broker has closed the connections of the clients that are gone."""
    deadline = world.now() + QUIET_WITHIN
    before = after.sockets[0]
    while world.broker.sockets() > before and world.now() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    after.sockets = (before, world.broker.sockets())
    after.memory = (after.memory[0], world.broker.memory())


def summary(world: World) -> dict[str, Any]:
    """Return the counts of the round for the report."""
    states = [sent.state for sent in world.history.sent.values()]
    return {
        "records": len(states),
        "states": {state.name.lower(): states.count(state) for state in State},
        "handed": sum(
            len(handed)
            for group in world.history.groups.values()
            for handed in group.handed.values()
        ),
        "commits": len({(c.group, c.partition, c.offset) for c in world.history.commits}),
        "broker_starts": world.broker.starts,
        "held_up": round(sum(lost for _, lost in world.history.delays), 1),
        "counts": dict(world.counts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.misuse.round")
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--without", default="", help="kinds left out, separated by commas")
    parser.add_argument("--only", default="", help="kinds alone, separated by commas")
    options = parser.parse_args()
    without = set(options.without.split(","))
    only = set(options.only.split(",")) if options.only else set(KINDS)
    plan = make_plan(options.seed, [kind for kind in KINDS if kind in only - without])
    print("\n".join(plan.lines()), flush=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    faulthandler.dump_traceback_later(HARD_LIMIT, exit=True)
    warnings.simplefilter("ignore", ResourceWarning)  # misuse leaves objects open on purpose
    options.directory.mkdir(parents=True, exist_ok=True)
    factory: Callable[[], asyncio.AbstractEventLoop] = (
        uvloop.new_event_loop if plan.uvloop else asyncio.new_event_loop
    )
    start = time.monotonic()
    with asyncio.Runner(loop_factory=factory) as runner:
        world, violations = runner.run(run_round(plan, options.directory))
    result = summary(world) | {
        "seed": plan.seed,
        "seconds": round(time.monotonic() - start, 1),
        "violations": [str(violation) for violation in violations],
    }
    (options.directory / "result.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1), flush=True)
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
