"""Bugs in code that the core calls, or in code that handles batches: only their records fail."""

from __future__ import annotations

import ast
import asyncio
import builtins
import logging
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from struct import Struct
from types import SimpleNamespace
from typing import Any

import pytest

import aiokq
from aiokq.core.errors import InternalError, KafkaError, UnknownTopicOrPartition
from aiokq.fastpath.units import extensions
from aiokq.producer import (
    batch_sealer,
    delivery_engine,
)
from aiokq.producer.adaptive_partitioning import AdaptivePartitioning
from aiokq.producer.batch_completion import BatchCompletion
from aiokq.producer.batch_sealer import BatchSealer
from aiokq.producer.interceptors import BatchInfo, Interceptor, ProducerRecord
from aiokq.producer.partition_queue import PartitionQueue
from aiokq.producer.partition_queues import PartitionQueues
from aiokq.producer.producer import Producer
from aiokq.producer.producer_metadata import ProducerMetadata
from aiokq.producer.record_hooks import RecordHooks
from aiokq.producer.sender_pool import SenderPool
from tests import cores
from tests.sim.producer_world import producer, simulate

DELIVERY_TIMEOUT = 5.0
SENT = 40


class Boom(Exception):
    """Raised as the bug."""


class Fuse:
    """Raises Boom in a call while it is armed."""

    def __init__(self) -> None:
        self.armed = True
        self.raised = 0

    def blow(self) -> None:
        if self.armed:
            self.raised += 1
            raise Boom("a bug")


Wire = Callable[[Fuse, pytest.MonkeyPatch, SimpleNamespace], dict[str, Any]]
"""Installs the fuse for a producer about to be created; returns the settings that it needs."""


@pytest.fixture(params=cores.NAMES)
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The core that the producer uses."""
    module = cores.core(request.param)
    monkeypatch.setattr(delivery_engine, "Accumulator", partial(_accumulator, module))
    return module


def _accumulator(core: SimpleNamespace, **options: Any) -> Any:
    guard = core.LoopGuard(options["guard"].require)  # of the same core
    return core.Accumulator(**{**options, "guard": guard})


def _argument(name: str, *, concerns: Callable[..., bool] = lambda *_: True) -> Wire:
    """Return a Wire for a callback that is passed to the core's constructor."""

    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        def accumulator(**options: Any) -> Any:
            call = options[name]

            def broken(*args: Any) -> Any:
                if concerns(*args):
                    fuse.blow()
                return call(*args)

            return _accumulator(core, **{**options, name: broken})

        patch.setattr(delivery_engine, "Accumulator", accumulator)
        return {}

    return wire


def _clock(method: str) -> Wire:
    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        class Clock:
            def __init__(self, clock: Any) -> None:
                self._clock = clock

            def monotonic(self) -> float:
                if method == "monotonic":
                    fuse.blow()
                return float(self._clock.monotonic())

            def timestamp_ms(self) -> int:
                if method == "timestamp_ms":
                    fuse.blow()
                return int(self._clock.timestamp_ms())

        def accumulator(**options: Any) -> Any:
            return _accumulator(core, **{**options, "clock": Clock(options["clock"])})

        patch.setattr(delivery_engine, "Accumulator", accumulator)
        return {}

    return wire


def _method(owner: Any, name: str, topic: Callable[..., str] | None, **settings: Any) -> Wire:
    """Return a Wire for a method or function; `topic` derives the topic from its arguments."""

    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        call = getattr(owner, name)

        def broken(*args: Any, **options: Any) -> Any:
            if topic is None or topic(*args) == "bad":
                fuse.blow()
            return call(*args, **options)

        patch.setattr(owner, name, broken)
        return settings

    return wire


def _hook(stage: str) -> Wire:
    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        class Broken(Interceptor):
            pass

        def broken(self: Any, info: ProducerRecord | BatchInfo, *rest: Any) -> Any:
            if info.topic == "bad":
                fuse.blow()
            return info

        setattr(Broken, stage, broken)
        return {"interceptors": (Broken(),)}

    return wire


