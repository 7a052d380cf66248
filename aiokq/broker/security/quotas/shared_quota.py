"""SharedQuota: a rate, and the clients that share it.

Tests: ``tests/unit/broker/security/quotas/test_caller_quotas.py``.
"""

from __future__ import annotations

from aiokq.core.named_tuple import NamedTuple

__all__ = ["SharedQuota"]


class SharedQuota(NamedTuple):
    """A quota that the function `quota` of an `EmbeddedCluster` returns in place of a number.

    A number is shared by all clients of the principal, as `SharedQuota(number, principal)` is.

    Attributes:
        rate: the rate per second, above 0.
        budget: name of what the clients share. All clients for which the function returns the same
            name have the rate together: one client id of a user (``f"{principal}/{client_id}"``), a
            team, or everybody.
    """

    rate: float
    budget: str
