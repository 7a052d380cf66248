"""Type checks of mapping, list and str arguments, with errors that name the argument.

Without these checks a wrong argument would fail later, where it is first used, with an error such
as "'int' object is not iterable".
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["mapping_argument", "list_argument", "str_argument", "str_list_argument"]

M = TypeVar("M", bound=Mapping[Any, Any])
T = TypeVar("T")


def mapping_argument(value: M, argument: str, example: str) -> M:
    """Return `value` if it is a mapping.

    Args:
        argument: name of the argument, for the error message.
        example: a correct argument as Python code, for the error message.

    Raises:
        TypeError: `value` is not a mapping.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{argument} must be a mapping, as in {example}, not {reprlib.repr(value)}")
    return value


def list_argument(value: Iterable[T], argument: str, example: str) -> list[T]:
    """Return the items of an iterable as a list; str and bytes-like values are refused.

    Args:
        argument: name of the argument, for the error message.
        example: a correct argument as Python code, for the error message.

    Raises:
        TypeError: `value` is not iterable, or is a str or bytes-like.
    """
    items = None
    if not isinstance(value, str | bytes | bytearray | memoryview):
        try:
            items = iter(value)
        except TypeError:
            pass  # the error raised below must not have this error as its context
    if items is None:
        raise TypeError(
            f"{argument} must be a list or another iterable, as in {example}, not "
            f"{reprlib.repr(value)}"
        )
    return list(items)


def str_argument(value: str, argument: str) -> str:
    """Return `value` if it is a str, such as a name or an id.

    Raises:
        TypeError: `value` is not a str.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a str, not {reprlib.repr(value)}")
    return value


def str_list_argument(value: str | Iterable[str], argument: str, example: str) -> list[str]:
    """Return the distinct strings of an iterable, in order; a single str counts as one item.

    Raises:
        TypeError: `value` is neither a str nor an iterable of str.
    """
    if isinstance(value, str):
        return [value]
    return list(
        dict.fromkeys(
            str_argument(each, argument) for each in list_argument(value, argument, example)
        )
    )
