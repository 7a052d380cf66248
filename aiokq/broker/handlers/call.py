"""What a handler knows of the request beside its body. Owns nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext

__all__ = ["Call"]


class Call(NamedTuple):
    """One request's version, and who sent it over which connection."""

    version: int
    client_id: str | None
    connection: RequestContext
