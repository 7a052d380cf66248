"""Offload: which work runs in a thread, and which on the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aiokq.core.errors import Closed
from aiokq.core.offload import InlineOffload, NoThread, ThreadOffload


@pytest.mark.parametrize("make", [ThreadOffload, InlineOffload])
async def test_results_and_errors_come_back(make):
    """The caller sees no difference between running inline and in a thread."""
    offload = make()
    assert await offload.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await offload.run(divmod, 7, 0)
    assert await offload.run_sized(1, 100, divmod, 7, 2) == (3, 1)
    assert await offload.run_sized(100, 100, divmod, 7, 2) == (3, 1)
    offload.close()
    offload.close()


@pytest.mark.parametrize("make", [ThreadOffload, InlineOffload])
async def test_work_after_close_is_refused(make):
    """It would start a thread pool that is never shut down."""
    offload = make()
    offload.close()
    with pytest.raises(Closed):
        await offload.run(len, "x")
    assert await offload.run_sized(1, 100, len, "x") == 1


async def test_only_work_above_the_threshold_runs_in_a_thread():
    """Switching threads costs more than compressing a small batch."""
    offload = ThreadOffload(max_workers=1)
    here = threading.get_ident()
    assert await offload.run_sized(99, 100, threading.get_ident) == here
    assert await offload.run_sized(100, 100, threading.get_ident) != here
    assert await offload.run(threading.get_ident) != here
    offload.close()


async def test_inline_offload_stays_on_the_loops_thread():
    """A simulation must not use threads."""
    assert await InlineOffload().run(threading.get_ident) == threading.get_ident()


async def test_work_runs_inline_while_the_interpreter_shuts_down(monkeypatch):
    """Thread pools then accept no more work, not even existing ones."""
    offload = ThreadOffload(max_workers=1)
    here = threading.get_ident()
    assert await offload.run(threading.get_ident) != here
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    assert await offload.run(threading.get_ident) == here
    with pytest.raises(ZeroDivisionError):
        await offload.run(divmod, 7, 0)
    monkeypatch.undo()
    offload.close()


async def test_a_pool_shut_down_after_the_check_is_no_error(monkeypatch):
    """The main thread shuts the pools down while the broker's thread submits work."""
    offload = ThreadOffload(max_workers=1)
    answers = iter([False, True])
    monkeypatch.setattr("aiokq.core.offload.interpreter_ends", lambda: next(answers))
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    assert await offload.run(threading.get_ident) == threading.get_ident()
    monkeypatch.undo()
    offload.close()


async def test_a_thread_that_cannot_be_started_is_an_error(monkeypatch):
    """The work must not run inline, because it is already in the pool's queue."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    offload = ThreadOffload(max_workers=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        await offload.run(threading.get_ident)
    monkeypatch.undo()
    offload.close()


def no_thread(*_):
    raise RuntimeError("can't start new thread")


async def test_a_pool_goes_on_with_the_threads_that_it_has(monkeypatch):
    """Regression: `run` raised an error, and a thread of the pool ran the function nevertheless."""
    offload = ThreadOffload()
    loop, started, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def wait():
        loop.call_soon_threadsafe(started.set)
        released.wait(30)

    waiting = asyncio.ensure_future(offload.run(wait))
    await started.wait()
    monkeypatch.setattr("threading._start_new_thread", no_thread)
    loop.call_later(0.01, released.set)
    assert await offload.run(divmod, 7, 2) == (3, 1)
    await waiting
    offload.close()


async def test_a_function_for_which_no_thread_can_be_started_is_not_run(monkeypatch):
    """Regression: the first thread that could be started ran it."""
    offload, done = ThreadOffload(), []
    with monkeypatch.context() as limited:
        limited.setattr("threading._start_new_thread", no_thread)
        with pytest.raises(
            NoThread, match="no new thread can be started: raise the limit of processes"
        ):
            await offload.run(done.append, 1)
    await offload.run(done.append, 2)
    assert done == [2]
    offload.close()
