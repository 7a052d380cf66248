"""Misuse of clients, one coroutine per kind, beside the clients of the load.

Each call must end in time and raise only what the documentation names. The clients of the load
must not be affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import aiokq
from aiokq import KafkaError
from tests.fault.misuse.world import HANG, SILENT, TYPED, World

PATIENCE = 45.0
"""Seconds that any single call may take; all timeouts that are set here are shorter."""

SETTINGS: dict[str, Any] = {
    "bootstrap_timeout_ms": 30_000,
    "request_timeout_ms": 2000,
    "default_api_timeout_ms": 5000,
}
PRODUCER: dict[str, Any] = {**SETTINGS, "delivery_timeout_ms": 8000, "max_block_ms": 3000}
UNCHECKED = "unchecked"
"""A topic whose records the checker ignores."""

Call = Callable[[], object]


async def _call(world: World, what: str, call: Call, *also: type[BaseException]) -> Any:
    """Call, await the result if possible, return it; None if the call raised or took too long.

    An error that is neither in `TYPED` nor in `also`, and a call that takes too long, are recorded
    as violations.
    """
    try:
        result = call()
        if isinstance(result, Awaitable):
            result = await world.within(PATIENCE, what, result)
    except (*TYPED, *also) as error:
        if what.endswith(".start()"):
            world.refused(what, error)
        return None
    except asyncio.CancelledError as error:
        if error.args == (what,):  # the call took too long, which `within` has recorded
            return None
        raise
    except Exception as error:
        world.unexpected(what, error)
        return None
    return result


@contextlib.asynccontextmanager
async def _client(world: World, client: Any) -> AsyncIterator[Any]:
    """Start and close a client; raises `NotStarted` before the body if starting fails."""
    started = await _call(world, f"{type(client).__name__}.start()", lambda: _entered(client))
    try:
        if started:
            yield client
        else:
            raise NotStarted
    finally:
        await _call(world, f"{type(client).__name__}.close()", lambda: client.close())


async def _entered(client: Any) -> bool:
    await client.start()
    return True


class NotStarted(Exception):
    """The broker was away for too long to start a client for misuse."""


def producer(world: World, **settings: Any) -> aiokq.Producer[Any, Any]:
    """A producer that only the misuse uses."""
    return aiokq.Producer(world.servers, **{**PRODUCER, **settings})


def consumer(world: World, *topics: str, **settings: Any) -> aiokq.Consumer[Any, Any]:
    """A consumer that only the misuse uses."""
    return aiokq.Consumer(
        *topics,
        bootstrap_servers=world.servers,
        **{**SETTINGS, "auto_offset_reset": "earliest", **settings},
    )


NUMBERS: list[Any] = [-1, 0, -(2**31), 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40]
NO_NUMBERS: list[Any] = [True, 1.5, math.nan, math.inf, -math.inf, "0", b"0", (), object()]
NO_TOPICS: list[Any] = [
    *("", ".", "..", "a b", "a/b", "é", "x" * 250, "x" * 40_000, "127.0.0.1:9092", "\x00"),
    *(None, 7, b"bytes", ("t", 0), object()),
]
SECONDS: list[Any] = [math.nan, -1.0, 0.0, 0, -math.inf, 1e-9, -(10**30), "1", object()]


async def bad_records(world: World, random: Random, lasts: float) -> None:
    """Send bad records: wrong partitions, topics, times, headers, sizes and types."""
    async with _client(world, producer(world)) as client:
        sent = [await _bad_record(world, client, random) for _ in range(random.randint(10, 60))]
        for what, delivery in sent:
            if isinstance(delivery, aiokq.Delivery | aiokq.Deliveries):
                await _call(world, f"the delivery of {what}", lambda d=delivery: _awaited(d))
        await _works(world, client)


VALUES: list[Any] = [b"v", None, "text", 7, object(), bytearray(b"v"), memoryview(b"v"), b""]
HEADERS: list[Any] = [
    *(7, "h", [1], [("h",)], [("h", "text")], [(b"h", b"v")], {"h": b"v"}, [("h", b"v", 1)]),
    *([(None, b"v")], [("h" * 40_000, None)], [("", None)]),
]


async def _bad_record(
    world: World, client: aiokq.Producer[Any, Any], random: Random
) -> tuple[str, Any]:
    """Offer one bad record; return what is bad about it, and its delivery if it was accepted."""
    keywords: dict[str, Any] = {}
    topic: Any = UNCHECKED
    value: Any = b"v"
    match random.randrange(7):
        case 0:
            keywords["partition"] = random.choice(NUMBERS + NO_NUMBERS)
        case 1:
            keywords["timestamp_ms"] = random.choice(NUMBERS + NO_NUMBERS)
        case 2:
            topic = random.choice(NO_TOPICS)
        case 3:
            value = random.choice(VALUES)
        case 4:
            keywords["key"] = random.choice(VALUES)
        case 5:
            keywords["headers"] = random.choice(HEADERS)
        case _:
            value = bytes(random.choice([0, 1_000_000, 1_048_576, 3_000_000]))
    many = random.choice([[(value, value)], [value], value, [(b"k", value, [("h", b"v")], 0.5)]])
    name, call = random.choice(
        [
            ("send", lambda: client.send(topic, value, **keywords)),
            ("enqueue", lambda: client.enqueue(topic, value, **keywords)),
            ("send_nowait", lambda: _nowait(client, topic, value, keywords)),
            ("send_many", lambda: client.send_many(topic, many, keywords.get("partition"))),
        ]
    )
    what = f"{name} of {type(value).__name__} to {str(topic)[:40]!r} with {keywords}"[:200]
    return what, await _call(world, what, call)


async def _nowait(client: Any, topic: Any, value: Any, keywords: dict[str, Any]) -> Any:
    return client.send_nowait(topic, value, **keywords)


async def _awaited(delivery: Any) -> Any:
    return await delivery


async def _works(world: World, client: aiokq.Producer[Any, Any]) -> None:
    """Check that the producer still sends after misuse.

    While faults last the record may fail, but only in time and with a documented error.
    """
    await _call(world, "send() after misuse", lambda: client.send(UNCHECKED, b"good"))


async def bad_arguments(world: World, random: Random, lasts: float) -> None:
    """Ask consumers for partitions, offsets, times and timeouts that do not exist."""
    group = f"misuse-{random.getrandbits(30)}"
    settings: dict[str, Any] = {"group_id": group} if random.random() < 0.5 else {}
    tp = ("steady-3", 0)
    async with _client(world, consumer(world, **settings)) as client:
        client.assign([tp])
        await _call(world, "getmany()", lambda: client.getmany(timeout=0.5))
        for _ in range(random.randint(10, 50)):
            await _bad_argument(world, client, random, tp)
            client.assign([tp])


async def _bad_argument(
    world: World, client: aiokq.Consumer[Any, Any], random: Random, tp: tuple[str, int]
) -> None:
    number: Any = random.choice(NUMBERS + NO_NUMBERS)
    seconds: Any = random.choice(SECONDS)
    partition: Any = random.choice(
        [tp, ("steady-3", number), (random.choice(NO_TOPICS), 0), number, "steady-3"]
    )
    name, call = random.choice(
        [
            ("seek", lambda: client.seek(tp, number)),
            ("seek elsewhere", lambda: client.seek(partition, 0)),
            ("getmany timeout", lambda: client.getmany(timeout=seconds)),
            (
                "getmany max_records",
                lambda: client.getmany(timeout=0.1, max_records=number),
            ),
            ("position", lambda: client.position(partition, timeout=seconds)),
            ("commit", lambda: client.commit({partition: number}, timeout=seconds)),
            ("committed", lambda: client.committed(partition, timeout=seconds)),
            ("pause", lambda: client.pause(partition)),
            ("resume", lambda: client.resume(partition)),
            ("streams", lambda: client.streams(number) if number != 10**40 else None),
            ("end_offsets", lambda: client.end_offsets([partition], timeout=seconds)),
            (
                "offsets_for_times",
                lambda: client.offsets_for_times({tp: number}, timeout=seconds),
            ),
            ("assign", lambda: client.assign([partition])),
            ("subscribe", lambda: client.subscribe(random.choice(NO_TOPICS))),
            ("add_topic", lambda: client.add_topic("steady-3", number)),
            ("ack", lambda: client.ack(number)),
            ("lag", lambda: client.lag(partition)),
        ]
    )
    if name == "streams" and isinstance(number, int) and number > 1000:
        return  # as many objects were used as intended
    what = f"{name} with {number!r}, {partition!r}, timeout {seconds!r}"[:200]
    await _call(world, what, call, RuntimeError if name.startswith("get") else KafkaError)


async def bad_admin(world: World, random: Random, lasts: float) -> None:
    """Ask an admin client for operations that no broker supports."""
    async with _client(world, aiokq.Admin(world.servers, **SETTINGS)) as client:
        for _ in range(random.randint(5, 25)):
            await _bad_question(world, client, random)
        await _call(world, "admin delete", lambda: client.delete_topics("bad"))


async def _bad_question(world: World, client: aiokq.Admin, random: Random) -> None:
    number: Any = random.choice([*NUMBERS, *NO_NUMBERS])
    topic: Any = random.choice(NO_TOPICS)
    seconds: Any = random.choice(SECONDS)
    name, call = random.choice(
        [
            ("create", lambda: client.create_topics(topic, timeout=seconds)),
            (
                "create partitions",
                lambda: (
                    client.create_topics("bad", num_partitions=number)
                    if not isinstance(number, int) or number < 1
                    else None
                ),
            ),
            (
                "create replicas",
                lambda: (
                    client.create_topics("bad", replication_factor=number)
                    if number not in (-1, 1)
                    else None
                ),
            ),
            (
                "create configs",
                lambda: client.create_topics("bad", configs={"retention.ms": number}),
            ),
            ("delete", lambda: client.delete_topics(topic, timeout=seconds)),
            ("describe", lambda: client.describe_topics(topic, timeout=seconds)),
            ("list offsets", lambda: client.list_offsets({(topic, 0): number})),
            ("delete records", lambda: client.delete_records({(topic, 0): number})),
            ("groups", lambda: client.describe_groups(topic, timeout=seconds)),
            (
                "alter offsets",
                lambda: client.alter_group_offsets("no-group", {("steady-3", 0): number}),
            ),
            ("partitions", lambda: client.create_partitions({UNCHECKED: number}))
            if not isinstance(number, int) or number < 1
            else ("partitions", lambda: None),
        ]
    )
    what = f"admin {name} with {number!r}, {str(topic)[:40]!r}, timeout {seconds!r}"
    await _call(world, what, call)


async def other_loop(world: World, random: Random, lasts: float) -> None:
    """Use objects of this loop from another loop in another thread."""
    async with (
        _client(world, producer(world)) as sender,
        _client(world, consumer(world, UNCHECKED)) as reader,
    ):
        uses: list[tuple[str, Callable[[], Any]]] = [
            ("send", lambda: sender.send(UNCHECKED, b"v")),
            ("enqueue", lambda: sender.enqueue(UNCHECKED, b"v")),
            ("flush", lambda: sender.flush()),
            ("getone", lambda: reader.getone()),
            ("getmany", lambda: reader.getmany(timeout=1.0)),
            ("position", lambda: reader.position((UNCHECKED, 0), timeout=1.0)),
            ("anext", lambda: anext(aiter(reader))),
            ("close", lambda: sender.close(1.0)),
            ("consumer close", lambda: reader.close(1.0)),
        ]
        chosen = random.sample(uses, random.randint(1, 5))
        told: list[tuple[str, BaseException | None]] = []

        def elsewhere() -> None:
            for name, use in chosen:

                async def one(use: Callable[[], Any] = use) -> None:
                    await asyncio.wait_for(use(), 10)

                try:
                    asyncio.run(one())
                except BaseException as error:
                    told.append((name, error))
                else:
                    told.append((name, None))

        thread = threading.Thread(target=elsewhere, daemon=True)
        thread.start()
        deadline = world.now() + PATIENCE
        while thread.is_alive() and world.now() < deadline:  # noqa: ASYNC110  no event there
            await asyncio.sleep(0.05)
        if thread.is_alive():
            world.history.complain(HANG, f"another loop: {[name for name, _ in chosen]}")
        for name, error in told:
            if error is None:
                world.history.complain(SILENT, f"{name}() from another loop")
            elif isinstance(error, TimeoutError) and not isinstance(error, KafkaError):
                world.history.complain(HANG, f"{name}() from another loop")
            elif not isinstance(error, (*TYPED, RuntimeError, StopAsyncIteration)):
                world.unexpected(f"{name}() from another loop", error)
        await _works(world, sender)


async def fork(world: World, random: Random, lasts: float) -> None:
    """Fork a process that has a client under load; the child uses the client, the parent continues.

    It forks a separate program: a fork of this process would copy the whole load.
    """
    await _program(world, "tests.fault.misuse.forking", "client", world.servers, random)


async def embedded_fork(world: World, random: Random, lasts: float) -> None:
    """Fork a process that has an embedded broker; the child must leave the parent's data alone."""
    await _program(world, "tests.fault.misuse.forking", "embedded", world.servers, random)


