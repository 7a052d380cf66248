"""DeadLetters: what it holds while Kafka is away, and what becomes of it when the gateway fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.errors import AuthenticationFailed, BufferFull, Closed, RequestTimeout
from aiokq.fastpath.gateway import BAD_TOPIC, ERROR_ACK, SHUTDOWN, TOO_LONG, Pool, Refused
from aiokq.gateway import GatewaySettings, dead_letters
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.client import encode
from aiokq.gateway.dead_letters import LETTER_OVERHEAD, DeadLetters, Rate, RefusedMessages
from aiokq.gateway.engine import TopicState

POOL = 1 << 24
NAME = b"not a name"
"""A topic that the pool refuses."""


class Desk:
    """A pool that refuses messages, and dead letters whose tasks do not run.

    Attributes:
        started: the names of the tasks.
        spawns: whether tasks can be started.
        told: the messages that were told to the discard log.
    """

    def __init__(self, **options: Any) -> None:
        self.pool = Pool(
            POOL,
            refused_bytes=1 << 20,
            refused_reasons=(TOO_LONG, BAD_TOPIC),
            refused_whole=(TOO_LONG, BAD_TOPIC),
        )
        self.accounting = Accounting(self.pool)
        self.told: list[Refused] = []
        self.accounting.on_refused.append(self.told.extend)
        self.started: list[str] = []
        self.spawns = True
        cluster: Any = None
        self.letters = DeadLetters(
            cluster,
            GatewaySettings.checked(
                {"pool": {"max_bytes": POOL}, "dead_letters": {"topic": "dead", **options}}
            ),
            self.accounting,
            spawn=self.spawn,
            now_ms=lambda: 0,
        )
        self.accounting.dead_letters = self.letters

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        coro.close()
        if not self.spawns:
            raise Closed("the gateway has failed")
        self.started.append(name)

    def topic(self, name: str, max_message_bytes: int = 10) -> TopicState:
        topic = TopicState(name, GatewaySettings().of_topic(name))
        topic.slot = self.pool.register(name.encode(), max_message_bytes=max_message_bytes)
        self.accounting.registered(topic)
        return topic

    def check(self) -> None:
        snapshot = self.accounting.snapshot()
        for totals in (snapshot.total, *snapshot.topics.values()):
            known = totals.acked + sum(totals.discarded) + totals.dead_lettered
            assert totals.received == known + totals.in_flight


async def test_refused_messages_are_bounded_while_their_dead_letters_are_not_written() -> None:
    """What is beyond a fourth of the pool is discarded with its reason, and the books balance."""
    desk = Desk()
    value = bytes(100_000)
    sent = 0
    for _ in range(10):
        for _ in range(8):
            desk.pool.feed(encode(NAME, value))
            sent += 1
        desk.accounting.drain()
        desk.check()
        assert desk.pool.used_bytes() == desk.letters.held_bytes
    assert 0 <= desk.letters.held_bytes - POOL // 4 < 2 * len(value)
    total = desk.accounting.in_all()
    assert total.discarded[BAD_TOPIC] == len(desk.told) == sent - desk.letters.held
    assert total.in_flight == desk.letters.held
    assert not desk.letters.held_of  # it is no topic, and takes no memory
    await desk.letters.close(0.0)
    assert (desk.letters.held, desk.letters.held_bytes, desk.pool.used_bytes()) == (0, 0, 0)
    assert desk.accounting.in_all().discarded[BAD_TOPIC] == sent
    desk.check()


async def test_dead_letters_of_many_topics_are_bounded() -> None:
    """Regression: what each letter takes beside its messages was not counted before it was made."""
    desk = Desk(max_per_s=0)
    for number in range(3 * POOL // 4 // LETTER_OVERHEAD):
        desk.pool.feed(encode(b"not a name %d" % number, b"value"))
    desk.accounting.drain()
    desk.check()
    assert abs(desk.letters.held_bytes - POOL // 4) < 2 * LETTER_OVERHEAD
    await desk.letters.close(0.0)
    assert desk.pool.used_bytes() == 0


async def test_failed_dead_letters_are_few_lines_with_visible_names(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Regression: each was a line, in which a program could write what looked like another line."""
    desk = Desk()
    for number in range(5):
        desk.pool.feed(encode(b"%d\nERROR aiokq: forged" % number, b"value"))
    desk.accounting.drain()
    for letter in list(desk.letters._queue):
        desk.letters._lost(letter, letter.rows, letter.charge, RequestTimeout("no metadata"))
    desk.letters._queue.clear()
    await desk.letters.close(0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "dead letters failed: last topic=0\\nERROR aiokq: forged messages=1 "
        "error=REQUEST_TIMED_OUT (7): no metadata",
        "dead letters failed: messages=4",
    ]


