"""Delivery: any number of tasks may await it any number of times, independently."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import pickle
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from aiokq.core.errors import KafkaError, NotLeaderOrFollower
from tests import cores

Make = Callable[..., object]


async def wait_for(delivery: object) -> object:
    return await delivery


async def turn() -> None:
    """Let every task run that is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_awaiting_gives_the_metadata(bench: Make, core: SimpleNamespace) -> None:
    """It has the fields of RecordMetadata, and compares equal."""
    made = bench()
    made.append("t", b"a", timestamp_ms=5)
    delivery = made.append("t", b"b", timestamp_ms=6)
    assert not delivery.done()
    made.opened[0].complete(100)
    meta = await delivery
    assert (meta.topic, meta.partition, meta.offset, meta.timestamp_ms) == ("t", 0, 101, 6)
    assert meta == await delivery == delivery.result() == core.RecordMetadata("t", 0, 101, 6)
    assert hash(meta) == hash(delivery.result())
    assert meta != core.RecordMetadata("t", 0, 102, 6)
    assert (delivery.offset, delivery.timestamp_ms, delivery.topic) == (101, 6, "t")
    assert repr(meta) == "RecordMetadata(topic='t', partition=0, offset=101, timestamp_ms=6)"
    assert delivery.done()
    assert delivery.exception() is None


async def test_the_logs_append_time_replaces_the_timestamp(bench: Make) -> None:
    """With message.timestamp.type=LogAppendTime the response has the timestamp."""
    made = bench()
    delivery = made.append("t", b"a", timestamp_ms=5)
    made.opened[0].complete(1, 777)
    assert (await delivery).timestamp_ms == delivery.timestamp_ms == 777


async def test_without_an_acknowledgement_there_is_no_offset(bench: Make) -> None:
    """With acks=0 the record was written to the socket, and nothing more is known."""
    made = bench()
    first, second = made.append("t", b"a"), made.append("t", b"b")
    made.opened[0].complete(-1)
    assert [(await d).offset for d in (first, second)] == [-1, -1]


async def test_many_tasks_wait_for_one_delivery(bench: Make) -> None:
    """Each task gets the outcome and is woken once."""
    made = bench()
    delivery = made.append("t", b"a")
    tasks = [asyncio.create_task(wait_for(delivery)) for _ in range(10)]
    await turn()
    assert made.opened[0].waiters == 10
    made.opened[0].complete(5)
    assert made.opened[0].waiters == 0
    assert {(await task).offset for task in tasks} == {5}


async def test_waiters_wake_in_order(bench: Make) -> None:
    """The first waiter resumes first, so a producer's loop sees the order of its records."""
    made = bench()
    order: list[int] = []

    async def note(n: int, delivery: object) -> None:
        await delivery
        order.append(n)

    tasks = [asyncio.create_task(note(n, made.append("t", b"x"))) for n in range(20)]
    await turn()
    made.opened[0].complete(0)
    await asyncio.gather(*tasks)
    assert order == list(range(20))


async def test_no_user_code_runs_inside_complete(bench: Make) -> None:
    """Tasks and callbacks are run by the loop, never inside the response handler."""
    made = bench()
    delivery = made.append("t", b"a")
    ran: list[object] = []
    delivery.add_done_callback(ran.append)
    task = asyncio.create_task(wait_for(delivery))
    await turn()
    made.opened[0].complete(5)
    assert ran == []
    assert not task.done()
    await turn()
    assert ran == [delivery]
    assert task.done()


async def test_cancelling_one_wait_leaves_the_others(bench: Make) -> None:
    """A shared future would be cancelled for all waiters."""
    made = bench()
    delivery = made.append("t", b"a")
    tasks = [asyncio.create_task(wait_for(delivery)) for _ in range(3)]
    await turn()
    tasks[1].cancel("stop")
    await turn()
    assert tasks[1].cancelled()
    assert made.opened[0].waiters == 2
    made.opened[0].complete(5)
    assert (await tasks[0]).offset == (await tasks[2]).offset == 5
    assert (await delivery).offset == 5


