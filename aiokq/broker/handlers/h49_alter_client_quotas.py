"""AlterClientQuotas (49), versions 0-1: change the quotas of users, client ids and addresses.

Each entity of a request is changed separately, with all of its values or with none. The new quotas
are in effect before the response is sent. With `validate_only`, nothing changes.

Errors of an entity: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (see `quota_changes`),
KAFKA_STORAGE_ERROR. KIP-546, KIP-612.

v1  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.metadata.controller.quota_changes import QuotaChange, entity_text
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.alter_client_quotas import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.handlers.areas import ClientQuotas
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.alter_client_quotas import AlterClientQuotasEntryData


async def handle(
    client_quotas: ClientQuotas, request: AlterClientQuotasRequest, call: Call
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity; with `validate_only`, only check the changes."""
    changes = [_change(entry) async for entry in call.each(request.entries)]
    errors: Sequence[BrokerError | None]
    try:
        call.authorize(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        errors = await client_quotas.alter(changes, call.pace, validate_only=request.validate_only)
    except BrokerError as error:
        errors = [error] * len(changes)
    if not request.validate_only:
        done = zip(changes, errors, strict=True)
        await call.changed_many(
            "quotas changed", (_text(change) for change, error in done if error is None)
        )
    # An entity that the request names twice is answered once, as in Kafka.
    entries = {
        frozenset(change.entity): _result(change, error)
        async for change, error in call.each(zip(changes, errors, strict=True))
    }
    return AlterClientQuotasResponse(entries=list(entries.values()))


def _text(change: QuotaChange) -> str:
    """Return a change as a line for the audit log."""
    values = " ".join(
        f"{key} removed" if value is None else f"{key}={value:.15g}" for key, value in change.values
    )
    return f"{entity_text(change.entity)}: {values}"


def _change(entry: AlterClientQuotasEntryData) -> QuotaChange:
    return QuotaChange(
        [(part.entity_type, part.entity_name) for part in entry.entity],
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def _result(change: QuotaChange, error: BrokerError | None) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        entity=[
            AlterClientQuotasEntityData(entity_type=kind, entity_name=name)
            for kind, name in change.entity
        ],
    )
