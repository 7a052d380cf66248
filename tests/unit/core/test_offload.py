"""Offload: what leaves the loop, and what does not."""

from __future__ import annotations

import threading

import pytest

from aiokq.core.errors import Closed
from aiokq.core.offload import InlineOffload, ThreadOffload


@pytest.mark.parametrize("make", [ThreadOffload, InlineOffload])
async def test_results_and_errors_come_back(make):
    """The caller cannot tell where it ran."""
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
    """It would start a pool that nobody stops."""
    offload = make()
    offload.close()
    with pytest.raises(Closed):
        await offload.run(len, "x")
    assert await offload.run_sized(1, 100, len, "x") == 1


async def test_only_work_of_the_threshold_and_above_leaves_the_loops_thread():
    """A hop costs more than compressing a small batch."""
    offload = ThreadOffload(max_workers=1)
    here = threading.get_ident()
    assert await offload.run_sized(99, 100, threading.get_ident) == here
    assert await offload.run_sized(100, 100, threading.get_ident) != here
    assert await offload.run(threading.get_ident) != here
    offload.close()


async def test_inline_offload_stays_on_the_loops_thread():
    """A simulation with a thread in it is none."""
    assert await InlineOffload().run(threading.get_ident) == threading.get_ident()
