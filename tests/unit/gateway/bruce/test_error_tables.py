"""What each error code means, in the four tables."""

from __future__ import annotations

import pytest

from aiokq.gateway.bruce.error_tables import ERROR_TABLES, Action, error_classes

CODES = sorted({*range(-1, 140), 32767})


@pytest.mark.parametrize(
    ("name", "pauses"),
    [
        ("seed", {3, 5, 6, 7, 8, 9}),
        ("bruce-2016", {3, 5, 6, 7}),
        ("dory", {3, 5, 6, 7, 13}),
    ],
)
def test_point_34_an_old_table_pauses_for_its_codes_only(name: str, pauses: set[int]) -> None:
    """Codes 8 and 9 differ between the seed and later versions; 2 is sent again by all.

    100 is what brokers answer instead of 3 since requests have ids of topics.
    """
    table = ERROR_TABLES[name]
    pauses = pauses | {100}

    assert {code for code in CODES if table.action(code) is Action.PAUSE} == pauses
    assert {code for code in CODES if table.action(code) is Action.RESEND} == {2}
    assert all(table.action(code) is Action.DISCARD for code in CODES if code not in {2, *pauses})
    assert not table.bad_topic


@pytest.mark.parametrize("name", ERROR_TABLES)
def test_point_35_final_errors_discard(name: str) -> None:
    """UNKNOWN, and a code that no version of Kafka has; 10 too, but `modern` splits first."""
    table = ERROR_TABLES[name]

    assert table.action(-1) is table.action(99) is table.action(29) is Action.DISCARD
    assert table.action(32767) is Action.DISCARD
    assert table.action(10) is (Action.SPLIT if name == "modern" else Action.DISCARD)


def test_the_modern_table_follows_the_error_classes() -> None:
    """No retriable error discards; no final error is sent again."""
    table = ERROR_TABLES["modern"]

    for code, cls in error_classes().items():
        if code in (10, 18, 32, 87):
            assert table.action(code) is Action.SPLIT
        else:
            assert (table.action(code) is not Action.DISCARD) == cls.retriable, cls
        if cls.refresh_metadata and cls.retriable:
            assert table.action(code) is Action.PAUSE
    for code in (3, 5, 6, 7, 9, 13, 100):
        assert table.action(code) is Action.PAUSE, code
    for code in (2, 19, 20, 56, 89):
        assert table.action(code) in (Action.RESEND, Action.PAUSE), code
    assert table.action(19) is Action.RESEND
    assert table.bad_topic == {3, 100}
