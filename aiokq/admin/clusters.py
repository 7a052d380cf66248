"""`Admin.describe_cluster`, which returns the id, the controller and the brokers of a cluster."""

from __future__ import annotations

from aiokq.admin.retrying import repeated
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata_messages import metadata_received, metadata_request
from aiokq.cluster.targets import ANY
from aiokq.core.errors import UnsupportedVersion, raise_for
from aiokq.core.frozen import frozen
from aiokq.wire.describe_cluster import DescribeClusterRequest
from aiokq.wire.metadata import MetadataRequest

__all__ = ["BrokerDescription", "ClusterDescription", "describe_cluster"]

FENCED_SINCE = 2


@frozen
class BrokerDescription:
    """A broker; a fenced broker is registered but out of service (listed only on request)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@frozen
class ClusterDescription:
    """A cluster. With KRaft, ``controller_id`` is the id of a broker, not of the controller.

    This broker forwards requests to the controller.
    """

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


async def describe_cluster(
    engine: ClusterEngine, *, include_fenced_brokers: bool, timeout: float | None
) -> ClusterDescription:
    """Implement `Admin.describe_cluster`."""

    def request(version: int) -> DescribeClusterRequest:
        if include_fenced_brokers and version < FENCED_SINCE:
            raise UnsupportedVersion(
                "the broker is older than 4.0: it cannot list fenced brokers",
                api="DescribeCluster",
            )
        return DescribeClusterRequest(include_fenced_brokers=include_fenced_brokers)

    async def ask(remaining: float) -> ClusterDescription:
        deadline = engine.now() + remaining
        try:
            response = await engine.router.request(
                request, DescribeClusterRequest, ANY, timeout=remaining
            )
        except UnsupportedVersion:
            if include_fenced_brokers:
                raise
            return await _from_metadata(engine, deadline - engine.now())
        raise_for(response.error_code, response.error_message, api="DescribeCluster")
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(
                BrokerDescription(b.broker_id, b.host, b.port, b.rack, b.is_fenced)
                for b in sorted(response.brokers, key=lambda b: b.broker_id)
            ),
        )

    return await repeated(engine, ask, api="DescribeCluster", timeout=timeout)


async def _from_metadata(engine: ClusterEngine, timeout: float) -> ClusterDescription:
    """Return the description from a Metadata response, for brokers before 2.8."""
    response = await engine.router.request(
        lambda version: metadata_request(frozenset(), create=False, version=version),
        MetadataRequest,
        ANY,
        timeout=timeout,
    )
    received = metadata_received(response)
    return ClusterDescription(
        received.cluster_id,
        received.controller_id,
        tuple(
            BrokerDescription(b.node_id, b.host, b.port, b.rack)
            for b in sorted(received.brokers, key=lambda b: b.node_id)
        ),
    )