async def _program(world: World, module: str, what: str, servers: str, random: Random) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, what, servers, str(random.getrandbits(32))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), 120)
    except TimeoutError:
        process.kill()
        await process.wait()
        world.history.complain(HANG, f"{module} {what}")
        return
    finally:
        if process.returncode is None:
            process.kill()
    try:
        complaints = json.loads(out)
    except ValueError:
        complaints = [f"exit code {process.returncode}: {errors.decode()[-1500:]}"]
    for complaint in complaints:
        world.history.complain(f"{what} after a fork", complaint)


async def closing(world: World, random: Random, lasts: float) -> None:
    """Call close() under load, twice, concurrently and cancelled; then use the client."""
    client = producer(world)
    async with _client(world, client):
        sending = [
            asyncio.ensure_future(_call(world, "send() while closing", lambda: _sends(client)))
            for _ in range(random.randint(1, 20))
        ]
        await asyncio.sleep(random.choice([0, 0.001, 0.1]))
        closes = [
            asyncio.ensure_future(
                _call(
                    world,
                    "Producer.close()",
                    lambda: client.close(random.choice([0.0, 0.1, 5.0, math.inf, math.nan, -1])),
                )
            )
            for _ in range(random.randint(1, 4))
        ]
        await asyncio.sleep(random.choice([0, 0.001, 0.1]))
        if random.random() < 0.3:
            closes[0].cancel()
        await asyncio.gather(*closes, *sending, return_exceptions=True)
        await _call(world, "Producer.close() again", lambda: client.close())
        for what, call in (
            ("send() after close()", lambda: client.send(UNCHECKED, b"v")),
            ("send_nowait() after close()", lambda: client.send_nowait(UNCHECKED, b"v")),
            ("flush() after close()", lambda: client.flush()),
            ("start() after close()", lambda: client.start()),
        ):
            await _call(world, what, call)

    reader = consumer(world, UNCHECKED, group_id=f"misuse-{random.getrandbits(30)}")
    async with _client(world, reader):
        reading = asyncio.ensure_future(
            _call(world, "getone() while closing", lambda: reader.getone())
        )
        await asyncio.sleep(random.choice([0, 0.001, 0.3]))
        await asyncio.gather(
            *(
                _call(world, "Consumer.close()", lambda: reader.close(random.choice([0.0, 1, 5.0])))
                for _ in range(random.randint(1, 3))
            ),
            reading,
        )
        await _call(world, "getone() after close()", lambda: reader.getone())
        await _call(world, "commit() after close()", lambda: reader.commit())


