"""User hooks of a producer: interceptors, serializers, partitioners, and batches built by hand."""

from __future__ import annotations

import array
import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

import aiokq
from aiokq.core.errors import (
    ConfigError,
    DeliveryFailed,
    KafkaError,
    RecordTooLarge,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.producer.batch_builder import BatchBuilder
from aiokq.producer.interceptors import BatchInfo, Interceptor, Interceptors, ProducerRecord
from aiokq.producer.partitioner import Partitioner
from aiokq.producer.producer import Producer
from aiokq.producer.serializers import serialize_with
from aiokq.producer.settings import ProducerSettings
from tests.sim.producer_world import producer, simulate, times


class Recorder(Interceptor):
    """Records its calls."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append(("enqueue", record.value))
        return ProducerRecord(record.topic, f"{record.value}!", record.key)

    def on_batch(self, batch: BatchInfo) -> None:
        self.seen.append(("batch", (batch.count, batch.attempt)))

    def on_ack(self, batch: BatchInfo) -> None:
        self.seen.append(("ack", batch.base_offset))

    def on_error(self, batch: BatchInfo, error: Exception) -> None:
        self.seen.append(("error", type(error).__name__))


class Broken(Interceptor):
    """Raises in every stage."""

    def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("broken")

    def on_batch(self, batch: BatchInfo) -> None:
        raise RuntimeError("broken")

    on_ack = on_batch


def test_interceptors_see_every_stage() -> None:
    """on_enqueue per record, the others per batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        recorder = Recorder()
        options = {"interceptors": (recorder,), "value_serializer": str.encode, "linger_ms": 0}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", "a")
            kafka.faults.append(times(1, 19))
            await p.send("orders", "b")
            kafka.faults.append(times(1, 29))
            with pytest.raises(Exception, match="TOPIC_AUTHORIZATION"):
                await p.send("orders", "c")
        assert recorder.seen == [
            ("enqueue", "a"),
            ("batch", (1, 1)),
            ("ack", 0),
            ("enqueue", "b"),
            ("batch", (1, 1)),
            ("batch", (1, 2)),
            ("ack", 1),
            ("enqueue", "c"),
            ("batch", (1, 1)),
            ("error", "TopicAuthorization"),
        ]
        assert kafka.values("orders") == [b"a!", b"b!"]

    simulate(body)


def test_a_broken_interceptor_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Its errors are logged; records and other interceptors are not affected."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        recorder = Recorder()
        async with producer(world, kafka, interceptors=(Broken(), recorder)) as p:
            with pytest.raises(TypeError):  # the recorder returns str
                await p.send("orders", b"v")
        async with producer(world, kafka, interceptors=(Broken(),)) as p:
            await p.send("orders", b"v")
        assert kafka.values("orders") == [b"v"]

    with caplog.at_level(logging.ERROR):
        simulate(body)
    stages = [r.args for r in caplog.records if "interceptor failed" in r.message]
    assert len(stages) >= 4


class PanicError(BaseException):
    """A BaseException, like the panics of Rust extensions."""


@pytest.mark.parametrize("kind", [asyncio.CancelledError, PanicError, StopIteration])
@pytest.mark.parametrize("stage", ["on_enqueue", "on_batch", "on_ack", "on_error"])
def test_an_interceptor_may_raise_anything_and_records_go_on(
    caplog: pytest.LogCaptureFixture, stage: str, kind: type[BaseException]
) -> None:
    """An exception that is not an Exception must stop neither sending nor the producer.

    Regression: a CancelledError of `on_ack` silently stopped its partition, and other
    BaseExceptions closed the producer.
    """

    def broken(self: Any, *args: Any) -> Any:
        raise kind

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        interceptor = type("Broken", (Interceptor,), {stage: broken})()
        async with producer(world, kafka, interceptors=(interceptor,), linger_ms=0) as p:
            kafka.faults.append(times(1, 29))
            with pytest.raises(TopicAuthorization):
                await p.send("orders", b"refused")
            for n in range(3):
                await asyncio.wait_for(p.send("orders", b"%d" % n), 10)
            assert p.health().ok
        assert kafka.values("orders") == [b"0", b"1", b"2"]

    with caplog.at_level(logging.ERROR):
        simulate(body)
    assert caplog.text.count(f"interceptor failed: stage={stage}") == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interceptor_that_ends_the_program_ends_it(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    """`sys.exit()` in a hook ends the program."""

    def broken(self: Any, *args: Any) -> Any:
        raise kind

    stages = ("on_enqueue", "on_batch", "on_ack", "on_error")
    chain = Interceptors([type("Broken", (Interceptor,), dict.fromkeys(stages, broken))()])
    info = BatchInfo("orders", 0, 1, 100, 1)
    with pytest.raises(kind):
        chain.enqueue(ProducerRecord("orders", b"v"))
    with pytest.raises(kind):
        chain.batch(info)
    with pytest.raises(kind):
        chain.ack(info)
    with pytest.raises(kind):
        chain.error(info, KafkaError("refused"))
    assert not caplog.records


@pytest.mark.parametrize("kind", [asyncio.CancelledError, StopIteration, PanicError])
@pytest.mark.parametrize("hook", ["key_serializer", "value_serializer", "partitioner"])
def test_what_a_serializer_or_partitioner_raises_fails_the_call_and_not_the_task(
    hook: str, kind: type[BaseException]
) -> None:
    """Regression: a CancelledError of a serializer ended the task that had called `send`."""

    def broken(*args: Any) -> Any:
        raise kind

    expected = kind if kind is PanicError else RuntimeError

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options: dict[str, Any] = {hook: broken}
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            with pytest.raises(expected):
                await p.send("orders", b"v", key=b"k")
            with pytest.raises(expected):
                await p.enqueue("orders", b"v", key=b"k")
            with pytest.raises(expected):
                p.send_nowait("orders", b"v", key=b"k")
            with pytest.raises(expected):
                await p.send_many("orders", [(b"k", b"v")])
            assert p.health().ok

    simulate(body)


def test_a_serializer_is_a_callable_or_an_object_that_asks_for_more() -> None:
    """A callable such as json.dumps, or an object that also gets topic and headers."""

    class Named:
        def serialize(self, topic: str, headers: Any, data: object) -> bytes:
            return f"{topic}:{data}".encode()

    assert serialize_with(lambda v: json.dumps(v).encode())("t", None, {"a": 1}) == b'{"a": 1}'
    assert serialize_with(Named())("t", None, 5) == b"t:5"


def test_serializers_make_bytes_of_objects() -> None:
    """In every method that sends; None as key or value is not passed to the serializer."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"value_serializer": lambda v: b"%d" % v, "key_serializer": str.encode}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", 1, key="a")
            await (await p.enqueue("orders", 2, key="b"))
            await p.send_nowait("orders", 3, key="c")
            deliveries = await p.send_many("orders", [("d", 4), ("e", 5, [("h", b"x")])])
            metas = await deliveries
            assert [meta.offset for meta in metas] == [3, 4]
            assert deliveries[0].result() == metas[0]
            assert len(deliveries) == 2
            assert deliveries.done()
            with pytest.raises(TypeError):
                await p.send("orders", "not a number")
            await p.send("orders", 6)
            await p.send("orders", None, key="f")
        records = [r for b in kafka.log("orders").batches for r in b.records]
        assert [(r.key, r.value) for r in records] == [
            (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"d", b"4"), (b"e", b"5"),
            (None, b"6"), (b"f", None),
        ]  # fmt: skip
        assert list(records[4].headers) == [("h", b"x")]

    simulate(body)


def test_without_hooks_the_native_append_is_bound_directly() -> None:
    """No Python code runs per record without hooks."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as plain:
            assert plain.send_nowait == plain._delivery.accumulator.append
        async with producer(world, kafka, key_serializer=str.encode) as hooked:
            assert hooked.send_nowait != hooked._delivery.accumulator.append

    simulate(body)


class ByLength(Partitioner):
    """Chooses the length of the value as the partition; None for the default."""

    def partition(
        self,
        topic: str,
        key: Any,
        value: Any,
        partitions: Sequence[int],
        available: Sequence[int],
    ) -> int | None:
        assert list(partitions) == [0, 1, 2]
        return None if key else len(value)


def test_a_partitioner_of_one_s_own_chooses() -> None:
    """None means the default choice; a given partition wins over both."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka, partitioner=ByLength()) as p:
            with pytest.raises(UnknownTopicOrPartition, match="enqueue"):
                p.send_nowait("orders", b"")  # no metadata yet
            assert (await p.send("orders", b"12")).partition == 2
            assert (await p.send("orders", b"1")).partition == 1
            assert (await p.send("orders", b"12", partition=0)).partition == 0
            assert (await p.send("orders", b"12", key=b"k")).partition in (0, 1, 2)
            with pytest.raises(ConfigError, match="chose partition 4"):
                await p.send("orders", b"1234")
            many = await p.send_many("orders", [(None, b""), (None, b"1"), (None, b"12")])
            assert [meta.partition for meta in await many] == [0, 1, 2]

    simulate(body)


def test_a_partitioner_of_aiokafka_or_kafka_python_works_as_it_is() -> None:
    """They are called with the key, all partitions, and the partitions with a leader.

    Regression: aiokq accepted objects only, so users of those clients had to wrap their functions.
    """
    seen: list[tuple[Any, ...]] = []

    def by_first_byte(key: bytes | None, all_partitions: list[int], available: list[int]) -> int:
        seen.append((key, all_partitions, available))
        assert type(all_partitions) is type(available) is list
        return all_partitions[0] if key is None else key[0] % len(all_partitions)

    class Lettered:
        def __call__(self, key: Any, all_partitions: list[int], available: list[int]) -> int | None:
            return None if key is None else b"abc".index(key)

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, -1])
        async with producer(world, kafka, partitioner=by_first_byte) as p:
            assert (await p.send("orders", b"v", key=b"\x01")).partition == 1
            assert (await p.send("orders", b"v")).partition == 0
            assert (await p.send("orders", b"v", key=memoryview(b"\x04"))).partition == 1
            assert (await p.send("orders", b"v", key=b"\x01", partition=0)).partition == 0
        assert seen == [(key, [0, 1, 2], [0, 1]) for key in (b"\x01", None, b"\x04")]
        async with producer(world, kafka, partitioner=Lettered()) as p:
            assert (await p.send("orders", b"v", key=b"b")).partition == 1
            assert (await p.send("orders", b"v")).partition in (0, 1)

    simulate(body)


@pytest.mark.parametrize("chosen", [3, -1, 1.0, "1", True, [1]])
def test_what_is_no_partition_is_a_typed_error(chosen: Any) -> None:
    """Regression: 1.0 passed the first check and then failed with another message.

    Unhashable values such as lists must not take the producer down either.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka, partitioner=lambda *_: chosen) as p:
            with pytest.raises(ConfigError, match="the partitioner chose partition") as caught:
                await p.send("orders", b"v")
            assert repr(chosen) in str(caught.value)
            with pytest.raises(ConfigError, match="the partitioner chose partition"):
                await p.send_many("orders", [(None, b"v")])
            assert (await p.send("orders", b"v", partition=1)).offset == 0

    simulate(body)


def test_a_partition_number_of_numpy_s_is_one() -> None:
    """Partitioners that hash with numpy return numpy integers."""

    class Number:
        def __index__(self) -> int:
            return 2

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka, partitioner=lambda *_: Number()) as p:
            assert (await p.send("orders", b"v")).partition == 2

    simulate(body)


