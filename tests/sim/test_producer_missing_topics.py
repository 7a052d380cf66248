"""A missing topic: one warning, an error that suggests the nearest name, and a short close()."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from aiokq import wire
from aiokq.cluster import topic_lookup
from aiokq.core.errors import (
    Closed,
    DeliveryFailed,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.core.nearest_name import nearest_name
from aiokq.core.types import TopicPartition
from tests.sim.producer_world import producer, simulate


class First:
    """A partitioner that needs the list of partitions."""

    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return int(partitions[0])


async def awaited_later(p: Any) -> None:
    delivery = p.send_nowait("ordres", b"v")
    await delivery


async def many(p: Any) -> None:
    deliveries = await p.send_many("ordres", [(None, b"v"), (None, b"w")])
    with pytest.raises(DeliveryFailed) as caught:
        await deliveries
    assert caught.value.count == 2
    error = caught.value.errors[0]
    assert error is not None
    raise error


async def batch(p: Any) -> None:
    built = p.create_batch()
    built.append(value=b"v")
    await p.send_batch(built, "ordres", partition=0)


WAYS: dict[str, tuple[Callable[[Any], Awaitable[Any]], dict[str, Any]]] = {
    "send": (lambda p: p.send("ordres", b"v"), {}),
    "send to a partition": (lambda p: p.send("ordres", b"v", partition=0), {}),
    "send with a partitioner": (lambda p: p.send("ordres", b"v"), {"partitioner": First()}),
    "send_nowait": (awaited_later, {}),
    "send_many": (many, {}),
    "send_batch": (batch, {}),
    "partitions_for": (lambda p: p.partitions_for("ordres"), {}),
}


def warnings_of(caplog: pytest.LogCaptureFixture, said: str = "topic does not exist") -> list[str]:
    return [r.getMessage() for r in caplog.records if said in r.getMessage()]


@pytest.mark.parametrize("way", WAYS)
def test_one_warning_after_a_second_and_an_error_after_max_block_ms(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A misspelled topic caused a minute of silence and then an error without a suggestion."""
    wait, options = WAYS[way]

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.topic("payments", [1])
        async with producer(world, kafka, **options) as p:
            started = world.loop.time()
            waiting = asyncio.create_task(wait(p))  # type: ignore[arg-type]
            await asyncio.sleep(0.95)
            assert warnings_of(caplog) == []
            await asyncio.sleep(0.1)
            (line,) = warnings_of(caplog)
            assert "topic=ordres nearest=orders waits_ms=60000" in line
            assert "auto.create.topics.enable=true" in line
            assert "allow_auto_create_topics" not in line
            with pytest.raises(UnknownTopicOrPartition, match="did you mean 'orders'") as caught:
                await waiting
            assert "auto.create.topics.enable" in str(caught.value)
            assert world.loop.time() - started == pytest.approx(60.0, abs=0.2)
            assert len(warnings_of(caplog)) == 1
            # The names of all topics are requested once.
            asked = kafka[1].seen_of(wire.MetadataRequest)
            assert sum(request.topics is None for request in asked) == 1

    simulate(body)