async def _sends(client: aiokq.Producer[Any, Any]) -> None:
    for _ in range(50):
        await client.enqueue(UNCHECKED, bytes(1000))


async def iterators(world: World, random: Random, lasts: float) -> None:
    """Run two loops over one consumer, batches beside records, and streams twice."""
    async with _client(world, consumer(world, "steady-1")) as client:

        async def loop_over(source: Any) -> None:
            async with asyncio.timeout(lasts):
                async for _ in source:
                    await asyncio.sleep(0)

        ways: list[tuple[str, Callable[[], Any]]] = [
            ("async for", lambda: loop_over(client)),
            ("batches()", lambda: loop_over(client.batches())),
            ("getone()", lambda: client.getone()),
            ("getmany()", lambda: client.getmany(timeout=lasts)),
            ("streams()", lambda: loop_over(client.streams(2)[0])),
        ]
        await asyncio.gather(
            *(
                _call(world, f"{name} beside others", way, RuntimeError)
                for name, way in random.choices(ways, k=random.randint(2, 4))
            )
        )


async def commits(world: World, random: Random, lasts: float) -> None:
    """Commit from several tasks, existing and non-existing offsets, cancelled at random moments."""
    group = f"misuse-{random.getrandbits(30)}"
    settings = {"group_id": group, "enable_auto_commit": False}
    async with _client(world, consumer(world, "steady-3", **settings)) as client:
        await _call(world, "getmany()", lambda: client.getmany(timeout=lasts))

        async def several() -> None:
            for _ in range(10):
                await _commit(world, client, random)

        await asyncio.gather(*(several() for _ in range(random.randint(2, 4))))


