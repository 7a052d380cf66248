"""Supervisor: failures reach the owner once, and closing leaves no task running."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import Iterator

import pytest
import uvloop

from aiokq.core.errors import Closed
from aiokq.core.supervisor import (
    State,
    Supervisor,
    handed_over,
    shielded,
    unwrap,
    warn_unclosed,
)
from tests.forking import in_child, needs_fork


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def fail(error: BaseException) -> None:
    raise error


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_failing_child_is_reported_once_and_cancels_the_others():
    """A client must not continue to accept records when its sending task has failed."""
    reported: list[BaseException] = []
    supervisor = Supervisor("cluster", on_failure=reported.append)
    await supervisor.start()
    sibling = supervisor.spawn(forever(), name="sibling")
    error = ValueError("bug")
    supervisor.spawn(fail(error), name="child")
    await settle()
    assert reported == [error]
    assert supervisor.failed is error
    assert sibling.cancelled()
    assert supervisor.state is State.FAILED
    await supervisor.close()
    assert reported == [error]


async def test_the_exception_of_a_guarded_callback_fails_the_supervisor():
    """asyncio would log it, and the owner would wait for what the callback had to do."""
    reported: list[BaseException] = []
    supervisor = Supervisor("cluster", on_failure=reported.append)
    await supervisor.start()
    sibling = supervisor.spawn(forever(), name="sibling")
    error = ValueError("bug")
    called: list[int] = []

    def callback(number: int) -> None:
        called.append(number)
        if number:
            raise error

    guarded = supervisor.guarded(callback, name="callback")
    loop = asyncio.get_running_loop()
    for number in (0, 1, 2):  # the third is called when the supervisor has failed
        loop.call_soon(guarded, number)
        await settle()
        assert reported == ([error] if number else [])
    assert called == [0, 1, 2]
    assert sibling.cancelled()
    await supervisor.close()


async def test_the_owner_is_notified_of_a_failure_before_the_siblings_end():
    """A sibling's cleanup may take long, and waiters must not wait for it."""
    reported: list[BaseException] = []
    supervisor = Supervisor("cluster", on_failure=reported.append)
    await supervisor.start()
    release = asyncio.Event()

    async def slow() -> None:
        try:
            await forever()
        finally:
            await release.wait()

    supervisor.spawn(slow(), name="slow")
    await settle()
    supervisor.spawn(fail(ValueError("bug")), name="child")
    await settle()
    assert len(reported) == 1
    release.set()
    await supervisor.close()


async def test_a_cancelled_error_raised_by_the_child_itself_is_its_failure(caplog):
    """A CancelledError raised by a callback ended the sending of a partition silently."""
    reported: list[BaseException] = []
    supervisor = Supervisor("producer", on_failure=reported.append)
    await supervisor.start()
    error = asyncio.CancelledError()
    supervisor.spawn(fail(error), name="child")
    await settle()
    (failure,) = reported
    assert isinstance(failure, RuntimeError)
    assert failure.__cause__ is error
    assert supervisor.state is State.FAILED
    assert caplog.text.count("task failed: supervisor=producer") == 1
    await supervisor.close()


async def test_a_generator_exit_raised_by_a_child_is_its_failure():
    """The exception was treated as garbage collection of the child, so the child ended silently."""
    reported: list[BaseException] = []
    supervisor = Supervisor("consumer", on_failure=reported.append)
    await supervisor.start()
    error = GeneratorExit()
    supervisor.spawn(fail(error), name="child")
    await settle()
    (failure,) = reported
    assert isinstance(failure, RuntimeError)
    assert failure.__cause__ is error
    await supervisor.close()


async def test_the_owner_is_notified_of_a_failure_that_cannot_be_logged():
    """When a log handler raised, the owner's waiters were never notified."""

    class Broken(logging.Handler):
        def emit(self, record):
            raise LookupError

    reported: list[BaseException] = []
    supervisor = Supervisor("producer", on_failure=reported.append)
    await supervisor.start()
    handler = Broken()
    logging.getLogger("aiokq.core").addHandler(handler)
    try:
        error = ValueError("bug")
        supervisor.spawn(fail(error), name="child")
        await settle()
    finally:
        logging.getLogger("aiokq.core").removeHandler(handler)
    assert reported == [error]
    await supervisor.close()