def test_computing_suggestions_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With 1,500 topics a dozen missing ones blocked the loop for seconds, several times."""
    compared: list[int] = []

    def counting(name: str, known: Sequence[str]) -> str | None:
        compared.append(len(known))
        return nearest_name(name, known)

    monkeypatch.setattr(topic_lookup, "nearest_name", counting)

    async def body(world: Any, kafka: Any) -> None:
        for number in range(1_500):
            kafka.topic(f"orders-of-the-day-{number:04}", [1])
        async with producer(world, kafka, max_block_ms=3_000) as p:
            sends = [p.send(f"orders-of-the-day-{n:05}", b"v") for n in range(12)]
            errors = await asyncio.gather(*sends, return_exceptions=True)
        assert sum("did you mean 'orders-of-the-day-0" in str(error) for error in errors) >= 6

    simulate(body)
    assert max(compared) <= topic_lookup.NAMES_PER_TURN + 1
    assert sum(compared) <= topic_lookup.NAMES_COMPARED * 1.1


def test_the_error_names_the_clients_setting_that_forbids_creation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only changing the brokers' setting would not help. No name is similar enough to suggest."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("payments", [1])
        options = {"allow_auto_create_topics": False, "max_block_ms": 5000}
        async with producer(world, kafka, **options) as p:
            with pytest.raises(UnknownTopicOrPartition) as caught:
                await p.send("orders", b"v")
            (line,) = warnings_of(caplog)
            assert "nearest" not in line
            assert "did you mean" not in str(caught.value)
            for said in (line, str(caught.value)):
                assert "auto.create.topics.enable=true on the brokers" in said
                assert "allow_auto_create_topics=True on this client" in said

    simulate(body)


def test_many_waiters_for_a_topic_cause_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand sends per second use one misspelled topic."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, max_block_ms=5000) as p:
            sends = [asyncio.create_task(p.send("ordres", b"%d" % n)) for n in range(20)]
            sends += [asyncio.create_task(p.partitions_for("ordres")) for _ in range(20)]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(error, UnknownTopicOrPartition) for error in outcomes)
        assert len(warnings_of(caplog)) == 1

    simulate(body)


def levels(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == level]


def test_many_missing_topics_are_a_few_log_lines_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand missing topics caused a thousand warnings and, at the end, a thousand errors."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, max_block_ms=3_600_000, delivery_timeout_ms=3_600_000)
        await p.start()
        for n in range(60):
            p.send_nowait(f"missing-{n}", b"v")
        await asyncio.sleep(10)
        told = levels(caplog, logging.WARNING)
        assert len(told) == 4
        assert all("topic does not exist: topic=missing-" in line for line in told)
        await asyncio.sleep(60)
        assert levels(caplog, logging.WARNING)[4:] == ["topics do not exist: others=56"]
        p.send_nowait("missing-too", b"v")
        await asyncio.sleep(10)
        assert "topic=missing-too" in levels(caplog, logging.WARNING)[5]
        report = await p.close()
        assert report.failed == 61
        errors = levels(caplog, logging.ERROR)
        assert len(errors) == 5
        assert all("records are given up: topic=missing-" in line for line in errors[:4])
        assert errors[4] == "records are given up: other topics=57"
        assert len(levels(caplog, logging.WARNING)) == 6

    simulate(body)


def test_a_missing_topic_does_not_affect_others_and_is_in_health() -> None:
    """Each topic is waited for separately."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            lost = p.send_nowait("ordres", b"v")
            await asyncio.sleep(2)
            started = world.loop.time()
            await p.send("orders", b"v")
            assert world.loop.time() - started < 0.1
            health = p.health()
            assert health.missing_topics == {"ordres"}
            assert not health.ok
            with pytest.raises(UnknownTopicOrPartition):
                await lost
            assert p.health().missing_topics == frozenset()
            assert p.health().ok

    simulate(body)


def test_an_outage_is_not_reported_as_a_missing_topic(caplog: pytest.LogCaptureFixture) -> None:
    """Without any response it is unknown whether the topic exists."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            world.network.partition("10.0.0.1")
            delivery = p.send_nowait("orders", b"v")
            await asyncio.sleep(20)
            assert warnings_of(caplog) == []
            assert p.health().missing_topics == frozenset()
            world.network.heal()
            await delivery
        assert kafka.values("orders") == [b"v"]

    simulate(body)


def test_a_topic_created_late_gets_its_records(caplog: pytest.LogCaptureFixture) -> None:
    """The topic is created after 1.5 s: there is one warning and no error."""

    async def body(world: Any, kafka: Any) -> None:
        async with producer(world, kafka) as p:
            world.loop.call_later(1.5, kafka.topic, "orders", [1])
            assert (await p.send("orders", b"v")).offset == 0
            assert world.loop.time() < 4
        assert kafka.values("orders") == [b"v"]
        assert len(warnings_of(caplog)) == 1
        assert not [r for r in caplog.records if r.levelno > logging.WARNING]

    simulate(body)


def test_a_topic_created_at_once_causes_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Automatic creation takes a moment and is the normal case."""

    async def body(world: Any, kafka: Any) -> None:
        async with producer(world, kafka) as p:
            world.loop.call_later(0.5, kafka.topic, "orders", [1])
            await p.send("orders", b"v")
        assert warnings_of(caplog) == []

    simulate(body)


