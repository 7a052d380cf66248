"""ProducerEngine: how much it takes of each topic, and what the producers are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.errors import (
    AuthenticationFailed,
    BufferFull,
    Closed,
    DeliveryFailed,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTopic,
    KafkaError,
    ProtocolError,
    RequestTimeout,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from aiokq.fastpath.gateway import BAD_TOPIC, SHUTDOWN, Pool, Taken
from aiokq.gateway import GatewaySettings
from aiokq.gateway.client import encode
from aiokq.gateway.engine import TopicState
from aiokq.gateway.lane import Piece
from aiokq.gateway.load import LOAD_BYTES
from aiokq.gateway.producer_engine import (
    MOST_IN_FLIGHT,
    ProducerEngine,
    _compression,
    _producer_options,
)
from aiokq.gateway.settings_tables import DEFAULT_BATCHING


def topic(name: str = "orders") -> TopicState:
    return TopicState(name, GatewaySettings().of_topic(name))


def test_the_engine_sets_what_it_relies_on_and_keeps_the_settings_of_the_file() -> None:
    """Settings of the cluster are given to the Cluster, not to the producers."""
    settings = GatewaySettings.checked(
        {
            "kafka": {"bootstrap_servers": "h:1", "acks": "all", "batch_size": 5000},
            "inputs": [{"type": "unix_stream", "path": "/s", "max_message_bytes": "4 MiB"}],
        }
    )
    options = _producer_options(settings)
    assert "bootstrap_servers" not in options
    assert (options["batch_size"], options["linger_ms"]) == (5000, 0)
    assert options["max_request_size"] > 4 * 1024 * 1024
    assert options["partitioner_ignore_keys"] is True


def test_a_default_batch_of_the_pool_fits_into_a_batch_of_the_producer() -> None:
    """Records need more bytes than keys and values: at 50 B, 62 instead of 50."""
    batch = DEFAULT_BATCHING.bytes
    assert batch is not None
    assert _producer_options(GatewaySettings())["batch_size"] > batch * 62 // 50


def test_a_compression_becomes_settings_of_its_producer() -> None:
    """Without a codec there is nothing to set."""
    settings = GatewaySettings.checked(
        {"compression": {"type": "zstd", "level": 5, "min_bytes": 100, "max_ratio": 0.8}}
    )
    assert _compression(settings.compression) == {
        "compression_type": "zstd",
        "compression_zstd_level": 5,
        "compression_min_bytes": 100,
        "compression_max_ratio": 0.8,
    }
    assert _compression(GatewaySettings().compression) == {"compression_type": "none"}


class Run(ProducerEngine):
    """An engine whose pieces are sent to a list, with an outcome by hand.

    Attributes:
        sent: values of the pieces, in the order in which they were sent.
        pieces: the outcome of each of them, to be set.
        discards: reason and number of messages of each discard.
        duplicates: rows of the pieces that may be written twice.
        restamped: for each piece that is sent, whether its timestamps are replaced.
        refuses: raised for each piece that is sent; None if it is accepted.
        full: raised for each piece that is sent without waiting.
        spawns: whether tasks can be started.
    """

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.pieces: list[asyncio.Future[None]] = []
        self.discards: list[tuple[int, int]] = []
        self.duplicates: list[list[int]] = []
        self.restamped: list[bool] = []
        self.refuses: KafkaError | None = None
        self.full: KafkaError | None = None
        self.spawns = True
        self.tasks: list[asyncio.Task[None]] = []
        self.pool = Pool(1 << 20)
        self.one = topic()
        self.one.slot = self.pool.register(b"orders")
        outcomes: Any = self
        cluster: Any = None
        super().__init__(
            cluster,
            GatewaySettings(),
            outcomes,
            spawn=self.spawn,
            now_ms=lambda: 0,
            on_room=lambda topic: None,
            on_gone=lambda topic: None,
        )

    def spawn(self, coro: Coroutine[Any, Any, None], name: str) -> None:
        if not self.spawns:
            coro.close()
            raise Closed("the gateway has failed")
        self.tasks.append(asyncio.create_task(coro, name=name))

    def feed(self, *values: bytes) -> None:
        """Give messages to the engine as one piece."""
        for value in values:
            self.pool.feed(encode("orders", value))
        taken = self.pool.take(self.one.slot)
        assert taken is not None
        self.accept(self.one, taken)

    async def _producer(self, compression: object) -> Any:
        return self

    def _columns(self, topic: TopicState, piece: Piece) -> Any:
        self.restamped.append(piece.restamped)
        return [piece.load.taken.message(row).value for row in piece.rows]

    async def send_columns(self, topic: str, values: list[bytes]) -> asyncio.Future[None]:
        self.sent.append(values)
        if self.refuses is not None:
            raise self.refuses
        self.pieces.append(asyncio.get_running_loop().create_future())
        return self.pieces[-1]

    def send_columns_nowait(self, topic: str, values: list[bytes]) -> asyncio.Future[None]:
        if self.full is not None:
            raise self.full
        self.sent.append(values)
        self.pieces.append(asyncio.get_running_loop().create_future())
        return self.pieces[-1]

    def fail(self, piece: int, *errors: KafkaError | None) -> None:
        self.pieces[piece].set_exception(DeliveryFailed(1, errors, []))

    def charged(self, size: int) -> None:
        self.pool.charge(size)

    def acked(self, topic: TopicState, taken: Taken, rows: Sequence[int], charge: int) -> None:
        self.pool.release(len(rows), charge)

    def possible_duplicates(self, topic: TopicState, taken: Taken, rows: Sequence[int]) -> None:
        self.duplicates.append(list(rows))

    def discarded(
        self,
        topic: TopicState,
        taken: Taken,
        rows: Sequence[int],
        reason: int,
        charge: int,
        **_: Any,
    ) -> None:
        self.pool.release(len(rows), charge)
        self.discards.append((reason, len(rows)))

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110  any condition
                await asyncio.sleep(0.001)


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    made = Run()
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_a_batch_is_sent_in_the_turn_in_which_it_is_taken(run: Run) -> None:
    """Without a task, once the producer is started. What fails is sent again by a task."""
    producer: Any = run
    run._started[run.one.rules.compression] = producer
    run.feed(b"a", b"b")
    run.feed(b"c")
    assert run.sent == [[b"a", b"b"], [b"c"]]
    assert not run.tasks
    assert run.held() == {"orders": (0, 3)}
    run.pieces[1].set_result(None)
    await run.until(lambda: run.held() == {"orders": (0, 2)})
    run.fail(0, RequestTimeout("away"), None)
    await run.until(lambda: len(run.sent) == 3)
    assert run.sent[2] == [b"a"]
    run.pieces[2].set_result(None)
    await run.until(lambda: not run.held())
    run.feed(b"d")
    assert run.sent[3] == [b"d"]
    run.pieces[3].set_result(None)
    await run.drain()


async def test_a_batch_is_charged_for_the_objects_that_it_takes(run: Run) -> None:
    """Regression: thousands of batches with few messages took much more than their bytes."""
    run._started[run.one.rules.compression] = run  # type: ignore[assignment]
    messages = 0
    for n in range(5):
        run.feed(b"%d" % n)
        messages += 1 + run.pool.MESSAGE_OVERHEAD
        assert run._budget.bytes == run.pool.used_bytes() == messages + (n + 1) * LOAD_BYTES
    await asyncio.sleep(0)
    for piece in run.pieces:
        piece.set_result(None)
    await run.until(lambda: not run._lanes)
    assert (run._budget.bytes, run.pool.used_bytes()) == (0, 0)


async def test_a_batch_that_has_to_wait_is_sent_by_a_task(run: Run) -> None:
    """For memory, and while as many pieces are in flight as may be: in order."""
    producer: Any = run
    run._started[run.one.rules.compression] = producer
    run.full = BufferFull("full")
    run.feed(b"a")
    assert run.sent == []
    run.full = None
    run.feed(b"b")
    assert run.sent == []
    await run.until(lambda: len(run.sent) == 2)
    for n in range(MOST_IN_FLIGHT):
        run.feed(b"%d" % n)
    assert len(run.sent) == MOST_IN_FLIGHT
    for number in range(MOST_IN_FLIGHT + 2):
        await run.until(lambda number=number: len(run.pieces) > number)  # type: ignore[misc]
        run.pieces[number].set_result(None)
    await run.drain()
    assert run.sent == [[b"a"], [b"b"], *([b"%d" % n] for n in range(MOST_IN_FLIGHT))]


async def test_pieces_that_fail_are_sent_again_in_the_order_of_their_arrival(run: Run) -> None:
    """The second piece fails before the first one."""
    for value in (b"0", b"1", b"2"):
        run.feed(value)
    await run.until(lambda: len(run.pieces) == 3)
    run.fail(1, RequestTimeout("timed out"))
    await asyncio.sleep(0)
    run.fail(0, RequestTimeout("timed out"))
    run.pieces[2].set_result(None)
    await run.until(lambda: len(run.sent) == 5)
    assert run.sent[3:] == [[b"0"], [b"1"]]


@pytest.mark.parametrize(
    "error", [AuthenticationFailed, ProtocolError, UnsupportedSaslMechanism, UnsupportedVersion]
)
async def test_a_broker_that_cannot_be_used_costs_no_message(
    run: Run, error: type[KafkaError]
) -> None:
    """They were discarded as `error_ack`, for example while a password was wrong."""
    run.feed(b"0", b"1")
    await run.until(lambda: len(run.pieces) == 1)
    run.fail(0, *[error("not this one")] * 2)
    await asyncio.sleep(0.1)
    assert len(run.sent) == 1
    assert run.held() == {"orders": (2, 0)}  # also during the pause
    await run.until(lambda: len(run.sent) == 2)
    assert run.sent[1] == [b"0", b"1"]
    assert run.discards == []


async def test_an_engine_takes_over_what_another_has_not_in_flight(run: Run) -> None:
    """What failed, and what was not sent, in the order of arrival; the numbers move with them."""
    other = Run()
    other.pool = run.pool
    run.feed(b"0")
    run.feed(b"1")
    await run.until(lambda: len(run.pieces) == 2)
    run.suspend()
    run.feed(b"2")
    run.fail(1, AuthenticationFailed("refused"))
    await asyncio.sleep(0.01)
    assert run.sending
    run.fail(0, AuthenticationFailed("refused"))
    await run.until(lambda: not run.sending)
    assert run.held() == {"orders": (3, 0)}
    used = run._budget.bytes
    other.adopt(run)
    assert (run.held(), run._budget.bytes) == ({}, 0)
    assert (other.held(), other._budget.bytes) == ({"orders": (3, 0)}, used)
    await run.close()
    await other.until(lambda: len(other.sent) == 3)
    assert other.sent == [[b"0"], [b"1"], [b"2"]]
    assert len(run.sent) == 2
    for piece in other.pieces:
        piece.set_result(None)
    await other.drain()
    assert other._budget.bytes == 0
    assert run.discards == other.discards == []
    await other.close()


async def test_a_suspended_engine_goes_on_after_the_end(run: Run) -> None:
    run.suspend()
    run.feed(b"0")
    await asyncio.sleep(0.01)
    assert run.sent == []
    run.resume()
    await run.until(lambda: len(run.sent) == 1)


async def test_rows_of_a_piece_that_fail_for_different_reasons_keep_their_order(run: Run) -> None:
    """A row whose timestamp was refused overtakes no row that timed out, or the reverse."""
    timed_out, refused = RequestTimeout("timed out"), InvalidTimestamp("too old")
    run.feed(b"0", b"1", b"2", b"3", b"4")
    await run.until(lambda: len(run.pieces) == 1)
    run.fail(0, timed_out, refused, None, refused, timed_out)
    await run.until(lambda: len(run.sent) == 4)
    assert run.sent[1:] == [[b"0"], [b"1", b"3"], [b"4"]]


async def test_a_record_that_is_sent_alone_keeps_its_replaced_timestamp(run: Run) -> None:
    """The topic refuses the timestamps, and then one record, which it does not name."""
    run.feed(b"0", b"1")
    await run.until(lambda: len(run.pieces) == 1)
    run.fail(0, *[InvalidTimestamp("too old")] * 2)
    await run.until(lambda: len(run.pieces) == 2)
    run.fail(1, *[InvalidRecord("refused")] * 2)
    await run.until(lambda: len(run.pieces) == 3)
    run.fail(2, InvalidRecord("refused"))
    await run.until(lambda: len(run.pieces) == 4)
    assert run.sent[2:] == [[b"0"], [b"1"]]
    assert run.restamped == [False, True, True, True]


async def test_records_that_are_not_sent_alone_are_no_possible_duplicates(run: Run) -> None:
    """Regression: a broker that cannot be used ends the attempts, and the rest counted, too."""
    run.feed(b"0", b"1", b"2")
    await run.until(lambda: len(run.pieces) == 1)
    run.fail(0, *[InvalidRecord("refused")] * 3)
    await run.until(lambda: len(run.pieces) == 2)
    run.pieces[1].set_result(None)
    await run.until(lambda: len(run.pieces) == 3)
    lost = AuthenticationFailed("refused")
    lost.may_have_been_written = True
    run.fail(2, lost)
    await run.until(lambda: len(run.sent) == 4)
    assert run.sent[1:] == [[b"0"], [b"1"], [b"1"]]
    assert run.duplicates == [[1]]
    run.pieces[3].set_result(None)
    await run.until(lambda: len(run.sent) == 5)
    assert run.sent[4] == [b"2"]
    assert run.discards == []


async def test_records_of_a_topic_that_is_gone_are_not_sent_one_by_one(run: Run) -> None:
    """Regression: each waited for MISSING_TOPIC_MS, one after the other."""
    run.feed(b"0", b"1", b"2")
    await run.until(lambda: len(run.pieces) == 1)
    run.fail(0, *[InvalidRecord("refused")] * 3)
    await run.until(lambda: len(run.pieces) == 2)
    run.fail(1, InvalidTopic("gone"))
    await run.until(lambda: bool(run.discards))
    assert run.discards == [(BAD_TOPIC, 3)]
    assert run.sent[1:] == [[b"0"]]


async def test_a_producer_that_has_failed_ends_the_gateway_and_is_asked_once(run: Run) -> None:
    """The other pieces are not discarded one by one: `close` discards them."""
    run.refuses = Closed("the producer has failed")
    for value in (b"0", b"1", b"2"):
        run.feed(value)
    (served,) = run.tasks
    with pytest.raises(Closed, match="the producer has failed"):
        await served
    run.feed(b"3")
    await asyncio.sleep(0.01)
    assert run.sent == [[b"0"]]
    assert run.discards == [(SHUTDOWN, 1)]
    async with asyncio.timeout(1):
        await run.close()
    assert run.discards == [(SHUTDOWN, 1)] * 4
    assert not run.held()


async def test_a_producer_that_fails_while_records_are_sent_alone_ends_the_gateway(
    run: Run,
) -> None:
    """Regression: the lane went on, and the failure was noticed only with the next piece."""
    run.feed(b"0", b"1")
    await run.until(lambda: len(run.pieces) == 1)
    run.refuses = Closed("the producer has failed")
    run.fail(0, *[InvalidRecord("refused")] * 2)
    await run.until(lambda: bool(run.discards))
    done, _ = await asyncio.wait(run.tasks, timeout=1)
    assert [type(task.exception()) for task in done if task.exception()] == [Closed]
    assert run.discards == [(SHUTDOWN, 2)]


async def test_messages_that_arrive_after_the_gateway_failed_are_discarded_by_close(
    run: Run,
) -> None:
    """No task can be started then."""
    run.spawns = False
    run.feed(b"0")
    run.feed(b"1")
    assert not run.sent
    async with asyncio.timeout(1):
        await run.close()
    assert run.discards == [(SHUTDOWN, 1)] * 2


async def test_pieces_in_flight_are_discarded_by_close_after_the_gateway_failed(run: Run) -> None:
    """Regression: their tasks were cancelled, and `close` waited for them for 5 seconds."""
    for value in (b"0", b"1"):
        run.feed(value)
    await run.until(lambda: len(run.pieces) == 2)
    for task in run.tasks:
        task.cancel()
    await asyncio.gather(*run.tasks, return_exceptions=True)
    run.feed(b"2")
    run.spawns = False
    async with asyncio.timeout(1):
        await run.close()
    assert run.discards == [(SHUTDOWN, 1)] * 3
    assert not run.held()
    assert not run.room(run.one)


async def test_a_piece_that_is_being_appended_is_held(run: Run) -> None:
    """Regression: while a producer waited for metadata, no count had the piece."""
    waits = asyncio.Event()
    inner = run._producer

    async def slow(compression: object) -> Any:
        await waits.wait()
        return await inner(compression)

    run._producer = slow  # type: ignore[method-assign]
    run.feed(b"0", b"1")
    await asyncio.sleep(0.01)
    assert run.held() == {"orders": (2, 0)}
    waits.set()
    await run.until(lambda: len(run.pieces) == 1)
    assert run.held() == {"orders": (0, 2)}
    run.pieces[0].set_result(None)
    await run.until(lambda: not run.held())


async def test_a_topic_that_was_created_again_is_counted_with_its_deleted_one(run: Run) -> None:
    """There are two states of the name for a while."""
    run.spawns = False
    run.feed(b"0")
    deleted, run.one = run.one, topic()
    run.pool.forget(deleted.slot)
    run.one.slot = run.pool.register(b"orders")
    run.feed(b"1")
    assert run.held() == {"orders": (2, 0)}


class Producers:
    """A cluster whose producers send to the list of a run, and are counted."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.open: list[int] = []
        self.made = 0

    def producer(self, **options: Any) -> Any:
        number, self.made = self.made, self.made + 1

        async def start() -> None:
            if number not in self.open:
                self.open.append(number)

        async def close(timeout: float = 30.0) -> None:
            self.open.remove(number)

        return SimpleNamespace(
            start=start, close=close, send_columns_nowait=self.run.send_columns_nowait
        )


def compressed(level: int) -> GatewaySettings:
    return GatewaySettings.checked({"compression": {"type": "zstd", "level": level}})


async def test_producers_that_no_rule_uses_are_closed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has messages in flight is closed afterwards."""
    monkeypatch.setattr("aiokq.gateway.producer_engine.RETIRE_SECONDS", 0.001)
    cluster: Any = Producers(run)
    run._cluster = cluster
    made = {}
    for level in range(1, 10):
        settings = compressed(level)
        run.configure(settings)
        made[level] = settings.of_topic("orders").compression
        await ProducerEngine._producer(run, made[level])
    await run.until(lambda: cluster.open == [8])
    assert list(run._producers) == list(run._started) == [made[9]]

    run.one.rules = compressed(9).of_topic("orders")
    run.feed(b"a")
    await run.until(lambda: len(run.pieces) == 1)
    run.one.rules = compressed(1).of_topic("orders")
    run.configure(compressed(1))
    run.configure(compressed(1))
    await asyncio.sleep(0.02)
    assert cluster.open == [8]
    run.pieces[0].set_result(None)
    await run.until(lambda: not cluster.open)
    assert not run._retiring
    assert not run._producers
