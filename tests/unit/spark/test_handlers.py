"""foreachBatch for coroutine functions, without Spark: any object stands for a frame."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from typing import Any, cast

import pytest

from aiokq.errors import ConfigError, WrongLoop
from aiokq.spark.handlers import foreach_batch, foreach_batch_with_client
from aiokq.spark.worker import loop_thread

FRAME = cast("Any", object())


def test_batches_are_handled_on_one_loop_one_after_another() -> None:
    """Objects that the handler keeps between batches are bound to that loop."""
    seen: list[tuple[object, int, asyncio.AbstractEventLoop]] = []

    async def handler(frame: object, batch: int) -> None:
        await asyncio.sleep(0)
        seen.append((frame, batch, asyncio.get_running_loop()))

    handle = foreach_batch(handler)
    for batch in range(3):
        handle(FRAME, batch)

    loop = loop_thread().loop
    assert seen == [(FRAME, batch, loop) for batch in range(3)]


def test_what_a_handler_raises_is_raised_where_spark_sees_it() -> None:
    """The error ends the query, and the batch is not done; the next query works."""

    async def handler(frame: object, batch: int) -> None:
        if batch == 1:
            raise LookupError("no such account")

    handle = foreach_batch(handler)
    handle(FRAME, 0)
    with pytest.raises(LookupError, match="no such account"):
        handle(FRAME, 1)
    handle(FRAME, 2)


def test_a_handler_that_is_cancelled_has_not_done_its_batch() -> None:
    """CancelledError is not an Exception: Spark's callback thread would end without an answer."""

    async def handler(frame: object, batch: int) -> None:
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="the handler of batch 7 was cancelled"):
        foreach_batch(handler)(FRAME, 7)


def test_a_handler_that_exits_ends_neither_the_loop_nor_the_callback() -> None:
    """Regression: sys.exit() ended the loop's thread, and the next batch and other users hung."""

    async def handler(frame: object, batch: int) -> None:
        if batch == 0:
            sys.exit(3)

    handle = foreach_batch(handler)
    with pytest.raises(RuntimeError, match=r"the handler of batch 0 ended by SystemExit\(3\)"):
        handle(FRAME, 0)
    handle(FRAME, 1)
    assert loop_thread().run(asyncio.sleep(0, "on"), 10) == "on"


def test_a_handler_runs_on_the_loop_that_was_given_while_that_runs() -> None:
    """On a stopped loop a query would wait for its batch forever."""
    here: list[asyncio.AbstractEventLoop] = []

    async def handler(frame: object, batch: int) -> None:
        here.append(asyncio.get_running_loop())

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        handle = foreach_batch(handler, loop=loop)
        await asyncio.to_thread(handle, FRAME, 0)
        assert here == [loop]
        return handle

    handle = asyncio.run(main())
    with pytest.raises(WrongLoop, match="has ended before the query"):
        handle(FRAME, 1)
    with pytest.raises(WrongLoop, match="cannot be sent to another process"):
        pickle.dumps(handle)


async def nothing(frame: object, batch: int, cluster: object) -> None:
    """Handler that can be pickled."""


def test_a_handler_with_a_client_is_sent_as_its_settings() -> None:
    """Spark Connect calls it in a process of the server."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        foreach_batch_with_client(nothing, {})

    pickle.loads(pickle.dumps(foreach_batch_with_client(nothing, {"bootstrap.servers": "a:1"})))


def test_queries_share_one_thread() -> None:
    """A thread and a loop per query would remain after the query."""

    async def handler(frame: object, batch: int) -> None: ...

    foreach_batch(handler)(FRAME, 0)
    before = threading.active_count()
    for _ in range(5):
        foreach_batch(handler)(FRAME, 0)
    assert threading.active_count() == before
