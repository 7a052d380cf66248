"""A session of a load's own, as far as that needs no Spark."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from py4j.protocol import Py4JNetworkError

from aiokq.spark.loading import session


def test_a_signal_waits_until_the_jvm_has_been_heard_of() -> None:
    """The driver left while its JVM was booting: that waited for a driver for ever."""
    events: list[str] = []
    before = {
        number: signal.signal(number, lambda number, frame: events.append(signal.strsignal(number)))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        with session._signals_later():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            events.append("started")
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    assert events == ["started", "Terminated", "Interrupt", "Terminated"]


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(111, "no")])
def test_a_session_whose_jvm_is_gone_is_stopped(error: Exception) -> None:
    """What the load died of was hidden by what stopping it did."""

    def stop() -> None:
        raise error

    session._stop(SimpleNamespace(stop=stop))  # type: ignore[arg-type]
