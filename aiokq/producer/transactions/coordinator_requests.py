"""CoordinatorRequests: sends and retries a transactional producer's requests to coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.cluster.denials import name_denial
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    ConcurrentTransactions,
    GroupAuthorization,
    KafkaError,
    RequestTimeout,
)
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of
from aiokq.wire import Request, Response

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.targets import Coordinator
    from aiokq.producer.values import ProducerValues

__all__ = ["CoordinatorRequests"]

R = TypeVar("R", bound=Response)

CONCURRENT_PAUSE: Final = 0.02
"""Longest pause, in seconds, before a retry after CONCURRENT_TRANSACTIONS.

The usual cause is that the markers of the last transaction are not written yet. They are normally
written within milliseconds.
"""


class CoordinatorRequests:
    """Sends requests to coordinators, and repeats a request after each retriable error."""

    def __init__(self, settings: ProducerValues, engine: ClusterEngine) -> None:
        self._settings = settings
        self._engine = engine

    async def send(
        self,
        make: Callable[[int], Request[R]],
        request_class: type[Request[R]],
        target: Coordinator,
        check: Callable[[R], KafkaError | None],
        *,
        timeout: float,
        newest: int | None = None,
        group_id: str | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> R:
        """Send a request to a coordinator; repeat it after retriable errors.

        Args:
            make: returns the request for a version of the API.
            check: returns the error of a response, or None. If the coordinator may have carried out
                the request nevertheless, the error's `may_have_been_written` is True.
            timeout: seconds for all attempts together.
            newest: newest version of the API to use; None if each version may be used.
            group_id: the group that the request is about besides the transactional id.
            on_lost: called after each failed attempt that the coordinator may have carried out
                nevertheless, for example because the connection was lost.

        Raises:
            RequestTimeout: no attempt succeeded within `timeout`; the cause is the last error.
            KafkaError: an error that is not retried, see `kind_of`.
        """
        api = request_class.NAME
        transactional_id = self._settings.transactional_id
        backoff: Backoff | None = None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        attempted = False

        def attempt(version: int) -> Request[R]:
            nonlocal attempted
            request = make(version)
            attempted = True
            return request

        last: KafkaError | None = None
        while (remaining := deadline - loop.time()) > 0:
            attempted = False
            try:
                response = await self._engine.router.request(
                    attempt,
                    request_class,
                    target,
                    timeout=remaining,
                    newest=newest,
                    at_once=True,
                )
            except KafkaError as error:
                failure = error
            else:
                answered = check(response)
                if answered is None:
                    return response
                failure = answered
            if attempted and failure.may_have_been_written and on_lost is not None:
                on_lost()
            kind = kind_of(api, failure)
            if kind is ErrorKind.FIND:
                self._engine.coordinator_failed(target.kind, target.key)
            elif kind is not ErrorKind.RETRY:
                denied = group_id if isinstance(failure, GroupAuthorization) else transactional_id
                name_denial(self._engine, failure, denied)
                raise failure
            last = failure
            self._engine.counters.retries[api] += 1
            backoff = backoff or self._new_backoff()
            pause = backoff.next()
            if isinstance(failure, ConcurrentTransactions):
                pause = min(pause, CONCURRENT_PAUSE)
            await asyncio.sleep(min(pause, max(deadline - loop.time(), 0.0)))
        raise RequestTimeout(
            f"{api} was not answered within {timeout:.3g} s"
            + (f": the last error was {last}" if last is not None else ""),
            api=api,
        ) from last

    def _new_backoff(self) -> Backoff:
        settings = self._settings
        return Backoff(
            settings.retry_backoff_ms / 1000,
            settings.retry_backoff_max_ms / 1000,
            self._engine.environment.random,
        )