async def test_a_child_cancelled_by_its_owner_is_no_failure():
    """Tasks of connections and watches end while their owner continues."""
    supervisor = Supervisor("producer")
    await supervisor.start()
    child = supervisor.spawn(forever(), name="child")
    await settle()
    child.cancel()
    await settle()
    assert child.cancelled()
    assert supervisor.state is State.OPEN
    await supervisor.close()
    assert supervisor.failed is None


async def test_errors_of_siblings_are_chained_to_the_first_and_no_group_escapes():
    """Users see the cause instead of an ExceptionGroup with all that followed."""
    supervisor = Supervisor("cluster")
    await supervisor.start()

    async def fails_when_cancelled() -> None:
        try:
            await forever()
        finally:
            raise KeyError("second")

    supervisor.spawn(fails_when_cancelled(), name="second")
    await settle()
    first = ValueError("first")
    supervisor.spawn(fail(first), name="first")
    await supervisor.close()
    assert supervisor.failed is first
    assert isinstance(first.__context__, KeyError)


async def test_a_raising_on_failure_is_logged_and_the_group_still_ends(caplog):
    """The handler given by the owner may have bugs too."""

    def broken(error: BaseException) -> None:
        raise RuntimeError("handler bug")

    supervisor = Supervisor("cluster", on_failure=broken)
    await supervisor.start()
    supervisor.spawn(fail(ValueError("bug")), name="child")
    await settle()
    assert isinstance(supervisor.failed, ValueError)
    assert "handler bug" in caplog.text
    await supervisor.close()


async def test_close_cancels_the_children_and_waits_for_their_cleanup():
    """Children close their sockets in that cleanup."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    steps = []

    async def child() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    supervisor.spawn(child(), name="child")
    await settle()
    await supervisor.close()
    steps.append("closed")
    assert steps == ["cleaned up", "closed"]
    assert supervisor.failed is None


async def test_close_is_safe_twice_and_concurrently():
    """`async with` may be used in an application that also calls close()."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    supervisor.spawn(forever(), name="child")
    await asyncio.gather(supervisor.close(), supervisor.close(), supervisor.close())
    await supervisor.close()
    await Supervisor("never started").close()


async def test_a_cancelled_close_continues_closing():
    """The cancellation ends the wait only; no child may keep running."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    release = asyncio.Event()

    async def child() -> None:
        try:
            await forever()
        finally:
            await release.wait()

    task = supervisor.spawn(child(), name="child")
    await settle()
    closing = asyncio.create_task(supervisor.close())
    await settle()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    release.set()
    await settle()
    assert task.done()


async def test_close_gives_up_on_a_child_that_does_not_end(caplog):
    """close() is bounded in time; the log names the child."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    supervisor.spawn(stubborn(), name="stubborn")
    await settle()
    await supervisor.close(timeout=0)
    assert "cluster: stubborn" in caplog.text
    release.set()
    await supervisor.close()


async def test_the_owner_is_notified_when_all_tasks_are_cancelled() -> None:
    """As asyncio.run does after KeyboardInterrupt, while a child takes long to clean up.

    Regression: a child that was started meanwhile never ran, and its owner waited for it.
    """
    notified: list[str] = []
    release = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    supervisor = Supervisor("s", on_cancelled=lambda: notified.append("cancelled"))
    await supervisor.start()
    child = supervisor.spawn(slow(), name="slow")
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)
    assert notified == ["cancelled"]
    assert not child.done()
    with pytest.raises(Closed):
        supervisor.spawn(slow(), name="late")
    release.set()
    await supervisor.close()
    assert child.cancelled()
    assert supervisor.failed is None
    assert notified == ["cancelled"]


async def test_the_owner_is_not_notified_of_its_own_close() -> None:
    """It closes for a reason that it knows."""
    notified: list[str] = []
    async with Supervisor("s", on_cancelled=lambda: notified.append("cancelled")) as supervisor:
        supervisor.spawn(asyncio.sleep(3600), name="child")
    assert notified == []


