"""Limits of new connections per second: of the node, a listener, an address."""

from __future__ import annotations

import pytest

from aiokq.connection.connection_rates import ConnectionRates, HostRates


class Door:
    """Opens connections, as far as the rates permit, at times that the test sets."""

    def __init__(self, protected: str | None = None) -> None:
        self.now = 100.0
        self.rates = ConnectionRates(
            lambda: self.now, protected=frozenset() if protected is None else {protected}
        )

    def open(self, listener: str = "L", host: str = "10.0.0.1") -> bool:
        if self.rates.refusal(listener, host):
            return False
        self.rates.opened(listener, host)
        return True


def test_without_limits_every_connection_is_admitted() -> None:
    """No rate is measured then."""
    door = Door()
    assert all(door.open() for _ in range(10_000))
    assert not door.rates._listeners
    assert not door.rates._hosts


def test_an_address_with_a_rate_of_one_opens_ten_at_once() -> None:
    """As measured on Kafka 4.2: the rate is averaged over ten seconds."""
    door = Door()
    door.rates.hosts = HostRates(None, {"10.0.0.1": 1.0})
    assert [door.open() for _ in range(15)] == [True] * 10 + [False] * 5
    assert door.open(host="10.0.0.2")
    assert door.rates.refusal("L", "10.0.0.1") == "connection_creation_rate of 10.0.0.1=1"


def test_an_address_of_its_own_comes_before_the_default() -> None:
    """Each address has the default for itself."""
    door = Door()
    door.rates.hosts = HostRates(1.0, {"[::1]": 2.0})
    assert sum(door.open(host="[::1]") for _ in range(50)) == 20
    assert sum(door.open(host="10.0.0.1") for _ in range(50)) == 10
    assert sum(door.open(host="10.0.0.2") for _ in range(50)) == 10


def test_the_inter_broker_listener_is_spared_the_rate_of_the_node() -> None:
    """A flood of clients must not keep brokers out; a rate of its own holds there, too."""
    door = Door(protected="INNER")
    door.rates.of_node = 1
    assert sum(door.open("OUTER") for _ in range(50)) == 10
    assert all(door.open("INNER") for _ in range(50))
    door.rates.of_listener = {"INNER": 1}
    assert sum(door.open("INNER") for _ in range(50)) == 10
    assert door.rates.refusal("INNER", "h") == (
        "listener.name.inner.max.connection.creation.rate=1"
    )


def test_a_refused_connection_does_not_count() -> None:
    """A client that keeps trying is admitted again as soon as one that waits."""
    door = Door()
    door.rates.of_node = 1
    for _ in range(10):
        assert door.open()
    for _ in range(100):
        door.now += 0.1
        assert not door.open()
    door.now = 111.0
    assert door.open()


@pytest.mark.parametrize("attempts_per_second", [21, 50, 400])
def test_the_rate_holds_over_thirty_seconds(attempts_per_second: int) -> None:
    """After the first window, within 10 %, however often a client tries."""
    door = Door()
    door.rates.of_node = 20
    opened = []
    for step in range(140 * attempts_per_second):
        door.now = 100 + step / attempts_per_second
        if door.open():
            opened.append(door.now - 100)
    # Four windows of 11 s and their spans of 30 s, so that bursts are averaged.
    counted = sum(11 <= at < 131 for at in opened)
    assert counted / 120 == pytest.approx(20, rel=0.1)
