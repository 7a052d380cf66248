"""`HeldRequests`: holds the first request of a client until the user's function gives its quotas.

Otherwise a client would have no quota until a coroutine function answers, and could avoid quotas by
a new client id in each request.

Tests: ``tests/unit/broker/security/quotas/test_held_requests.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.connection.request_context import SessionState
from aiokq.core.errors import ProtocolError
from aiokq.wire.frames import decode_request_header

if TYPE_CHECKING:
    from aiokq.broker.security.quotas.caller_quotas import CallerQuotas
    from aiokq.connection.request_context import RequestContext, RequestHandler
    from aiokq.wire.fields import Fragment

__all__ = ["HeldRequests"]


class HeldRequests:
    """A request handler that asks for quotas before it calls another handler.

    Args:
        handler: handles the requests.
        quotas: calls the user's function.
    """

    def __init__(self, handler: RequestHandler, quotas: CallerQuotas) -> None:
        self._handler = handler
        self._quotas = quotas

    async def handle(self, context: RequestContext, frame: memoryview) -> Sequence[Fragment] | None:
        """Handle one request once its quotas are known or the time to wait for them is over.

        Raises:
            CloseConnection, ProtocolError: see `RequestHandler.handle`.
        """
        if context.session.state is SessionState.READY:
            try:
                header = decode_request_header(frame)
            except ProtocolError:
                pass  # the handler raises an error of its own
            else:
                waiting = self._quotas.ask(context, header.api_key, header.client_id or "")
                if waiting is not None:
                    await waiting
        return await self._handler.handle(context, frame)
