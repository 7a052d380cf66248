"""`SharedQuota`: a rate, and the name of the budget whose clients share it.

Tests: ``tests/unit/broker/security/quotas/test_caller_quotas.py``.
"""

from __future__ import annotations

from aiokq.core.named_tuple import NamedTuple

__all__ = ["SharedQuota"]


class SharedQuota(NamedTuple):
    """A quota that the function `quota` of an `EmbeddedCluster` returns in place of a number.

    A plain number means the same as `SharedQuota(number, principal)`: all clients of the principal
    share it.

    Attributes:
        rate: the rate per second, above 0.
        budget: a name. All clients for which the function returns the same name share the rate. The
            name can stand for one client id of a user (``f"{principal}/{client_id}"``), for a team,
            or for everybody.
    """

    rate: float
    budget: str
