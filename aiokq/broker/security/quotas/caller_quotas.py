"""`CallerQuotas`: quotas by a function of the user (`EmbeddedCluster(quota=...)`).

As in Kafka's ``ClientQuotaCallback``, an answer has a rate and says which clients share it. If the
answer is a number, all clients of the principal share it, because a client chooses its client id,
and a new client id must not give it a new quota.

Answers are kept and renewed in a background task. Only the first request of a client waits for an
answer (`HeldRequests`), for a limited time. After that time, the last answer for another client id
of the principal applies until the answer arrives; if there is none, the quotas in the metadata
apply.

While questions wait, the function is asked alternately for first answers and for renewals, and the
principals take turns. A user who sends requests with many client ids therefore delays neither the
answers for other users nor their renewal.

Source: Kafka ``ClientQuotaCallback``; KIP-257.
Tests: ``tests/unit/broker/security/quotas/test_caller_quotas.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.security.quotas.precedence import Applied
from aiokq.broker.security.quotas.shared_quota import SharedQuota
from aiokq.connection.budgets import short_name
from aiokq.core.fair_queue import FairQueue
from aiokq.core.log_lines import log_line
from aiokq.core.quota_keys import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from aiokq.core.user_errors import INTERRUPTS
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiokq.connection.request_context import RequestContext

__all__ = ["CallerQuotas", "QuotaCallable"]

logger = logging.getLogger("aiokq.broker")

Result: TypeAlias = "float | SharedQuota | None"

QuotaCallable: TypeAlias = "Callable[[str, str, str], Result | Awaitable[Result]]"
"""A function of a principal, a client id and the key of a quota, such as ``producer_byte_rate``."""

REFRESH_SECONDS: Final = 1.0
"""Age of an answer at which the function is asked again, if the client is still active."""

ANSWER_SECONDS: Final = 10.0
"""Maximum number of seconds to wait for an answer of a coroutine function."""

HELD_SECONDS: Final = 10.0
"""Maximum number of seconds for which a request waits for the first answer."""

MOST: Final = 10_000
"""Maximum number of answers that are kept; above it, the least recently used one is dropped."""

AT_ONCE: Final = 16
"""Maximum number of answers that are awaited at the same time."""

MOST_RENEWALS: Final = 256
"""Maximum number of old answers that wait until the function is asked again.

