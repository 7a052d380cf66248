"""The metrics of a gateway: their table, and what becomes a label."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aiokq.core.counters import ClientCounters
from aiokq.fastpath.gateway import BAD_TOPIC, REASONS, Pool
from aiokq.gateway.accounting import Accounting
from aiokq.gateway.metrics import METRICS, exposition
from aiokq.gateway.reports.reports import Reports
from tests.unit.gateway.report_support import Desk, message

MEASURES = ("queued", "discard_log_lines", "discard_log_dropped", "ready", "reload_failed")


def gateway(desk: Desk) -> Any:
    counts = SimpleNamespace(
        received=3,
        received_bytes=90,
        connections=1,
        refused=0,
        unclean_disconnects=0,
        idle_closed=0,
        partial_closed=1,
        displaced=2,
        blocked_ms=1500,
        running=True,
    )
    return SimpleNamespace(
        snapshot=desk.accounting.snapshot,
        pool=desk.pool,
        clients=[SimpleNamespace(counters=ClientCounters("test"))],
        unguarded_ends=0,
        inputs=[SimpleNamespace(type="tcp", where="127.0.0.1:1", sums=lambda: counts)],
        spool=SimpleNamespace(counts=SimpleNamespace(stored_bytes=100, failures=0), recovered=0),
        measures=lambda snapshot: (
            [(name, [((), 1.0)]) for name in MEASURES if name != "queued"]
            + [("queued", [(("new",), 2.0)])]
        ),
    )


def test_every_metric_of_the_table_is_exported():
    desk = Desk()
    text = exposition(gateway(desk)).decode()
    for row in METRICS:
        assert f"# TYPE {row.exported} {row.kind}\n" in text
        assert f"\n{row.exported}" in text
    assert len({row.name for row in METRICS}) == len(METRICS)
    assert 'aiokq_gateway_input_blocked_seconds_total{input="127.0.0.1:1",type="tcp"} 1.5' in text
    closed = 'aiokq_gateway_input_closed_connections_total{input="127.0.0.1:1",reason="displaced"'
    assert f'{closed},type="tcp"}} 2.0' in text


def test_names_of_topics_that_do_not_exist_are_no_labels():
    desk = Desk()
    desk.topic("orders")
    desk.feed(message("orders"), *(message(f"made-up-{n}") for n in range(100)))
    for n in range(100):
        desk.accounting.discard_unresolved(f"made-up-{n}", BAD_TOPIC)
    text = exposition(gateway(desk)).decode()
    assert "made-up" not in text
    assert 'aiokq_gateway_received_total{topic="orders"} 1.0' in text
    assert 'aiokq_gateway_received_total{topic=""} 100.0' in text
    assert 'aiokq_gateway_discarded_total{reason="bad_topic",topic=""} 100.0' in text


def test_no_counter_decreases_when_a_topic_becomes_known():
    """Regression: its messages, and those that were discarded before, left the topic ''."""
    desk = Desk(30_000)
    served = gateway(desk)
    last: dict[str, float] = {}

    def look() -> dict[str, float]:
        nonlocal last
        found: dict[str, float] = {}
        for line in exposition(served).decode().splitlines():
            name, value = line.rsplit(" ", 1)
            if line.startswith("aiokq_gateway_") and name.partition("{")[0].endswith("_total"):
                found[name] = float(value)
        for name, value in last.items():
            assert found[name] >= value, name
        last = found
        return found

    look()
    orders = [message("orders", bytes(1000))] * 50
    desk.feed(message("other"), *orders, b"\0\0\0\4")
    kept = desk.pool.counts().unresolved
    assert 20 < kept < 50
    found = look()
    received, discarded = "aiokq_gateway_received_total", "aiokq_gateway_discarded_total"
    assert found[received + '{topic=""}'] == 1.0
    assert desk.accounting.snapshot().unassigned.received == 51
    desk.topic("orders")
    found = look()
    assert found[received + '{topic="orders"}'] == 50.0
    assert found[received + '{topic=""}'] == 1.0
    lost = found[f'{discarded}{{reason="no_memory",topic="orders"}}']
    desk.accounting.discard_unresolved("other", BAD_TOPIC)
    found = look()
    assert found[received + '{topic=""}'] == 2.0
    assert 0 < 50 - lost <= kept
    assert desk.accounting.snapshot().unassigned.received == 0


def test_every_reason_has_a_sample_from_the_start():
    text = exposition(gateway(Desk())).decode()
    for reason in REASONS:
        assert f'aiokq_gateway_discarded_total{{reason="{reason}",topic=""}} 0.0' in text


def test_all_numbers_are_of_one_snapshot():
    """Messages arrive meanwhile; the books of a scrape balance nevertheless."""
    desk = Desk()
    served = gateway(desk)
    made: list[Any] = []
    given: list[Any] = []
    measures = served.measures

    def snapshot() -> Any:
        made.append(desk.accounting.snapshot())
        return made[-1]

    served.snapshot = snapshot
    served.measures = lambda one: given.append(one) or measures(one)
    exposition(served)
    assert len(made) == 1
    assert given == made


def test_the_queues_of_a_snapshot_are_its_messages_in_flight():
    """Each look at the pool finds more messages."""
    desk = Desk()
    desk.topic("orders")
    pool: Any = Growing(desk.pool)
    accounting = Accounting(pool)
    accounting._slots = desk.accounting._slots
    engine = SimpleNamespace(held=dict)
    letters = SimpleNamespace(held=0, refused=0, held_of={})
    served = SimpleNamespace(accounting=accounting, engine=engine, dead_letters=letters)
    reports: Any = SimpleNamespace(_gateway=served)
    snapshot = accounting.snapshot()
    found = Reports.queues(reports, snapshot)
    assert found.new + sum(found.totals()) == snapshot.total.in_flight
    assert sum(Reports.queues(reports).totals()) > snapshot.total.in_flight


class Growing:
    """A pool that receives a message before each snapshot."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def counts(self, **options: Any) -> Any:
        self._pool.feed(message("orders"))
        return self._pool.counts(**options)

    def refused(self) -> Any:
        return self._pool.refused()