async def test_spawn_after_close_raises_and_closes_the_coroutine():
    """A coroutine that is never awaited would cause a warning far from the mistake."""
    supervisor = Supervisor("cluster")
    with pytest.raises(Closed, match="not started"):
        supervisor.spawn(forever(), name="early")
    await supervisor.start()
    await supervisor.close()
    coro = forever()
    with pytest.raises(Closed, match="cluster is closed"):
        supervisor.spawn(coro, name="late")
    assert coro.cr_frame is None
    with pytest.raises(Closed):
        await supervisor.start()


async def test_spawn_after_a_failure_names_the_failure():
    """ "Closed" alone would not explain why."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    supervisor.spawn(fail(ValueError("bug")), name="child")
    await settle()
    with pytest.raises(Closed, match="bug") as caught:
        supervisor.spawn(forever(), name="late")
    assert caught.value.__cause__ is supervisor.failed
    await supervisor.close()


async def test_a_child_cancelled_before_its_first_step_warns_of_nothing():
    """Python warns of coroutines that were never awaited."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    task = supervisor.spawn(forever(), name="child")
    task.cancel()
    await settle()
    assert task.cancelled()
    assert supervisor.state is State.OPEN
    await supervisor.close()


async def test_closing_from_a_child_is_refused():
    """It would wait for its own end."""
    supervisor = Supervisor("cluster")
    await supervisor.start()
    refused = supervisor.spawn(supervisor.close(), name="suicide")
    await asyncio.wait([refused])
    assert isinstance(refused.exception(), RuntimeError)
    await supervisor.close()


async def test_a_child_that_ends_leaves_the_others_alone():
    """The normal end of a child is not an event."""
    async with Supervisor("cluster") as supervisor:
        other = supervisor.spawn(forever(), name="other")
        task = supervisor.spawn(asyncio.sleep(0, "result"), name="short")
        assert await task == "result"
        await settle()
        assert not other.done()
    assert other.cancelled()


def test_the_end_of_the_loop_closes_the_group():
    """asyncio.run() cancels all tasks of a client that was not closed."""
    supervisors = []

    async def main() -> None:
        supervisor = Supervisor("cluster")
        supervisors.append(supervisor)
        await supervisor.start()
        supervisor.spawn(forever(), name="child")
        await settle()

    asyncio.run(main())
    assert supervisors[0].state is State.CLOSED
    assert supervisors[0].failed is None


async def test_shielded_finishes_and_then_raises_the_cancellation():
    """A log must not stay half closed because its owner was cancelled."""
    steps = []
    release = asyncio.Event()

    async def cleanup() -> str:
        await release.wait()
        steps.append("done")
        return "result"

    caller = asyncio.create_task(shielded(cleanup()))
    await settle()
    caller.cancel()
    await settle()
    caller.cancel()
    await settle()
    assert not caller.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert steps == ["done"]
    assert await shielded(cleanup()) == "result"


async def test_shielded_raises_the_exception_of_the_cleanup():
    """The failure must not be lost, even if the caller is cancelled."""
    with pytest.raises(OSError, match="disk"):
        await shielded(fail(OSError("disk")))
    release = asyncio.Event()

    async def late() -> None:
        await release.wait()
        raise OSError("disk")

    caller = asyncio.create_task(shielded(late()))
    await settle()
    caller.cancel()
    await settle()
    release.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(("error", "lines"), [(LookupError(), 0), (KeyError(), 0), (OSError(), 1)])
async def test_shielded_logs_no_expected_error_of_a_cancelled_caller(error, lines, caplog):
    """A refusal is an answer to the caller, and no error of the process."""
    release = asyncio.Event()

    async def late() -> None:
        await release.wait()
        raise error

    caller = asyncio.create_task(shielded(late(), name="late", expected=LookupError))
    await settle()
    caller.cancel()
    await settle()
    release.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert caught.value.__cause__ is error
    assert caplog.text.count("failed while being cancelled: task=late") == lines


def test_unwrap_accepts_errors_that_refuse_attributes():
    """Exceptions of user code may; the AttributeError replaced the cause."""

    class Frozen(Exception):
        def __setattr__(self, name, value):
            raise AttributeError(name)

    a, b = Frozen("a"), Frozen("b")
    assert unwrap(ExceptionGroup("g", [a, b])) is a
    assert a.__context__ is b