Above it, the principal with the most of them loses one, which is renewed at a later request. First
answers need no limit, because a request waits for each of them.
"""

_LOGGED_CHARACTERS: Final = 128

_KEYS_OF_API: Final[Mapping[int, tuple[str, ...]]] = {
    0: (PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE),  # Produce
    1: (CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE),  # Fetch
    3: (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE),  # Metadata may create topics
    19: (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE),  # CreateTopics
    20: (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE),  # DeleteTopics
    37: (CONTROLLER_MUTATION_RATE, REQUEST_PERCENTAGE),  # CreatePartitions
}
_KEYS_OF_OTHERS: Final = (REQUEST_PERCENTAGE,)


class _Answer:
    """The answer for one principal, client id and key.

    Attributes:
        applied: the quota; None if the quotas in the metadata apply.
        is_known: whether `applied` is an answer; False until the first valid one.
        asked_at: monotonic time of the last answer, valid or not, in seconds.
        is_pending: whether the function is being asked.
        first: a future that is done when the first answer arrives; None from then on.
        waiters: number of requests that wait for the first answer.
    """

    __slots__ = ("applied", "asked_at", "first", "is_known", "is_pending", "waiters")

    def __init__(self) -> None:
        self.applied: Applied | None = None
        self.is_known = False
        self.asked_at = 0.0
        self.is_pending = False
        self.first: asyncio.Future[None] | None = None
        self.waiters = 0


class _Question:
    """The arguments of one call of the function; principal and client id are not shortened.

    Attributes:
        result: the awaitable that the function has returned; None before the call.
    """

    __slots__ = ("answer", "client_id", "key", "principal", "result")

    def __init__(self, answer: _Answer, principal: str, client_id: str, key: str) -> None:
        self.answer = answer
        self.principal = principal
        self.client_id = client_id
        self.key = key
        self.result: Awaitable[Result] | None = None


class CallerQuotas:
    """The quotas that a function of the user gives. Implements `client_quotas.QuotaSource`.

    Args:
        quota: the function. A result of None leaves the client to the quotas in the metadata. After
            an error or an invalid result, the last valid answer stays in effect.
        now: returns seconds on a monotonic clock.
        spawn: starts a task that ends with the node.
    """

    __slots__ = ("_answers", "_complaints", "_first", "_is_async", "_last", "_now", "_quota",
                 "_renewals", "_renews_next", "_running", "_spawn")  # fmt: skip

    def __init__(
        self,
        quota: QuotaCallable,
        now: Callable[[], float],
        spawn: Callable[[Coroutine[object, None, None], str], object],
    ) -> None:
        self._quota = quota
        self._now = now
        self._spawn = spawn
        called = getattr(quota, "__call__", quota)  # noqa: B004 - an object with a coroutine method
        self._is_async = inspect.iscoroutinefunction(quota) or inspect.iscoroutinefunction(called)
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()  # least recently used first
        # The last answer for any client id of a principal, by principal and key.
        self._last: OrderedDict[Hashable, Applied | None] = OrderedDict()
        # The waiting questions by principal, and by the id() of their `_Answer` object.
        self._first: FairQueue[_Question] = FairQueue()
        self._renewals: FairQueue[_Question] = FairQueue()
        self._renews_next = False
        self._running = 0
        self._complaints = WarningBackoff(now)

    def ask(
        self, connection: RequestContext, api_key: int, client_id: str
    ) -> Awaitable[None] | None:
        """Ask for the quotas that a request depends on.

        Returns:
            An awaitable that the request has to await before it is handled; None if all quotas are
            known.
        """
        keys = _KEYS_OF_API.get(api_key, _KEYS_OF_OTHERS)
        answers = [self._answer(connection, client_id, key) for key in keys]
        waiting = [answer for answer in answers if answer.first is not None]
        return self._settled(_group(connection), waiting) if waiting else None

    def applied(self, connection: RequestContext, client_id: str, key: str) -> Applied | None:
        """Return the last answer for a client; None if the quotas in the metadata apply.

        Without a valid answer, the last answer for another client id of the principal is returned.
        """
        answer = self._answer(connection, client_id, key)
        if answer.is_known:
            return answer.applied
        return self._last.get((_group(connection), key))

    def _answer(self, connection: RequestContext, client_id: str, key: str) -> _Answer:
        """Return the answer for a client; ask the function if there is none, or if it is old.

        The connection keeps its answers, because client ids of other connections may evict them
        from the cache during a request.
        """
        kept = connection.quota_answers
        if kept is None:
            kept = connection.quota_answers = {}
        name = short_name(client_id)
        found = kept.get(key)
        if found is not None and found[0] == name:
            answer = found[1]
            assert isinstance(answer, _Answer)
        else:
            answer = self._shared_answer(connection, client_id, name, key)
            kept[key] = name, answer
        if not answer.is_pending and self._now() - answer.asked_at >= REFRESH_SECONDS:
            self._renew(_group(connection), _question(answer, connection, client_id, key))
        return answer

    def _shared_answer(
        self, connection: RequestContext, client_id: str, name: Hashable, key: str
    ) -> _Answer:
        """Return the answer that a client's connections share; ask for it if there is none."""
        answers = self._answers
        group = _group(connection)
        where = group, name, key
        answer = answers.get(where)
        if answer is not None:
            answers.move_to_end(where)
            return answer
        if len(answers) >= MOST:
            answers.popitem(last=False)
        answer = answers[where] = _Answer()
        self._ask_first(group, _question(answer, connection, client_id, key))
        return answer

    def _ask_first(self, group: Hashable, question: _Question) -> None:
        if not self._is_async:
            result = self._called(question)
            if not inspect.isawaitable(result):
                question.answer.asked_at = self._now()
                return
            question.result = result
        answer = question.answer
        answer.is_pending = True
        answer.first = asyncio.get_running_loop().create_future()
        self._first.add(group, id(answer), question)
        self._work()

    def _renew(self, group: Hashable, question: _Question) -> None:
        if len(self._renewals) >= MOST_RENEWALS:
            dropped = self._renewals.make_room(group)
            if dropped is None:
                return
            dropped.answer.is_pending = False
        question.answer.is_pending = True
        self._renewals.add(group, id(question.answer), question)
        self._work()

    def _work(self) -> None:
        if self._running < AT_ONCE:
            self._running += 1
            self._spawn(self._ask_all(), "ask for quotas")

    async def _settled(self, group: Hashable, answers: Sequence[_Answer]) -> None:
        """Await first answers for a principal, for a limited time."""
        for answer in answers:
            answer.waiters += 1
        try:
            firsts = [answer.first for answer in answers if answer.first is not None]
            await asyncio.wait(firsts, timeout=HELD_SECONDS)
        finally:
            for answer in answers:
                answer.waiters -= 1
                if answer.waiters:
                    continue  # the client waits on another connection, too
                # A question that was not asked in time is dropped, because its request waits no
                # longer.
                question = self._first.remove(group, id(answer))
                if question is not None:
                    _discard(question)
                    self._asked(answer)

    async def _ask_all(self) -> None:
        """Call the function for each waiting question."""
        try:
            while (question := self._next()) is not None:
                if question.result is None:
                    result = self._called(question)
                    if not inspect.isawaitable(result):
                        self._asked(question.answer)
                        await asyncio.sleep(0)  # many calls in a row must not block the loop
                        continue
                    question.result = result
                await self._await(question, question.result)
        except BaseException:
            for question in (*self._first, *self._renewals):
                _discard(question)
            raise
        finally:
            self._running -= 1

    def _next(self) -> _Question | None:
        """Remove and return the next question, alternately a first one and a renewal if both wait.

        If first questions always came before renewals, a user with ever new client ids could
        prevent the renewal of all answers.
        """
        self._renews_next = not self._renews_next
        queues = self._first, self._renewals
        waiting = queues[self._renews_next] or queues[not self._renews_next]
        return waiting.take() if waiting else None

    def _called(self, question: _Question) -> object:
        """Call the function and return the result; store a result that need not be awaited."""
        try:
            result = self._quota(question.principal, question.client_id, question.key)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; see DESIGN.md, rule 54
            self._complain(question, error)
            return None
        if not inspect.isawaitable(result):
            self._take(question, result)
        return result

    async def _await(self, question: _Question, result: Awaitable[Result]) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._take(question, await result)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._complain(question, RuntimeError("the function was cancelled"))
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; see DESIGN.md, rule 54
            self._complain(question, error)
        finally:
            self._asked(question.answer)

    def _asked(self, answer: _Answer) -> None:
        answer.is_pending = False
        answer.asked_at = self._now()
        if answer.first is not None:
            if not answer.first.done():
                answer.first.set_result(None)
            answer.first = None

    def _take(self, question: _Question, result: object) -> None:
        try:
            applied = _checked(result, question.principal)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - also raised by methods of the user's object
            self._complain(question, error)
            return
        question.answer.applied = applied
        question.answer.is_known = True
        last, where = self._last, (short_name(question.principal), question.key)
        if where not in last and len(last) >= MOST:
            last.popitem(last=False)
        last[where] = applied
        last.move_to_end(where)

    def _complain(self, question: _Question, error: BaseException) -> None:
        level, times = self._complaints.note(type(error))
        log_line(
            logger,
            level,
            "quota function failed: principal=%s client_id=%s key=%s error=%.500r times=%d",
            _logged(question.principal),
            _logged(question.client_id),
            question.key,
            error,
            times,
        )


