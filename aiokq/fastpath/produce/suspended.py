"""Suspended: the rest of a coroutine whose first step was taken outside of an `await`.

Tests: tests/unit/fastpath/test_outgoing.py.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["Suspended"]


class Suspended:
    """Continues a coroutine when it is awaited, as if the coroutine itself had been awaited.

    Args:
        coroutine: a coroutine that has taken its first step, and waits.
        yielded: the object that this step yielded. The awaiting task must receive it first.
    """

    __slots__ = ("_coroutine", "_yielded")

    def __init__(self, coroutine: Coroutine[Any, Any, object], yielded: object) -> None:
        self._coroutine = coroutine
        self._yielded = yielded

    def __await__(self) -> Generator[object, Any, object]:
        coroutine, yielded = self._coroutine, self._yielded
        try:
            while True:
                try:
                    sent = yield yielded
                except GeneratorExit:
                    coroutine.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                    yielded = coroutine.throw(error)
                else:
                    yielded = coroutine.send(sent)
        except StopIteration as end:
            return end.value
