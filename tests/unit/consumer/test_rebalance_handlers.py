"""Rebalance handlers: sync or async, their deadline, and their exceptions."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokq.consumer.rebalance_handlers import RebalanceHandlers
from aiokq.core.errors import RequestTimeout
from aiokq.core.types import TopicPartition

TPS = frozenset((TopicPartition("t", 0),))


@pytest.fixture
def failures() -> list[BaseException]:
    return []


@pytest.fixture
def handlers(failures: list[BaseException]) -> RebalanceHandlers:
    return RebalanceHandlers(failures.append)


async def test_sync_and_async_handlers_are_called(handlers: RebalanceHandlers) -> None:
    """Handlers may be functions or coroutine functions."""
    calls: list[Any] = []

    async def later(partitions: Any) -> None:
        await asyncio.sleep(0)
        calls.append(partitions)

    handlers.set(calls.append, later, None)
    await handlers.assigned(TPS, 1)
    await handlers.revoked(TPS, 1)
    await handlers.lost(TPS, 1)  # falls back to on_revoked, as in Java
    assert calls == [TPS] * 3


async def test_a_handler_that_is_not_given_stays_set(handlers: RebalanceHandlers) -> None:
    """subscribe() with one handler must not drop the others."""
    calls: list[str] = []
    handlers.set(lambda tps: calls.append("a"), lambda tps: calls.append("r"), None)
    handlers.set(None, None, lambda tps: calls.append("l"))
    await handlers.assigned(TPS, 1)
    await handlers.revoked(TPS, 1)
    await handlers.lost(TPS, 1)
    assert calls == ["a", "r", "l"]


async def test_an_exception_of_a_handler_is_reported(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """The exception is not raised."""

    def broken(partitions: Any) -> None:
        raise LookupError("x")

    async def times_out(partitions: Any) -> None:
        raise TimeoutError("of its own")

    handlers.set(broken, times_out, None)
    await handlers.assigned(TPS, 1)
    await handlers.revoked(TPS, 1)
    assert [type(error) for error in failures] == [LookupError, TimeoutError]


async def test_a_handler_that_does_not_end_is_cancelled(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """The rest of the group waits for the handler."""

    async def stuck(partitions: Any) -> None:
        await asyncio.get_running_loop().create_future()

    handlers.set(stuck, None, None)
    await handlers.assigned(TPS, 0.001)
    assert isinstance(failures[0], RequestTimeout)


async def test_a_cancelled_error_raised_by_the_handler_is_reported(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """Awaiting a cancelled task raises CancelledError, which must not end the driver."""

    async def awaits_a_dead_task(partitions: Any) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    handlers.set(awaits_a_dead_task, None, None)
    await handlers.assigned(TPS, 1)
    assert isinstance(failures[0], RuntimeError)


async def test_a_cancellation_of_the_handlers_task_is_raised(handlers: RebalanceHandlers) -> None:
    """close() cancels the handler."""

    async def stuck(partitions: Any) -> None:
        await asyncio.get_running_loop().create_future()

    handlers.set(stuck, None, None)
    task = asyncio.get_running_loop().create_task(handlers.assigned(TPS, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class PanicError(BaseException):
    """Panics of Rust extensions derive from BaseException."""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (StopIteration("not a record"), RuntimeError),
        (StopAsyncIteration(), RuntimeError),
        (asyncio.CancelledError(), RuntimeError),
        (GeneratorExit(), RuntimeError),
        (PanicError(), PanicError),
    ],
)
async def test_any_exception_of_a_handler_is_reported_in_a_form_that_readers_can_raise(
    handlers: RebalanceHandlers,
    failures: list[BaseException],
    raised: BaseException,
    told: type[BaseException],
) -> None:
    """A StopIteration in a coroutine becomes its result, which readers received as a record."""

    def broken(partitions: Any) -> None:
        raise raised

    handlers.set(broken, None, None)
    await handlers.assigned(TPS, 1)
    (failure,) = failures
    assert type(failure) is told
    assert raised in (failure, failure.__cause__)


async def test_a_handler_that_ends_the_program_ends_it(handlers: RebalanceHandlers) -> None:
    """`sys.exit()` in a handler is not an error of the handler."""

    def broken(partitions: Any) -> None:
        raise SystemExit(2)

    handlers.set(broken, None, None)
    with pytest.raises(SystemExit):
        await handlers.assigned(TPS, 1)


@pytest.mark.parametrize("step", ["assigned", "revoked", "lost"])
async def test_a_generator_exit_of_an_async_handler_is_told(
    handlers: RebalanceHandlers, failures: list[BaseException], step: str
) -> None:
    """GeneratorExit was taken for the end of the member's coroutine, which stopped silently."""
    raised = GeneratorExit()

    async def broken(partitions: Any) -> None:
        await asyncio.sleep(0)
        raise raised

    handlers.set(broken, broken, broken)
    await getattr(handlers, step)(TPS, 1)
    (failure,) = failures
    assert type(failure) is RuntimeError
    assert failure.__cause__ is raised


async def test_a_generator_exit_of_a_future_is_told(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """A future has no frame that shows where its exception was raised."""

    def broken(partitions: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(GeneratorExit())
        return future

    handlers.set(broken, None, None)
    await handlers.assigned(TPS, 1)
    assert type(failures[0]) is RuntimeError


async def test_closing_is_no_failure_of_the_handler(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """A coroutine that is garbage collected after its loop was closed must not continue."""

    async def stuck(partitions: Any) -> None:
        await asyncio.get_running_loop().create_future()

    handlers.set(stuck, None, None)
    step = handlers.assigned(TPS, 60)
    step.send(None)
    step.close()
    assert failures == []


async def test_a_reader_gets_an_error_that_cannot_be_logged(
    handlers: RebalanceHandlers, failures: list[BaseException]
) -> None:
    """A logging handler raised; the reader got no error, and the membership ended."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log is full")

    def broken(partitions: Any) -> None:
        raise LookupError("x")

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    handlers.set(broken, None, None)
    log, handler = logging.getLogger("aiokq.consumer"), Broken()
    log.addHandler(handler)
    try:
        await handlers.assigned(TPS, 1)
    finally:
        log.removeHandler(handler)
    assert [type(error) for error in failures] == [LookupError]
    assert [type(context["exception"]) for context in told] == [OSError]