async def test_a_cancelled_wait_ends_at_once_with_its_message(bench: Make) -> None:
    """asyncio.timeout() and TaskGroup recognize their own cancellation by it."""
    made = bench()
    delivery = made.append("t", b"a")
    task = asyncio.create_task(wait_for(delivery))
    await turn()
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.args == ("why",)
    assert made.opened[0].waiters == 0


async def test_a_cancellation_after_the_outcome_wins_over_it(bench: Make) -> None:
    """As with a future, cancel() before the task runs means CancelledError.

    The delivery still has its outcome.
    """
    made = bench()
    delivery = made.append("t", b"a")
    task = asyncio.create_task(wait_for(delivery))
    await turn()
    made.opened[0].complete(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert delivery.result().offset == 5


async def test_a_timed_out_wait_can_be_repeated(bench: Make) -> None:
    """wait_for() and asyncio.timeout() end only the wait."""
    made = bench()
    delivery = made.append("t", b"a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0.001)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await delivery
    assert made.opened[0].waiters == 0
    made.opened[0].complete(5)
    assert (await asyncio.wait_for(delivery, 1)).offset == 5


async def test_endless_timeouts_do_not_pile_up(bench: Make) -> None:
    """Polling in a loop a delivery that takes a minute must not leave waiters behind."""
    made = bench()
    delivery = made.append("t", b"a")
    for _ in range(200):
        task = asyncio.create_task(wait_for(delivery))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert made.opened[0].waiters == 0
    task = asyncio.create_task(wait_for(delivery))
    await turn()
    made.opened[0].complete(5)
    assert (await task).offset == 5


async def test_asyncios_combinators_take_it(bench: Make) -> None:
    """gather, wait, shield, as_completed and wait_for, before and after the outcome."""
    made = bench()
    deliveries = [made.append("t", b"%d" % n) for n in range(4)]
    gathered = asyncio.gather(*deliveries)
    shielded = asyncio.create_task(wait_for(asyncio.shield(deliveries[0])))
    waited = asyncio.create_task(asyncio.wait(deliveries))
    first = asyncio.create_task(asyncio.wait(deliveries, return_when=asyncio.FIRST_COMPLETED))
    await turn()
    assert not waited.done()
    made.opened[0].complete(10)
    assert [m.offset for m in await gathered] == [10, 11, 12, 13]
    assert (await shielded).offset == 10
    assert await waited == (set(deliveries), set())
    assert (await first)[0]
    assert [m.offset for m in await asyncio.gather(*deliveries)] == [10, 11, 12, 13]
    assert (await asyncio.shield(deliveries[1])).offset == 11
    assert await asyncio.wait(deliveries) == (set(deliveries), set())
    done = [(await d).offset for d in asyncio.as_completed(deliveries)]
    assert sorted(done) == [10, 11, 12, 13]


async def test_wait_with_a_timeout_tells_pending_from_done(bench: Make) -> None:
    """asyncio.wait() removes its callbacks."""
    made = bench(2)
    one, two = made.append("t", b"a", partition=0), made.append("t", b"b", partition=1)
    made.opened[0].complete(0)
    assert await asyncio.wait([one, two], timeout=0.001) == ({one}, {two})
    assert made.opened[1].waiters == 0


async def test_it_is_no_future_and_no_coroutine(bench: Make) -> None:
    """A future could be cancelled for all waiters, and a coroutine awaited only once."""
    delivery = bench().append("t", b"a")
    assert not asyncio.isfuture(delivery)
    assert not asyncio.iscoroutine(delivery)
    assert inspect.isawaitable(delivery)
    assert delivery.cancelled() is False
    with pytest.raises(TypeError, match="coroutine was expected"):
        asyncio.create_task(delivery)  # noqa: RUF006


async def test_each_waiter_gets_an_error_of_its_own(bench: Make) -> None:
    """The traceback of a shared exception would grow with every waiter."""
    made = bench()
    delivery = made.append("t", b"a")
    tasks = [asyncio.create_task(wait_for(delivery)) for _ in range(2)]
    await turn()
    error = NotLeaderOrFollower("moved", node=1)
    made.opened[0].fail(error)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(r) for r in results] == [NotLeaderOrFollower] * 2
    assert results[0] is not results[1]
    assert error not in (results[0], results[1], delivery.exception())
    assert results[0].node == 1
    assert error.__traceback__ is None
    with pytest.raises(NotLeaderOrFollower):
        await delivery


async def test_a_failure_is_seen_if_a_task_waits_for_it(bench: Make) -> None:
    """flush() runs before the woken task and must not report the failure again."""
    made = bench()
    deliveries = [made.append("t", b"a") for _ in range(3)]
    task = asyncio.create_task(wait_for(deliveries[1]))
    deliveries[2].add_done_callback(lambda d: d.exception())
    await turn()
    made.opened[0].fail(KafkaError("x"))
    assert made.opened[0].unobserved == 1
    with pytest.raises(KafkaError):
        await task


def test_asking_too_early_is_an_error(bench: Make) -> None:
    """asyncio's futures raise the same error."""
    delivery = bench().append("t", b"a")
    for ask in (delivery.result, delivery.exception, lambda: delivery.offset):
        with pytest.raises(asyncio.InvalidStateError):
            ask()
    assert "pending" in repr(delivery)


def test_the_outcome_needs_no_loop(bench: Make) -> None:
    """result() works anywhere, also after the loop has ended."""
    made = bench()
    good = made.append("t", b"a")
    made.opened[0].complete(3)
    bad = made.append("t", b"a")
    made.opened[1].fail(KafkaError("x"))
    assert good.result().offset == 3
    assert isinstance(bad.exception(), KafkaError)
    assert "offset=3" in repr(good)
    assert "failed" in repr(bad)


async def test_callbacks_are_called_once_in_their_context(bench: Make) -> None:
    """add_done_callback(fn, context=) before and after the outcome; removals are counted."""
    made = bench()
    delivery, other = made.append("t", b"a"), made.append("t", b"b")
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("v", default="outer")
    context = contextvars.copy_context()
    context.run(variable.set, "inner")
    seen: list[tuple[object, str]] = []

    def note(d: object) -> None:
        seen.append((d, variable.get()))

    delivery.add_done_callback(note)
    delivery.add_done_callback(note, context=context)
    other.add_done_callback(note)
    other.add_done_callback(note)
    assert other.remove_done_callback(note) == 2
    assert other.remove_done_callback(note) == 0
    assert made.opened[0].waiters == 2
    made.opened[0].complete(0)
    await turn()
    assert seen == [(delivery, "outer"), (delivery, "inner")]
    other.add_done_callback(note)
    assert len(seen) == 2
    await turn()
    assert seen[2:] == [(other, "outer")]
    assert other.remove_done_callback(note) == 0


async def test_a_callback_that_fails_spares_the_others(bench: Make) -> None:
    """The loop's exception handler gets the error."""
    made = bench()
    delivery = made.append("t", b"a")
    heard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, what: heard.append(what))
    seen: list[object] = []
    delivery.add_done_callback(lambda d: 1 / 0)
    delivery.add_done_callback(seen.append)
    made.opened[0].complete(0)
    await turn()
    assert seen == [delivery]
    assert isinstance(heard[0]["exception"], ZeroDivisionError)


