"""CallerQuotas: quotas that a function of the user's gives (`EmbeddedCluster(quota=...)`).

The function is not called for each request: its answers are kept, and asked for again in tasks of
their own. A synchronous function is called in the request only for a client that is not known yet;
a coroutine function never, so that such a client has no quota for the first moments.

Tests: ``tests/unit/broker/security/quotas/test_caller_quotas.py``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.core.user_errors import INTERRUPTS
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext

__all__ = ["CallerQuotas", "QuotaCallable"]

logger = logging.getLogger("aiokq.broker")

QuotaCallable: TypeAlias = Callable[[str, str, str], "float | Awaitable[float | None] | None"]
"""A function of a principal, a client id and the key of a quota, such as ``producer_byte_rate``."""

REFRESH_SECONDS: Final = 1.0
"""Age of an answer at which the function is asked again, if the client is still active."""

ANSWER_SECONDS: Final = 10.0
"""Maximum number of seconds to wait for an answer of a coroutine function."""

MOST: Final = 10_000
"""Maximum number of answers that are kept; then the longest unused one is forgotten."""

AT_ONCE: Final = 16
"""Maximum number of answers that are awaited at the same time."""

Question: TypeAlias = tuple[str, str, str]


class _Answer:
    __slots__ = ("asked_at", "is_pending", "limit")

    def __init__(self) -> None:
        self.limit: float | None = None
        self.asked_at = 0.0
        self.is_pending = False


class CallerQuotas:
    """The answers of a user's function (`client_quotas.QuotaSource`).

    Args:
        quota: the function. A result of None leaves the client to the quotas in the metadata. After
            an error or an invalid result, the last valid answer stays in effect.
        now: returns seconds on a monotonic clock.
        spawn: starts a task that ends with the node.
    """

    __slots__ = ("_answers", "_complaints", "_is_async", "_now", "_quota", "_running", "_spawn",
                 "_waiting")  # fmt: skip

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
        self._answers: OrderedDict[Question, _Answer] = OrderedDict()  # longest unused first
        self._waiting: OrderedDict[Question, _Answer] = OrderedDict()
        self._running = 0
        self._complaints = WarningBackoff(now)

    def limit(self, connection: RequestContext, client_id: str, key: str) -> float | None:
        """Return the last answer for a client; None if it has none, or if it was None."""
        question = str(connection.session.principal), client_id, key
        answers = self._answers
        answer = answers.get(question)
        if answer is None:
            if len(answers) >= MOST:
                answers.popitem(last=False)
            answer = answers[question] = _Answer()
            self._ask_first(question, answer)
        else:
            answers.move_to_end(question)
            if self._now() - answer.asked_at >= REFRESH_SECONDS and not answer.is_pending:
                self._ask_later(question, answer)
        return answer.limit

    def _ask_first(self, question: Question, answer: _Answer) -> None:
        if self._is_async:
            self._ask_later(question, answer)
            return
        answer.asked_at = self._now()
        try:
            result = self._quota(*question)
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; see DESIGN.md, rule 54
            self._complain(question, error)
            return
        if inspect.isawaitable(result):
            self._later(question, answer, result)
        else:
            self._take(question, answer, result)

    def _ask_later(self, question: Question, answer: _Answer) -> None:
        answer.is_pending = True
        self._waiting[question] = answer
        if self._running < AT_ONCE:
            self._running += 1
            self._spawn(self._ask_waiting(), "ask for quotas")

    def _later(self, question: Question, answer: _Answer, result: Awaitable[float | None]) -> None:
        """Await an answer that a function without `async` has begun."""
        answer.is_pending = True
        self._spawn(self._await(question, answer, result), "ask for quotas")

    async def _ask_waiting(self) -> None:
        try:
            while self._waiting:
                question, answer = self._waiting.popitem(last=False)
                try:
                    result = self._quota(*question)
                except INTERRUPTS:
                    raise
                except BaseException as error:  # noqa: BLE001 - user code; see DESIGN.md, rule 54
                    self._complain(question, error)
                    self._asked(answer)
                    continue
                if inspect.isawaitable(result):
                    await self._await(question, answer, result)
                else:
                    self._take(question, answer, result)
                    self._asked(answer)
                    await asyncio.sleep(0)  # user code of many clients must not block the loop
        finally:
            self._running -= 1

    async def _await(
        self, question: Question, answer: _Answer, result: Awaitable[float | None]
    ) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._take(question, answer, await result)
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
            self._asked(answer)

    def _asked(self, answer: _Answer) -> None:
        answer.is_pending = False
        answer.asked_at = self._now()

    def _take(self, question: Question, answer: _Answer, result: object) -> None:
        if result is None:
            answer.limit = None
        elif (
            isinstance(result, (int, float))
            and not isinstance(result, bool)
            and result > 0
            and math.isfinite(result)
        ):
            answer.limit = float(result)
        else:
            error = TypeError(f"the result must be a number above 0 or None, not {result!r}")
            self._complain(question, error)

    def _complain(self, question: Question, error: BaseException) -> None:
        level, times = self._complaints.note(type(error))
        logger.log(
            level,
            "quota function failed: principal=%s client_id=%s key=%s error=%r times=%d",
            *question,
            error,
            times,
        )
