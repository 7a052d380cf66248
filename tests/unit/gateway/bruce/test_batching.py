"""The batches of a broker: each limit alone, and messages that do not fit."""

from __future__ import annotations

import pytest

from aiokq.gateway.bruce.batching import Batch, BatchLimits, Now
from tests.unit.gateway.bruce.messages import WALL_MS, Messages, values

NOW = Now(100.0, WALL_MS)


def added(batch: Batch, messages: Messages, *sizes: int, now: Now = NOW) -> list[int]:
    """Add messages of these sizes at once; return the sizes of those that are complete."""
    chunk = messages.chunk("t", *(b"x" * size for size in sizes))
    return [len(value) for value in values(*batch.add(chunk, now))]


def test_the_limit_of_messages() -> None:
    """Messages that arrive together complete several batches; the rest waits."""
    batch = Batch(BatchLimits(messages=3))
    messages = Messages()

    assert added(batch, messages, 1, 2) == []
    assert added(batch, messages, 3, 4, 5, 6, 7) == [1, 2, 3, 4, 5, 6]
    assert (len(batch), batch.deadline) == (1, None)
    assert values(*batch.take()) == [b"x" * 7]
    assert len(batch) == 0


@pytest.mark.parametrize("together", [True, False])
def test_the_limit_of_bytes(together: bool) -> None:
    """Reaching it completes; a message that would exceed it completes the batch before it; one
    above it is complete by itself, after the batch before it."""
    batch = Batch(BatchLimits(bytes=10))
    messages = Messages()
    sizes = [4, 6, 4, 7, 2, 11, 3, 10, 9]
    complete = []

    if together:
        complete = added(batch, messages, *sizes)
    else:
        for size, expected in zip(
            sizes, ([], [4, 6], [], [4], [], [7, 2, 11], [], [3, 10], []), strict=True
        ):
            assert added(batch, messages, size) == expected
            complete += expected

    assert complete == sizes[:-1]
    assert len(batch) == 1


def test_the_limit_of_time_is_that_of_the_oldest_message() -> None:
    """Age is the smaller of client time and arrival: the future pins nothing, old ones flush."""
    batch = Batch(BatchLimits(time_ms=500))
    messages = Messages()

    batch.add(messages.chunk("t", b"a", timestamp_ms=WALL_MS + 3_000_000), NOW)
    assert batch.deadline == pytest.approx(100.5)
    batch.add(messages.chunk("t", b"b", timestamp_ms=WALL_MS - 200), NOW)
    assert batch.deadline == pytest.approx(100.3)
    complete = batch.add(messages.chunk("t", b"c", timestamp_ms=12345), NOW)
    assert values(*complete) == [b"a", b"b", b"c"]
    assert batch.deadline is None
