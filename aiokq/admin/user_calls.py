"""`UserCalls`: the methods of `Admin` on SCRAM credentials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from aiokq.admin import users as user_calls
from aiokq.admin.results import Results
from aiokq.admin.users import (
    ScramDeletion,
    ScramUpsertion,
    UserScramAltered,
    UserScramCredentials,
)
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.arguments import list_argument

__all__ = ["UserCalls"]


class UserCalls(ABC):
    """Methods of `Admin` on the SCRAM credentials of users.

    Results, ``timeout`` and errors are as described in `Admin`.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def describe_user_scram_credentials(
        self,
        users: str | Iterable[str] | None = None,
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, UserScramCredentials]:
        """Return mechanisms and iterations of the SCRAM credentials of users (Kafka 2.7).

        Args:
            users: names of users; None for all users that have a credential.

        Returns:
            Results by user; a user without a credential has the error ResourceNotFound.

        Raises:
            ClusterAuthorization: the client may not describe the cluster.
        """
        engine = self._check(timeout)
        names = None
        if users is not None:
            names = (
                [users] if isinstance(users, str) else list_argument(users, "users", "['alice']")
            )
        results = await user_calls.describe_user_scram_credentials(engine, names, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results

    async def alter_user_scram_credentials(
        self,
        changes: ScramUpsertion | ScramDeletion | Iterable[ScramUpsertion | ScramDeletion],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[tuple[str, str], UserScramAltered]:
        """Store and delete SCRAM credentials (Kafka 2.7). The changes apply to later logins.

        A client that is logged in stays logged in until its session expires. Use TLS, because
        anyone who reads the request can log in as the user.

        Returns:
            Results by user and mechanism; errors are ResourceNotFound (there is nothing to delete),
            UnacceptableCredential, ClusterAuthorization ...
        """
        engine = self._check(timeout)
        wanted = (
            [changes]
            if isinstance(changes, ScramUpsertion | ScramDeletion)
            else list_argument(changes, "changes", "[ScramUpsertion('alice', password)]")
        )
        results = await user_calls.alter_user_scram_credentials(engine, wanted, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results
