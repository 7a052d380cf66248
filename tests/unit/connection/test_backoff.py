"""Delays between attempts grow up to a maximum and have jitter."""

from __future__ import annotations

import random

from aiokq.connection.backoff import Backoff


def test_delays_double_up_to_the_maximum_with_jitter() -> None:
    """While a broker is down for an hour, attempts slow down to one per second."""
    backoff = Backoff(0.05, 1.0, random.Random(1))
    delays = [backoff.next() for _ in range(100)]
    for n, delay in enumerate(delays[:4]):
        assert 0.8 * 0.05 * 2**n <= delay <= 1.2 * 0.05 * 2**n
    assert all(0.8 <= delay <= 1.0 for delay in delays[6:])
    assert len(set(delays[6:])) > 20


def test_clients_with_different_seeds_reconnect_at_different_times() -> None:
    """When a broker restarts, a thousand clients must not reconnect at the same instant."""
    delays = {Backoff(0.05, 1.0, random.Random(seed)).next() for seed in range(50)}
    assert len(delays) == 50


def test_reset_starts_again_with_the_shortest_delay() -> None:
    """The first retry after a recovery comes soon."""
    backoff = Backoff(0.05, 1.0, random.Random(1))
    for _ in range(5000):
        backoff.next()
    backoff.reset()
    assert backoff.next() <= 0.06


def test_a_maximum_below_the_initial_delay_is_the_initial_delay() -> None:
    """If the settings are given the wrong way round, the longer one is used, as in Java."""
    backoff = Backoff(2.0, 1.0, random.Random(1))
    assert 1.6 <= backoff.next() <= 2.0
