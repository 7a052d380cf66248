"""AlterUserScramCredentials (51), version 0: set and delete SCRAM credentials.

A change applies to logins that begin after the response. Clients that are logged in stay logged in
until their sessions expire.

Errors of each user: CLUSTER_AUTHORIZATION_FAILED, UNACCEPTABLE_CREDENTIAL (an empty name or salted
password, too few or too many iterations), UNSUPPORTED_SASL_MECHANISM, RESOURCE_NOT_FOUND,
DUPLICATE_RESOURCE (the request has several changes of the user), UNSUPPORTED_VERSION (the metadata
version does not support SCRAM), KAFKA_STORAGE_ERROR. KIP-554.

Source: Kafka ``ScramControlManager.alterCredentials``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.connection.sasl.scram_formulas import SCRAM_MECHANISM_OF
from aiokq.core.errors import BrokerError
from aiokq.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Credentials
    from aiokq.broker.handlers.call import Call


async def handle(
    credentials: Credentials, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of users whose changes are valid; return a result for each user."""
    outcomes: Mapping[str, BrokerError | None]
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
        outcomes = await credentials.alter_scram(request.deletions, request.upsertions, call.pace)
    except BrokerError as error:
        names = [one.name for one in request.deletions]
        names += [one.name for one in request.upsertions]
        outcomes = dict.fromkeys(names, error)
    # A user without an error has one change: two changes of a user are DUPLICATE_RESOURCE.
    deleted = {one.name: one.mechanism for one in request.deletions}
    stored = {one.name: one.mechanism for one in request.upsertions}
    await call.changed_many(
        "user changed",
        (
            f"{name}: {SCRAM_MECHANISM_OF[deleted[name]].name} deleted"
            if name in deleted
            else f"{name}: {SCRAM_MECHANISM_OF[stored[name]].name} set"
            for name, error in outcomes.items()
            if error is None
        ),
    )
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            async for name, error in call.each(outcomes.items())
        ]
    )
