"""`first_answer`: asks several nodes, with delays, and returns the first successful answer."""

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
    """The name in error reports, such as "host:port"."""
    ask: Callable[[], Awaitable[T]]


class NoAnswer(KafkaError):
    """Every attempt failed, or a node refused the credentials; not raised to users.

    Attributes:
        failures: the error of each attempt by name, in the order of the failures.
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
    """Ask nodes one after another and return the first successful answer.

    An attempt starts when another attempt fails, or ``stagger`` seconds after the previous start.
    Attempts that are still running are cancelled at the first success, and when this call fails or
    is cancelled.

    Args:
        attempts: the nodes to ask, in the order of preference.
        on_failure: called with the name and the error of each failed attempt.

    Raises:
        NoAnswer: all attempts failed, or one node refused the credentials. The other nodes are not
            tried with the same credentials, because that may lock the account.
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
    # The error is returned, because a supervisor treats any exception of a task as a bug.
    try:
        return _Answer(await attempt.ask())
    except KafkaError as error:
        return _Failed(attempt.name, error)
