"""Asking several nodes for the same thing, so that a silent one costs a moment only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from aiokq.core.errors import AuthenticationFailed, KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.supervisor import Supervisor

__all__ = ["Attempt", "NoAnswer", "first_answer"]

T = TypeVar("T")


@frozen
class Attempt(Generic[T]):
    """One node that can be asked."""

    name: str
    """What failures are reported under, as "host:port"."""
    ask: Callable[[], Awaitable[T]]


class NoAnswer(KafkaError):
    """None of the attempts succeeded; never leaves this package.

    Attributes:
        failures: what each attempt failed with, by its name, in the order of failing.
    """

    retriable = True

    def __init__(self, failures: dict[str, KafkaError]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in failures.items()))
        self.failures = failures


async def first_answer(
    supervisor: Supervisor,
    attempts: Sequence[Attempt[T]],
    *,
    stagger: float,
    on_failure: Callable[[str, KafkaError], None] | None = None,
) -> T:
    """The first success. The next attempt starts when one failed, or after ``stagger`` seconds.

    Args:
        attempts: in the order of preference; those still under way at the first success, or when
            this is cancelled, are cancelled.
        on_failure: told of each failure when it happens: the others may take long.

    Raises:
        NoAnswer: all failed. At once if one refused our credentials: asking the others as well
            may lock the account.
    """
    waiting = list(reversed(attempts))
    failures: dict[str, KafkaError] = {}
    running: set[asyncio.Task[_Answer[T] | _Failed]] = set()
    try:
        while waiting or running:
            if waiting:
                attempt = waiting.pop()
                running.add(supervisor.spawn(_outcome(attempt), name=f"ask {attempt.name}"))
            done, running = await asyncio.wait(
                running,
                timeout=stagger if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                outcome = task.result()
                if isinstance(outcome, _Answer):
                    return outcome.value
                failures[outcome.name] = outcome.error
                if on_failure is not None:
                    on_failure(outcome.name, outcome.error)
                if isinstance(outcome.error, AuthenticationFailed):
                    raise NoAnswer(failures)
        raise NoAnswer(failures)
    finally:
        for task in running:
            task.cancel()


@frozen
class _Answer(Generic[T]):
    value: T


@frozen
class _Failed:
    name: str
    error: KafkaError


async def _outcome(attempt: Attempt[T]) -> _Answer[T] | _Failed:
    # As a value: an exception that leaves a child would be a bug to its supervisor.
    try:
        return _Answer(await attempt.ask())
    except KafkaError as error:
        return _Failed(attempt.name, error)