OFFSETS: list[Any] = [None, {("steady-3", 0): 1}, {("no-topic", 0): 1}, {("steady-3", 99): 5}]


async def _commit(world: World, client: aiokq.Consumer[Any, Any], random: Random) -> None:
    offsets = random.choice(OFFSETS)
    patience = random.choice([None, None, None, 0, 0.001, 0.05])
    await _call(
        world,
        f"commit({offsets})",
        lambda: asyncio.wait_for(client.commit(offsets, timeout=3), patience),
    )


async def cancellation(world: World, random: Random, lasts: float) -> None:
    """Cancel every kind of awaitable at random moments, start and close included."""
    moments = [0, 0, 0.0005, 0.005, 0.05, 0.3]

    async def cancelled(what: str, call: Callable[[], Any]) -> None:
        await _call(world, what, lambda: asyncio.wait_for(call(), random.choice(moments)))

    for _ in range(random.randint(1, 5)):
        sender = producer(world)
        await cancelled("Producer.start()", sender.start)
        await cancelled("Producer.send()", lambda s=sender: s.send(UNCHECKED, b"v"))
        await cancelled("Producer.flush()", sender.flush)
        await cancelled("Producer.close()", sender.close)
        await _call(world, "Producer.close()", sender.close)
        reader = consumer(world, "steady-3", group_id=f"misuse-{random.getrandbits(30)}")
        await cancelled("Consumer.start()", reader.start)
        await cancelled("Consumer.getone()", lambda r=reader: r.getone())
        await cancelled("Consumer.getmany()", lambda r=reader: r.getmany(timeout=1))
        await cancelled("Consumer.commit()", lambda r=reader: r.commit())
        await cancelled("Consumer.close()", reader.close)
        await _call(world, "Consumer.close()", reader.close)


