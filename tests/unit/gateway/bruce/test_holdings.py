"""How many messages the engine holds."""

from __future__ import annotations

from aiokq.gateway.bruce.holdings import Holdings
from aiokq.gateway.budget import Budget
from aiokq.gateway.engine import InEngine
from aiokq.gateway.load import LOAD_BYTES
from tests.unit.gateway.bruce.messages import Messages


def test_messages_are_counted_by_state() -> None:
    """Waiting, in flight, back, and ended; the memory of a load is free with its last message."""
    budget = Budget(1_000_000, lambda topic: None)
    holdings = Holdings(budget)
    messages = Messages()
    chunk = messages.chunk("t", b"a", b"b", b"c")
    taken = chunk.load.taken
    topic = messages.topic("t")
    holdings.accepted(topic, taken)
    assert holdings.counts() == {"t": InEngine(3, 0)}
    first, rest = chunk.split(1)
    holdings.sent(first)
    holdings.sent(rest)
    holdings.queued(rest)
    assert holdings.counts() == {"t": InEngine(2, 1)}
    charge = chunk.load.settle(1)
    assert charge == 0
    holdings.ended(first, charge, in_flight=True)
    assert budget.bytes == taken.charge + LOAD_BYTES
    charge = chunk.load.settle(2)
    assert charge == taken.charge + LOAD_BYTES
    holdings.ended(rest, charge, in_flight=False)
    assert (holdings.counts(), budget.bytes, bool(holdings)) == ({}, 0, False)
