"""Outcomes of requests about several things: one result each, and the errors among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, Self, TypeVar

from aiokq.core.error_base import KafkaError, copy_error

__all__ = ["ItemResult", "Results"]


class ItemResult(Protocol):
    """What every result has."""

    @property
    def error(self) -> KafkaError | None:
        """Why it failed; None if it succeeded."""
        ...


K = TypeVar("K")
R = TypeVar("R", bound=ItemResult)


class Results(Mapping[K, R], Generic[K, R]):
    """One result per item asked for, by item, in the order asked.

    A failed item does not hide the others: its result has an ``error``. Whoever wants an exception
    calls `raise_for_errors`, or passes ``raise_errors=True``.
    """

    __slots__ = ("_results",)

    def __init__(self, results: Mapping[K, R]) -> None:
        self._results = dict(results)

    def __getitem__(self, item: K) -> R:
        return self._results[item]

    def __iter__(self) -> Iterator[K]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        return f"Results({self._results!r})"

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors, by item; empty if all succeeded."""
        return {
            item: result.error for item, result in self._results.items() if result.error is not None
        }

    @property
    def ok(self) -> bool:
        """Whether all succeeded."""
        return not self.errors

    def raise_for_errors(self) -> Self:
        """Raise the first error; further ones are in its notes. Returns itself if there is none.

        Raises:
            KafkaError: of the first item that failed.
        """
        errors = self.errors
        if not errors:
            return self
        first, *others = errors.items()
        error = copy_error(first[1])
        for item, other in others:
            error.add_note(f"{item}: {other}")
        raise error
