"""DescribeUserScramCredentials (50), version 0: the SCRAM mechanisms and iterations of users.

Errors: CLUSTER_AUTHORIZATION_FAILED; for each user RESOURCE_NOT_FOUND and DUPLICATE_RESOURCE. The
response never contains salts or keys. KIP-554.

Source: Kafka ``ScramImage.describe``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, DuplicateResource, ResourceNotFound
from aiokq.wire.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Credentials
    from aiokq.broker.handlers.call import Call


async def handle(
    credentials: Credentials, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    """Return the credentials of the named users, or of all users."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    except BrokerError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code,
            error_message=error.message,
            results=[  # as in Kafka, without the names
                DescribeUserScramCredentialsResult(
                    error_code=error.code, error_message=error.message
                )
                async for _ in call.each(request.users or ())
            ],
        )
    found: dict[str, list[CredentialInfo]] = {}
    for name, mechanism, iterations in credentials.scram():
        found.setdefault(name, []).append(
            CredentialInfo(mechanism=mechanism, iterations=iterations)
        )
    named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_code=0,
        error_message="",
        results=[
            _result(name, found.get(name), named[name])
            async for name in call.each(named if named else sorted(found))
        ],
    )


def _result(
    name: str, infos: list[CredentialInfo] | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=DuplicateResource.code,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single "
            f"request: {name}",
            credential_infos=[],
        )
    if infos is None:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ResourceNotFound.code,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
            credential_infos=[],
        )
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=0,
        error_message=None,
        credential_infos=sorted(infos, key=lambda info: info.mechanism),
    )
