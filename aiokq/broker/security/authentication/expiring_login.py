"""ExpiringLogin: a user, and when the session ends.

Tests: ``tests/unit/broker/security/authentication/test_own_check.py``.
"""

from __future__ import annotations

from datetime import datetime

from aiokq.connection.principal import Principal
from aiokq.core.named_tuple import NamedTuple

__all__ = ["ExpiringLogin"]


class ExpiringLogin(NamedTuple):
    """What `authenticate` of an `EmbeddedCluster` may return in place of a user.

    When the time is over, the client has to log in again on the same connection (KIP-368), which
    current clients do in time by themselves. `connections.max.reauth.ms` can end a session earlier.

    Attributes:
        principal: the name of the user, or a `Principal`.
        expires_at: the end of the session, for example that of the token: seconds since 1970, as in
            the claim ``exp``, or a datetime with a time zone. A time that is over refuses the
            login.
    """

    principal: str | Principal
    expires_at: float | datetime