def test_an_authorization_error_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers do not reveal whether such a topic exists."""

    async def body(world: Any, kafka: Any) -> None:
        usual = kafka.metadata

        def metadata(request: wire.MetadataRequest) -> wire.MetadataResponse:
            answer = usual(request)
            for topic in answer.topics:
                if topic.name == "secret":
                    topic.error_code = 29
            return answer

        kafka.metadata = metadata
        p = producer(world, kafka)
        await p.start()
        with pytest.raises(TopicAuthorization):
            await p.send("secret", b"v")
        delivery = p.send_nowait("secret", b"v")
        report = await p.close()
        assert world.loop.time() < 1
        assert report.failed == 2
        assert isinstance(delivery.exception(), TopicAuthorization)
        assert warnings_of(caplog) == []

    simulate(body)


# -- close()


def test_close_waits_two_seconds_for_a_missing_topic() -> None:
    """After `wait_for(send, 10)` had timed out, leaving `async with` took another half a minute."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(p.send("ordres", b"v"), 10)
        delivery = p.send_nowait("ordres", b"w")
        started = world.loop.time()
        report = await p.close()
        assert world.loop.time() - started == pytest.approx(2.0, abs=0.1)
        assert (report.delivered, report.failed, report.unsent) == (0, 2, 0)
        assert not report.complete
        error = delivery.exception()
        assert isinstance(error, UnknownTopicOrPartition)
        assert "did you mean 'orders'" in str(error)
        assert not error.may_have_been_written
        assert not error.may_have_been_written

    simulate(body)


def test_leaving_async_with_raises_for_records_of_a_missing_topic() -> None:
    """They count as failures that were not awaited, and the error names the topic."""

    async def body(world: Any, kafka: Any) -> None:
        async def leave() -> None:
            async with producer(world, kafka) as p:
                for n in range(3):
                    p.send_nowait("missing", b"%d" % n)

        with pytest.raises(DeliveryFailed) as caught:
            await leave()
        assert caught.value.count == 3
        assert caught.value.topic_partitions == (TopicPartition("missing", -1),)
        assert caught.value.message.startswith("3 records not delivered to missing; the first:")
        assert isinstance(caught.value.errors[0], UnknownTopicOrPartition)
        # One second until the second response, then two more.
        assert 3 <= world.loop.time() < 4

    simulate(body)


def test_a_topic_created_while_close_waits_gets_its_records() -> None:
    """A program that sends one record and exits must be able to create its topic."""

    async def body(world: Any, kafka: Any) -> None:
        for late in (0.3, 1.5, 2.5):
            world.loop.call_later(late, kafka.topic, f"late-{late}", [1])
        async with producer(world, kafka) as p:
            for late in (0.3, 1.5, 2.5):
                p.send_nowait(f"late-{late}", b"v")
        for late in (0.3, 1.5, 2.5):
            assert kafka.values(f"late-{late}") == [b"v"]

    simulate(body)


def test_close_waits_for_its_timeout_if_no_broker_responds() -> None:
    """Without a response the topic may exist."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        world.network.partition("10.0.0.1")
        p.send_nowait("orders", b"v")
        world.loop.call_later(20, world.network.heal)
        report = await p.close()
        assert report.delivered == 1
        assert kafka.values("orders") == [b"v"]

    simulate(body)


def test_a_timeout_of_close_shorter_than_the_wait_for_a_topic_applies() -> None:
    """The record stays unsent, and its error names what it waited for."""

    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka)
        await p.start()
        delivery = p.send_nowait("missing", b"v")
        await asyncio.sleep(3)
        started = world.loop.time()
        report = await p.close(timeout=1.0)
        assert world.loop.time() - started == pytest.approx(1.0, abs=0.05)
        assert (report.failed, report.unsent) == (0, 1)
        assert report.unsent_by_partition == {TopicPartition("missing", -1): 1}
        error = delivery.exception()
        assert isinstance(error, Closed)
        assert isinstance(error.__cause__, UnknownTopicOrPartition)

    simulate(body)


def test_close_delivers_to_other_topics_meanwhile() -> None:
    """The wait for a missing topic does not delay other topics."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.5
        p = producer(world, kafka)
        await p.start()
        good = [p.send_nowait("orders", b"%d" % n) for n in range(5)]
        bad = [p.send_nowait(f"missing-{n}", b"v") for n in range(5)]
        report = await p.close()
        assert (report.delivered, report.failed) == (5, 5)
        assert all(delivery.exception() is None for delivery in good)
        assert all(isinstance(d.exception(), UnknownTopicOrPartition) for d in bad)
        assert world.loop.time() < 4

    simulate(body)