def _checked(result: object, principal: str) -> Applied | None:
    """Return a result of the user's function as a quota.

    Raises:
        TypeError: the result is not valid.
    """
    rate, budget = result, principal
    if isinstance(result, SharedQuota):
        rate, budget = result
    if result is None:
        return None
    if (
        isinstance(rate, (int, float))
        and not isinstance(rate, bool)
        and 0 < rate <= sys.float_info.max  # an int may be larger than every float
        and isinstance(budget, str)
    ):
        return Applied(float(rate), (budget,))
    raise TypeError(
        "the result must be a number above 0, a SharedQuota with such a rate, or None, "
        f"not {result!r}"
    )


def _logged(name: str) -> str:
    """Return a name shortened and escaped for the log, because the client has chosen it."""
    name = name[:_LOGGED_CHARACTERS]
    return name if name.isprintable() else ascii(name)


def _group(connection: RequestContext) -> Hashable:
    """Return the key of the principal of a connection."""
    return short_name(str(connection.session.principal))


def _question(answer: _Answer, connection: RequestContext, client_id: str, key: str) -> _Question:
    return _Question(answer, str(connection.session.principal), client_id, key)


def _discard(question: _Question) -> None:
    """Cancel the future of a question, or close its coroutine to avoid a warning of Python."""
    result = question.result
    if inspect.iscoroutine(result):
        result.close()
    elif isinstance(result, asyncio.Future):
        result.cancel()