def _user(setting: str) -> Wire:
    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        def call(*args: Any) -> Any:
            # A plain callable does not get the topic; records of "good" are recognised by their
            # values.
            if args[-1] != b"good" * 80:
                fuse.blow()
            return args[-1]

        return {setting: call}

    return wire


class ChoosesByTopic:
    """A user's partitioner."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse

    def partition(self, topic: str, *rest: Any) -> int:
        if topic == "bad":
            self.fuse.blow()
        return 0


def _both(*wires: Wire) -> Wire:
    def wire(fuse: Fuse, patch: pytest.MonkeyPatch, core: SimpleNamespace) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for each in wires:
            settings |= each(fuse, patch, core)
        return settings

    return wire


_OPENED = _method(PartitionQueue, "batch_opened", lambda queue, _: str(queue.topic))

EVERYBODYS = {
    "accumulator.on_memory_freed",
    "accumulator.clock.monotonic",
    "accumulator.clock.timestamp_ms",
}
"""Without these calls no record can be accepted, or none that waits for buffer memory."""

CALLS_OUT: dict[str, Wire] = {
    "accumulator.on_unknown_topic": _argument(
        "on_unknown_topic", concerns=lambda topic: bool(topic == "bad")
    ),
    "accumulator.on_memory_freed": _argument("on_memory_freed"),
    "accumulator.on_refused": _argument("on_refused"),
    "accumulator.on_bug": _both(_argument("on_bug"), _OPENED),
    "accumulator.choose": _method(AdaptivePartitioning, "choose", lambda _, topic: str(topic)),
    "accumulator.clock.monotonic": _clock("monotonic"),
    "accumulator.clock.timestamp_ms": _clock("timestamp_ms"),
    "owner_factory": _method(ProducerMetadata, "_take_slot", lambda _, slot: str(slot.topic)),
    "batch.slot.owner.batch_opened": _OPENED,
    "slot.owner.batch_full": _method(
        PartitionQueue, "batch_full", lambda queue, _: str(queue.topic)
    ),
}
"""Calls by the core while records are accepted and completed, by their source text."""

AROUND_THE_CORE: dict[str, Wire] = {
    "opened": _method(PartitionQueues, "opened", lambda _, queue, batch: str(queue.topic)),
    "ready": _method(SenderPool, "ready", lambda _, queue: str(queue.topic)),
    "schedule": _method(PartitionQueues, "schedule", lambda _, queue, when: str(queue.topic)),
    "leader_moved": _method(PartitionQueues, "leader_moved", lambda _, topic, *rest: str(topic)),
    "peek": _method(PartitionQueue, "peek", lambda queue, now: str(queue.topic)),
    "on_time": _method(PartitionQueue, "on_time", lambda queue, now: str(queue.topic)),
    "launch": _method(PartitionQueue, "launch", lambda queue, *_: str(queue.topic)),
    "launched": _method(SenderPool, "launched", lambda _, queued, n: str(queued.queue.topic)),
    "topic_id": _method(SenderPool, "topic_id", lambda _, topic: str(topic)),
    "answered": _method(SenderPool, "answered", lambda _, queued, *rest: str(queued.queue.topic)),
    "delivered": _method(
        BatchCompletion,
        "delivered",
        lambda _, queued, *rest: str(queued.queue.topic),
    ),
    "compress": _method(batch_sealer, "compress", None, compression_type_by_topic={"bad": "gzip"}),
    "compress outside": _both(
        _method(batch_sealer, "compress", None, compression_type_by_topic={"bad": "gzip"}),
        lambda fuse, patch, core: patch.setattr(batch_sealer, "GZIP_THRESHOLD", 0) or {},
    ),
    "codec": _method(
        BatchSealer,
        "codec",
        lambda _, topic: str(topic),
        compression_type_by_topic={"bad": "gzip"},
    ),
    "placed": _method(
        RecordHooks,
        "place",
        lambda _, record: str(record.topic),
        value_serializer=bytes,
    ),
    "on_enqueue": _hook("on_enqueue"),
    "on_batch": _hook("on_batch"),
    "on_ack": _hook("on_ack"),
    "value_serializer": _user("value_serializer"),
    "partitioner": lambda fuse, patch, core: {"partitioner": ChoosesByTopic(fuse)},
}


async def send_all(p: Producer) -> dict[str, list[object]]:
    """Return the results of both topics' records; raise TimeoutError if one has no result."""
    outcomes: dict[str, list[object]] = {"bad": [], "good": []}

    async def send(topic: str, partition: int | None) -> None:
        try:
            outcome: object = await p.send(topic, topic.encode() * 80, partition=partition)
        except Exception as error:
            outcome = error
        outcomes[topic].append(outcome)

    async with asyncio.timeout(DELIVERY_TIMEOUT + 0.2), asyncio.TaskGroup() as group:
        for n in range(SENT):
            group.create_task(send("bad", (None, 0, 1, None, 99)[n % 5]))
            group.create_task(send("good", 0))
    return outcomes


