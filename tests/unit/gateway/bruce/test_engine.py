"""BruceEngine: what a reload changes."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from aiokq.gateway import GatewaySettings
from aiokq.gateway.bruce.batching import BatchLimits, Now
from aiokq.gateway.bruce.dispatcher import Dispatcher
from aiokq.gateway.bruce.engine import BruceEngine
from aiokq.gateway.bruce.options import BruceOptions
from tests.unit.gateway.bruce.messages import WALL_MS, Messages, Outcomes


def options(**delivery: Any) -> BruceOptions:
    settings = GatewaySettings.checked({"delivery": {"engine": "bruce", **delivery}})
    return BruceOptions.of(settings)


def engine(**delivery: Any) -> BruceEngine:
    metadata = SimpleNamespace(topics={}, brokers={}, topic_errors={})
    cluster: Any = SimpleNamespace(metadata=metadata)
    outcomes: Any = None
    spawn: Any = None
    return BruceEngine(
        cluster,
        options(**delivery),
        outcomes,
        spawn=spawn,
        guarded=lambda callback: callback,
        random=Random(1),
    )


def test_a_reload_changes_the_largest_message() -> None:
    one = engine(message_max_bytes=10_000)
    before = one.max_message_bytes
    one.configure(options(message_max_bytes=5_000_000))
    assert one.max_message_bytes == before + 4_990_000


def test_a_reload_begins_pauses_anew_only_if_their_options_change() -> None:
    one = engine()
    pauses = one._pauses
    one.configure(options(max_failed_delivery_attempts=7, replication_timeout_ms=100))
    assert one._pauses is pauses
    for name in ("pause_initial_ms", "pause_max_doublings", "min_pause_ms"):
        pauses = one._pauses
        one.configure(options(**{name: 3}))
        assert one._pauses is not pauses


async def test_a_reload_completes_batches_that_were_begun_by_old_rules() -> None:
    """Otherwise later messages of a topic would overtake them, or wait for the old limits."""
    one, messages = engine(), Messages()
    dispatcher = one._dispatchers[1] = Dispatcher(
        1, options().dispatcher, lambda topic: 0, Outcomes(), Random(1), lambda *given: None
    )
    limits, now = BatchLimits(time_ms=60_000), Now(0.0, WALL_MS)
    dispatcher.batch("t", limits, messages.chunk("t", b"a", partition=0), now)
    dispatcher.batch(None, limits, messages.chunk("u", b"b", partition=0), now)
    assert dispatcher.next_request() is None
    one.reconfigure()
    request = dispatcher.next_request()
    assert request is not None
    assert set(request.sets) == {("t", 0), ("u", 0)}
