"""The session that a load creates, as far as it can be tested without Spark."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from py4j.protocol import Py4JNetworkError

from aiokq.spark.loading import session


def test_a_signal_waits_until_the_jvm_has_been_heard_of() -> None:
    """If the driver ends while its JVM starts, the JVM would wait for it forever."""
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
    """Regression: an error of stopping the session hid the error of the load."""

    def stop() -> None:
        raise error

    session._stop(SimpleNamespace(stop=stop))  # type: ignore[arg-type]
