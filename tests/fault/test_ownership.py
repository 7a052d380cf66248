"""Every public method of objects that belong to an event loop, called where they do not belong.

The table is made from the public classes. A new method fails the first test until it has a call in
CALLS, and the other tests until it behaves like its neighbours or has a reason in EXCEPTIONS.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import uvloop

import aiokq
from aiokq import (
    Admin,
    Cluster,
    Consumer,
    EmbeddedCluster,
    EventStream,
    KafkaError,
    Producer,
    RecordColumns,
    Registry,
    Stream,
    TopicPartition,
)
from aiokq.client.registry import RegistryWatch
from aiokq.consumer.reader import BatchStream
from aiokq.producer.batch_builder import BatchBuilder
from tests.forking import in_child, needs_fork

TP: Final = TopicPartition("t", 0)
NONE: Final = (None, None, None)


class World:
    """One object of each class in the table."""

    def __init__(self, address: str) -> None:
        self.cluster = Cluster(address)
        self.producer = Producer(address, linger_ms=60_000)
        self.transactional = Producer(address, linger_ms=60_000, transactional_id="x")
        self.consumer = Consumer(bootstrap_servers=address, group_id="g")
        self.admin = Admin(address)
        self.events = self.cluster.events()
        self.registry = self.cluster.registry
        self.embedded = EmbeddedCluster()
        self.divided = Consumer("t", bootstrap_servers=address)
        self.stream: Stream
        self.batches: BatchStream
        self.records: Any
        self.watch: RegistryWatch
        self.transaction: aiokq.Transaction
        self.begun: aiokq.Transaction
        self.delivery: aiokq.Delivery
        self.deliveries: aiokq.Deliveries
        self.record: Any = None
        self.batch = BatchBuilder(1024)
        self.batch.append(key=None, value=b"v")

    async def start(self) -> World:
        for client in (
            *(self.cluster, self.producer, self.transactional),
            *(self.divided, self.admin, self.embedded),
        ):
            await client.start()
        self.begun = await self.transactional.begin_transaction()
        self.transaction = self.transactional.transaction()
        self.consumer.assign([TP])
        await self.consumer.start()
        await self.consumer.seek_to_beginning()
        (self.stream,) = self.divided.streams(1)
        self.watch = await self.registry.watch("/brokers/ids")
        self.batches = self.consumer.batches()
        self.records = aiter(self.consumer)
        self.record = await anext(self.records)
        self.delivery = await self.producer.enqueue("t", b"v")
        self.deliveries = await self.producer.send_many("t", [(None, b"v")])
        return self

    async def close(self) -> None:
        self.events.close()
        assert [event async for event in self.events]
        await self.watch.aclose()
        self.stream.close()
        for client in (
            *(self.producer, self.transactional, self.consumer, self.divided),
            *(self.admin, self.cluster, self.embedded),
        ):
            await client.close()


Call = Callable[[World], Any]

CALLS: Final[dict[type, dict[str, Call]]] = {
    Cluster: {
        "__aenter__": lambda w: w.cluster.__aenter__(),
        "__aexit__": lambda w: w.cluster.__aexit__(*NONE),
        "admin": lambda w: w.cluster.admin(),
        "close": lambda w: w.cluster.close(),
        "consumer": lambda w: w.cluster.consumer("t"),
        "create_batch": lambda w: w.cluster.create_batch(),
        "events": lambda w: w.cluster.events(),
        "fetch": lambda w: w.cluster.fetch(TP, 0),
        "health": lambda w: w.cluster.health(),
        "offsets": lambda w: w.cluster.offsets(TP, "latest"),
        "process": lambda w: w.cluster.process("t", print, group_id="g"),
        "produce": lambda w: w.cluster.produce({TP: w.batch}, node=TP),
        "producer": lambda w: w.cluster.producer(),
        "read": lambda w: w.cluster.read(TP).__anext__(),
        "refresh": lambda w: w.cluster.refresh("t"),
        "request": lambda w: w.cluster.request(aiokq.wire.MetadataRequest(topics=[])),
        "start": lambda w: w.cluster.start(),
    },
    Producer: {
        "__aenter__": lambda w: w.producer.__aenter__(),
        "__aexit__": lambda w: w.producer.__aexit__(*NONE),
        "abort_transaction": lambda w: w.transactional.abort_transaction(),
        "begin_transaction": lambda w: w.transactional.begin_transaction(),
        "close": lambda w: w.producer.close(),
        "commit_transaction": lambda w: w.transactional.commit_transaction(),
        "create_batch": lambda w: w.producer.create_batch(),
        "enqueue": lambda w: w.producer.enqueue("t", b"v"),
        "flush": lambda w: w.producer.flush(),
        "health": lambda w: w.producer.health(),
        "partitions_for": lambda w: w.producer.partitions_for("t"),
        "send": lambda w: w.producer.send("t", b"v"),
        "send_batch": lambda w: w.producer.send_batch(w.batch, "t", partition=0),
        "send_columns": lambda w: w.producer.send_columns("t", columns()),
        "send_columns_nowait": lambda w: w.producer.send_columns_nowait("t", columns()),
        "send_many": lambda w: w.producer.send_many("t", [(None, b"v")]),
        "send_nowait": lambda w: w.producer.send_nowait("t", b"v"),
        "start": lambda w: w.producer.start(),
        "transaction": lambda w: w.transactional.transaction(),
    },
    aiokq.Transaction: {
        "__aenter__": lambda w: w.transaction.__aenter__(),
        "__aexit__": lambda w: w.begun.__aexit__(*NONE),
        "outcome": lambda w: w.begun.outcome(),
        "send_offsets": lambda w: w.begun.send_offsets({TP: 1}, "g"),
    },
    Consumer: {
        "__aenter__": lambda w: w.consumer.__aenter__(),
        "__aexit__": lambda w: w.consumer.__aexit__(*NONE),
        "__aiter__": lambda w: aiter(w.consumer),
        "__anext__": lambda w: w.consumer.__anext__(),
        "ack": lambda w: w.consumer.ack(w.record),
        "add_topic": lambda w: w.consumer.add_topic("t", 0),
        "assign": lambda w: w.consumer.assign([TP]),
        "assignment": lambda w: w.consumer.assignment(),
        "batches": lambda w: w.consumer.batches(),
        "beginning_offsets": lambda w: w.consumer.beginning_offsets([TP]),
        "close": lambda w: w.consumer.close(),
        "commit": lambda w: w.consumer.commit(),
        "commit_nowait": lambda w: w.consumer.commit_nowait(),
        "committed": lambda w: w.consumer.committed(TP),
        "end_offsets": lambda w: w.consumer.end_offsets([TP]),
        "getmany": lambda w: w.consumer.getmany(),
        "getone": lambda w: w.consumer.getone(),
        "group_metadata": lambda w: w.consumer.group_metadata(),
        "health": lambda w: w.consumer.health(),
        "highwater": lambda w: w.consumer.highwater(TP),
        "lag": lambda w: w.consumer.lag(TP),
        "last_poll_timestamp": lambda w: w.consumer.last_poll_timestamp(TP),
        "last_stable_offset": lambda w: w.consumer.last_stable_offset(TP),
        "offsets_for_transaction": lambda w: w.consumer.offsets_for_transaction(),
        "offsets_for_times": lambda w: w.consumer.offsets_for_times({TP: 0}),
        "partitions_for_topic": lambda w: w.consumer.partitions_for_topic("t"),
        "pause": lambda w: w.consumer.pause(TP),
        "paused": lambda w: w.consumer.paused(),
        "position": lambda w: w.consumer.position(TP),
        "resume": lambda w: w.consumer.resume(TP),
        "seek": lambda w: w.consumer.seek(TP, 0),
        "seek_to_beginning": lambda w: w.consumer.seek_to_beginning(),
        "seek_to_committed": lambda w: w.consumer.seek_to_committed(),
        "seek_to_end": lambda w: w.consumer.seek_to_end(),
        "start": lambda w: w.consumer.start(),
        "streams": lambda w: w.consumer.streams(2),
        "subscribe": lambda w: w.consumer.subscribe("t"),
        "subscription": lambda w: w.consumer.subscription(),
        "topics": lambda w: w.consumer.topics(),
        "unsubscribe": lambda w: w.consumer.unsubscribe(),
    },
    Stream: {
        "__aenter__": lambda w: w.stream.__aenter__(),
        "__aexit__": lambda w: w.stream.__aexit__(*NONE),
        "__aiter__": lambda w: aiter(w.stream),
        "assignment": lambda w: w.stream.assignment(),
        "batches": lambda w: w.stream.batches(),
        "close": lambda w: w.stream.close(),
        "getone": lambda w: w.stream.getone(),
    },
    BatchStream: {
        "__aiter__": lambda w: aiter(w.batches),
        "__anext__": lambda w: w.batches.__anext__(),
    },
    Admin: {
        "__aenter__": lambda w: w.admin.__aenter__(),
        "__aexit__": lambda w: w.admin.__aexit__(*NONE),
        "abort_transaction": lambda w: w.admin.abort_transaction(
            aiokq.AbortTransactionSpec(TP, 0, 0)
        ),
        "alter_configs": lambda w: w.admin.alter_configs({"t": {"retention.ms": 1}}),
        "alter_group_offsets": lambda w: w.admin.alter_group_offsets("g", {TP: 0}),
        "alter_partition_reassignments": lambda w: w.admin.alter_partition_reassignments(
            {TP: None}
        ),
        "close": lambda w: w.admin.close(),
        "create_partitions": lambda w: w.admin.create_partitions({"t": 2}),
        "create_topics": lambda w: w.admin.create_topics("u"),
        "delete_group_offsets": lambda w: w.admin.delete_group_offsets("g", [TP]),
        "delete_groups": lambda w: w.admin.delete_groups("g"),
        "delete_records": lambda w: w.admin.delete_records({TP: 0}),
        "delete_topics": lambda w: w.admin.delete_topics("u"),
        "describe_cluster": lambda w: w.admin.describe_cluster(),
        "describe_configs": lambda w: w.admin.describe_configs("t"),
        "describe_groups": lambda w: w.admin.describe_groups("g"),
        "describe_features": lambda w: w.admin.describe_features(),
        "describe_log_dirs": lambda w: w.admin.describe_log_dirs(),
        "describe_metadata_quorum": lambda w: w.admin.describe_metadata_quorum(),
        "describe_producers": lambda w: w.admin.describe_producers([TP]),
        "describe_topics": lambda w: w.admin.describe_topics("t"),
        "describe_transactions": lambda w: w.admin.describe_transactions("x"),
        "elect_leaders": lambda w: w.admin.elect_leaders([TP]),
        "fence_producers": lambda w: w.admin.fence_producers("x"),
        "group_lag": lambda w: w.admin.group_lag("g"),
        "import_group_offsets": lambda w: w.admin.import_group_offsets({"g": {TP: 0}}),
        "list_config_resources": lambda w: w.admin.list_config_resources(),
        "list_group_offsets": lambda w: w.admin.list_group_offsets("g"),
        "list_groups": lambda w: w.admin.list_groups(),
        "list_offsets": lambda w: w.admin.list_offsets({TP: "latest"}),
        "list_partition_reassignments": lambda w: w.admin.list_partition_reassignments(),
        "list_topics": lambda w: w.admin.list_topics(),
        "list_transactions": lambda w: w.admin.list_transactions(),
        "remove_members": lambda w: w.admin.remove_members("g"),
        "reset_group_offsets": lambda w: w.admin.reset_group_offsets("g", aiokq.ResetTo.earliest()),
        "rewind_group": lambda w: w.admin.rewind_group("g", {TP: 0}),
        "start": lambda w: w.admin.start(),
        "alter_client_quotas": lambda w: w.admin.alter_client_quotas(
            {aiokq.ClientQuotaEntity(user="u"): {"producer_byte_rate": 1.0}}
        ),
        "describe_client_quotas": lambda w: w.admin.describe_client_quotas(),
        "describe_acls": lambda w: w.admin.describe_acls(),
        "create_acls": lambda w: w.admin.create_acls(["User:u Allow Read Topic:t"]),
        "delete_acls": lambda w: w.admin.delete_acls(["User:u Allow Read Topic:t"]),
        "describe_user_scram_credentials": lambda w: w.admin.describe_user_scram_credentials(),
        "alter_user_scram_credentials": lambda w: w.admin.alter_user_scram_credentials(
            [aiokq.ScramDeletion("u")]
        ),
        "terminate_transaction": lambda w: w.admin.terminate_transaction("x"),
        "unregister_broker": lambda w: w.admin.unregister_broker(9),
        "update_features": lambda w: w.admin.update_features({"group.version": 1}),
    },
    EventStream: {
        "__aenter__": lambda w: w.events.__aenter__(),
        "__aexit__": lambda w: w.events.__aexit__(*NONE),
        "__aiter__": lambda w: aiter(w.events),
        "__anext__": lambda w: w.events.__anext__(),
        "__len__": lambda w: len(w.events),
        "aclose": lambda w: w.events.aclose(),
        "close": lambda w: w.events.close(),
        "get_nowait": lambda w: w.events.get_nowait(),
    },
    Registry: {
        "children": lambda w: w.registry.children("/brokers/ids"),
        "exists": lambda w: w.registry.exists("/brokers/ids"),
        "get": lambda w: w.registry.get("/brokers/ids"),
        "look": lambda w: w.registry.look(("brokers", "ids"), w.cluster.metadata),
        "read": lambda w: w.registry.read(("brokers", "ids"), None),
        "watch": lambda w: w.registry.watch("/brokers/ids"),
    },
    RegistryWatch: {
        "__aenter__": lambda w: w.watch.__aenter__(),
        "__aexit__": lambda w: w.watch.__aexit__(*NONE),
        "__aiter__": lambda w: aiter(w.watch),
        "__anext__": lambda w: w.watch.__anext__(),
        "aclose": lambda w: w.watch.aclose(),
        "close": lambda w: w.watch.close(),
    },
    EmbeddedCluster: {
        "__aenter__": lambda w: w.embedded.__aenter__(),
        "__aexit__": lambda w: w.embedded.__aexit__(*NONE),
        "bootstrap_servers_of": lambda w: w.embedded.bootstrap_servers_of("PLAINTEXT"),
        "close": lambda w: w.embedded.close(),
        "create_topic": lambda w: w.embedded.create_topic("u"),
        "delete_topic": lambda w: w.embedded.delete_topic("u"),
        "reset": lambda w: w.embedded.reset(),
        "run": lambda w: w.embedded.run(w.embedded.create_topic("u")),
        "snapshot": lambda w: w.embedded.snapshot("/nowhere"),
        "start": lambda w: w.embedded.start(),
    },
    aiokq.Delivery: {
        "__await__": lambda w: w.delivery,
        "add_done_callback": lambda w: w.delivery.add_done_callback(print),
        "remove_done_callback": lambda w: w.delivery.remove_done_callback(print),
    },
    aiokq.Deliveries: {"__await__": lambda w: w.deliveries},
    type(None): {"what aiter(consumer) gave": lambda w: w.records.__anext__()},
}
"""For each class, a call of each method."""


def columns() -> RecordColumns:
    import pyarrow

    return RecordColumns.from_arrow(pyarrow.record_batch({"value": pyarrow.array([b"v"])}))


VALUES: Final = {
    "Cluster.create_batch",
    "Cluster.health",
    "Producer.create_batch",
    "Producer.health",
    "Producer.transaction",
    "Consumer.assignment",
    "Consumer.group_metadata",
    "Consumer.health",
    "Consumer.highwater",
    "Consumer.lag",
    "Consumer.last_poll_timestamp",
    "Consumer.last_stable_offset",
    "Consumer.paused",
    "Consumer.subscription",
    "EventStream.__len__",
    "Registry.look",
    "Stream.assignment",
}
"""Methods that only return known values: callable from anywhere, at any time."""

NOT_CALLED: Final = {
    "Delivery": "what was the outcome: values",
    "RegistryWatch.start": "called by Registry.watch(), which gives it started",
    "RegistryWatch.metadata_changed": "called by the cluster, on its loop",
    "EmbeddedCluster.__enter__": "starts a thread with a loop of its own",
    "EmbeddedCluster.client_settings": "returns values that no loop changes",
    "EmbeddedCluster.__exit__": "joins that thread: for the code beside the loop",
}
"""Methods that are not in the table, and why."""

NOT_BOUND: Final = {
    "Deliveries": "a protocol; the class of the native core is in the table",
    "Serializer": "written by users",
    "Deserializer": "written by users",
    "Interceptor": "written by users",
}
"""Public awaitable classes that belong to no loop, and why."""

ANYWHERE, FORK, CLOSED, NEW = "elsewhere", "in a forked child", "after close", "before start"
EXPECTED: Final = {ANYWHERE: "WrongLoop", FORK: "WrongLoop", CLOSED: "Closed", NEW: "Closed"}

_ENDS = {"__aexit__", "aclose", "close"}
_STARTS = {"__aenter__", "start"}
_ITERATORS = {EventStream, RegistryWatch}
_DECLARES = {
    *("Consumer.subscribe", "Consumer.assign", "Consumer.add_topic", "Consumer.unsubscribe"),
    *("Cluster.admin", "Cluster.consumer", "Cluster.producer", "Cluster.events"),
}


def _exceptions() -> dict[tuple[str, str], tuple[str, str]]:
    """Return what happens and why, for each method and situation that differs from `EXPECTED`."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for owner, calls in CALLS.items():
        for name in calls:
            method = f"{owner.__name__}.{name}"
            if method in VALUES:
                for situation in EXPECTED:
                    found[method, situation] = "returned", "a value"
            elif name in _ENDS:
                found[method, FORK] = "returned", "what is left in a child is the parent's"
                found[method, CLOSED] = "returned", "harmless twice"
                found[method, NEW] = "returned", "there is nothing to close; run to its end"
            elif name in _STARTS:
                found[method, NEW] = "started", "this is the start"
            elif method in _DECLARES:
                found[method, NEW] = "returned", "only declares what start() begins"
            if owner in _ITERATORS and name in ("__aiter__", "__aenter__"):
                for situation in EXPECTED:
                    found[method, situation] = "returned", "gives itself: its first step is checked"
    for name in ("highwater", "lag", "last_poll_timestamp", "last_stable_offset"):
        for situation in (CLOSED, NEW):
            found[f"Consumer.{name}", situation] = "ConfigError", "nothing is assigned"
    ended = "ended", "iterating ends with what is iterated"
    for method in ("EventStream.__anext__", "RegistryWatch.__anext__", "BatchStream.__anext__"):
        found[method, CLOSED] = ended
    found["NoneType.what aiter(consumer) gave", CLOSED] = ended
    found["Stream.__aiter__", CLOSED] = ended
    for method in ("Stream.__aenter__", "Stream.batches"):
        found[method, CLOSED] = "returned", "iterating it ends at once"
    found["BatchStream.__aiter__", CLOSED] = found["Stream.batches", CLOSED]
    found["Transaction.__aexit__", FORK] = "WrongLoop", "otherwise a commit would seem carried out"
    found["Transaction.__aexit__", CLOSED] = "TransactionAborted", "the close has aborted it"
    found["Transaction.outcome", CLOSED] = "returned", "the outcome is known"
    found["Producer.flush", CLOSED] = "returned", "nothing is left to wait for"
    for method in CALLS[aiokq.Delivery]:
        found[f"Delivery.{method}", CLOSED] = "returned", "the outcome is known"
    found["Deliveries.__await__", CLOSED] = "returned", "the outcomes are known"
    for method in _STARTS:
        found[f"EmbeddedCluster.{method}", CLOSED] = "started", "it may be started again"
        found[f"EmbeddedCluster.{method}", ANYWHERE] = "ConfigError", "it is running already"
    for situation in (ANYWHERE, FORK):
        found["EmbeddedCluster.bootstrap_servers_of", situation] = "returned", "a value"
    found["EmbeddedCluster.run", ANYWHERE] = "Closed", "only for one that was entered with `with`"
    return found


