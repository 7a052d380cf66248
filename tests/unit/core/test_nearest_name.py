"""`nearest_name`: a suggestion for a small typo, and none otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.config.settings import SETTINGS
from aiokq.consumer.settings import ConsumerSettings
from aiokq.core.nearest_name import nearest_name

pytestmark = pytest.mark.build_independent


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("num.partition", "num.partitions"),
        ("numpartitions", "num.partitions"),
        ("num-partitions", "num.partitions"),
        ("log.retention.housr", "log.retention.hours"),
        ("message.max.byte", "message.max.bytes"),
        ("legcy", "legacy"),
    ],
)
def test_a_small_slip_is_recognised(typed: str, meant: str) -> None:
    assert nearest_name(typed, SETTINGS) == meant


@pytest.mark.parametrize("typed", ["nope", "quorum.voters", "x", "", "zookeeper.connect"])
def test_a_name_that_is_like_none_gets_no_suggestion(typed: str) -> None:
    assert nearest_name(typed, SETTINGS) is None


def test_a_forgotten_unit_is_a_small_slip() -> None:
    names = list(ConsumerSettings.model_fields)
    assert nearest_name("session_timeout", names) == "session_timeout_ms"
    assert nearest_name("consumer_timeout_ms", names) is None


def test_the_nearest_of_several_is_chosen_and_the_first_of_equals() -> None:
    assert nearest_name("orders", ["orders-v2", "order", "other"]) == "order"
    assert nearest_name("bat", ["cat", "hat"]) == "cat"


def test_swapped_neighbours_are_one_edit() -> None:
    assert nearest_name("abdc", ["abcd"]) == "abcd"
    assert nearest_name("badc", ["abcd"]) is None


@given(st.text("abc_", min_size=0, max_size=12), st.lists(st.text("abc_", max_size=12)))
def test_it_agrees_with_a_plain_computation_of_the_distance(name: str, known: list[str]) -> None:
    def letters(text: str) -> str:
        return text.replace("_", "")

    def distance(a: str, b: str) -> int:
        table = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
        for i in range(1, len(a) + 1):
            for j in range(1, len(b) + 1):
                cost = min(
                    table[i - 1, j] + 1,
                    table[i, j - 1] + 1,
                    table[i - 1, j - 1] + (a[i - 1] != b[j - 1]),
                )
                if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                    cost = min(cost, table[i - 2, j - 2] + 1)
                table[i, j] = cost
        return table[len(a), len(b)]

    def allowed(length: int) -> int:
        return 0 if length < 3 else 1 if length < 6 else 2 if length < 12 else 3

    near = [
        (distance(letters(name), letters(each)), place)
        for place, each in enumerate(known)
        if distance(letters(name), letters(each))
        <= min(allowed(len(letters(name))), allowed(len(letters(each))))
    ]
    found = nearest_name(name, known)
    assert found == (known[min(near)[1]] if near else None)


def _distance(a: str, b: str) -> int:
    """Return the optimal string alignment distance, computed with the full table."""
    table = [[max(i, j) if not i * j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            table[i][j] = min(
                table[i - 1][j] + 1,
                table[i][j - 1] + 1,
                table[i - 1][j - 1] + (a[i - 1] != b[j - 1]),
            )
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                table[i][j] = min(table[i][j], table[i - 2][j - 2] + 1)
    return table[-1][-1]


@given(st.text("abc", min_size=3, max_size=14), st.text("abc", min_size=3, max_size=14))
def test_a_name_is_near_if_the_edit_distance_is_small(a: str, b: str) -> None:
    """The implementation computes only cells near the diagonal, and only for parts that differ."""
    shorter = min(len(a), len(b))
    allowed = 1 if shorter < 6 else 2 if shorter < 12 else 3
    assert (nearest_name(a, [b]) is not None) == (_distance(a, b) <= allowed)
