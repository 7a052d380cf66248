"""The result of a shard's operation: the records to append, and the answer, now or later.

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
"""Called once after an outcome's records were written and replayed (None), or with the error."""


class Deferred(Generic[R]):
    """An answer that a shard gives later, once.

    Attributes:
        done: whether it was given; `value` is set from then on.
    """

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: R | None = None
        self._callbacks: list[Callable[[R], None]] = []

    @property
    def value(self) -> R | None:
        """The answer; None until it is `done`."""
        return self._value

    def complete(self, value: R) -> bool:
        """Give the answer; False if one was given before, which then stays."""
        if self.done:
            return False
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)
        return True

    def on_complete(self, callback: Callable[[R], None]) -> None:
        """Call back with the answer: at once if it is there, else from `complete`."""
        if self.done:
            callback(self._value)  # type: ignore[arg-type]  # done: it has its value
        else:
            self._callbacks.append(callback)


@dataclass(slots=True)
class Outcome(Generic[R]):
    """Records and an answer.

    The runtime appends the records as one batch, replays each through the shard, and only then
    gives the response. If they cannot be appended, nothing is replayed and the caller gets an
    error.

    Attributes:
        records: the changes of durable state, in order.
        response: the answer; None where `deferred` gives it, or where nobody needs one (timers).
        deferred: the answer that comes later. It is awaited after the records are written.
        atomic: all records in one batch or none; if False, they may be split over batches.
        replay: whether the records are replayed after they were appended. False where the state
            they describe has been reached already (classic groups): `on_written` then takes the
            change back if the append failed.
        on_written: told whether the records were written.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    response: R | None = None
    deferred: Deferred[R] | None = None
    atomic: bool = True
    replay: bool = True
    on_written: WrittenCallback | None = None


def in_sequence(first: WrittenCallback | None, second: WrittenCallback) -> WrittenCallback:
    """One callback that calls two in order."""
    if first is None:
        return second

    def written(error: KafkaError | None) -> None:
        first(error)
        second(error)

    return written
