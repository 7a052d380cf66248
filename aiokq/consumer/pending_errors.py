"""PendingErrors: what went wrong with partitions and waits to be raised to a reader, once each."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from aiokq.core.errors import KafkaError
    from aiokq.core.types import TopicPartition

__all__ = ["PendingErrors", "Subject"]

Subject: TypeAlias = "TopicPartition | str | None"
"""What an error is about: a partition, a topic, or all."""


class PendingErrors:
    """Errors in the order they came; bounded by one per subject and class."""

    def __init__(self) -> None:
        self._errors: deque[tuple[Subject, BaseException]] = deque()

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: KafkaError) -> bool:
        """To be raised; the like of it that nobody saw yet it replaces. Returns whether it is new.

        Rights that are missing are found missing again each second, while user code may work for
        an hour.
        """
        about = error.topic_partition
        for place, (other, waiting) in enumerate(self._errors):
            if other == about and type(waiting) is type(error):
                self._errors[place] = about, error
                return False
        self._errors.append((about, error))
        return True

    def forget(self, tp: TopicPartition) -> None:
        """What is about this partition is history."""
        self._errors = deque(entry for entry in self._errors if entry[0] != tp)

    def take_all(self) -> list[tuple[Subject, BaseException]]:
        """All of them, for another reader; none are here any more."""
        errors = list(self._errors)
        self._errors.clear()
        return errors

    def append(self, about: Subject, error: BaseException) -> None:
        """To be raised, after those that are here."""
        self._errors.append((about, error))

    def raise_next(self) -> None:
        """Raise the first of them, which is gone then; nothing if there is none."""
        if self._errors:
            raise self._errors.popleft()[1]
