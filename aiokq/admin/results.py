"""Results of requests about several items, each with its own error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, Protocol, Self, TypeVar

from aiokq.core.error_base import KafkaError, copy_error

__all__ = ["ItemResult", "Results", "results_of"]


class ItemResult(Protocol):
    """The interface of results that have an ``error``."""

    @property
    def error(self) -> KafkaError | None:
        """The reason for the failure; None on success."""
        ...


K = TypeVar("K")
R = TypeVar("R", bound=ItemResult)


class Results(Mapping[K, R], Generic[K, R]):
    """A result per item.

    The result of a failed item has an ``error`` and does not affect the other results.
    `raise_for_errors` or ``raise_errors=True`` raises the error instead.
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
        """The errors by item; empty if all succeeded."""
        return {
            item: result.error for item, result in self._results.items() if result.error is not None
        }

    @property
    def ok(self) -> bool:
        """Whether all items succeeded."""
        return not self.errors

    def raise_for_errors(self) -> Self:
        """Return self if no item failed; else raise the first error, with other errors as notes.

        Raises:
            KafkaError: the error of the first item that failed.
        """
        errors = self.errors
        if not errors:
            return self
        first, *others = errors.items()
        error = copy_error(first[1])
        for item, other in others:
            error.add_note(f"{item}: {other}")
        raise error


def results_of(
    outcomes: Mapping[K, R | KafkaError], failed: Callable[[K, KafkaError], R]
) -> Results[K, R]:
    """Return `outcomes`, a result or an error per item, as Results.

    Args:
        failed: converts an item and its error to a result.
    """
    return Results(
        {
            item: failed(item, outcome) if isinstance(outcome, KafkaError) else outcome
            for item, outcome in outcomes.items()
        }
    )
