"""DescribeUserScramCredentials (API key 50): list the SCRAM mechanisms of users."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "DescribeUserScramCredentialsResult",
    "UserName",
]


class UserName(Struct):
    """Name of one user: an element of `DescribeUserScramCredentialsRequest.users`.

    Source: `DescribeUserScramCredentialsRequest.json`, struct `UserName`.
    """

    name: str = string()
    """The user name."""


class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """Request of the DescribeUserScramCredentials API.

    Source: `DescribeUserScramCredentialsRequest.json`.
    """

    API_KEY = 50
    NAME = "DescribeUserScramCredentials"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    users: list[UserName] | None = array(UserName, nullable_since=0)
    """The users to describe; null or empty for all users."""


class CredentialInfo(Struct):
    """One SCRAM credential: an element of `DescribeUserScramCredentialsResult.credential_infos`.

    Source: `DescribeUserScramCredentialsResponse.json`, struct `CredentialInfo`.
    """

    mechanism: int = i8()
    """The SCRAM mechanism: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    iterations: int = i32()
    """The number of iterations of the credential."""


class DescribeUserScramCredentialsResult(Struct):
    """SCRAM credentials of one user: an element of `DescribeUserScramCredentialsResponse.results`.

    Source: `DescribeUserScramCredentialsResponse.json`, struct
    `DescribeUserScramCredentialsResult`.
    """

    user: str = string()
    """The name of the user who has the credentials."""

    error_code: int = i16()
    """The error code for the user, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message for the user, or null if there was no error."""

    credential_infos: list[CredentialInfo] = array(CredentialInfo)
    """The mechanism and iterations of each SCRAM credential of the user."""


class DescribeUserScramCredentialsResponse(Response, request=DescribeUserScramCredentialsRequest):
    """Response to `DescribeUserScramCredentialsRequest`.

    Source: `DescribeUserScramCredentialsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code of the whole request, such as for a failed authorization; 0 if there was no
    error.
    """

    error_message: str | None = string(nullable_since=0)
    """The error message of the whole request, or null if there was no error."""

    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
    """The result for each user."""