def test_an_interrupt_in_a_callback_stops_the_loop_and_loses_no_waiter(bench: Make) -> None:
    """After Ctrl-C inside one callback the others run when the loop runs again."""
    made = bench()
    loop = asyncio.new_event_loop()
    seen: list[object] = []

    def interrupt(delivery: object) -> None:
        raise KeyboardInterrupt

    async def begin() -> None:
        delivery = made.append("t", b"a")
        delivery.add_done_callback(interrupt)
        delivery.add_done_callback(seen.append)
        made.opened[0].complete(0)

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(begin())
    assert seen == []
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert len(seen) == 1
    loop.close()


async def test_each_task_resumes_in_its_own_context(bench: Make) -> None:
    """One loop callback wakes many tasks, whose context variables must not mix."""
    made = bench()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("n")

    async def run(n: int, delivery: object) -> int:
        variable.set(n)
        await delivery
        return variable.get()

    tasks = [asyncio.create_task(run(n, made.append("t", b"x"))) for n in range(10)]
    await turn()
    made.opened[0].complete(0)
    assert await asyncio.gather(*tasks) == list(range(10))
    assert asyncio.current_task() is not None


async def test_waits_follow_a_split(bench: Make) -> None:
    """Tasks, callbacks and cancellations move to the new batches."""
    made = bench()
    deliveries = [made.append("t", b"x") for _ in range(4)]
    tasks = [asyncio.create_task(wait_for(d)) for d in deliveries]
    seen: list[object] = []
    deliveries[3].add_done_callback(seen.append)
    await turn()
    first, second = cores.split(made.accumulator, made.opened[0])
    assert (first.waiters, second.waiters) == (2, 3)
    tasks[1].cancel()
    await turn()
    assert (first.waiters, second.waiters) == (1, 3)
    first.complete(10)
    second.fail(NotLeaderOrFollower("x"))
    assert second.unobserved == 0
    assert (await tasks[0]).offset == 10
    for task in tasks[2:]:
        with pytest.raises(NotLeaderOrFollower):
            await task
    assert seen == [deliveries[3]]


