"""DescribeCluster (60), versions 0-2: describe the brokers, the controller and the cluster.

No permission is needed, because every client needs the brokers' addresses to connect to them. The
response lists the brokers that advertise the listener of the connection, with their addresses on
that listener.

Errors: MISMATCHED_ENDPOINT_TYPE (the request is for a controller), UNSUPPORTED_ENDPOINT_TYPE.
KIP-700.

v1  endpoint type (KIP-919)   v2  fenced brokers (KIP-1073)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import MismatchedEndpointType, UnsupportedEndpointType
from aiokq.wire.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Quorum
    from aiokq.broker.handlers.call import Call

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(
    cluster: Cluster, quorum: Quorum, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    """Return the cluster id, the controller, and the brokers on the client's listener."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=MismatchedEndpointType.code,
            error_message="this is the endpoint of a broker, not of a controller",
            endpoint_type=BROKERS,
            cluster_id=cluster.cluster_id,
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=UnsupportedEndpointType.code,
            error_message=f"unknown endpoint type {request.endpoint_type}",
            endpoint_type=BROKERS,
            cluster_id=cluster.cluster_id,
        )
    response = DescribeClusterResponse(
        error_code=0,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.brokers(call.connection.listener)
        ],
    )
    if request.include_fenced_brokers:
        response.brokers += [
            DescribeClusterBroker(
                broker_id=broker.node_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=True,
            )
            for broker in quorum.fenced_brokers(call.connection.listener)
        ]
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            call.operations(ResourceType.CLUSTER)
            if call.permits(Operation.DESCRIBE, ResourceType.CLUSTER)
            else 0
        )
    return response