@pytest.mark.parametrize("where", [*CALLS_OUT, *AROUND_THE_CORE])
def test_a_bug_ends_its_own_records_and_no_others(
    where: str,
    core: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exception in one call left records without a result, or ended the whole producer."""
    fuse = Fuse()
    wire = (CALLS_OUT | AROUND_THE_CORE)[where]
    settings = {
        "batch_size": 1_000,
        "buffer_memory": 8_000,
        "delivery_timeout_ms": int(DELIVERY_TIMEOUT * 1000),
        "request_timeout_ms": 1_000,
        "max_block_ms": 4_000,
        "linger_ms": 1,
    } | wire(fuse, monkeypatch, core)

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("bad", [1, 1])
        kafka.topic("good", [1])
        p = producer(world, kafka, **settings)
        await p.start()
        try:
            outcomes = await send_all(p)
            assert fuse.raised, "the scenario does not come by here"
            assert [len(each) for each in outcomes.values()] == [SENT, SENT]
            if where not in EVERYBODYS:
                assert not any(isinstance(each, BaseException) for each in outcomes["good"])
            failures = [each for each in outcomes["bad"] if isinstance(each, BaseException)]
            assert all(isinstance(each, KafkaError | Boom) for each in failures), failures
            bugs = [each for each in failures if isinstance(each, InternalError)]
            assert all(isinstance(each.__cause__, Boom) for each in bugs)
            told = [each for each in caplog.messages if "Boom" in each]
            # An exception that is raised in the caller is not logged.
            unlogged = where == "accumulator.on_bug" or any(type(e) is Boom for e in failures)
            assert len(told) == (0 if unlogged else 1), caplog.text

            fuse.armed = False
            async with asyncio.timeout(1):
                for topic in ("bad", "good"):
                    await p.send(topic, topic.encode() * 80, partition=0)
        finally:
            async with asyncio.timeout(1):
                report = await p.close()
        assert report.unsent == 0
        assert p._delivery.accumulator.used_bytes == p._delivery.accumulator.waiting == 0
        assert p._delivery.supervisor.failed is None

    with caplog.at_level(logging.WARNING, "aiokq"):
        simulate(body)


def test_a_bug_that_affects_each_topic_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The bug was logged with a traceback for each topic."""

    def broken(*args: Any) -> None:
        raise Boom("a bug")

    monkeypatch.setattr(PartitionQueues, "leader_moved", broken)

    async def body(world: Any, kafka: Any) -> None:
        for n in range(20):
            kafka.topic(f"t{n}", [1])
        async with producer(world, kafka, delivery_timeout_ms=5_000, request_timeout_ms=1_000) as p:
            sends = [p.send(f"t{n}", b"v") for n in range(20)]
            errors = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(error, InternalError) for error in errors), errors
            assert "t7" in str(errors[7])

    with caplog.at_level(logging.ERROR, "aiokq"):
        simulate(body)
    assert len([line for line in caplog.messages if "Boom" in line]) == 1


