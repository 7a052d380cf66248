"""`AclCalls`: the methods of `Admin` on ACLs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from aiokq.admin import acls as calls
from aiokq.admin.acls import AclCreated, AclFilter, AclLike, AclsDeleted
from aiokq.admin.results import Results
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.acls import Acl

__all__ = ["AclCalls"]


class AclCalls(ABC):
    """Methods of `Admin` on ACLs. Results, ``timeout`` and errors are as described in `Admin`.

    All methods raise SecurityDisabled, or return it as the error of each item, if the brokers have
    no authorizer, and ClusterAuthorization if the client may not describe or alter the cluster.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def describe_acls(
        self, filter: AclFilter | None = None, *, timeout: float | None = None
    ) -> tuple[Acl, ...]:
        """Return the ACLs that match a filter, sorted by resource and principal.

        Args:
            filter: None for all ACLs.
        """
        return await calls.describe_acls(
            self._check(timeout), AclFilter() if filter is None else filter, timeout=timeout
        )

    async def create_acls(
        self,
        acls: Iterable[AclLike],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[Acl, AclCreated]:
        """Create ACLs. An ACL that exists already is no error.

        Args:
            acls: `Acl` objects or lines such as ``"User:alice Allow Read,Describe Topic:orders"``
                (see `Acl.parse`). A line stands for one ACL per operation.

        Returns:
            Results by ACL; errors are InvalidRequest, SecurityDisabled, ClusterAuthorization.
        """
        results = await calls.create_acls(self._check(timeout), acls, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results

    async def delete_acls(
        self,
        filters: Iterable[AclFilter | AclLike],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[AclFilter, AclsDeleted]:
        """Delete the ACLs that match a filter. A filter that matches no ACL is no error.

        Args:
            filters: `AclFilter` objects. An `Acl` stands for a filter that matches only this ACL. A
                line stands for one such filter per operation.

        Returns:
            Results by filter, each with the deleted ACLs; errors are InvalidRequest,
            SecurityDisabled, ClusterAuthorization.
        """
        results = await calls.delete_acls(self._check(timeout), filters, timeout=timeout)
        return results.raise_for_errors() if raise_errors else results