EXCEPTIONS: Final = _exceptions()
TABLE: Final = [
    pytest.param(call, f"{owner.__name__}.{name}", id=f"{owner.__name__}.{name}")
    for owner, calls in CALLS.items()
    for name, call in calls.items()
]
UNSTARTED: Final = {Cluster, Producer, Consumer, Admin, EventStream, Registry, EmbeddedCluster}
"""Classes whose objects exist before anything is started."""

SPECIAL: Final = {
    *("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__enter__", "__exit__"),
    "__len__",
}


def methods_of(owner: type) -> set[str]:
    """Return the names of public and special methods, without properties."""
    found = set()
    for name in dir(owner):
        if name.startswith("_") and name not in SPECIAL:
            continue
        if callable(inspect.getattr_static(owner, name)):
            found.add(name)
    return found


def test_every_public_method_is_in_the_table():
    """A new method needs a call, or a reason not to have one."""
    for owner, calls in CALLS.items():
        if owner in (type(None), aiokq.Deliveries, aiokq.Delivery):
            continue
        listed = set(calls) | {
            name.partition(".")[2] for name in NOT_CALLED if name.startswith(owner.__name__ + ".")
        }
        assert methods_of(owner) | ({"send_nowait"} & set(calls)) == listed, owner.__name__


def test_every_public_class_with_something_to_await_is_in_the_table():
    """A new class needs calls, or a reason not to have them."""
    for name in aiokq.__all__:
        thing = getattr(aiokq, name)
        if not inspect.isclass(thing):
            continue
        awaits = methods_of(thing) & {"__aenter__", "__aiter__", "__anext__", "__await__"} or any(
            inspect.iscoroutinefunction(getattr(thing, method)) for method in methods_of(thing)
        )
        if awaits:
            assert thing in CALLS or name in NOT_BOUND, name


