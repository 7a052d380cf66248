"""Java property files, read like java.util.Properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.core.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a = 1\r\nb : 2\rc 3", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n  \t\n  a=1", {"a": "1"}),
        ("a=1 # part of it", {"a": "1 # part of it"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=one,\\\n    two,\\\n    three", {"a": "one,two,three"}),
        ("a=path\\\\", {"a": "path\\"}),
        ("a=\\\\\nb=2", {"a": "\\", "b": "2"}),
        ("a=b\\tc\\u00e9\\q", {"a": "b\tcéq"}),
        ("a\\=b\\ c=d", {"a=b c": "d"}),
        ("empty=\nalone", {"empty": "", "alone": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=trailing ", {"a": "trailing "}),
        ("ends=open\\", {"ends": "open"}),
    ],
)
def test_files_are_read_as_java_reads_them(text: str, expected: dict[str, str]):
    """Users pass the file of their Java service."""
    assert parse_properties(text) == expected


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_what_is_written_is_read_back(values: dict[str, str]):
    """meta.properties identifies the owner of a log directory."""
    assert parse_properties(format_properties(values, comment="two\nlines")) == values