@pytest.mark.parametrize("wrong", ["murmur2", b"murmur2", ByLength, 5])
def test_a_partitioner_is_no_name_and_no_class(wrong: Any) -> None:
    """Regression: str, and classes that were not called, have a method `partition`.

    Either was accepted, and the first record failed.
    """
    with pytest.raises(ConfigError, match=r"partitioner: .*callable"):
        ProducerSettings(partitioner=wrong)
    if isinstance(wrong, str):
        with pytest.raises(ConfigError, match=r"partitioner: .*callable"):
            ProducerSettings.from_env(environ={"KAFKA_PARTITIONER": wrong})


def test_send_many_with_hooks_reports_each_record() -> None:
    """It is the same error as without hooks: one entry per record."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        kafka.faults.append(lambda a: 29 if a.partition == 1 else None)
        async with producer(world, kafka, partitioner=ByLength()) as p:
            many = await p.send_many("orders", [(None, b""), (None, b"1"), (None, b"12")])
            with pytest.raises(DeliveryFailed) as caught:
                await many
            assert caught.value.count == 1
            assert [e is None for e in caught.value.errors] == [True, False, True]
            assert caught.value.topic_partitions == (("orders", 1),)

    simulate(body)


@pytest.mark.parametrize("how", ["plain", "serializer", "interceptor", "partitioner", "by hand"])
def test_many_deliveries_are_deliveries_whatever_hooks_there_are(how: str) -> None:
    """Regression: isinstance(x, aiokq.Deliveries) was true only without a serializer."""
    hooks: dict[str, Any] = {
        "serializer": {"value_serializer": bytes},
        "interceptor": {"interceptors": (Interceptor(),)},
        "partitioner": {"partitioner": ByLength()},
    }

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka, **hooks.get(how, {})) as p:
            if how == "by hand":
                batch = p.create_batch()
                batch.append(b"")
                batch.append(b"1")
                many = await p.send_batch(batch, "orders", partition=0)
            else:
                many = await p.send_many("orders", [(None, b""), (None, b"1")])
            assert isinstance(many, aiokq.Deliveries)
            assert not isinstance(many[0], aiokq.Deliveries)
            assert not many.done()
            assert len(await many) == len(many) == len(list(many)) == 2
            assert many.done()
            assert [each.result() for each in many[:]] == await many
            assert many[-1].result() == many[1].result()
            with pytest.raises(IndexError):
                many[2]
            assert repr(many) == "<Deliveries of 2 records>"
        assert not isinstance([], aiokq.Deliveries)

    simulate(body)


def test_a_batch_by_hand_says_when_it_is_full() -> None:
    """Keys and values are copied, and str is rejected."""
    batch = BatchBuilder(500)
    data = bytearray(b"x" * 100)
    assert batch.append(data, key=memoryview(b"k"), headers=[("h", b"v")])
    data[:] = b"y" * 100
    assert batch.records[0][1] == b"x" * 100
    while batch.append(b"z" * 100):
        pass
    assert 2 <= len(batch) <= 4
    assert batch.size() <= 500
    with pytest.raises(TypeError, match="encode"):
        BatchBuilder(500).append("text")  # type: ignore[arg-type]
    for buffer in (array.array("q", range(100)), memoryview(array.array("q", range(100)))):
        assert not BatchBuilder(500).append(buffer)
        batch = BatchBuilder(2000)
        assert batch.append(buffer)
        assert batch.size() > 800
        assert batch.records[0][1] == bytes(memoryview(buffer))
    size = batch.size()
    with pytest.raises(TypeError):
        batch.append("text", b"key")  # type: ignore[arg-type]
    assert (batch.size(), len(batch)) == (size, 1)
    batch = BatchBuilder(500)
    batch.close()
    assert not batch.append(b"v")


def test_a_batch_by_hand_must_have_records_and_fit() -> None:
    """Bad input to send_batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            with pytest.raises(ConfigError, match="empty"):
                await p.send_batch(p.create_batch(), "orders", partition=0)
            large = BatchBuilder(100_000_000)
            large.append(b"x" * 40_000_000)
            with pytest.raises(RecordTooLarge):
                await p.send_batch(large, "orders", partition=0)

    simulate(body)


def test_settings_are_given_once() -> None:
    """Two sources of the same setting are a mistake."""
    with pytest.raises(ConfigError, match="twice"):
        Producer("a:1", bootstrap_servers="b:1")
    with pytest.raises(ConfigError, match="did you mean linger_ms"):
        Producer("a:1", lingerms=5)  # type: ignore[call-arg]


def test_an_interceptor_that_returns_nothing_is_as_if_it_were_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: the interceptor returned None, and send() raised that None has no topic."""

    class Forgetful(Interceptor):
        def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
            return None  # type: ignore[return-value]

    record = ProducerRecord("orders", b"v")
    assert Interceptors([Forgetful(), Interceptor()]).enqueue(record) is record
    assert "must return a ProducerRecord" in caplog.text