def outcome(call: Call, world: World) -> str:
    """Return what the first step does: "returned", "ended", "waits", or an error's name."""
    try:
        made = call(world)
        if hasattr(made, "__await__") and not isinstance(made, asyncio.Future):
            steps = made.__await__()
            next(steps)
            if hasattr(steps, "close"):
                steps.close()
            return "waits"
    except StopIteration:
        return "returned"
    except StopAsyncIteration:
        return "ended"
    except KafkaError as error:
        return type(error).__name__
    return "returned"


def is_right(method: str, situation: str, said: str) -> None:
    expected, why = EXCEPTIONS.get((method, situation), (EXPECTED[situation], "the rule"))
    assert said == expected, f"{method} {situation}: {expected} ({why})"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedCluster() as kafka:
        kafka.run(kafka.create_topic("t", 1))

        async def fill() -> None:
            async with Producer(kafka.bootstrap_servers) as producer:
                await producer.send_many("t", [(None, b"v")] * 10)

        asyncio.run(fill())
        yield kafka.bootstrap_servers


@pytest.fixture(
    scope="module",
    params=[asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
)
def owner(request: pytest.FixtureRequest, address: str) -> Iterator[tuple[asyncio.Runner, World]]:
    """A loop that runs only on request, with one object of each class."""
    with asyncio.Runner(loop_factory=request.param) as runner:

        async def make() -> World:
            return await World(address).start()

        world = runner.run(make())
        yield runner, world
        runner.run(world.close())


@pytest.fixture(scope="module")
def closed(address: str) -> Iterator[tuple[asyncio.Runner, World]]:
    with asyncio.Runner() as runner:

        async def make() -> World:
            world = await World(address).start()
            await world.close()
            return world

        yield runner, runner.run(make())


async def asked(call: Call, world: World) -> str:
    return outcome(call, world)


@pytest.mark.parametrize(("call", "method"), TABLE)
def test_on_another_loop_of_this_thread(
    owner: tuple[asyncio.Runner, World], call: Call, method: str
):
    """After a second `asyncio.run` the call would wait for the first loop, which no longer runs."""
    is_right(method, ANYWHERE, asyncio.run(asked(call, owner[1])))


@pytest.mark.parametrize(("call", "method"), TABLE)
def test_in_another_thread_with_a_loop(
    owner: tuple[asyncio.Runner, World], call: Call, method: str
):
    """Neither futures nor buffers are thread-safe."""
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(asyncio.run(asked(call, owner[1]))))
    thread.start()
    thread.join(30)
    is_right(method, ANYWHERE, said[0])


