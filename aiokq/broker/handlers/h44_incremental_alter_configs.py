"""IncrementalAlterConfigs (44), versions 0-1: set, delete, append to or subtract from settings.

Resources are topics, groups, brokers and loggers. Either all changes of a resource are made, or
none. Changes that are made are in effect when the response is sent.

Errors of a resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (another topic has the
same id), TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED,
INVALID_CONFIG, INVALID_REQUEST, KAFKA_STORAGE_ERROR. KIP-339, KIP-412.

v1  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.h33_alter_configs import alter, alter_each
from aiokq.broker.metadata.configs.config_changes import changed_broker_configs, changed_configs
from aiokq.broker.metadata.configs.config_sources import BROKER, BROKER_LOGGER, check_broker_name
from aiokq.broker.metadata.configs.loggers import alter_loggers
from aiokq.wire.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.broker.handlers.areas import Changes, Cluster, Configs, Topics
    from aiokq.broker.handlers.call import Call


async def handle(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    request: IncrementalAlterConfigsRequest,
    call: Call,
) -> IncrementalAlterConfigsResponse:
    """Change the settings of each resource; with `validate_only`, only check the changes."""

    async def alter_one(resource: IncrementalAlterConfigsResource) -> None:
        await _alter(
            topics, changes, cluster, configs, resource, call, validate_only=request.validate_only
        )

    responses = [
        IncrementalAlterConfigsResourceResponse(
            error_code=code,
            error_message=message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource, code, message in await alter_each(request.resources, alter_one, call)
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    topics: Topics,
    changes: Changes,
    cluster: Cluster,
    configs: Configs,
    resource: IncrementalAlterConfigsResource,
    call: Call,
    *,
    validate_only: bool,
) -> None:
    alterations = [
        (change.name, change.config_operation, change.value) for change in resource.configs
    ]
    if resource.resource_type == BROKER_LOGGER:
        check_broker_name(resource.resource_name, cluster.node_id)
        alter_loggers(alterations, validate_only=True)
        if not validate_only:
            # Record the change before it is made: it may raise the level of the audit log itself.
            call.changed(
                "log level changed",
                [f"{name} {value or 'inherited'}" for name, _, value in alterations],
            )
            alter_loggers(alterations)
        return

    def change(before: Mapping[str, str]) -> dict[str, str]:
        if resource.resource_type == BROKER:
            return changed_broker_configs(before, alterations)
        return changed_configs(before, alterations, configs.settings)

    await alter(
        topics,
        changes,
        cluster,
        configs,
        resource.resource_type,
        resource.resource_name,
        change,
        named=[name for name, _, _ in alterations],
        validate_only=validate_only,
    )
