"""Permissions for settings, by the type of resource that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.configs.config_sources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from aiokq.broker.permissions import CLUSTER_NAME, ResourceType

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiokq.broker.handlers.call import Call
    from aiokq.broker.permissions import Operation

__all__ = ["authorize_configs", "settle_configs"]

_OF_THE_CLUSTER: Final = (BROKER, BROKER_LOGGER, CLIENT_METRICS)


def authorize_configs(call: Call, operation: Operation, resource_type: int, name: str) -> None:
    """Check that a client may describe or alter the settings of a resource.

    This function permits an unknown type of resource, because the handler refuses it later.

    Raises:
        ClusterAuthorization, TopicAuthorization, GroupAuthorization: the client lacks the
            permission.
    """
    if resource_type in _OF_THE_CLUSTER:
        call.authorize(operation, ResourceType.CLUSTER)
    elif resource_type == TOPIC:
        call.authorize(operation, ResourceType.TOPIC, name)
    elif resource_type == GROUP:
        call.authorize(operation, ResourceType.GROUP, name)


async def settle_configs(
    call: Call, operation: Operation, resources: Collection[tuple[int, str]]
) -> None:
    """Let `authorize_configs` of several resources, by type and name, be decided in advance."""
    of_cluster = any(resource_type in _OF_THE_CLUSTER for resource_type, _ in resources)
    await call.settle(
        (operation, ResourceType.CLUSTER, (CLUSTER_NAME,) if of_cluster else ()),
        (operation, ResourceType.TOPIC, {name for kind, name in resources if kind == TOPIC}),
        (operation, ResourceType.GROUP, {name for kind, name in resources if kind == GROUP}),
    )