@pytest.mark.parametrize(("call", "method"), TABLE)
def test_outside_of_any_loop(owner: tuple[asyncio.Runner, World], call: Call, method: str):
    """Synchronous methods look as if they could be called anywhere."""
    if method.startswith("EmbeddedCluster.") and method != "EmbeddedCluster.run":
        return  # coroutines, which need a running loop to be handed over from
    is_right(method, ANYWHERE, outcome(call, owner[1]))


@needs_fork
@pytest.mark.parametrize(("call", "method"), TABLE)
def test_in_a_forked_child(owner: tuple[asyncio.Runner, World], call: Call, method: str):
    """The fork happens inside the parent's running loop, of which the child has a copy."""
    runner, world = owner

    async def fork() -> str:
        return in_child(lambda: outcome(call, world))

    is_right(method, FORK, runner.run(fork()))


@pytest.mark.parametrize(("call", "method"), TABLE)
def test_after_close(closed: tuple[asyncio.Runner, World], call: Call, method: str):
    """The call raises an error that says so, and does not wait."""
    runner, world = closed
    if EXCEPTIONS.get((method, CLOSED), ("",))[0] == "started":
        return
    is_right(method, CLOSED, runner.run(asked(call, world)))


@pytest.mark.parametrize(
    ("call", "method"),
    [
        pytest.param(call, f"{owner.__name__}.{name}", id=f"{owner.__name__}.{name}")
        for owner in CALLS
        if owner in UNSTARTED
        for name, call in CALLS[owner].items()
        if EXCEPTIONS.get((f"{owner.__name__}.{name}", NEW), ("",))[0] != "started"
    ],
)
async def test_before_start(call: Call, method: str):
    """Forgetting `async with` is the commonest mistake."""
    world = World("localhost:1")
    if method.rpartition(".")[2] not in _ENDS:
        is_right(method, NEW, outcome(call, world))
    elif (closing := call(world)) is not None:
        await closing


