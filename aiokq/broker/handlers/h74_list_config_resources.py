"""ListConfigResources (74), versions 0-1: list the resources that have settings.

Errors: CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION (an unknown type of resource). KIP-1142.

v0  client metrics only, of which there are none   v1  any types; an empty list means all types

Source: Kafka ``KafkaApis.handleListConfigResources``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.configs.config_sources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, UnsupportedVersion
from aiokq.wire.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call

TYPES: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
"""All types, in the order of Kafka's response."""


async def handle(
    topics: Topics,
    cluster: Cluster,
    configs: Configs,
    request: ListConfigResourcesRequest,
    call: Call,
) -> ListConfigResourcesResponse:
    """List the resources of the requested types."""
    try:
        call.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    except BrokerError as error:
        return ListConfigResourcesResponse(error_code=error.code)
    if call.version == 0:
        return ListConfigResourcesResponse(error_code=0)
    wanted = set(request.resource_types or TYPES)
    if not wanted.issubset(TYPES):
        return ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in TYPES
            if resource_type in wanted
            for name in _names(topics, cluster, configs, resource_type)
        ],
    )


def _names(topics: Topics, cluster: Cluster, configs: Configs, resource_type: int) -> Iterator[str]:
    if resource_type == GROUP:
        yield from configs.group_configs.group_ids()
    elif resource_type in (BROKER_LOGGER, BROKER):
        for broker in cluster.brokers():
            yield str(broker.node_id)
    elif resource_type == TOPIC:
        for topic in topics.sorted():
            yield topic.name
