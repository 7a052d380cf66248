"""The result of a shard's operation: the records to append, and an immediate or later response.

Source: Kafka ``CoordinatorResult.java``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.core.errors import KafkaError

__all__ = ["Deferred", "Outcome", "WrittenCallback", "in_sequence"]

R = TypeVar("R")

WrittenCallback = Callable[["KafkaError | None"], None]
"""Called once per outcome: with None after the records were appended, or with the error."""


class Deferred(Generic[R]):
    """A response that a shard sets later.

    Attributes:
        done: whether the response is set.
    """

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: R | None = None
        self._callbacks: list[Callable[[R], None]] = []

    @property
    def value(self) -> R | None:
        """The response; None until `done`."""
        return self._value

    def complete(self, value: R) -> bool:
        """Set the response and return True; if it is already set, keep it and return False."""
        if self.done:
            return False
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)
        return True

    def on_complete(self, callback: Callable[[R], None]) -> None:
        """Call `callback` with the response: now if the response is set, else from `complete`."""
        if self.done:
            callback(self._value)  # type: ignore[arg-type]  # the value is set once done
        else:
            self._callbacks.append(callback)


@dataclass(slots=True)
class Outcome(Generic[R]):
    """The records that an operation decided to append, and its response.

    The runtime appends the records, replays each through the shard, and only then returns the
    response. If the append fails, the caller gets an error, unless `on_written` has set the
    deferred response. Records that were not appended are not replayed. If `atomic` is False, some
    batches may have been appended before the failure; the records of these batches are replayed.

    Attributes:
        records: the changes of durable state, in order.
        response: the response; None if `deferred` has it, or if there is no request (timers).
        deferred: the response that is set later. The runtime awaits it after the records are
            committed.
        atomic: whether all records are appended in one batch or not at all; if False, they may be
            split over several batches.
        replay: whether the records are replayed after they were appended. False if the operation
            has already changed the state (classic groups).
        on_written: called once with the result of the append.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    response: R | None = None
    deferred: Deferred[R] | None = None
    atomic: bool = True
    replay: bool = True
    on_written: WrittenCallback | None = None


def in_sequence(first: WrittenCallback | None, second: WrittenCallback) -> WrittenCallback:
    """Return a callback that calls `first`, if there is one, and then `second`."""
    if first is None:
        return second

    def written(error: KafkaError | None) -> None:
        first(error)
        second(error)

    return written
