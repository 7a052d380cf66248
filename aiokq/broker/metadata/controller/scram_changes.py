"""Decisions about AlterUserScramCredentials requests, which set and delete SCRAM credentials.

The client computes the salted password. From it the broker derives the keys that it stores.

Source: Kafka ``ScramControlManager.java``; KIP-554.
Tests: ``tests/unit/broker/metadata/controller/test_scram_changes.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from aiokq.broker.metadata.controller.decision import Decision
from aiokq.broker.metadata.image.features import SCRAM_CREDENTIALS
from aiokq.connection.sasl.scram_formulas import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_MECHANISM_OF,
    keys_of_salted_password,
)
from aiokq.connection.turn import STEPS_PER_LOOK
from aiokq.core.errors import (
    DuplicateResource,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from aiokq.wire.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokq.wire.principal_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.connection.turn import Steps
    from aiokq.core.errors import BrokerError
    from aiokq.wire.struct import Message

__all__ = ["alter_scram_credentials"]

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_scram_credentials(
    image: MetadataImage,
    deletions: Sequence[ScramCredentialDeletion],
    upsertions: Sequence[ScramCredentialUpsertion],
) -> Steps[Decision[Mapping[str, BrokerError | None]]]:
    """Return records for the changes that have no error; for each user, return its error or None.

    A user that the request names twice is not changed, even if the mechanisms differ. The function
    yields after some steps, because a request may have very many changes.
    """
    changes: list[_Change] = [*deletions, *upsertions]
    times = Counter(change.name for change in changes)
    outcomes: dict[str, BrokerError | None] = {}
    records: list[Message] = []
    for count, change in enumerate(changes, 1):
        if not count % STEPS_PER_LOOK:
            yield
        if change.name in outcomes:
            continue
        error = outcomes[change.name] = _error(image, change, times[change.name])
        if error is None:
            records.append(_record(change))
    return Decision(outcomes, records)


def _error(image: MetadataImage, change: _Change, times: int) -> BrokerError | None:
    if times > 1:
        return DuplicateResource("A user credential cannot be altered twice in the same request")
    if (image.metadata_version or 0) < SCRAM_CREDENTIALS:
        return UnsupportedVersion("The current metadata.version does not support SCRAM")
    if not change.name:
        return UnacceptableCredential("Username must not be empty")
    if change.mechanism not in SCRAM_MECHANISM_OF:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.principals.scram_credentials:
            return ResourceNotFound("Attempt to delete a user credential that does not exist")
        return None
    if change.iterations < LEAST_ITERATIONS:
        return UnacceptableCredential("Too few iterations")
    if change.iterations > MOST_ITERATIONS:
        return UnacceptableCredential("Too many iterations")
    if not change.salted_password:
        return UnacceptableCredential("The salted password must not be empty")
    return None


def _record(change: _Change) -> Message:
    if isinstance(change, ScramCredentialDeletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    keys = keys_of_salted_password(
        SCRAM_MECHANISM_OF[change.mechanism], bytes(change.salted_password)
    )
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=bytes(change.salt),
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=change.iterations,
    )
