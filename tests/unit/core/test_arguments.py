"""Checks of arguments that are collections or text."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from aiokq.core.arguments import list_argument, mapping_argument, str_argument, str_list_argument


def test_valid_arguments_are_returned() -> None:
    """Any mapping is returned unchanged; an iterable becomes a list, without duplicate names."""
    given = MappingProxyType({"a": 1})
    assert mapping_argument(given, "x", "{}") is given
    assert list_argument((n for n in (1, 2)), "x", "[1]") == [1, 2]
    assert str_argument("a", "x") == "a"
    assert str_list_argument("ab", "x", "['a']") == ["ab"]
    assert str_list_argument(["b", "a", "b"], "x", "['a']") == ["b", "a"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: mapping_argument([1], "before", "{1: 2}"),
            "before must be a mapping, as in {1: 2}, not [1]",
        ),
        (
            lambda: list_argument(5, "ids", "[1]"),
            "ids must be a list or another iterable, as in [1], not 5",
        ),
        (
            lambda: list_argument("a", "ids", "[1]"),
            "ids must be a list or another iterable, as in [1], not 'a'",
        ),
        (lambda: str_argument(5, "group_id"), "group_id must be a str, not 5"),
        (lambda: str_list_argument([5], "names", "['a']"), "names must be a str, not 5"),
    ],
)
def test_an_invalid_argument_is_named_with_an_example_of_a_valid_one(
    call: Callable[[], Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == said
    assert caught.value.__context__ is None


def test_a_large_value_makes_a_short_message() -> None:
    """The message may be logged."""
    with pytest.raises(TypeError) as caught:
        mapping_argument([0] * 1_000_000, "before", "{}")  # type: ignore[type-var]
    assert len(str(caught.value)) < 200


def test_an_exception_of_the_iterable_is_raised_unchanged() -> None:
    """A generator's own TypeError must not look like an invalid argument."""

    def broken() -> Any:
        yield 1
        raise TypeError("of the generator")

    with pytest.raises(TypeError, match=r"^of the generator$"):
        list_argument(broken(), "ids", "[1]")