@pytest.mark.parametrize("reason", [ERROR_ACK, SHUTDOWN])
async def test_dead_letters_leave_most_of_the_pool_to_other_messages(reason: int) -> None:
    """But at a shutdown there are none."""
    desk = Desk()
    orders = desk.topic("orders", max_message_bytes=-1)
    sent = 0
    for _ in range(60):
        sent += desk.pool.feed(encode("orders", bytes(100_000))) > 0
        taken = desk.pool.take(orders.slot)
        assert taken is not None
        desk.accounting.discarded(orders, taken, range(1), reason, taken.charge)
        desk.check()
        assert desk.pool.used_bytes() == desk.letters.held_bytes
    if reason == SHUTDOWN:
        assert desk.letters.held == sent
    else:
        assert 0 <= desk.letters.held_bytes - POOL // 4 < 200_000
        lost = desk.accounting.snapshot().topics["orders"].discarded[reason]
        assert lost == sent - desk.letters.held > 0
    await desk.letters.close(0.0)
    assert desk.pool.used_bytes() == 0
    desk.check()


async def test_a_dead_letter_waits_while_the_buffer_of_the_producer_is_full() -> None:
    """Regression: after three seconds it was discarded, and with it all of the next ten seconds."""
    desk = Desk()
    full, written = 3, []

    class Producer:
        async def start(self) -> None:
            pass

        async def enqueue(self, topic: str, value: bytes, *given: Any, **options: Any) -> Any:
            nonlocal full
            if full:
                full -= 1
                raise BufferFull
            written.append(value)
            return asyncio.get_running_loop().create_future()

    metadata = SimpleNamespace(topics={"dead": None, "other": None}, topic_errors={})
    desk.letters._cluster = SimpleNamespace(  # type: ignore[assignment]
        producer=lambda **options: Producer(), metadata=metadata
    )
    for value in (b"one", b"two"):
        desk.pool.feed(encode(NAME, value))
    desk.accounting.drain()
    await desk.letters._work()
    assert written == [b"one", b"two"]


async def test_a_refused_login_discards_the_dead_letters_that_wait_at_once() -> None:
    """Regression: each letter asked the brokers, so that they drained at one letter per second."""
    desk = Desk()
    asked = 0

    async def refresh(*topics: str, timeout: float) -> None:
        nonlocal asked
        asked += 1
        raise AuthenticationFailed("wrong password")

    desk.letters._cluster = SimpleNamespace(  # type: ignore[assignment]
        metadata=SimpleNamespace(topics={}, topic_errors={}), refresh=refresh
    )
    for number in range(50):
        desk.pool.feed(encode(b"not a name %d" % number, b"value"))
    desk.accounting.drain()
    assert desk.letters.held == 50
    await desk.letters._work()
    assert (asked, desk.letters.held) == (1, 0)
    desk.check()


async def test_messages_of_one_topic_and_reason_that_are_refused_at_once_are_one_letter() -> None:
    """A letter for each of them would be a task and a line of the log for each of them."""
    desk = Desk()
    desk.topic("orders")
    for n in range(100):
        desk.pool.feed(encode(NAME, b"%d" % n))
        desk.pool.feed(encode("orders", b"too long: %d" % n))
    desk.accounting.drain()
    first, second = desk.letters._queue
    for letter, reason in ((first, BAD_TOPIC), (second, TOO_LONG)):
        assert isinstance(letter.taken, RefusedMessages)
        assert (letter.reason, len(letter.rows)) == (reason, 100)
    assert desk.letters.held_of == {"orders": 100}
    assert [first.taken.message(row).value for row in first.rows] == [b"%d" % n for n in range(100)]
    desk.check()


def test_a_rate_allows_as_many_as_in_a_second_at_once() -> None:
    now = 100.0
    rate = Rate(10, lambda: now)
    assert [rate.grant(4), rate.grant(4), rate.grant(4), rate.grant(4)] == [4, 4, 2, 0]
    now += 0.25
    assert [rate.grant(4), rate.grant(4)] == [2, 0]
    now += 100
    assert rate.grant(100) == 10
    assert Rate(0, lambda: now).grant(10**9) == 10**9


@pytest.mark.parametrize("known", [True, False])
async def test_messages_beyond_the_rate_are_discarded_with_their_reason(known: bool) -> None:
    """Regression: one sender of such messages took all the time of the loop."""
    desk = Desk(max_per_s=50)
    desk.topic("orders")
    for n in range(300):
        desk.pool.feed(encode("orders" if known else NAME.decode(), b"too long: %d" % n))
    desk.accounting.drain()
    desk.check()
    assert 50 <= desk.letters.held < 100
    reason = TOO_LONG if known else BAD_TOPIC
    total = desk.accounting.in_all()
    assert total.discarded[reason] == len(desk.told) == 300 - desk.letters.held
    if known:
        assert desk.accounting.snapshot().topics["orders"].discarded[reason] == len(desk.told)
    await desk.letters.close(0.0)
    assert desk.accounting.in_all().discarded[reason] == 300
    desk.check()


