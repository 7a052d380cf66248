"""`AuthorizationCallable`: an authorizer that asks a function or coroutine function of the user.

If an answer has to be awaited, `gate.Undecided` ends the run of the request's handler. The answer
is awaited, and the handler then runs again from its beginning. Each question is asked once per
request, and its answer counts for the whole request.

Tests: ``tests/unit/broker/security/test_caller_authorizer.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.gate import Undecided
from aiokq.broker.permissions import SUPPORTED_OPERATIONS, Operation, ResourceType
from aiokq.core.acls import canonical_host
from aiokq.core.log_lines import LineLimit
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.supervisor import Supervisor
from aiokq.core.user_errors import INTERRUPTS, closed_here

if TYPE_CHECKING:
    from aiokq.connection.principal import Principal
    from aiokq.connection.request_context import RequestContext

__all__ = ["Authorize", "AuthorizationCallable", "Resource"]

logger = logging.getLogger("aiokq.broker")


class Resource(NamedTuple):
    """The type and the name of the resource of an operation.

    The name of the only resource of type CLUSTER is "kafka-cluster".
    """

    type: ResourceType
    name: str


Authorize: TypeAlias = "Callable[[Principal, str, Operation, Resource], bool | Awaitable[bool]]"
"""Takes principal, host, operation and resource; returns whether the operation is allowed."""

_Question: TypeAlias = tuple[Operation, ResourceType, str]

AT_ONCE: Final = 64
"""Number of coroutines of the user that run at the same time for one request."""

ANSWER_SECONDS: Final = 10.0
"""Maximum number of seconds to wait for an answer of a coroutine.

A request keeps its memory while it waits, also if its client has disconnected. Without a limit, the
requests of clients that connect again would use up the memory for requests.
"""

_NAME: Final = "authorize="


class AuthorizationCallable:
    """Authorizes by a function of the user. Implements `gate.CallerAuthorizer`.

    If the function raises, or returns anything but True or False, the request is denied and the
    error is logged. The same applies to a coroutine without an answer after `ANSWER_SECONDS`; the
    other questions of its request that have no answer yet are then denied, too.

    Args:
        authorize: the function, or the coroutine function.
    """

    asks_caller = True

    __slots__ = ("_answers", "_authorize", "_failures", "_late")

    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize
        self._answers: dict[RequestContext, dict[_Question, bool]] = {}
        """The answers for the request that each connection is handling."""
        self._late: set[RequestContext] = set()
        """The connections with a request for which a coroutine gave no answer in time."""
        self._failures: LineLimit | None = None

    def begin(self, connection: RequestContext) -> None:
        """Begin a request: discard the answers for the previous request of the connection."""
        self._answers[connection] = {}
        self._late.discard(connection)

    def end(self, connection: RequestContext) -> None:
        """End a request: discard its answers."""
        self._answers.pop(connection, None)
        self._late.discard(connection)

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        """Return the `names` of resources on which the operation is allowed.

        Raises:
            Undecided: an answer has to be awaited.
        """
        answers = self._ask(connection, [(operation, resource_type, name) for name in names])
        return {name for name, allowed in zip(names, answers, strict=True) if allowed}

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return True, because the function cannot be asked about all names.

        Only InitProducerId without a transactional id calls this, and a producer id gives no
        access.
        """
        return True

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return the operations that are allowed on a resource, as a bit field.

        Raises:
            Undecided: an answer has to be awaited.
        """
        supported = SUPPORTED_OPERATIONS[resource_type]
        answers = self._ask(connection, [(each, resource_type, name) for each in supported])
        return sum(1 << each for each, allowed in zip(supported, answers, strict=True) if allowed)

    async def settle(self, connection: RequestContext, undecided: Undecided) -> None:
        """Await the answers to questions, and keep them for the rest of the request."""
        answers = self._answers[connection]
        waiting: list[tuple[_Question, Awaitable[bool]]] = list(undecided.questions)  # type: ignore[arg-type]  # made by _ask
        try:
            while waiting and connection not in self._late:
                some = waiting[:AT_ONCE]
                async with Supervisor("authorize") as supervisor:
                    tasks = [
                        supervisor.spawn(self._awaited(awaitable, connection), name="authorize")
                        for _, awaitable in some
                    ]
                    for (question, _), task in zip(some, tasks, strict=True):
                        answers[question] = await task
                del waiting[:AT_ONCE]
            for question, _ in waiting:
                answers[question] = False
        finally:
            for _, awaitable in waiting:
                if inspect.iscoroutine(awaitable):
                    awaitable.close()

    def _ask(self, connection: RequestContext, questions: Collection[_Question]) -> list[bool]:
        """Return the answers to questions, in order, and keep them for the rest of the request.

        Raises:
            Undecided: an answer has to be awaited.
        """
        known = self._answers.get(connection, {})
        waiting: list[tuple[_Question, Awaitable[bool]]] = []
        for question in dict.fromkeys(questions):
            if question in known:
                continue
            answer = self._answer(connection, question)
            if isinstance(answer, bool):
                known[question] = answer
            else:
                waiting.append((question, answer))
        if waiting:
            raise Undecided(waiting)
        return [known[question] for question in questions]

    def _answer(self, connection: RequestContext, question: _Question) -> bool | Awaitable[bool]:
        operation, resource_type, name = question
        try:
            answer = self._authorize(
                connection.session.principal,
                canonical_host(connection.peer_host),
                operation,
                Resource(resource_type, name),
            )
            return answer if inspect.isawaitable(answer) else _checked(answer)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001  code of the user
            return self._failed(error)

    async def _awaited(self, awaitable: Awaitable[bool], connection: RequestContext) -> bool:
        limit = asyncio.timeout(ANSWER_SECONDS)
        try:
            async with limit:
                return _checked(await awaitable)
        except INTERRUPTS:
            raise
        except GeneratorExit as error:
            if closed_here(error):
                raise
            return self._failed(error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self._failed(error)
        except BaseException as error:  # noqa: BLE001  code of the user
            if not limit.expired():
                return self._failed(error)
        self._late.add(connection)
        return self._failed(TimeoutError(f"no answer within {ANSWER_SECONDS:g} s"))

    def _failed(self, error: BaseException) -> bool:
        """Log that the function failed, and return False to deny the request."""
        if self._failures is None:
            self._failures = LineLimit(
                logger, logging.ERROR, f"{_NAME} failed %d more times; the requests were denied"
            )
        # As %r, because the text may have a name from the request, and so a line break.
        self._failures.write(f"{_NAME} failed, so the request was denied: error=%.500r", error)
        return False


def _checked(answer: object) -> bool:
    """Return an answer of the user's function.

    Raises:
        TypeError: the answer is not True or False.
    """
    if isinstance(answer, bool):
        return answer
    raise TypeError(f"it must return True or False, not {answer!r}")
