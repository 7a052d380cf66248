"""DescribeConfigs (32), versions 1-4: describe settings of topics, groups, brokers and loggers.

The response has the source of each value.

Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION,
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
INVALID_REQUEST. KIP-133, KIP-226, KIP-569.

v1  sources and synonyms   v3  types and documentation   v4  flexible

A resource that the request repeats is described once, with the settings that any of its entries
names. Kafka describes such a resource once for each entry, so that a small request can cause a
response of any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from aiokq.broker.handlers.config_permissions import authorize_configs
from aiokq.broker.metadata.configs.config_sources import (
    BROKER,
    BROKER_LOGGER,
    GROUP,
    TOPIC,
    ConfigEntry,
    check_broker_name,
    cluster_config_entries,
    group_config_entries,
    logger_entries,
    topic_config_entries,
)
from aiokq.broker.metadata.image.topic_names import check_topic_name
from aiokq.broker.permissions import Operation
from aiokq.core.errors import BrokerError, InvalidRequest, UnknownTopicOrPartition
from aiokq.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call


async def handle(
    topics: Topics, cluster: Cluster, configs: Configs, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResponse:
    """Describe all settings of each resource, or only the settings that the request names."""
    results = []
    named: dict[tuple[int, str], list[DescribeConfigsResource]] = {}
    async for resource in call.each(request.resources):
        named.setdefault((resource.resource_type, resource.resource_name), []).append(resource)
    for resources in named.values():
        names = await _names(resources, call)
        result = _describe(topics, cluster, configs, call, resources[0], names, request)
        results.append(result)
        if call.pace.spend(1 + len(result.configs)):
            await call.pace.next()
    return DescribeConfigsResponse(results=results)


async def _names(resources: list[DescribeConfigsResource], call: Call) -> Set[str]:
    """Return the settings that are requested for one resource; an empty set for all settings."""
    names: set[str] = set()
    for resource in resources:
        if not resource.configuration_keys:
            return set()
        async for name in call.each(resource.configuration_keys):
            names.add(name)
    return names


def _describe(
    topics: Topics,
    cluster: Cluster,
    configs: Configs,
    call: Call,
    resource: DescribeConfigsResource,
    names: Set[str],
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=0,
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        authorize_configs(
            call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
        )
        entries = _entries(topics, cluster, configs, resource)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.configs = [
        _encode(entry, request) for entry in entries if not names or entry.name in names
    ]
    return result


def _entries(
    topics: Topics, cluster: Cluster, configs: Configs, resource: DescribeConfigsResource
) -> Iterable[ConfigEntry]:
    if resource.resource_type == TOPIC:
        check_topic_name(resource.resource_name)
        topic = topics.get(resource.resource_name)
        if topic is None:
            raise UnknownTopicOrPartition()
        return topic_config_entries(topic.configs, configs.dynamic_settings)
    if resource.resource_type == BROKER:
        if not resource.resource_name:
            return cluster_config_entries(configs.dynamic_settings)
        check_broker_name(resource.resource_name, cluster.node_id)
        return configs.broker_entries()
    if resource.resource_type == BROKER_LOGGER:
        if not resource.resource_name:
            raise InvalidRequest("Broker id must not be empty")
        check_broker_name(resource.resource_name, cluster.node_id)
        return logger_entries()
    if resource.resource_type == GROUP:
        if not resource.resource_name:
            raise InvalidRequest("Group name must not be empty")
        return group_config_entries(resource.resource_name, configs.group_configs)
    raise InvalidRequest(
        f"resources of type {resource.resource_type} have no settings on this broker"
    )


def _encode(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
