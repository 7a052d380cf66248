"""The figures of the status page: rates, sorting, searching."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from aiokq.gateway.reports.queues import Queues
from aiokq.gateway.reports.status import SORTS, StatusBoard, page
from tests.unit.gateway.report_support import Desk, message


class Board:
    def __init__(self) -> None:
        self.desk = Desk()
        self.now = 100.0
        served: Any = SimpleNamespace(
            snapshot=self.desk.accounting.snapshot,
            settings=SimpleNamespace(delivery=SimpleNamespace(engine="producer")),
            pool=self.desk.pool,
            inputs=[],
            cluster=SimpleNamespace(
                health=lambda: SimpleNamespace(brokers_up={1}, brokers_down={}, metadata_error=None)
            ),
            problems=lambda: SimpleNamespace(_asdict=lambda: {"reasons": [], "warnings": []}),
        )
        self.board = StatusBoard(
            served,
            since=0,
            queues=lambda snapshot: Queues(0, []),
            windows=self.desk.windows(),
            clock=lambda: self.now,
        )

    def document(self, **options: Any) -> Any:
        return json.loads(json.dumps(self.board.document(**options)))

    def names(self, **options: Any) -> list[str]:
        return [row["topic"] for row in self.document(**options)["topics"]]


def test_rates_are_those_since_the_snapshot_before():
    board = Board()
    board.desk.topic("orders")
    board.desk.feed(*[message("orders")] * 10)
    assert board.document()["rates"] is None
    board.desk.feed(*[message("orders")] * 30)
    board.now += 2
    found = board.document()
    assert found["rates"]["received"] == 15
    assert found["topics"][0]["rate"] == 15
    board.now += 0.2  # a second page asks: the rate is that of the last whole second
    assert 13 < board.document()["rates"]["received"] < 15
    board.now += 100
    board.document()
    board.now += 100
    assert board.document()["rates"] is None


def test_topics_are_sorted_by_any_column_and_found_by_a_part_of_their_name():
    board = Board()
    for n, name in enumerate(("b-log", "a-log", "c")):
        board.desk.topic(name)
        board.desk.feed(*[message(name)] * (n + 1))
    assert board.names(sort="topic", ascending=True) == ["a-log", "b-log", "c"]
    assert board.names(sort="received") == ["c", "a-log", "b-log"]
    assert board.names(sort="received", query="log", limit=1) == ["a-log"]
    found = board.document(query="log", limit=1)
    assert (found["topics_known"], found["topics_found"]) == (3, 2)
    for sort in SORTS:
        assert len(board.names(sort=sort)) == 3


def test_a_document_has_at_most_200_topics():
    board = Board()
    for n in range(300):
        board.desk.topic(f"t{n}")
    assert len(board.names(limit=10_000)) == 200


def test_the_page_loads_nothing_from_elsewhere():
    text = page()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "innerHTML" not in text
    assert text.count("{{nonce}}") == 2
