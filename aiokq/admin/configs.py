"""Describing and listing configs, and choosing the node that serves the configs of a resource."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from aiokq.admin.config_types import (
    OWN_SOURCE,
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ResourceLike,
    as_resource,
)
from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import frozen_map
from aiokq.cluster.targets import ANY, Target
from aiokq.core import limits
from aiokq.core.errors import (
    ConfigError,
    GroupAuthorization,
    KafkaError,
    TopicAuthorization,
    UnsupportedVersion,
    error_for,
    raise_for,
)
from aiokq.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from aiokq.wire.list_config_resources import ListConfigResourcesRequest

__all__ = ["by_node", "config_error", "describe_configs", "list_config_resources"]


_FIRST_WITH_TYPES: Final = 1
"""First version of ListConfigResources that lists more than client metrics."""

Outcome = TypeVar("Outcome")
Ask: TypeAlias = Callable[
    [int | Target, list[ConfigResource], float],
    Coroutine[Any, Any, Mapping[ConfigResource, Outcome | KafkaError]],
]


async def by_node(
    engine: ClusterEngine,
    resources: Iterable[ConfigResource],
    remaining: float,
    ask: Ask[Outcome],
) -> dict[ConfigResource, Outcome | KafkaError]:
    """Send each node a request about the resources that the node serves.

    If one of several nodes fails, only the resources of this node have an error.

    Raises:
        KafkaError: all resources belong to one node, and its request failed.
        ConfigError: the name of a broker is not a number.
    """
    groups: dict[int | Target, list[ConfigResource]] = defaultdict(list)
    for resource in resources:
        groups[_target(resource)].append(resource)
    answers = await concurrently(
        engine.supervisor,
        (ask(target, group, remaining) for target, group in groups.items()),
        name="configs",
    )
    outcomes: dict[ConfigResource, Outcome | KafkaError] = {}
    for group, answer in zip(groups.values(), answers, strict=True):
        if not isinstance(answer, KafkaError):
            outcomes.update(answer)
        elif len(groups) == 1:
            raise answer
        else:
            outcomes.update(dict.fromkeys(group, answer))
    return outcomes


def _target(resource: ConfigResource) -> int | Target:
    """Return the node to which requests about a resource are sent.

    Requests about a single broker go to this broker. Other requests go to any broker.

    Raises:
        ConfigError: the name of a broker is not a number.
    """
    of_broker = resource.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
    if not of_broker or resource.name == "":
        return ANY
    try:
        return int(resource.name)
    except ValueError:
        raise ConfigError(f"{resource.name!r} is not a broker id (a number)") from None


async def describe_configs(
    engine: ClusterEngine,
    resources: Iterable[ResourceLike],
    *,
    names: Iterable[str] | None = None,
    include_synonyms: bool = False,
    include_documentation: bool = False,
    timeout: float | None = None,
) -> Results[ConfigResource, ConfigDescription]:
    """Implement `Admin.describe_configs`."""
    wanted = dict.fromkeys(map(as_resource, resources), True)
    keys = None if names is None else list(names)

    async def ask(
        target: int | Target, group: list[ConfigResource], remaining: float
    ) -> dict[ConfigResource, ConfigDescription | KafkaError]:
        def request(version: int) -> DescribeConfigsRequest:
            return DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=int(resource.type),
                        resource_name=resource.name,
                        configuration_keys=keys,
                    )
                    for resource in group
                ],
                # Older versions lack these fields; their responses omit synonyms or documentation.
                include_synonyms=include_synonyms and version >= 1,
                include_documentation=include_documentation and version >= 3,
            )

        response = await engine.router.request(
            request, DescribeConfigsRequest, target, timeout=remaining
        )
        return dict(map(_described, response.results))

    async def attempt(
        left: Mapping[ConfigResource, bool], remaining: float
    ) -> dict[ConfigResource, ConfigDescription | KafkaError]:
        return await by_node(engine, left, remaining, ask)

    outcomes = await per_item(engine, wanted, attempt, api="DescribeConfigs", timeout=timeout)
    return results_of(outcomes, lambda resource, error: ConfigDescription(resource, error=error))


async def list_config_resources(
    engine: ClusterEngine, types: Sequence[ConfigResourceType], *, timeout: float | None
) -> list[ConfigResource]:
    """Implement `Admin.list_config_resources`."""
    for kind in types:
        if not isinstance(kind, int) or isinstance(kind, bool):
            raise TypeError(
                "types must contain ConfigResourceType values, as in [ConfigResourceType.TOPIC], "
                f"not {kind!r}"
            )
    wanted = sorted({limits.whole(kind, "types", 0, 127) for kind in types})

    def request(version: int) -> ListConfigResourcesRequest:
        if version >= _FIRST_WITH_TYPES:
            return ListConfigResourcesRequest(resource_types=wanted)
        if wanted != [ConfigResourceType.CLIENT_METRICS]:
            raise UnsupportedVersion(
                "this broker lists only resources of client metrics; other types need Kafka 4.1",
                api="ListConfigResources",
            )
        return ListConfigResourcesRequest()

    async def ask(remaining: float) -> list[ConfigResource]:
        response = await engine.router.request(
            request, ListConfigResourcesRequest, ANY, timeout=remaining
        )
        raise_for(response.error_code, api="ListConfigResources")
        return [
            ConfigResource(ConfigResourceType(found.resource_type), found.resource_name)
            for found in response.config_resources
        ]

    return await repeated(engine, ask, api="ListConfigResources", timeout=timeout)


def _described(
    result: DescribeConfigsResult,
) -> tuple[ConfigResource, ConfigDescription | KafkaError]:
    resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
    if result.error_code:
        return resource, config_error(
            resource, result.error_code, result.error_message, api="DescribeConfigs"
        )
    entries = frozen_map((config.name, _entry(config, resource)) for config in result.configs)
    return resource, ConfigDescription(resource, entries)


def config_error(
    resource: ConfigResource, code: int, message: str | None, *, api: str
) -> KafkaError:
    """Return the error of a resource; an error about a missing permission names the resource."""
    error = error_for(code, message, api=api)
    if isinstance(error, TopicAuthorization):
        error.add_context(topic_partition=resource.name)
    elif isinstance(error, GroupAuthorization):
        error.add_context(resource_name=resource.name)
    return error


def _entry(config: DescribeConfigsResourceResult, resource: ConfigResource) -> ConfigEntry:
    source = ConfigSource(config.config_source)
    if config.config_source < 0:
        # Version 0 does not return the source, only `is_default`.
        own = OWN_SOURCE.get(resource.type, ConfigSource.UNKNOWN)
        source = ConfigSource.DEFAULT_CONFIG if config.is_default else own
    return ConfigEntry(
        config.name,
        config.value,
        source,
        config.read_only,
        config.is_sensitive,
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in config.synonyms),
        config.documentation or None,
    )
