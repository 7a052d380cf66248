"""Arguments that hold several things: what they take, and errors that name the argument.

Without these a wrong one is found where it is used first, as "'int' object is not iterable".
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["mapping_argument", "list_argument", "str_argument", "str_list_argument"]

M = TypeVar("M", bound=Mapping[Any, Any])
T = TypeVar("T")


def mapping_argument(value: M, argument: str, example: str) -> M:
    """The mapping.

    Args:
        argument: its name, for the message.
        example: one that would be right, as one writes it.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{argument} takes a mapping, as in {example}, not {reprlib.repr(value)}")
    return value


def list_argument(value: Iterable[T], argument: str, example: str) -> list[T]:
    """The items of an iterable; text and bytes are none here.

    Args:
        argument: its name, for the message.
        example: one that would be right, as one writes it.

    Raises:
        TypeError: it is none.
    """
    items = None
    if not isinstance(value, str | bytes | bytearray | memoryview):
        try:
            items = iter(value)
        except TypeError:
            pass  # not raised in here: this would be its context
    if items is None:
        raise TypeError(
            f"{argument} takes a list or another iterable, as in {example}, "
            f"not {reprlib.repr(value)}"
        )
    return list(items)


def str_argument(value: str, argument: str) -> str:
    """The text, such as a name or an id.

    Raises:
        TypeError: it is no str.
    """
    if not isinstance(value, str):
        raise TypeError(f"{argument} takes text (str), not {reprlib.repr(value)}")
    return value


def str_list_argument(value: str | Iterable[str], argument: str, example: str) -> list[str]:
    """Each of the texts once, in the order given; one text stands for itself.

    Raises:
        TypeError: it is neither text nor an iterable of texts.
    """
    if isinstance(value, str):
        return [value]
    return list(
        dict.fromkeys(
            str_argument(each, argument) for each in list_argument(value, argument, example)
        )
    )
