"""Lines about one trouble of many things: a few of them, and a number."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aiokq.core.line_limit import LineLimit
from aiokq.core.outages import BURST, EVERY
from tests.sim.harness.simulation import run

logger = logging.getLogger("aiokq.test")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]


def test_the_first_of_each_minute_are_written_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A minute begins with its first line; no timer is left where nothing is wrong."""

    async def body(world: Any) -> None:
        limit = LineLimit(logger, logging.WARNING, "others=%d")
        for minute in range(2):
            for n in range(10):
                limit.write("thing=%d", n)
            assert lines(caplog) == [f"thing={n}" for n in range(BURST)]
            await asyncio.sleep(EVERY + 1)
            assert lines(caplog)[BURST:] == ["others=6"], minute
            caplog.clear()
        limit.write("thing=%d", 1)
        limit.end()
        limit.end()
        await asyncio.sleep(2 * EVERY)
        assert lines(caplog) == ["thing=1"], "nobody was left out"

    run(1, body)


def test_the_end_of_the_owner_tells_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A producer that is closed gives up its records in one go."""

    async def body(world: Any) -> None:
        limit = LineLimit(logger, logging.WARNING, "others=%d")
        for n in range(BURST + 1):
            limit.write("thing=%d", n)
        limit.end()
        assert lines(caplog)[BURST:] == ["others=1"]

    run(1, body)