@pytest.mark.parametrize("reason", [BAD_TOPIC, SHUTDOWN])
async def test_messages_of_topics_that_do_not_exist_have_the_same_rate(reason: int) -> None:
    """But for those that a shutdown does not deliver."""
    desk = Desk(max_per_s=50)
    for n in range(300):
        desk.pool.feed(encode("missing", b"%d" % n))
        desk.pool.feed(encode("other", b"%d" % n))
    assert desk.accounting.discard_unresolved("missing", reason) == 300
    assert desk.accounting.discard_unresolved("other", reason) == 300
    desk.check()
    held = desk.letters.held
    assert held == 600 if reason == SHUTDOWN else 50 <= held < 100
    assert desk.accounting.in_all().discarded[reason] == 600 - held
    await desk.letters.close(0.0)
    assert desk.accounting.in_all().discarded[reason] == 600
    assert desk.pool.counts().used_bytes == 0
    desk.check()


@pytest.mark.parametrize("keeps", [False, True])
async def test_after_the_gateway_failed_close_discards_dead_letters_at_once(keeps: bool) -> None:
    """A spool keeps them."""
    desk = Desk()
    desk.topic("orders")
    desk.spawns = False
    desk.pool.feed(encode("orders", b"too long: 0"))
    desk.check()
    desk.pool.feed(encode("orders", b"too long: 1"))
    desk.check()
    assert desk.accounting.in_all().in_flight == 2
    desk.accounting.keeps = keeps
    async with asyncio.timeout(1):
        await desk.letters.close(asyncio.get_running_loop().time() + 30)
    assert desk.letters.held == 0
    assert not desk.letters.held_of
    desk.check()
    total = desk.accounting.in_all()
    assert (total.in_flight, total.discarded[TOO_LONG]) == ((2, 0) if keeps else (0, 2))


async def test_the_end_of_a_producer_is_a_part_of_the_time_of_a_shutdown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: it could take two seconds more."""
    monkeypatch.setattr(dead_letters, "PRODUCER_SECONDS", 3600)
    desk = Desk()
    desk.topic("orders")
    desk.pool.feed(encode("orders", b"too long: 0"))
    desk.check()
    letters = desk.letters
    letter = letters._queue.popleft()
    letters._open[id(letter)] = letter  # it is being written, and gets no outcome
    async with asyncio.timeout(20):
        await letters.close(0.0, asyncio.get_running_loop().time())
    assert letters.held == 0
    assert desk.accounting.in_all().discarded[TOO_LONG] == 1
    desk.check()


async def test_a_letter_waits_for_an_answer_although_its_topic_had_an_error() -> None:
    """Regression: it was given to the producer, which discarded it after three seconds."""
    desk = Desk()
    written: list[str] = []
    asked = 0
    metadata = SimpleNamespace(topics={}, topic_errors={"dead": 3})

    async def refresh(topic: str, timeout: float) -> None:
        nonlocal asked
        asked += 1
        if asked < 5:
            raise RequestTimeout("no broker answers")
        metadata.topics[topic] = None

    class Producer:
        async def start(self) -> None:
            pass

        async def enqueue(self, topic: str, *given: Any, **options: Any) -> Any:
            assert topic in metadata.topics
            written.append(topic)
            return asyncio.get_running_loop().create_future()

    desk.letters._cluster = SimpleNamespace(  # type: ignore[assignment]
        producer=lambda **options: Producer(), metadata=metadata, refresh=refresh
    )
    desk.pool.feed(encode(NAME.decode(), b"v"))
    desk.accounting.drain()
    await desk.letters._work()
    assert (asked, written, desk.letters.held) == (5, ["dead"], 1)


async def test_dead_letters_that_were_accepted_keep_their_topic() -> None:
    """A reload names another topic for later ones."""
    desk = Desk()
    written: list[tuple[str, bytes]] = []

    class Producer:
        async def start(self) -> None:
            pass

        async def enqueue(self, topic: str, value: bytes, *given: Any, **options: Any) -> Any:
            written.append((topic, value))
            return asyncio.get_running_loop().create_future()

    metadata = SimpleNamespace(topics={"dead": None, "other": None}, topic_errors={})
    desk.letters._cluster = SimpleNamespace(  # type: ignore[assignment]
        producer=lambda **options: Producer(), metadata=metadata
    )
    desk.pool.feed(encode(NAME.decode(), b"before"))
    desk.accounting.drain()
    desk.letters.configure(GatewaySettings.checked({"dead_letters": {"topic": "other"}}))
    desk.pool.feed(encode(NAME.decode(), b"after"))
    desk.accounting.drain()
    await desk.letters._work()
    assert written == [("dead", b"before"), ("other", b"after")]
