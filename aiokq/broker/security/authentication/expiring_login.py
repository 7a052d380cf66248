"""`ExpiringLogin`: a user, and the time at which the session ends.

Tests: ``tests/unit/broker/security/authentication/test_own_check.py``.
"""

from __future__ import annotations

from datetime import datetime

from aiokq.connection.principal import Principal
from aiokq.core.named_tuple import NamedTuple

__all__ = ["ExpiringLogin"]


class ExpiringLogin(NamedTuple):
    """A user and the end of the session; `EmbeddedCluster`'s `authenticate` may return it.

    Before that time, a client has to log in again on the same connection (KIP-368); current clients
    do so by themselves. `connections.max.reauth.ms` can end a session earlier.

    Attributes:
        principal: the name of the user, or a `Principal`.
        expires_at: the end of the session, such as the expiry of the token: seconds since 1970, as
            in the claim ``exp``, or a datetime with a time zone. If it is in the past, the login is
            refused.
    """

    principal: str | Principal
    expires_at: float | datetime