async def unknown_topics(world: World, random: Random, lasts: float) -> None:
    """Use topics that do not exist and may not be created."""
    settings: dict[str, Any] = {"allow_auto_create_topics": False}
    name = f"no-topic-{random.getrandbits(30)}"
    async with (
        _client(world, producer(world, max_block_ms=500, **settings)) as sender,
        _client(world, consumer(world, name, **settings)) as reader,
    ):
        await asyncio.gather(
            _call(world, "send() to no topic", lambda: sender.send(name, b"v")),
            _call(world, "enqueue() to no topic", lambda: _delivered(sender, name)),
            _call(world, "partitions_for(no topic)", lambda: sender.partitions_for(name)),
            _call(world, "getmany() of no topic", lambda: reader.getmany(timeout=lasts)),
            _call(
                world,
                "end_offsets() of no topic",
                lambda: reader.end_offsets([(name, 0)], timeout=2),
            ),
        )
        await _works(world, sender)


async def _delivered(client: aiokq.Producer[Any, Any], topic: str) -> None:
    await (await client.enqueue(topic, b"v"))


async def recreated_topics(world: World, random: Random, lasts: float) -> None:
    """Delete and recreate a topic with other partition counts while it is written and read.

    Its records may be lost with it, but every record still has an outcome in time.
    """
    name = f"fleeting-{random.getrandbits(30)}"
    over = asyncio.Event()

    async def write(client: aiokq.Producer[Any, Any]) -> None:
        while not over.is_set():
            await _call(world, f"send() to {name}", lambda: client.send(name, bytes(100)))
            await asyncio.sleep(0.01)

    async def read(client: aiokq.Consumer[Any, Any]) -> None:
        while not over.is_set():
            await _call(world, f"getmany() of {name}", lambda: client.getmany(timeout=0.2))
            await asyncio.sleep(0.01)

    group = {"group_id": f"misuse-{random.getrandbits(30)}"} if random.random() < 0.5 else {}
    async with (
        _client(world, aiokq.Admin(world.servers, **SETTINGS)) as admin,
        _client(world, producer(world)) as sender,
        _client(world, consumer(world, name, **group)) as reader,
    ):
        tasks = [asyncio.ensure_future(write(sender)), asyncio.ensure_future(read(reader))]
        end = world.now() + lasts
        while world.now() < end:
            await _call(
                world,
                "create_topics()",
                lambda: admin.create_topics(name, num_partitions=random.randint(1, 4)),
            )
            await asyncio.sleep(random.uniform(0, 0.5))
            await _call(world, "delete_topics()", lambda: admin.delete_topics(name))
            await asyncio.sleep(random.uniform(0, 0.5))
        over.set()
        await asyncio.gather(*tasks)
        await _works(world, sender)
        await _call(world, "delete_topics()", lambda: admin.delete_topics(name))


