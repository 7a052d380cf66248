"""The time in which inputs end: by a shutdown, and by a reload that a shutdown overtakes."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.fastpath.gateway import Pool
from aiokq.gateway import input_set
from aiokq.gateway.input_set import DRAIN_SECONDS, LEAST_DRAIN_MS, InputSet
from aiokq.gateway.reload import InputChanges
from aiokq.gateway.settings_tables import InputSettings

LIMIT = 20
COUNT = 3


class Reader:
    """An input without a thread, whose `stop` is a function of the test."""

    def __init__(self, stop: Any) -> None:
        self.stop = stop

    def start(self) -> None:
        pass

    def counts(self) -> Any:
        return SimpleNamespace(unclean_disconnects=0, refused=0)


@pytest.fixture
def settings(tmp_path: Path) -> list[InputSettings]:
    return [
        InputSettings.model_validate({"type": "unix_stream", "path": f"{tmp_path}/{n}"})
        for n in range(COUNT)
    ]


def opened(monkeypatch: pytest.MonkeyPatch, stop: Any) -> InputSet:
    """Return a set whose inputs are `Reader`s, before it reads from any."""
    monkeypatch.setattr(input_set, "Intake", lambda *given, **options: Reader(stop))
    inputs = InputSet()
    inputs.read(Pool(1 << 16), None)
    return inputs


async def test_the_inputs_of_a_reload_that_failed_end_together(
    monkeypatch: pytest.MonkeyPatch, settings: list[InputSettings], tmp_path: Path
) -> None:
    """Regression: one after another, so that each of them could take two seconds."""
    barrier = threading.Barrier(COUNT)

    def stop(*, drain_ms: int) -> None:
        barrier.wait(LIMIT)

    inputs = opened(monkeypatch, stop)
    async with contextlib.AsyncExitStack() as undo:
        changes = InputChanges(kept=[], changed=[], removed=[], added=settings)
        made = await inputs.open_added(changes, undo)
        assert len(made) == COUNT
        await inputs.replace(changes, made, undo)
    assert not barrier.broken
    assert os.listdir(tmp_path) == []
    assert all(one.socket.socket.fileno() == -1 for one in made)


async def test_inputs_that_end_one_after_another_share_the_time_of_a_shutdown(
    monkeypatch: pytest.MonkeyPatch, settings: list[InputSettings]
) -> None:
    """Regression: each end that followed `hurry` had the whole time of it."""
    limits: list[int] = []

    def stop(*, drain_ms: int) -> None:
        limits.append(drain_ms)

    inputs = opened(monkeypatch, stop)
    undo = contextlib.AsyncExitStack()
    changes = InputChanges(kept=[], changed=[], removed=[], added=settings)
    first, second, third = await inputs.open_added(changes, undo)
    clock = time.monotonic()
    monkeypatch.setattr(input_set, "time", SimpleNamespace(monotonic=lambda: clock))
    await inputs._ended((first,))
    await inputs.hurry(1.5)
    clock += 0.5
    await inputs._ended((second,))
    clock += 5
    await inputs._ended((third,))
    assert limits == [pytest.approx(1000 * DRAIN_SECONDS, abs=1), 1000, LEAST_DRAIN_MS]
    await undo.aclose()