async def test_waits_follow_a_pending_topic(bench: Make) -> None:
    """send() to a topic whose metadata comes later, or never for one partition."""
    made = bench(0)
    good, bad = made.append("n", b"v", partition=0), made.append("n", b"v", partition=7)
    tasks = [asyncio.create_task(wait_for(d)) for d in (good, bad)]
    await turn()
    made.accumulator.set_route("n", 1, [0], lambda slot: made.owner)
    with pytest.raises(KafkaError, match="1 partitions"):
        await tasks[1]
    assert not tasks[0].done()
    made.opened[0].complete(0)
    assert (await tasks[0]).partition == 0


async def test_it_works_in_asyncios_debug_mode(bench: Make) -> None:
    """PYTHONASYNCIODEBUG=1 enables more checks of awaited objects."""
    asyncio.get_running_loop().set_debug(True)
    made = bench()
    task = asyncio.create_task(wait_for(made.append("t", b"a")))
    await turn()
    assert "wait_for" in repr(task)
    made.opened[0].complete(1)
    assert (await task).offset == 1


async def test_a_wait_on_another_loop_is_refused(bench: Make) -> None:
    """A producer belongs to one loop; asyncio's own check raises the error."""
    made = bench()
    delivery = made.append("t", b"a")
    task = asyncio.create_task(wait_for(delivery))
    await turn()

    def elsewhere() -> None:
        with asyncio.Runner() as runner, pytest.raises(RuntimeError, match="different loop"):
            runner.run(wait_for(delivery))

    await asyncio.to_thread(elsewhere)
    assert made.opened[0].waiters == 1
    made.opened[0].complete(0)
    await task


async def test_the_iterator_behind_await_is_strict(bench: Make) -> None:
    """As with asyncio's futures, resuming a suspended wait by hand is an error."""
    made = bench()
    delivery = made.append("t", b"a")
    step = delivery.__await__()
    future = next(step)
    assert future._asyncio_future_blocking is True
    assert not future.done()
    with pytest.raises(RuntimeError, match="await was not used"):
        next(step)
    step.close()
    assert made.opened[0].waiters == 0


async def test_a_generator_may_yield_from_it(bench: Make) -> None:
    """Older wrappers, asyncio's own among them, use `yield from`."""
    made = bench()
    delivery = made.append("t", b"a")

    class Wrapper:
        def __await__(self) -> object:
            return (yield from delivery.__await__())

    task = asyncio.ensure_future(Wrapper())
    await turn()
    made.opened[0].complete(4)
    assert (await task).offset == 4
    assert (await Wrapper()).offset == 4


def test_metadata_pickles(core: SimpleNamespace) -> None:
    """Results may be sent to other processes, whichever core those use."""
    meta = core.RecordMetadata("t", 1, 2, 3)
    again = pickle.loads(pickle.dumps(meta))
    assert (again.topic, again.partition, again.offset, again.timestamp_ms) == ("t", 1, 2, 3)