class Mistake(Exception):
    """The error that a program's callbacks raise by mistake."""


def mistaken(*args: Any, **keywords: Any) -> Any:
    """A callback that raises `Mistake`."""
    raise Mistake("by mistake")


class MistakenInterceptor(aiokq.Interceptor):
    """An interceptor whose hooks all raise."""

    on_enqueue = on_batch = on_ack = on_error = mistaken


async def callbacks(world: World, random: Random, lasts: float) -> None:
    """Partitioners, serializers, interceptors, rebalance handlers and done callbacks that raise.

    What a program's own code raises may reach that program and nothing else.
    """
    choices: list[dict[str, Any]] = [
        {"partitioner": mistaken},
        {"partitioner": lambda key, everything, available: 10**9},
        {"partitioner": lambda key, everything, available: "0"},
        {"interceptors": [MistakenInterceptor()]},
        {"value_serializer": mistaken},
        {"key_serializer": lambda key: "text"},
    ]
    unseen: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()

    def look(loop: asyncio.AbstractEventLoop, what: dict[str, Any]) -> None:
        if isinstance(what.get("exception"), Mistake):
            unseen.append(what)  # raised by a done callback
        elif handler is not None:
            handler(loop, what)

    loop.set_exception_handler(look)
    try:
        async with _client(world, producer(world, **random.choice(choices))) as client:
            for _ in range(10):
                delivery = await _call(
                    world,
                    "enqueue() with callbacks that raise",
                    lambda: client.enqueue(UNCHECKED, b"v", key=b"k"),
                    Mistake,
                )
                if delivery is not None:
                    delivery.add_done_callback(mistaken)
                    await _call(world, "its delivery", lambda d=delivery: _awaited(d), Mistake)
        handlers = random.choice(
            [{"on_assigned": mistaken}, {"on_revoked": mistaken}, {"on_lost": mistaken}]
        )
        group = {"group_id": f"misuse-{random.getrandbits(30)}", **handlers}
        async with _client(world, consumer(world, "steady-3", **group)) as reader:
            for _ in range(5):
                await _call(
                    world,
                    f"getmany() with {next(iter(handlers))} that raises",
                    lambda: reader.getmany(timeout=0.3),
                    Mistake,
                )
    finally:
        loop.set_exception_handler(handler)


async def abandoned(world: World, random: Random, lasts: float) -> None:
    """Leave clients open for some time."""
    for _ in range(random.randint(1, 4)):
        sender = producer(world)
        await _call(world, "Producer.start()", sender.start)
        reader = consumer(world, "steady-1")
        await _call(world, "Consumer.start()", reader.start)
        # The event loop keeps the connections and tasks of an open client alive until the client is
        # closed. So the clients are closed here, late and in the wrong order.
        await _call(world, "enqueue()", lambda s=sender: s.enqueue(UNCHECKED, b"v"))
        await asyncio.sleep(lasts / 4)
        await _call(world, "Consumer.close()", reader.close)
        await _call(world, "Producer.close()", sender.close)
        del sender, reader
        gc.collect()


MISUSE = {
    misuse.__name__: misuse
    for misuse in (
        *(bad_records, bad_arguments, bad_admin, other_loop, fork, closing, iterators, commits),
        *(cancellation, unknown_topics, recreated_topics, callbacks, abandoned, embedded_fork),
    )
}
