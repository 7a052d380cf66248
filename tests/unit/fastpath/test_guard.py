"""LoopGuard: checks that the running loop is the one that records and waits belong to."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import uvloop

NewLoop = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Elsewhere(Exception):
    """The error for a call from elsewhere."""


class Owner:
    """Counts the calls that ask whether the current loop is its own."""

    def __init__(self, core: SimpleNamespace, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.asked = 0
        self.guard = core.LoopGuard(self.check)

    def check(self) -> None:
        self.asked += 1
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            raise Elsewhere from None
        if running is not self.loop:
            raise Elsewhere

    async def use(self, times: int = 1) -> None:
        for _ in range(times):
            self.guard.require()


@both_loops
def test_the_owner_is_asked_once_for_each_time_that_its_loop_runs(
    core: SimpleNamespace, new_loop: NewLoop
) -> None:
    """All further checks are a comparison."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        owner = Owner(core, runner.get_loop())
        runner.run(owner.use(1000))
        assert owner.asked == 1
        runner.run(owner.use(1000))
        assert owner.asked == 2


@both_loops
def test_everywhere_else_is_refused(core: SimpleNamespace, new_loop: NewLoop) -> None:
    """Other loops of this thread, other threads, and no loop at all; each time."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        owner = Owner(core, runner.get_loop())
        runner.run(owner.use())
        caught: list[str] = []

        def elsewhere() -> None:
            for _ in range(2):
                with pytest.raises(Elsewhere):
                    owner.guard.require()
                with asyncio.Runner(loop_factory=new_loop) as other, pytest.raises(Elsewhere):
                    other.run(owner.use())
            caught.append("all")

        elsewhere()
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(30)
        assert caught == ["all", "all"]
        runner.run(owner.use())


def test_a_thread_beside_the_running_loop_is_refused(core: SimpleNamespace) -> None:
    """The hook belongs to the thread, not to the process."""

    async def main() -> None:
        owner = Owner(core, asyncio.get_running_loop())
        await owner.use()
        with pytest.raises(Elsewhere):
            await asyncio.to_thread(owner.guard.require)

    asyncio.run(main())


def test_a_hook_of_somebody_else_is_not_taken_for_the_loop(core: SimpleNamespace) -> None:
    """A profiler may set such a hook, which stays when another loop runs."""

    def hook(generator: object) -> None:
        pass

    async def main() -> Owner:
        owner = Owner(core, asyncio.get_running_loop())
        sys.set_asyncgen_hooks(firstiter=hook)
        await owner.use(3)
        assert owner.asked == 3
        return owner

    async def other(owner: Owner) -> None:
        sys.set_asyncgen_hooks(firstiter=hook)
        with pytest.raises(Elsewhere):
            await owner.use()

    asyncio.run(other(asyncio.run(main())))


def test_after_forget_the_owner_is_asked_again(core: SimpleNamespace) -> None:
    """A forked child has the hook of its parent."""

    async def main() -> None:
        owner = Owner(core, asyncio.get_running_loop())
        await owner.use()
        owner.guard.forget()
        await owner.use(5)
        assert owner.asked == 2

    asyncio.run(main())


def test_a_guard_without_an_owner_refuses_nothing(core: SimpleNamespace) -> None:
    """Parts of the core may be used on their own."""
    core.LoopGuard().require()
    asyncio.run(asyncio.to_thread(core.LoopGuard().require))


def test_a_record_is_refused_before_anything_else(core: SimpleNamespace) -> None:
    """Regression: a record accepted on an ended loop was never sent, without an error."""
    with asyncio.Runner() as runner:
        owner = Owner(core, runner.get_loop())
        accumulator = core.Accumulator(
            batch_size=1000, buffer_memory=10_000, max_record_bytes=1000, guard=owner.guard
        )

        async def append() -> object:
            return accumulator.append("t", b"v")

        pending = runner.run(append())
        used = accumulator.used_bytes
        accumulator.waiting = 1
        with pytest.raises(Elsewhere):
            accumulator.append("t", b"v")
        with pytest.raises(Elsewhere):
            asyncio.run(append())
        accumulator.waiting = 0
        assert accumulator.used_bytes == used

        async def wait() -> None:
            for call in (
                pending.__await__,
                lambda: pending.add_done_callback(print),
                lambda: pending.remove_done_callback(print),
            ):
                with pytest.raises(Elsewhere):
                    call()

        asyncio.run(wait())
