"""The thread and event loop of an embedded cluster that is used with `with`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

from aiokq.core.errors import Closed, WrongLoop

__all__ = ["STOP_SECONDS", "LoopThread"]

T = TypeVar("T")

STOP_SECONDS: Final = 30.0
"""Maximum number of seconds to wait for the end of the thread.

It is also the default timeout of `EmbeddedCluster.run`.
"""

_STILL_RUNNING_SECONDS: Final = 0.1
"""Interval, in seconds, at which a waiting caller checks that the loop is still running."""


class LoopThread:
    """A thread with an event loop: it awaits `start`, runs until `stop`, then awaits `close`."""

    def __init__(
        self, start: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]
    ) -> None:
        self._start = start
        self._close = close
        self._ready = threading.Event()
        self._started = False
        self._abandoned = False
        self._main_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="aiokq-broker", daemon=True)

    def enter(self) -> None:
        """Start the thread and wait until `start` has returned.

        If the wait is interrupted, `start` is cancelled and the thread ends.

        Raises:
            Exception: the error of `start`; the thread has ended.
        """
        self._thread.start()
        try:
            self._ready.wait()
        except BaseException:  # for example KeyboardInterrupt: stop the thread
            self._abandoned = True
            if self._loop is not None and self._main_task is not None:
                with contextlib.suppress(RuntimeError):  # raised if the loop is closed
                    self._loop.call_soon_threadsafe(self._main_task.cancel)
            self._thread.join(STOP_SECONDS)
            raise
        if not self._started:
            self._thread.join()
            assert self._failure is not None
            raise self._failure

    def run(self, coro: Coroutine[object, object, T], timeout: float | None) -> T:
        """Run a coroutine on the loop and return its result. Call it from another thread.

        Raises:
            TimeoutError: no result within `timeout` seconds; the coroutine continues.
            Closed: the loop ended before the coroutine ended.
            WrongLoop: called on the thread of the loop, where the call would wait for itself.
        """
        assert self._loop is not None
        if threading.current_thread() is self._thread:
            coro.close()
            raise WrongLoop(
                "run() was called on the thread of the embedded cluster, where it would wait "
                "for itself: await the coroutine instead"
            )
        closed = Closed("the embedded cluster was closed before the call ended")
        try:
            future = asyncio.run_coroutine_threadsafe(coro, self._loop)
        except RuntimeError:
            coro.close()
            raise closed from None
        left = timeout
        while not future.done():
            # If the loop ends, the future stays pending, so check at intervals whether the loop
            # still runs.
            running = self._loop.is_running()
            look = _STILL_RUNNING_SECONDS if left is None else min(left, _STILL_RUNNING_SECONDS)
            if concurrent.futures.wait([future], look).done:
                break
            if not running:
                if inspect.getcoroutinestate(coro) == inspect.CORO_CREATED:
                    coro.close()  # asyncio.run() cancels only coroutines that have started
                raise closed
            if left is not None:
                left -= look
                if left <= 0:
                    raise TimeoutError(f"the call did not end within {timeout:g} s")
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise closed from None

    def stop(self) -> None:
        """Let the thread await `close` and end its loop. Call it on the loop."""
        assert self._stop is not None
        self._stop.set()

    def leave(self) -> None:
        """Stop the loop and wait for the end of the thread, which may have ended already.

        Raises:
            TimeoutError: the thread did not end within `STOP_SECONDS`.
            Exception: the error of `close`, or the error that ended the loop.
        """
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # raised if the loop is closed
            self._loop.call_soon_threadsafe(self.stop)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the embedded broker did not stop within {STOP_SECONDS:g} s")
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised by enter() or leave()
            self._failure = error

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._main_task = asyncio.current_task()
        try:
            if self._abandoned:
                return
            await self._start()
            self._started = True
        finally:
            self._ready.set()
        try:
            await self._stop.wait()
        finally:
            await self._close()
