"""Describes and changes the quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Final, TypeAlias

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.metadata import frozen_map
from aiokq.cluster.targets import ANY, CONTROLLER
from aiokq.core.errors import ConfigError, KafkaError, error_for, raise_for
from aiokq.core.frozen import frozen
from aiokq.wire.alter_client_quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasEntryData,
    AlterClientQuotasOpData,
    AlterClientQuotasRequest,
)
from aiokq.wire.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

__all__ = [
    "ClientQuotaAltered",
    "ClientQuotaEntity",
    "QuotaName",
    "alter_client_quotas",
    "describe_client_quotas",
]


class QuotaName(Enum):
    """A value in place of the name of a user, a client id or an address.

    Attributes:
        DEFAULT: the default entity, whose quota applies to entities without a quota of their own.
        ANY: in a filter, every name and the default.
    """

    DEFAULT = "default"
    ANY = "any"


NameLike: TypeAlias = str | QuotaName | None


@frozen
class ClientQuotaEntity:
    """The entity of a quota: a user, a client id, a client id of a user, or an address.

    Attributes:
        user: the name of a user without its type, such as "alice"; None if the quota does not
            depend on the user.
        client_id: the client id; None if the quota does not depend on the client id.
        ip: the address of a client; `user` and `client_id` must then be None.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {_text(name)}" for kind, name in _parts(self)) or "no entity"


@frozen
class ClientQuotaAltered:
    """The result of changing the quotas of one entity."""

    entity: ClientQuotaEntity
    error: KafkaError | None = None


_EXACT: Final = 0
_MATCH_TYPES: Final = {QuotaName.DEFAULT: 1, QuotaName.ANY: 2}

_ATTRIBUTES: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The attributes of `ClientQuotaEntity` by Kafka's types of entities."""


def _parts(entity: ClientQuotaEntity) -> list[tuple[str, str | QuotaName]]:
    found = [(kind, getattr(entity, attribute)) for kind, attribute in _ATTRIBUTES.items()]
    return [(kind, name) for kind, name in found if name is not None]


def _text(name: str | QuotaName) -> str:
    return f"<{name.value}>" if isinstance(name, QuotaName) else repr(name)


async def describe_client_quotas(
    engine: ClusterEngine,
    entity: ClientQuotaEntity | None,
    *,
    strict: bool,
    timeout: float | None,
) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
    """Implement `Admin.describe_client_quotas`."""
    components = []
    for kind, name in [] if entity is None else _parts(_checked(entity, "entity")):
        if isinstance(name, QuotaName):
            component = ComponentData(entity_type=kind, match_type=_MATCH_TYPES[name], match=None)
        else:
            component = ComponentData(entity_type=kind, match_type=_EXACT, match=name)
        components.append(component)
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    async def ask(remaining: float) -> Mapping[ClientQuotaEntity, Mapping[str, float]]:
        response = await engine.router.request(
            lambda version: request, DescribeClientQuotasRequest, ANY, timeout=remaining
        )
        raise_for(response.error_code, response.error_message, api="DescribeClientQuotas")
        return frozen_map(
            (
                _entity({part.entity_type: part.entity_name for part in entry.entity}),
                frozen_map((value.key, value.value) for value in entry.values),
            )
            for entry in response.entries or ()
        )

    return await repeated(engine, ask, api="DescribeClientQuotas", timeout=timeout)


async def alter_client_quotas(
    engine: ClusterEngine,
    changes: Mapping[ClientQuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
    timeout: float | None,
) -> Results[ClientQuotaEntity, ClientQuotaAltered]:
    """Implement `Admin.alter_client_quotas`."""
    wanted = {_named(entity): _values(entity, values) for entity, values in changes.items()}

    async def attempt(
        left: Mapping[ClientQuotaEntity, Mapping[str, float | None]], remaining: float
    ) -> dict[ClientQuotaEntity, ClientQuotaAltered | KafkaError]:
        request = AlterClientQuotasRequest(
            entries=[_entry(entity, values) for entity, values in left.items()],
            validate_only=validate_only,
        )
        response = await engine.router.request(
            lambda version: request, AlterClientQuotasRequest, CONTROLLER, timeout=remaining
        )
        found: dict[ClientQuotaEntity, ClientQuotaAltered | KafkaError] = {}
        for entry in response.entries:
            entity = _entity({part.entity_type: part.entity_name for part in entry.entity})
            found[entity] = (
                error_for(entry.error_code, entry.error_message, api="AlterClientQuotas")
                if entry.error_code
                else ClientQuotaAltered(entity)
            )
        return found

    outcomes = await per_item(engine, wanted, attempt, api="AlterClientQuotas", timeout=timeout)
    return results_of(outcomes, ClientQuotaAltered)


def _entry(
    entity: ClientQuotaEntity, values: Mapping[str, float | None]
) -> AlterClientQuotasEntryData:
    return AlterClientQuotasEntryData(
        entity=[
            AlterClientQuotasEntityData(
                entity_type=kind, entity_name=None if isinstance(name, QuotaName) else name
            )
            for kind, name in _parts(entity)
        ],
        ops=[
            AlterClientQuotasOpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )


def _entity(names: Mapping[str, str | None]) -> ClientQuotaEntity:
    """Return an entity of a response; types that this client does not know are left out."""
    known = {_ATTRIBUTES[kind]: name for kind, name in names.items() if kind in _ATTRIBUTES}
    return ClientQuotaEntity(
        **{kind: QuotaName.DEFAULT if name is None else name for kind, name in known.items()}
    )


def _checked(entity: ClientQuotaEntity, argument: str) -> ClientQuotaEntity:
    if not isinstance(entity, ClientQuotaEntity):
        raise TypeError(f"{argument} must be a ClientQuotaEntity, not {entity!r}")
    for kind, name in _parts(entity):
        if not isinstance(name, (str, QuotaName)):
            raise TypeError(f"{kind} must be a name (str) or a QuotaName, not {name!r}")
        if name == "":
            raise ConfigError(f"{kind} must not be empty: use QuotaName.DEFAULT for the default")
    if entity.ip is not None and len(_parts(entity)) > 1:
        raise ConfigError("an address has quotas of its own: ip excludes user and client_id")
    return entity


def _named(entity: ClientQuotaEntity) -> ClientQuotaEntity:
    parts = _parts(_checked(entity, "a key of changes"))
    if not parts:
        raise ConfigError("name a user, a client id or an address")
    if any(name is QuotaName.ANY for _, name in parts):
        raise ConfigError("QuotaName.ANY is for filters: the quotas of one entity are changed")
    return entity


def _values(
    entity: ClientQuotaEntity, values: Mapping[str, float | None]
) -> dict[str, float | None]:
    if not isinstance(values, Mapping):
        raise TypeError(f"{entity}: quotas must be a mapping of keys to rates, not {values!r}")
    for key, value in values.items():
        if not isinstance(key, str):
            raise TypeError(f"{entity}: the key of a quota must be a str, not {key!r}")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{entity}: {key} must be a number or None, not {value!r}")
        if not 0 < value <= sys.float_info.max:  # also refuses NaN
            raise ValueError(f"{entity}: {key} must be above 0, not {value!r}")
    return dict(values)
