"""Retries of a request until each of its items has a final outcome or the timeout expires."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from aiokq.cluster.denials import name_denial
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import (
    KafkaError,
    NotController,
    RequestTimeout,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

__all__ = ["per_item", "refresh_metadata", "repeated", "timeout_ms"]

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

Attempt = Callable[[Mapping[K, T], float], Awaitable[Mapping[K, R | KafkaError]]]
"""Coroutine function that sends requests about the items once, and returns their outcomes.

Its arguments are the items and a timeout in seconds.
"""


async def refresh_metadata(
    engine: ClusterEngine, timeout: float, topics: Iterable[str] | None = None, *, api: str
) -> None:
    """Wait for metadata that is newer than this call.

    Args:
        topics: topics that the metadata must contain; None for all watched topics.
        api: name of the request, for the error.

    Raises:
        RequestTimeout: no broker responded within `timeout` seconds; ``__cause__`` is the last
            error.
    """
    limit = asyncio.timeout(timeout)
    try:
        async with limit:
            await engine.refresh(topics)
    except TimeoutError:
        if not limit.expired():
            raise
        cause = engine.last_error
        raise RequestTimeout(
            f"no metadata within {timeout:.3g} s" + (f": {cause}" if cause is not None else ""),
            api=api,
        ) from cause


async def per_item(
    engine: ClusterEngine,
    items: Mapping[K, T],
    attempt: Attempt[K, T, R],
    *,
    api: str,
    timeout: float | None,
    final: tuple[type[KafkaError], ...] = (UnknownTopicOrPartition, UnknownTopicId),
) -> dict[K, R | KafkaError]:
    """Return an outcome per item, in the order of ``items``.

    Items with a retriable error (NOT_CONTROLLER, leader changes, quotas) are retried with growing
    backoff. Metadata is refreshed before a retry if outdated metadata may have caused the
    error. When the time is up, the outcome of an item is its last error, or RequestTimeout.

    Args:
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.
        final: retriable errors that are not retried. For example, the deletion of a missing topic
            must fail without delay.

    Raises:
        KafkaError: an attempt failed for all its items, and no retry can help.
        RequestTimeout: no request succeeded in time; ``__cause__`` is the last error.
    """
    engine.bind()
    total = engine.settings.default_api_timeout if timeout is None else timeout
    deadline = engine.now() + total
    backoff = engine.new_backoff()
    pending = dict(items)
    outcomes: dict[K, R | KafkaError] = {}
    last_errors: dict[K, KafkaError] = {}
    failure: KafkaError | None = None
    while pending:
        remaining = deadline - engine.now()
        if remaining <= 0:
            break
        refresh = True
        try:
            answers = await attempt(pending, remaining)
        except KafkaError as error:
            if not error.retriable:
                name_denial(engine, error)
                raise
            failure = error
        else:
            failure = None
            refresh = False
            for item, outcome in answers.items():
                # REQUEST_TIMED_OUT of an item is final, because the broker has waited for the
                # timeout of the request.
                if (
                    isinstance(outcome, KafkaError)
                    and outcome.retriable
                    and not isinstance(outcome, (RequestTimeout, *final))
                ):
                    last_errors[item] = outcome
                    # `refresh_metadata` is false for NOT_CONTROLLER, as in Kafka.
                    refresh |= outcome.refresh_metadata or isinstance(outcome, NotController)
                else:
                    if isinstance(outcome, KafkaError):
                        name_denial(engine, outcome)
                    outcomes[item] = outcome
                    pending.pop(item, None)
        if pending:
            engine.counters.retries[api] += 1
            await _pause(engine, backoff.next(), deadline, refresh=refresh)
    if failure is not None and not outcomes and not last_errors:
        raise RequestTimeout(f"no success within {total:.3g} s: {failure}", api=api) from failure
    for item in pending:
        last = last_errors.get(item)
        if last is None:
            last = RequestTimeout(f"no answer within {total:.3g} s", api=api)
            last.__cause__ = failure
        outcomes[item] = last
    return {item: outcomes[item] for item in items}


async def repeated(
    engine: ClusterEngine,
    ask: Callable[[float], Awaitable[T]],
    *,
    api: str,
    timeout: float | None,
) -> T:
    """Return the result of ``ask``, which is repeated after retriable errors.

    This function is for requests that may be repeated after a lost connection.

    Args:
        ask: called with the remaining seconds.
        timeout: seconds for the whole call; None for ``default_api_timeout_ms``.

    Raises:
        KafkaError: ``ask`` failed, and no retry can help.
        RequestTimeout: no success in time. If the last error is a RequestTimeout at the deadline,
            that error is raised; otherwise ``__cause__`` is the last error.
    """
    engine.bind()
    total = engine.settings.default_api_timeout if timeout is None else timeout
    deadline = engine.now() + total
    backoff = engine.new_backoff()
    while True:
        try:
            return await ask(max(0.0, deadline - engine.now()))
        except KafkaError as error:
            if not error.retriable:
                name_denial(engine, error)
                raise
            if engine.now() >= deadline and isinstance(error, RequestTimeout):
                raise
            failure = error
        if engine.now() < deadline:
            engine.counters.retries[api] += 1
            await _pause(engine, backoff.next(), deadline, refresh=False)
        if engine.now() >= deadline:  # another attempt would time out and hide the last error
            raise RequestTimeout(
                f"no success within {total:.3g} s: {failure}", api=api
            ) from failure


async def _pause(engine: ClusterEngine, seconds: float, deadline: float, *, refresh: bool) -> None:
    await asyncio.sleep(min(seconds, max(0.0, deadline - engine.now())))
    if not refresh:
        return
    try:
        async with asyncio.timeout_at(deadline):
            await engine.refresh()
    except TimeoutError:
        pass  # the caller checks the deadline


def timeout_ms(engine: ClusterEngine, remaining: float) -> int:
    """Return the timeout field of a request, in ms.

    Args:
        remaining: seconds that remain of the call; the result is at most the request timeout.
    """
    return max(1, int(min(remaining, engine.settings.request_timeout) * 1000))
