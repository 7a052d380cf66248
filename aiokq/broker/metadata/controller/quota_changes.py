"""Decisions about AlterClientQuotas requests, which change the quotas of clients and addresses.

`alter_client_quotas` checks the changes and returns the metadata records to write. It depends only
on its arguments and has no side effects. It yields after some steps, because a request may have
very many changes.

Source: Kafka ``ClientQuotaControlManager``; KIP-546, KIP-612.
Tests: ``tests/unit/broker/metadata/controller/test_quota_changes.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.controller.decision import Decision
from aiokq.connection.turn import STEPS_PER_LOOK
from aiokq.core.errors import BrokerError, InvalidRequest
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.quota_keys import ENTITY_TYPES, IP, check_value, keys_of
from aiokq.wire.principal_records import ClientQuotaEntityData, ClientQuotaRecord

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.connection.turn import Steps
    from aiokq.core.quota_keys import QuotaEntity
    from aiokq.wire.struct import Message

__all__ = ["QuotaChange", "alter_client_quotas", "entity_text"]

_NONE: Final[Mapping[str, float]] = {}


class QuotaChange(NamedTuple):
    """The changes of the quotas of one entity.

    Attributes:
        entity: pairs of a type and a name, as in the request. The name None stands for the default.
        values: pairs of a key and its new value; the value None removes the quota.
    """

    entity: Sequence[tuple[str, str | None]]
    values: Sequence[tuple[str, float | None]]


def alter_client_quotas(
    image: MetadataImage,
    changes: Sequence[QuotaChange],
    *,
    unknown_hosts: Collection[str],
    validate_only: bool = False,
) -> Steps[Decision[list[BrokerError | None]]]:
    """Return an error or None for each change, and the records of the changes without an error.

    Either all values of an entity change, or none. If a request names an entity twice, or an entity
    has a type twice, the entity is not changed; Kafka applies one of the two. Removing a quota that
    does not exist succeeds.

    Args:
        unknown_hosts: the host names in the request that cannot be resolved.
    """
    times: Counter[QuotaEntity] = Counter()
    keys: list[QuotaEntity] = []
    for count, change in enumerate(changes, 1):
        key = _key(change)
        keys.append(key)
        times[key] += 1
        if not count % STEPS_PER_LOOK:
            yield
    errors: list[BrokerError | None] = []
    records: list[Message] = []
    for count, (change, key) in enumerate(zip(changes, keys, strict=True), 1):
        if not count % STEPS_PER_LOOK:
            yield
        try:
            if times[key] > 1:
                raise InvalidRequest(f"Ignoring duplicate entity {entity_text(change.entity)}")
            records += _records(image, change, unknown_hosts)
            errors.append(None)
        except BrokerError as error:
            errors.append(error)
    return Decision(errors, () if validate_only else records)


def entity_text(entity: Sequence[tuple[str, str | None]]) -> str:
    """Return an entity as text, such as "user=alice, client-id=<default>"."""
    return ", ".join(f"{kind}={'<default>' if name is None else name}" for kind, name in entity)


def _key(change: QuotaChange) -> QuotaEntity:
    return tuple(sorted(change.entity, key=lambda part: (part[0], part[1] or "", part[1] is None)))


def _records(
    image: MetadataImage, change: QuotaChange, unknown_hosts: Collection[str]
) -> list[Message]:
    _check_entity(change.entity, unknown_hosts)
    values: dict[str, float | None] = {}
    for key, value in change.values:
        if key in values:
            raise InvalidRequest(
                f"Duplicate quota key {key} not updating quota for this entity "
                f"{entity_text(change.entity)}"
            )
        values[key] = value
    keys = keys_of([kind for kind, _ in change.entity])
    present = image.principals.quotas.get(tuple(sorted(change.entity)), _NONE)
    parts = [ClientQuotaEntityData(entity_type=kind, entity_name=name)
             for kind, name in change.entity]  # fmt: skip
    records: list[Message] = []
    for key, value in values.items():
        if value is None:
            if key in present:
                records.append(ClientQuotaRecord(entity=parts, key=key, remove=True))
            continue
        check_value(key, value, keys)
        if present.get(key) != value:
            records.append(ClientQuotaRecord(entity=parts, key=key, value=value))
    return records


def _check_entity(entity: Sequence[tuple[str, str | None]], unknown_hosts: Collection[str]) -> None:
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    types = Counter(kind for kind, _ in entity)
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if types[kind] > 1:
            raise InvalidRequest(f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if IP not in types:
        return
    if len(types) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    if entity[0][1] in unknown_hosts:
        raise InvalidRequest(f"{entity[0][1]} is not a valid IP or resolvable host.")
