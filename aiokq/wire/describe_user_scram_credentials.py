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
    """Element of `DescribeUserScramCredentialsRequest.users`.

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
    """The users to describe, or null/empty to describe all users."""


class CredentialInfo(Struct):
    """Element of `DescribeUserScramCredentialsResult.credential_infos`.

    Source: `DescribeUserScramCredentialsResponse.json`, struct `CredentialInfo`.
    """

    mechanism: int = i8()
    """The SCRAM mechanism."""

    iterations: int = i32()
    """The number of iterations used in the SCRAM credential."""


class DescribeUserScramCredentialsResult(Struct):
    """Element of `DescribeUserScramCredentialsResponse.results`.

    Source: `DescribeUserScramCredentialsResponse.json`, struct
    `DescribeUserScramCredentialsResult`.
    """

    user: str = string()
    """The user name."""

    error_code: int = i16()
    """The user-level error code."""

    error_message: str | None = string(nullable_since=0)
    """The user-level error message, if any."""

    credential_infos: list[CredentialInfo] = array(CredentialInfo)
    """The mechanism and related information associated with the user's SCRAM credentials."""


class DescribeUserScramCredentialsResponse(Response, request=DescribeUserScramCredentialsRequest):
    """Response to `DescribeUserScramCredentialsRequest`.

    Source: `DescribeUserScramCredentialsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16()
    """The message-level error code, 0 except for user authorization or infrastructure issues."""

    error_message: str | None = string(nullable_since=0)
    """The message-level error message, if any."""

    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
    """The results, one per user."""