def test_unwrap_gives_the_first_leaf_and_chains_the_rest_without_cycles():
    """Printing a cyclic chain would never end."""
    a, b, c = ValueError("a"), ValueError("b"), ValueError("c")
    b.__context__ = a
    group = ExceptionGroup("outer", [a, ExceptionGroup("inner", [b, c])])
    first = unwrap(group)
    assert first is a
    chain, link = [], first
    while link is not None and len(chain) < 10:
        chain.append(link)
        link = link.__context__
    assert chain == [a, b, c]
    assert unwrap(ExceptionGroup("g", [a, c]), first=c) is c


async def test_a_cancelled_start_does_not_cancel_another_one() -> None:
    """Two tasks entered a client at once; cancelling the first one cancelled the second too."""
    supervisor = Supervisor("cluster")
    first = asyncio.create_task(supervisor.start())
    second = asyncio.create_task(supervisor.start())
    loop = asyncio.get_running_loop()
    loop.call_soon(first.cancel)
    results = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], Closed)
    assert supervisor.failed is None
    await supervisor.close()


async def test_start_raises_if_close_is_called_first() -> None:
    """After close() in the same iteration as start(), the root task never ran and start() hung."""
    supervisor = Supervisor("cluster")
    starting = asyncio.create_task(supervisor.start())
    await asyncio.sleep(0)
    await supervisor.close()
    with pytest.raises(Closed):
        await asyncio.wait_for(starting, 1)


async def test_a_child_that_spawns_while_its_supervisor_closes_has_not_failed() -> None:
    """The child woke up at the moment of close(); its failed spawn() was reported as a bug."""
    reported: list[BaseException] = []
    supervisor = Supervisor("cluster", on_failure=reported.append)
    await supervisor.start()
    due = asyncio.get_running_loop().create_future()

    async def child() -> None:
        await due
        supervisor.spawn(forever(), name="grandchild")

    task = supervisor.spawn(child(), name="child")
    await settle()
    due.set_result(None)
    await supervisor.close()
    assert task.cancelled()
    assert reported == []
    assert supervisor.failed is None
    assert supervisor.state is State.CLOSED


class OtherLoop:
    """An event loop in a thread; the test can stop, restart and close it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        running = threading.Event()
        self.loop.call_soon_threadsafe(running.set)
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        assert running.wait(30)

    def stop(self) -> None:
        if self.thread is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(30)
            self.thread = None


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def other(request: pytest.FixtureRequest) -> Iterator[OtherLoop]:
    other = OtherLoop(request.param())
    other.run()
    yield other
    other.stop()
    other.loop.close()


class Gone(Exception):
    """Raised because the other loop does not run."""


async def test_a_call_is_handed_over_to_a_loop_in_another_thread(other: OtherLoop):
    """Its result or exception is returned here."""

    async def where() -> asyncio.AbstractEventLoop:
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    assert await handed_over(where, other.loop, name="t", gone=Gone) is other.loop
    with pytest.raises(RuntimeError, match="its own"):
        await handed_over(lambda: fail(RuntimeError("its own")), other.loop, name="t", gone=Gone)


async def test_an_exception_from_another_loop_is_in_no_reference_cycle(other: OtherLoop):
    """Its traceback refers to the waiting frame, and so to all of the caller's objects."""

    class Failed(Exception):
        pass

    async def call() -> None:
        raise Failed

    gc.disable()
    try:
        try:
            await handed_over(call, other.loop, name="t", gone=Gone)
        except Failed as error:
            gone = weakref.ref(error)
        await handed_over(lambda: asyncio.sleep(0), other.loop, name="t", gone=Gone)
        assert gone() is None
    finally:
        gc.enable()


async def test_a_call_to_a_loop_that_does_not_run_fails_at_once(other: OtherLoop):
    """The call used to hang. It must not run later either."""
    begun = []

    async def call() -> None:
        begun.append(1)

    other.stop()
    with pytest.raises(Gone):
        await handed_over(call, other.loop, name="t", gone=Gone)
    other.run()
    await handed_over(lambda: asyncio.sleep(0), other.loop, name="t", gone=Gone)
    assert not begun
    other.stop()
    other.loop.close()
    with pytest.raises(Gone):
        await handed_over(call, other.loop, name="t", gone=Gone)


