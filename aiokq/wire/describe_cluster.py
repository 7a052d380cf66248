"""DescribeCluster (API key 60): describe the brokers, the controller and the id of the cluster."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["DescribeClusterBroker", "DescribeClusterRequest", "DescribeClusterResponse"]


class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Request of the DescribeCluster API.

    Version 1 adds EndpointType (KIP-919).

    Version 2 adds IncludeFencedBrokers (KIP-1073).

    Source: `DescribeClusterRequest.json`.
    """

    API_KEY = 60
    NAME = "DescribeCluster"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    include_cluster_authorized_operations: bool = boolean()
    """Whether the response should have the authorized operations of the cluster."""

    endpoint_type: int = i8(since=1, default=1)
    """The endpoints to describe: 1 = brokers, 2 = controllers."""

    include_fenced_brokers: bool = boolean(since=2)
    """Whether the response should include fenced brokers."""


class DescribeClusterBroker(Struct):
    """One broker: an element of `DescribeClusterResponse.brokers`.

    Source: `DescribeClusterResponse.json`, struct `DescribeClusterBroker`.
    """

    broker_id: int = i32()
    """The node id of the broker."""

    host: str = string()
    """The host name of the broker."""

    port: int = i32()
    """The port of the broker."""

    rack: str | None = string(nullable_since=0, default=None)
    """The rack of the broker, or null if it has not been assigned to a rack."""

    is_fenced: bool = boolean(since=2)
    """Whether the broker is fenced."""


class DescribeClusterResponse(Response, request=DescribeClusterRequest):
    """Response to `DescribeClusterRequest`.

    Version 1 adds EndpointType and the error codes MISMATCHED_ENDPOINT_TYPE and
    UNSUPPORTED_ENDPOINT_TYPE.

    Version 2 adds IsFenced to the brokers (KIP-1073).

    Source: `DescribeClusterResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The error message of the whole request, or null if there was no error."""

    endpoint_type: int = i8(since=1, default=1)
    """The endpoints that are described: 1 = brokers, 2 = controllers."""

    cluster_id: str = string()
    """The ID of the cluster that the responding broker belongs to."""

    controller_id: int = i32(default=-1)
    """The id of the active controller if a controller answers; the id of some live broker if a
    broker answers.
    """

    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    """The brokers or the controllers, according to `endpoint_type`."""

    cluster_authorized_operations: int = i32(default=-2147483648)
    """The operations on the cluster that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """
