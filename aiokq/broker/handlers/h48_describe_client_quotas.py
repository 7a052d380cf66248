"""DescribeClientQuotas (48), versions 0-1: list the quotas of users, client ids and addresses.

Without components, all quotas are listed. With `strict`, an entity is listed only if the request
names all of its types; with `strict` and without components, nothing is listed.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (a type that is empty or named twice, a match
type that is unknown or contradicts the name, or addresses together with users or client ids),
UNSUPPORTED_VERSION (an unknown type). KIP-546, KIP-612.

v1  flexible

Source: Kafka ``ClientQuotasImage.describe``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidRequest, UnsupportedVersion
from aiokq.core.quota_keys import ENTITY_TYPES, IP
from aiokq.wire.describe_client_quotas import (
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClientQuotasValueData,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokq.broker.handlers.areas import ClientQuotas
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.describe_client_quotas import ComponentData

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


async def handle(
    client_quotas: ClientQuotas, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    """List the quotas of the entities that match all components."""
    try:
        call.authorize(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        exact, any_name = _filter(request.components)
    except BrokerError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    entries = [
        DescribeClientQuotasEntryData(
            entity=[
                DescribeClientQuotasEntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ],
            values=[
                DescribeClientQuotasValueData(key=key, value=value) for key, value in values.items()
            ],
        )
        async for entity, values in call.each(list(client_quotas.stored.items()))
        if _matches(dict(entity), exact, any_name, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_code=0, error_message="", entries=entries)


def _filter(components: Iterable[ComponentData]) -> tuple[dict[str, str | None], set[str]]:
    """Return the required name of each type, and the types that may have any name.

    Raises:
        InvalidRequest, UnsupportedVersion: see the module.
    """
    exact: dict[str, str | None] = {}
    any_name: set[str] = set()
    for component in components:
        kind, match = component.entity_type, component.match
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in exact or kind in any_name:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersion(f"Unsupported entity type {kind}")
        if component.match_type == EXACT:
            if match is None:
                raise InvalidRequest(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
            exact[kind] = match
        elif component.match_type in (DEFAULT, ANY):
            if match is not None:
                name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
                raise InvalidRequest(
                    f"Request specified MATCH_TYPE_{name}, but also specified a match string."
                )
            if component.match_type == DEFAULT:
                exact[kind] = None
            else:
                any_name.add(kind)
        else:
            raise InvalidRequest(f"Unknown match type {component.match_type}")
    types = {*exact, *any_name}
    if IP in types and len(types) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return exact, any_name


def _matches(
    entity: dict[str, str | None], exact: dict[str, str | None], any_name: set[str], *, strict: bool
) -> bool:
    if strict and len(entity) != len(exact) + len(any_name):
        return False
    if any(kind not in entity or entity[kind] != name for kind, name in exact.items()):
        return False
    return all(kind in entity for kind in any_name)