async def test_a_call_in_flight_fails_when_the_loop_stops_and_is_cancelled_if_it_resumes(
    other: OtherLoop,
):
    """The loop of one test ended while another loop waited for a call on it."""
    begun, ended = threading.Event(), threading.Event()

    async def call() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    def stop() -> None:
        begun.wait(30)
        other.stop()

    stopping = threading.Thread(target=stop)
    stopping.start()
    with pytest.raises(Gone):
        await handed_over(call, other.loop, name="t", gone=Gone)
    stopping.join()
    assert not ended.is_set()
    other.run()
    assert await asyncio.to_thread(ended.wait, 30)


async def test_a_call_handed_over_in_the_last_iteration_of_a_loop_fails():
    """The call is handed over in the iteration in which the loop is stopped, and leaves no
    coroutine.

    Only with asyncio's loop: uvloop runs one more iteration, in which the call begins.
    """
    other = OtherLoop(asyncio.new_event_loop())
    other.run()
    held, go = threading.Event(), threading.Event()

    def hold() -> None:  # the loop's last iteration
        held.set()
        go.wait(30)
        other.loop.stop()

    other.loop.call_soon_threadsafe(hold)
    await asyncio.to_thread(held.wait, 30)
    waiting = asyncio.create_task(handed_over(forever, other.loop, name="t", gone=Gone))
    await settle()
    other.loop.call_soon_threadsafe(other.loop.stop)
    go.set()
    with pytest.raises(Gone):
        await waiting
    other.stop()
    other.loop.close()
    gc.collect()  # "coroutine was never awaited" would fail the test


async def test_a_call_cancelled_by_the_end_of_its_loop_raises_gone(other: OtherLoop):
    """asyncio.run() cancels all tasks at its end; the waiter must not seem cancelled."""
    begun = threading.Event()

    async def call() -> None:
        begun.set()
        await forever()

    waiting = asyncio.create_task(handed_over(call, other.loop, name="t", gone=Gone))
    await asyncio.to_thread(begun.wait, 30)
    other.loop.call_soon_threadsafe(
        lambda: [task.cancel() for task in asyncio.all_tasks(other.loop)]
    )
    with pytest.raises(Gone):
        await waiting


async def test_a_cancelled_caller_returns_at_once_and_cancels_the_call(other: OtherLoop):
    """asyncio.wait_for() did not return at its timeout."""
    begun, ended = threading.Event(), threading.Event()

    async def call() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    waiting = asyncio.create_task(handed_over(call, other.loop, name="t", gone=Gone))
    await asyncio.to_thread(begun.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.to_thread(ended.wait, 30)


@needs_fork
def test_a_task_of_the_parent_that_continues_in_a_forked_child_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After sys.exit() in a child, the loop runs what is ready, but asyncio has no running loop."""
    failures: list[BaseException] = []

    async def sleepy() -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(3600)

    async def main() -> str:
        async with Supervisor("test", on_failure=failures.append) as supervisor:
            task = supervisor.spawn(sleepy(), name="sleepy")
            await asyncio.sleep(0)

            def step() -> str:
                with pytest.raises(RuntimeError, match="no running event loop"):
                    task.get_coro().send(None)  # type: ignore[union-attr]
                return f"{failures} {caplog.messages}"

            return in_child(step)

    assert asyncio.run(main()) == "[] []"


async def test_a_garbage_collected_task_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """Collecting a task after its loop was closed logged "task failed" with a GeneratorExit."""

    async def forever() -> None:
        await asyncio.Event().wait()

    async with Supervisor("s") as supervisor:
        guarded = supervisor._guard(forever())
        guarded.send(None)
        guarded.close()
    assert caplog.text == ""


class Unclosed:
    def __del__(self) -> None:
        warn_unclosed(self)

    def __repr__(self) -> str:
        return "<Unclosed>"


def test_the_warning_names_the_line_that_dropped_the_object():
    """The library's own line would not show the user which object was left open."""
    left = Unclosed()
    with pytest.warns(ResourceWarning, match="<Unclosed> was not closed: use `async") as caught:
        del left
    assert [warning.filename for warning in caught] == [__file__]
