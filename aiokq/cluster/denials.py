"""Names the client and the resource in an authorization error, which a response does not name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.errors import KafkaError

__all__ = ["name_denial"]


def name_denial(engine: ClusterEngine, error: KafkaError, resource_name: str | None = None) -> None:
    """Add the client's principal to an authorization error; leave other errors unchanged.

    Args:
        resource_name: the group id or the transactional id that the request was about; None if it
            was about topics or the cluster, or if the error has the name already.
    """
    if error.operation is not None:
        error.add_context(
            principal=engine.settings.principal,
            resource_name=error.resource_name or resource_name,
        )
