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
from aiokq.broker.permissions import ResourceType

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.permissions import Operation

__all__ = ["authorize_configs"]

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