def is_property(member: object) -> bool:
    """Whether `member` is a property, also of a compiled class.

    Names in __slots__ are public in neither build.
    """
    return isinstance(member, property) or inspect.isgetsetdescriptor(member)


PROPERTIES: Final = [
    pytest.param(owner, name, id=f"{owner.__name__}.{name}")
    for owner in CALLS
    for name in ("__repr__", *dir(owner))
    if name == "__repr__"
    or (not name.startswith("_") and is_property(inspect.getattr_static(owner, name, None)))
]


def objects(world: World) -> dict[type, Any]:
    return {
        Cluster: world.cluster,
        Producer: world.producer,
        Consumer: world.consumer,
        Stream: world.stream,
        BatchStream: world.batches,
        Admin: world.admin,
        EventStream: world.events,
        Registry: world.registry,
        RegistryWatch: world.watch,
        EmbeddedCluster: world.embedded,
        aiokq.Transaction: world.begun,
        aiokq.Delivery: world.delivery,
        aiokq.Deliveries: world.deliveries,
    }


@pytest.mark.parametrize(("kind", "name"), PROPERTIES)
def test_properties_are_read_anywhere(owner: tuple[asyncio.Runner, World], kind: type, name: str):
    """Readers may be debuggers, health checks in a thread, or children that log their state."""
    thing = objects(owner[1]).get(kind)

    def read() -> str:
        try:
            value = getattr(thing, name)
            value() if name == "__repr__" else repr(value)
        except (aiokq.Closed, asyncio.InvalidStateError):
            return "not known yet"
        return "told"

    said: list[str] = [read(), in_child(read)]
    thread = threading.Thread(target=lambda: said.append(read()))
    thread.start()
    thread.join(30)
    assert len(set(said)) == 1
    assert said[0] == "told" or name == "offset", "a record that is not acknowledged has none"


def test_metrics_are_read_anywhere(owner: tuple[asyncio.Runner, World]):
    """A scrape comes from a thread of its own."""
    found: list[int] = []
    counters = owner[1].cluster.counters
    thread = threading.Thread(target=lambda: found.append(len(list(counters.samples()))))
    thread.start()
    thread.join(30)
    assert found[0]


def test_the_owner_was_not_disturbed(owner: tuple[asyncio.Runner, World]):
    """After all these calls the owner's loop works, and no call has consumed a record."""
    runner, world = owner

    async def use() -> bool:
        async with asyncio.timeout(30):
            flushing = asyncio.create_task(world.producer.flush())
            await world.delivery
            await flushing
            assert (await anext(world.records)).offset == 1
            await world.embedded.create_topic("mine")
            return (await world.cluster.fetch(TP, 0)).next_offset > 1

    assert runner.run(use())
    assert world.producer._delivery.completion.delivered_records == 2


def test_every_exception_is_of_the_table():
    """An exception for a method that no longer exists must be deleted."""
    known = {f"{owner.__name__}.{name}" for owner, calls in CALLS.items() for name in calls}
    assert {method for method, _ in EXCEPTIONS} <= known
    assert known >= VALUES
