"""The gate's decisions on whether a client may use the resources of its request.

Tests: ``tests/unit/broker/test_gate.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import CLUSTER_NAME

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.permissions import Operation, ResourceType

__all__ = ["Decisions"]


class Decisions:
    """The decisions about one operation of a client, by resource.

    The gate is called once for each resource, even if the request names several partitions of one
    topic.
    """

    __slots__ = ("_call", "_operation", "_permitted", "_resource_type")

    def __init__(self, call: Call, operation: Operation, resource_type: ResourceType) -> None:
        self._call = call
        self._operation = operation
        self._resource_type = resource_type
        self._permitted: dict[str, bool] = {}

    def check(self, name: str = CLUSTER_NAME) -> None:
        """Check that the client may perform the operation on a resource.

        The first denial of each resource is recorded in the audit log.

        Raises:
            BrokerError: the client lacks the permission; see `Call.authorize`.
        """
        # Hot path, measured by benchmarks/raw_load.py.
        permitted = self._permitted.get(name)
        if permitted is None:
            permitted = self._call.permits(self._operation, self._resource_type, name)
            self._permitted[name] = permitted
            if not permitted:
                self._call.denied(self._operation, self._resource_type, name)
        if not permitted:
            raise self._call.refusal(self._operation, self._resource_type)
