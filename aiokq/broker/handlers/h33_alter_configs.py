"""AlterConfigs (33), versions 0-2: replace all settings of topics, groups and brokers.

Settings that the request does not name are reset. Only the dynamic settings of a broker can change.
IncrementalAlterConfigs supersedes this API (KIP-339).

Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (another topic has the
same id), TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
INVALID_CONFIG, INVALID_REQUEST, KAFKA_STORAGE_ERROR.

v2  flexible
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.handlers.config_permissions import authorize_configs
from aiokq.broker.metadata.configs.config_sources import BROKER, GROUP, TOPIC, check_broker_name
from aiokq.broker.permissions import Operation
from aiokq.core.errors import (
    BrokerError,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from aiokq.wire.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from aiokq.broker.handlers.areas import Changes, Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.incremental_alter_configs import IncrementalAlterConfigsResource

R = TypeVar("R", bound="AlterConfigsResource | IncrementalAlterConfigsResource")


async def handle(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    request: AlterConfigsRequest,
    call: Call,
) -> AlterConfigsResponse:
    """Replace the settings of each resource; with `validate_only`, only check the changes."""

    async def alter_one(resource: AlterConfigsResource) -> None:
        await _alter(
            topics, changes, cluster, configs, resource, validate_only=request.validate_only
        )

    responses = [
        AlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, code, message in await alter_each(request.resources, alter_one, call)
    ]
    return AlterConfigsResponse(responses=responses)


async def alter_each(
    resources: Sequence[R], alter_one: Callable[[R], Awaitable[None]], call: Call
) -> list[tuple[R, int, str | None]]:
    """Alter resources one after the other; return each with its error code and message.

    Args:
        alter_one: alters one resource; called only if the client has the permission.
    """
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    outcomes: list[tuple[R, int, str | None]] = []
    for resource in resources:
        code, message = 0, None
        try:
            if times[(resource.resource_type, resource.resource_name)] > 1:
                raise InvalidRequest("the request names this resource twice")
            authorize_configs(
                call, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name
            )
            await alter_one(resource)
        except BrokerError as error:
            code, message = error.code, error.message
        outcomes.append((resource, code, message))
        if call.pace.spend():
            await call.pace.next()
    return outcomes


async def _alter(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    resource: AlterConfigsResource,
    *,
    validate_only: bool,
) -> None:
    given: dict[str, str] = {}
    for config in resource.configs:
        if config.value is None:
            raise InvalidRequest(f"setting {config.name} has no value")
        given[config.name] = config.value
    await alter(
        topics,
        changes,
        cluster,
        configs,
        resource.resource_type,
        resource.resource_name,
        lambda _: given,
        named=given,
        validate_only=validate_only,
    )


async def alter(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    resource_type: int,
    name: str,
    change: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    named: Collection[str],
    validate_only: bool,
) -> None:
    """Change the settings of a topic, a group, this node or all nodes.

    Args:
        name: the topic, the group id or the node id; "" for the settings of all nodes.
        change: returns the new settings, given the present settings.
        named: the names of the settings in the request.

    Raises:
        UnknownTopicOrPartition: the topic does not exist.
        InvalidRequest: the name of a BROKER resource is not this node's id, a key store or trust
            store of a listener cannot be used, or resources of this type have no settings.
        BrokerError: an error of `MetadataChanges.alter_topic_configs`, `alter_group_configs` or
            `alter_broker_configs`.
    """
    if resource_type == TOPIC:
        topic = topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        await changes.alter_topic_configs(topic, change, validate_only=validate_only)
    elif resource_type == GROUP:
        await changes.alter_group_configs(name, change, validate_only=validate_only)
    elif resource_type == BROKER:
        if name:
            check_broker_name(name, cluster.node_id)
            await configs.check_stores(change)
        await changes.alter_broker_configs(name, change, named=named, validate_only=validate_only)
    else:
        raise InvalidRequest(f"resources of type {resource_type} have no settings on this broker")
