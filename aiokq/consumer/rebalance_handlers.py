"""RebalanceHandlers: calls the user's rebalance handlers, with a time limit for those that await.

membership.py decides when they are called.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from aiokq.core.errors import RequestTimeout
from aiokq.core.log_lines import log_line
from aiokq.core.user_errors import INTERRUPTS, closed_here, passable

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition

__all__ = ["RebalanceHandler", "RebalanceHandlers"]

logger = logging.getLogger("aiokq.consumer")

RebalanceHandler: TypeAlias = "Callable[[frozenset[TopicPartition]], Awaitable[object] | object]"
"""A function or coroutine function that is called with partitions."""


class RebalanceHandlers:
    """The rebalance handlers of one consumer.

    An exception of a handler is logged and passed to `failed`; it does not end the membership. A
    handler that does not await blocks the event loop, and has no time limit.

    Args:
        failed: called with an exception of a handler.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._assigned: RebalanceHandler | None = None
        self._revoked: RebalanceHandler | None = None
        self._lost: RebalanceHandler | None = None

    def set(
        self,
        assigned: RebalanceHandler | None,
        revoked: RebalanceHandler | None,
        lost: RebalanceHandler | None,
    ) -> None:
        """Set the handlers; for None, the earlier handler is kept.

        Raises:
            TypeError: a handler is not callable.
        """
        for name, handler in (("assigned", assigned), ("revoked", revoked), ("lost", lost)):
            if handler is None:
                continue
            if not callable(handler):
                raise TypeError(f"on_{name} must be callable, not {handler!r}")
            setattr(self, f"_{name}", handler)

    async def assigned(self, partitions: frozenset[TopicPartition], seconds: float) -> None:
        """Call on_assigned. Records of added partitions are delivered only after the call."""
        await self._call("on_assigned", self._assigned, partitions, seconds)

    async def revoked(self, partitions: frozenset[TopicPartition], seconds: float) -> None:
        """Call on_revoked; offsets of the partitions can still be committed."""
        await self._call("on_revoked", self._revoked, partitions, seconds)

    async def lost(self, partitions: frozenset[TopicPartition], seconds: float) -> None:
        """Call on_lost, or on_revoked if there is no on_lost, as in Java."""
        handler = self._revoked if self._lost is None else self._lost
        await self._call("on_lost", handler, partitions, seconds)

    async def _call(
        self,
        name: str,
        handler: RebalanceHandler | None,
        partitions: frozenset[TopicPartition],
        seconds: float,
    ) -> None:
        if handler is None:
            return
        limit = asyncio.timeout(seconds)
        try:
            result = handler(partitions)
            if inspect.isawaitable(result):
                async with limit:
                    await _awaited(result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            self._report(name, error)  # the handler's awaitable was cancelled, not this task
        except TimeoutError as error:
            if not limit.expired():
                self._report(name, error)
                return
            self._report(
                name,
                RequestTimeout(
                    f"{name} did not end within {seconds:.3g} s and was cancelled (a third of "
                    "rebalance_timeout_ms), because the other members wait for it"
                ),
            )
        except INTERRUPTS:
            raise
        except GeneratorExit as error:
            if closed_here(error):
                raise
            self._report(name, error)
        except BaseException as error:  # noqa: BLE001  an error of user code, raised to the reader
            self._report(name, error)

    def _report(self, name: str, error: BaseException) -> None:
        log_line(
            logger, logging.ERROR, "rebalance handler failed: handler=%s", name, exc_info=error
        )
        self._failed(passable(error, name))


async def _awaited(result: Awaitable[object]) -> None:
    # A future has no frame when it raises; `closed_here` needs the frame of this coroutine.
    await result
