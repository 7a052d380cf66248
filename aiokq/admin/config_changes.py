"""Changing single configs, also on brokers that can only replace all configs of a resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from aiokq.admin.config_types import (
    OWN_SOURCE,
    AlterOperation,
    ChangeLike,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigsAltered,
    ConfigSource,
    ResourceLike,
    as_resource,
)
from aiokq.admin.configs import by_node, config_error, describe_configs
from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import Target
from aiokq.core.arguments import mapping_argument, str_argument
from aiokq.core.errors import InvalidConfiguration, KafkaError, UnsupportedVersion
from aiokq.wire.alter_configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from aiokq.wire.incremental_alter_configs import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)

__all__ = ["alter_configs"]

R = TypeVar("R", bound=ResourceLike)
Changes: TypeAlias = Mapping[str, ConfigChange]


async def alter_configs(
    engine: ClusterEngine,
    changes: Mapping[R, Mapping[str, ChangeLike]],
    *,
    validate_only: bool = False,
    timeout: float | None = None,
) -> Results[ConfigResource, ConfigsAltered]:
    """Implement `Admin.alter_configs`."""
    mapping_argument(changes, "changes", "{'orders': {'retention.ms': 1000}}")
    wanted: dict[ConfigResource, Changes] = {
        as_resource(resource): {
            str_argument(name, f"changes of {resource!r}"): value
            if isinstance(value, ConfigChange)
            else ConfigChange.delete()
            if value is None
            else ConfigChange.set(value)
            for name, value in mapping_argument(
                values, f"changes of {resource!r}", "{'retention.ms': 1000}"
            ).items()
        }
        for resource, values in changes.items()
    }

    async def ask(
        target: int | Target, group: list[ConfigResource], remaining: float
    ) -> dict[ConfigResource, ConfigsAltered | KafkaError]:
        try:
            response = await engine.request(
                _incremental({resource: wanted[resource] for resource in group}, validate_only),
                node=target,
                timeout=remaining,
            )
        except UnsupportedVersion:
            return await _replace_all_configs(
                engine, target, {r: wanted[r] for r in group}, validate_only, remaining
            )
        return dict(
            _altered(a.resource_type, a.resource_name, a.error_code, a.error_message)
            for a in response.responses
        )

    async def attempt(
        left: Mapping[ConfigResource, Changes], remaining: float
    ) -> dict[ConfigResource, ConfigsAltered | KafkaError]:
        return await by_node(engine, left, remaining, ask)

    outcomes = await per_item(
        engine, wanted, attempt, api="IncrementalAlterConfigs", timeout=timeout
    )
    return results_of(outcomes, ConfigsAltered)


def _altered(
    type_: int, name: str, code: int, message: str | None
) -> tuple[ConfigResource, ConfigsAltered | KafkaError]:
    resource = ConfigResource(ConfigResourceType(type_), name)
    if code:
        return resource, config_error(resource, code, message, api="AlterConfigs")
    return resource, ConfigsAltered(resource)


def _incremental(
    changes: Mapping[ConfigResource, Changes], validate_only: bool
) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=int(resource.type),
                resource_name=resource.name,
                configs=[
                    IncrementalAlterConfigsAlterableConfig(
                        name=name, config_operation=int(change.operation), value=change.value
                    )
                    for name, change in values.items()
                ],
            )
            for resource, values in changes.items()
        ],
        validate_only=validate_only,
    )


async def _replace_all_configs(
    engine: ClusterEngine,
    target: int | Target,
    changes: Mapping[ConfigResource, Changes],
    validate_only: bool,
    remaining: float,
) -> dict[ConfigResource, ConfigsAltered | KafkaError]:
    """Read all configs, then replace them by AlterConfigs, for brokers before 2.3.

    A concurrent change of another client between the two requests is lost. A resource is
    refused if it has sensitive configs that are not part of the change: brokers do not return the
    values of these configs, so AlterConfigs would delete them.
    """
    present = await describe_configs(engine, changes, timeout=remaining)
    outcomes: dict[ConfigResource, ConfigsAltered | KafkaError] = {}
    resources = []
    for resource, values in changes.items():
        described = present[resource]
        if described.error is not None:
            outcomes[resource] = described.error
            continue
        try:
            configs = _merged(resource, described.entries, values)
        except InvalidConfiguration as error:
            outcomes[resource] = error
            continue
        resources.append(
            AlterConfigsResource(
                resource_type=int(resource.type),
                resource_name=resource.name,
                configs=[
                    AlterConfigsAlterableConfig(name=name, value=value)
                    for name, value in configs.items()
                ],
            )
        )
    if resources:
        response = await engine.request(
            AlterConfigsRequest(resources=resources, validate_only=validate_only),
            node=target,
            timeout=remaining,
        )
        outcomes.update(
            _altered(a.resource_type, a.resource_name, a.error_code, a.error_message)
            for a in response.responses
        )
    return outcomes


def _merged(
    resource: ConfigResource, entries: Mapping[str, ConfigEntry], changes: Changes
) -> dict[str, str | None]:
    """Return the values of all configs that are set on the resource after the changes.

    Source: Kafka 2.2 `ConfigCommand.alterBrokerConfig`.

    Raises:
        InvalidConfiguration: the changes neither set nor delete a sensitive config that is set on
            the resource.
    """
    own = OWN_SOURCE.get(resource.type, ConfigSource.UNKNOWN)
    replaced = {
        name
        for name, change in changes.items()
        if change.operation in (AlterOperation.SET, AlterOperation.DELETE)
    }
    merged = {
        name: entry.value
        for name, entry in entries.items()
        if entry.source is own and name not in replaced
    }
    hidden = sorted(name for name, value in merged.items() if value is None)
    if hidden:
        raise InvalidConfiguration(
            "a broker before 2.3 replaces all configs of a resource and does not return the values "
            f"of sensitive configs, so the change would delete {', '.join(hidden)}: set these "
            "configs in the same call"
        )
    for name, change in changes.items():
        if change.operation is AlterOperation.SET:
            merged[name] = change.value
        elif change.operation is not AlterOperation.DELETE:
            entry = entries.get(name)
            present = _items(entry.value if entry is not None else None)
            named = _items(change.value)
            if change.operation is AlterOperation.APPEND:
                present += [item for item in named if item not in present]
            else:
                present = [item for item in present if item not in named]
            merged[name] = ",".join(present)
    return merged


def _items(value: str | None) -> list[str]:
    return [item.strip() for item in (value or "").split(",") if item.strip()]