def test_records_after_an_invalid_partition_have_a_result(
    core: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition beyond int32 raised OverflowError while records were placed after a refresh."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, delivery_timeout_ms=5_000, request_timeout_ms=1_000) as p:
            accepted = [p.send_nowait("orders", b"v", partition=n) for n in (0, 1)]
            for partition in (2**31, 2**63, 2**64, -1, -(2**63) - 1):
                with pytest.raises(ValueError, match=f"partition {partition}: .* 0 to 2"):
                    p.send_nowait("orders", b"v", partition=partition)
                with pytest.raises(ValueError, match="partition"):
                    await p.send("orders", b"v", partition=partition)
            last = p.send_nowait("orders", b"v", partition=2**31 - 1)
            many = await p.send_many("orders", [(None, b"v"), (None, b"w")])
            async with asyncio.timeout(1):
                assert [(await each).partition for each in accepted] == [0, 1]
                with pytest.raises(UnknownTopicOrPartition):
                    await last
                assert len(await many) == 2

    with caplog.at_level(logging.ERROR, "aiokq"):
        simulate(body)
    assert not caplog.messages


def test_a_done_callback_that_raises_does_not_stop_the_others(core: SimpleNamespace) -> None:
    """As with asyncio futures, the loop's exception handler is called."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            called: list[object] = []

            def broken(delivery: object) -> None:
                called.append(delivery)
                raise Boom("a bug")

            delivery = await p.enqueue("orders", b"v")
            for _ in range(3):
                delivery.add_done_callback(broken)
            assert (await delivery).offset == 0
            await asyncio.sleep(0.1)
            assert len(called) == 3
            assert len(world.loop.errors) == 3
            world.loop.errors.clear()

    simulate(body)


READING = {
    "cursor.codecs.decompress",
    "cursor.codecs.upconvert",
    "inner.throw",
    "self.source.wait",
    "stream.source.next_cursor",
    "stream.source.wait",
    "stream.source.wait().__await__",
}
"""Calls while records are read: tests/unit/fastpath/test_stream.py and test_cursor.py test them."""

LOOP = {
    "accumulator.loop.call_soon",
    "loop.call_soon",
    "self.loop.call_exception_handler",
    "self.loop.call_soon",
    "wait.loop.call_soon",
}
"""Calls of the event loop: if they fail, no task can be woken."""

HERE = {"fn", "self.clock.timestamp_ms", "wait.context.run"}
"""Callbacks of Deliveries, tested above, and the clock of the pure core."""

HANDLING = {"clock.monotonic", "coroutine.send", "ended", "handler"}
"""Calls while handlers are called: tests/unit/fastpath/test_outgoing.py tests them."""

GUARD = {"guard.check"}
"""Called first, and meant to raise: tests/unit/fastpath/test_guard.py tests it."""

INSIDE = {"error.with_traceback", "kind"}
"""Calls that do not leave the core; `kind` is the exception class passed to throw()."""


def test_each_call_out_of_the_core_has_a_test() -> None:
    """A new call must be added above with a bug in it."""
    package = Path(aiokq.__file__).parent
    # The units of the broker and the gateway have no records of producers and consumers. Queues of
    # partitions call the parts of a producer, which AROUND_THE_CORE has.
    others = (".broker.", ".gateway.", "._queues")
    paths = [
        package / path for name, path in extensions() if not any(other in name for other in others)
    ]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    own, imported, called = set(), {"cython"}, set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called.add(ast.unparse(node.func))
    containers = (list, dict, set, bytes, bytearray, str, memoryview, slice, int)
    plain = {name for kind in (*containers, Struct, re.Pattern, type) for name in dir(kind)}
    ours = re.compile(r"(self|self\.map|batch|there|old|mine|other|columns)\.(\w+)")

    def is_ours(call: str) -> bool:
        root, _, name = call.rpartition(".")
        if not root:
            return name in own | imported or hasattr(builtins, name)
        if root.split(".")[0] in imported or name in plain:
            return True
        found = ours.fullmatch(call)
        return found is not None and found[2] in own

    out = {call for call in called if not is_ours(call)}
    assert out == CALLS_OUT.keys() | READING | HANDLING | LOOP | GUARD | HERE | INSIDE
