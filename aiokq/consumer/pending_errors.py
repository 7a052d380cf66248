"""PendingErrors: errors that are still to be raised to a reader, each once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition

__all__ = ["PendingErrors", "Subject"]

Subject: TypeAlias = "TopicPartition | str | None"
"""The subject of an error: a partition, a topic, or None for neither."""


class PendingErrors:
    """Errors in the order of their arrival; `add` keeps at most one per subject and class."""

    def __init__(self) -> None:
        self._errors: deque[tuple[Subject, BaseException]] = deque()

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: KafkaError) -> bool:
        """Add an error, or replace an undelivered error of the same subject and class.

        Without the replacement, an error that recurs every second would accumulate while user code
        requests no record.

        Returns:
            Whether the error was added; False if it replaced an earlier error.
        """
        about = error.topic_partition
        for place, (other, waiting) in enumerate(self._errors):
            if other == about and type(waiting) is type(error):
                self._errors[place] = about, error
                return False
        self._errors.append((about, error))
        return True

    def forget(self, tp: TopicPartition) -> None:
        """Discard the errors about a partition."""
        self._errors = deque(entry for entry in self._errors if entry[0] != tp)

    def take_all(self) -> list[tuple[Subject, BaseException]]:
        """Remove and return all errors, for another reader."""
        errors = list(self._errors)
        self._errors.clear()
        return errors

    def append(self, about: Subject, error: BaseException) -> None:
        """Add an error after all others; no error is replaced."""
        self._errors.append((about, error))

    def raise_next(self) -> None:
        """Remove and raise the first error, if any."""
        if self._errors:
            raise self._errors.popleft()[1]
