"""ACLs, SCRAM credentials, delegation tokens and quotas in the metadata image.

Source: Kafka ``AclsImage.java``, ``ScramImage.java``, ``DelegationTokenImage.java``,
``ClientQuotasImage.java``. Tests: ``tests/unit/broker/metadata/image/test_image.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final, TypeAlias

from aiokq.broker.metadata.image.scram_shapes import ScramShape, shape_of
from aiokq.core.errors import CorruptRecord
from aiokq.core.quota_keys import QuotaEntity
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    ClientQuotaEntityData,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.struct import Message

__all__ = ["AclValue", "PrincipalsImage", "acl_value", "is_of_principals"]


AclValue: TypeAlias = tuple[int, str, int, str, str, int, int]
"""An ACL without its id: resource type, name, pattern type, principal, host, operation, permission
type.
"""

_RECORDS: Final = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    ClientQuotaRecord,
)


def acl_value(record: AccessControlEntryRecord) -> AclValue:
    """Return the fields of an ACL without its id."""
    return (
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def is_of_principals(record: Message) -> bool:
    """Return whether a record is about an ACL, SCRAM credential, delegation token or quota."""
    return isinstance(record, _RECORDS)


class PrincipalsImage:
    """The ACLs, SCRAM credentials, delegation tokens and quotas of the replayed records.

    Attributes:
        acls: the entries by id.
        acl_values: the number of entries by value. Kafka writes no two entries with the same value.
        scram_credentials: credentials by user name and mechanism (1 for SCRAM-SHA-256, 2 for
            SCRAM-SHA-512).
        scram_shapes: the number of SCRAM credentials of each shape.
        tokens: delegation tokens by id.
        quotas: the values of each entity, by key such as ``producer_byte_rate``.
    """

    __slots__ = ("acl_values", "acls", "quotas", "scram_credentials", "scram_shapes", "tokens")

    def __init__(self) -> None:
        self.acls: dict[uuid.UUID, AccessControlEntryRecord] = {}
        self.acl_values: dict[AclValue, int] = {}
        self.scram_credentials: dict[tuple[str, int], UserScramCredentialRecord] = {}
        self.scram_shapes: dict[ScramShape, int] = {}
        self.tokens: dict[str, DelegationTokenRecord] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}

    def copy(self) -> PrincipalsImage:
        """Return an independent copy; the records, which never change, are shared."""
        image = PrincipalsImage()
        image.acls = dict(self.acls)
        image.acl_values = dict(self.acl_values)
        image.scram_credentials = dict(self.scram_credentials)
        image.scram_shapes = dict(self.scram_shapes)
        image.tokens = dict(self.tokens)
        image.quotas = self.quotas_copy()
        return image

    def quotas_copy(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return an independent copy of the quotas."""
        return {entity: dict(values) for entity, values in self.quotas.items()}

    def replay(self, record: Message) -> bool:
        """Replay a record of an ACL, SCRAM credential, delegation token or quota.

        Returns:
            False if the record is none of these; the image is then unchanged.

        Raises:
            CorruptRecord: the record contradicts earlier records.
        """
        match record:
            case AccessControlEntryRecord():
                if record.id in self.acls:
                    raise CorruptRecord(f"ACL {record.id} exists already")
                self.acls[record.id] = record
                self._count(record, 1)
            case RemoveAccessControlEntryRecord():
                removed = self.acls.pop(record.id, None)
                if removed is None:
                    raise CorruptRecord(f"removal of ACL {record.id}, which does not exist")
                self._count(removed, -1)
            case UserScramCredentialRecord():
                self._set_credential(record.name, record.mechanism, record)
            case RemoveUserScramCredentialRecord():
                if not self._set_credential(record.name, record.mechanism, None):
                    raise CorruptRecord(
                        f"removal of a SCRAM credential of {record.name!r}, which does not exist"
                    )
            case DelegationTokenRecord():
                self.tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self.tokens.pop(record.token_id, None)  # Kafka also ignores an unknown token
            case ClientQuotaRecord():
                self._replay_quota(record)
            case _:
                return False
        return True

    def _set_credential(
        self, name: str, mechanism: int, record: UserScramCredentialRecord | None
    ) -> bool:
        """Store a credential, or remove it if `record` is None; return whether there was one."""
        before = self.scram_credentials.get((name, mechanism))
        for credential, change in ((before, -1), (record, 1)):
            if credential is not None:
                shape = shape_of(credential)
                count = self.scram_shapes.pop(shape, 0) + change
                if count:
                    self.scram_shapes[shape] = count
        if record is not None:
            self.scram_credentials[name, mechanism] = record
        elif before is not None:
            del self.scram_credentials[name, mechanism]
        return before is not None

    def _count(self, acl: AccessControlEntryRecord, change: int) -> None:
        value = acl_value(acl)
        count = self.acl_values.pop(value, 0) + change
        if count:
            self.acl_values[value] = count

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]

    # There are two methods, because Kafka's snapshots have the quotas before the record of producer
    # ids, and all other records of this image after it.

    def quota_records(self) -> Iterator[Message]:
        """Yield a record for each value of a quota."""
        for entity, values in self.quotas.items():
            parts = [
                ClientQuotaEntityData(entity_type=kind, entity_name=name) for kind, name in entity
            ]
            for key, value in values.items():
                yield ClientQuotaRecord(entity=parts, key=key, value=value)

    def records(self) -> Iterator[Message]:
        """Yield the records of ACLs, credentials and tokens, in the order of Kafka's snapshots."""
        yield from self.acls.values()
        yield from self.scram_credentials.values()
        yield from self.tokens.values()

    def counts(self) -> dict[str, int]:
        """Return the number of entries by kind; kinds without entries are left out."""
        found = {
            "ACLs": len(self.acls),
            "SCRAM credentials": len(self.scram_credentials),
            "delegation tokens": len(self.tokens),
            "quotas": sum(len(values) for values in self.quotas.values()),
        }
        return {name: count for name, count in found.items() if count}
