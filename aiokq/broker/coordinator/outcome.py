"""What a machine's call came to: records to be written, and an answer, now or later.

Owns the values only; writing them in order and before the answer is `runtime`'s.

Source: Kafka ``CoordinatorResult.java``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.record_types import CoordinatorRecord
    from aiokq.core.errors import KafkaError

__all__ = ["Deferred", "Outcome"]

R = TypeVar("R")


class Deferred(Generic[R]):
    """An answer that comes later: completed once by a machine, turned into a future by the runtime.

    Attributes:
        done: whether it has been completed; its `value` is there from then on.
    """

    __slots__ = ("_callbacks", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: R | None = None
        self._callbacks: list[Callable[[R], None]] = []

    @property
    def value(self) -> R | None:
        """The answer; None as long as it is not `done`."""
        return self._value

    def complete(self, value: R) -> bool:
        """Give the answer; False if it was given before, which then stays."""
        if self.done:
            return False
        self.done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)
        return True

    def on_complete(self, callback: Callable[[R], None]) -> None:
        """Call with the answer: at once if it is there, else in the turn that gives it."""
        if self.done:
            callback(self._value)  # type: ignore[arg-type]  # done: it has its value
        else:
            self._callbacks.append(callback)


@dataclass(slots=True)
class Outcome(Generic[R]):
    """Records and an answer.

    The runtime appends the records as one batch, replays each through the shard, and only then
    gives the response. If they cannot be written, nothing is replayed and the caller gets an error.

    Attributes:
        records: what changes durable state, in order.
        response: the answer; None where `deferred` gives it, or where nobody asked (timers).
        deferred: the answer that comes later. It is awaited after the records are written.
        atomic: all records or none; where False, a set too large for one batch may be split.
        replay: whether the records are replayed after they were written. False where the machine
            was brought into the state they describe already (classic groups), and `written` takes
            that back if it must.
        written: called once, after the records were written and replayed, or with the error.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    response: R | None = None
    deferred: Deferred[R] | None = None
    atomic: bool = True
    replay: bool = True
    written: Callable[[KafkaError | None], None] | None = None
