"""aiokq.core.numbers: numbers in files and options."""

from __future__ import annotations

import pytest

from aiokq.core.numbers import PORT_MAX, parse_number


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("9092", 9092), ("65535", PORT_MAX), ("0" * 5000 + "7", 7)]
)
def test_ascii_digits_are_a_number(text: str, number: int):
    """Java reads leading zeros, too."""
    assert parse_number(text, PORT_MAX) == number


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", " 1", "1_0", "1.0", "0x1", "\u0663", "\u00b2", "65536", "9" * 5000]
)
def test_other_text_is_refused_with_its_beginning(text: str):
    """`int` accepts some of these, and its error for many digits names no setting."""
    with pytest.raises(ValueError, match="is not a number from 0 to 65535") as caught:
        parse_number(text, PORT_MAX)
    assert repr(text[:40]) in str(caught.value)
    assert len(str(caught.value)) < 100
