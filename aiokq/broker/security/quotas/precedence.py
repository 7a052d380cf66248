"""`QuotaTable`: finds the quota of a user and client id by Kafka's eight levels of precedence.

Source: Kafka ``ClientQuotaManager.DefaultQuotaCallback``; KIP-55, KIP-546.
Tests: ``tests/unit/broker/security/quotas/test_precedence.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from aiokq.core.named_tuple import NamedTuple
from aiokq.core.quota_keys import CLIENT_ID, CLIENT_KEYS, IP, USER

if TYPE_CHECKING:
    from aiokq.core.quota_keys import QuotaEntity

__all__ = ["Applied", "Budget", "QuotaTable", "quota_tables"]

Budget: TypeAlias = tuple[str | None, ...]
"""The clients that share a quota: a user and a client id, of which one may be None. If a function
gives the quota: the principal, or the budget of its `SharedQuota`.
"""


class Applied(NamedTuple):
    """A quota that applies to a client, and the clients that share it."""

    limit: float
    budget: Budget


class QuotaTable:
    """The quotas of one key, such as ``producer_byte_rate``; see `quota_tables`."""

    __slots__ = ("_both", "_client_ids", "_users")

    def __init__(self) -> None:
        # The name None stands for the default entity of its type.
        self._both: dict[tuple[str | None, str | None], float] = {}
        self._users: dict[str | None, float] = {}
        self._client_ids: dict[str | None, float] = {}

    def add(self, parts: Mapping[str, str | None], limit: float) -> None:
        """Add the quota of a user, a client id, or a client id of a user.

        Args:
            parts: the name of the entity by type.
        """
        if len(parts) == 2:
            self._both[parts[USER], parts[CLIENT_ID]] = limit
        elif USER in parts:
            self._users[parts[USER]] = limit
        elif CLIENT_ID in parts:
            self._client_ids[parts[CLIENT_ID]] = limit

    def __bool__(self) -> bool:
        """Whether any quota of the key exists."""
        return bool(self._both or self._users or self._client_ids)

    def find(self, user: str, client_id: str) -> Applied | None:
        """Return the quota that applies to a client; None if there is none.

        The first of these quotas applies: (user, client id), (user, default client id), user,
        (default user, client id), (default user, default client id), default user, client id,
        default client id. A default quota applies to each user or client id separately.
        """
        both = self._both
        limit = both.get((user, client_id))
        if limit is None:
            limit = both.get((user, None))
        if limit is not None:
            return Applied(limit, (user, client_id))
        limit = self._users.get(user)
        if limit is not None:
            return Applied(limit, (user, None))
        limit = both.get((None, client_id))
        if limit is None:
            limit = both.get((None, None))
        if limit is not None:
            return Applied(limit, (user, client_id))
        limit = self._users.get(None)
        if limit is not None:
            return Applied(limit, (user, None))
        limit = self._client_ids.get(client_id)
        if limit is None:
            limit = self._client_ids.get(None)
        return None if limit is None else Applied(limit, (None, client_id))


def quota_tables(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> dict[str, QuotaTable]:
    """Return the quotas of clients by key.

    Args:
        quotas: the values by entity and key, as in the metadata. There may be thousands.
    """
    tables = {key: QuotaTable() for key in CLIENT_KEYS}
    for entity, values in quotas.items():
        parts = dict(entity)
        if IP in parts:
            continue
        for key, limit in values.items():
            table = tables.get(key)
            if table is not None:
                table.add(parts, limit)
    return tables