def test_close_waits_two_seconds_for_a_topic_deleted_before() -> None:
    """The records waited for a partition without a leader when the topic was deleted."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"v")
        topic.move(0, -1)
        kafka.faults.append(lambda attempt: 6)
        waiting = [p.send_nowait("orders", b"w") for _ in range(3)]
        await asyncio.sleep(5)
        del kafka.topics["orders"]
        kafka.faults.clear()
        await asyncio.sleep(5)
        assert p.health().missing_topics == {"orders"}
        started = world.loop.time()
        report = await p.close()
        assert world.loop.time() - started == pytest.approx(2.0, abs=0.1)
        assert (report.delivered, report.failed, report.unsent) == (1, 3, 0)
        for delivery in waiting:
            error = delivery.exception()
            assert isinstance(error, UnknownTopicOrPartition)

    simulate(body)


def test_close_gives_up_a_topic_deleted_while_it_drains() -> None:
    """The topic was not being looked up when close() began."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"v")
        topic.move(0, -1)
        kafka.faults.append(lambda attempt: 6)
        delivery = p.send_nowait("orders", b"w")
        await asyncio.sleep(1)

        def delete() -> None:
            del kafka.topics["orders"]
            kafka.faults.clear()

        world.loop.call_later(3, delete)
        started = world.loop.time()
        report = await p.close()
        assert 5 < world.loop.time() - started < 10
        assert report.failed == 1
        assert isinstance(delivery.exception(), UnknownTopicOrPartition)

    simulate(body)


@pytest.mark.parametrize("options", [{}, {"partitioner": First()}])
def test_calls_that_wait_for_a_topic_fail_when_the_producer_closes(options: dict[str, Any]) -> None:
    """On a Cluster that stayed open they waited for a minute. Their records are not accepted."""

    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka, **options)
        await p.start()
        calls = [asyncio.create_task(p.partitions_for("missing"))]
        if options:
            calls.append(asyncio.create_task(p.send("missing", b"v")))
        await asyncio.sleep(5)
        closing = asyncio.create_task(p.close())
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert world.loop.time() == pytest.approx(5, abs=0.1)
        assert all(isinstance(outcome, Closed) for outcome in outcomes)
        report = await closing
        assert (report.failed, report.unsent) == (0, 0)

    simulate(body)


def test_flush_waits_for_a_missing_topic_up_to_max_block_ms() -> None:
    """The topic may still be created, unlike at close(). Failures are raised."""

    async def body(world: Any, kafka: Any) -> None:
        async with producer(world, kafka, max_block_ms=10_000) as p:
            p.send_nowait("missing", b"v")
            started = world.loop.time()
            with pytest.raises(DeliveryFailed) as caught:
                await p.flush()
            assert world.loop.time() - started == pytest.approx(10.0, abs=0.1)
            assert caught.value.count == 1
            p.send_nowait("late", b"v")
            world.loop.call_later(5, kafka.topic, "late", [1])
            await p.flush()
        assert kafka.values("late") == [b"v"]

    simulate(body)


def test_a_flush_that_waits_for_a_missing_topic_ends_with_close() -> None:
    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka)
        await p.start()
        p.send_nowait("missing", b"v")
        await asyncio.sleep(5)
        flushing = asyncio.create_task(p.flush())
        await asyncio.sleep(5)
        report = await p.close()
        assert world.loop.time() == pytest.approx(12.0, abs=0.1)
        assert report.failed == 1
        with pytest.raises(DeliveryFailed):
            await flushing

    simulate(body)


def test_a_cancelled_close_does_not_wait_for_a_missing_topic() -> None:
    """The sockets are closed all the same."""

    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka)
        await p.start()
        delivery = p.send_nowait("missing", b"v")
        await asyncio.sleep(5)
        closing = asyncio.create_task(p.close())
        await asyncio.sleep(0.5)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert world.loop.time() == pytest.approx(5.5, abs=0.1)
        assert isinstance(delivery.exception(), Closed)

    simulate(body)
