"""SCRAM credentials of users: describes, stores and deletes them.

The client salts the password and sends the salted password to the broker. Anyone who reads the
salted password on the network can log in as the user, so use TLS.

Source: KIP-554; Kafka ``ScramFormatter.java``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import ANY, CONTROLLER
from aiokq.connection.sasl.scram_formulas import (
    DEFAULT_ITERATIONS,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    salted_password,
)
from aiokq.core import limits
from aiokq.core.errors import (
    ConfigError,
    ConnectionLost,
    KafkaError,
    RequestTimeout,
    ResourceNotFound,
    error_for,
    raise_for,
)
from aiokq.core.frozen import frozen
from aiokq.wire.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokq.wire.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

__all__ = [
    "ScramCredential",
    "ScramDeletion",
    "ScramUpsertion",
    "UserScramAltered",
    "UserScramCredentials",
    "alter_user_scram_credentials",
    "describe_user_scram_credentials",
]

_DESCRIBE: Final = "DescribeUserScramCredentials"
_ALTER: Final = "AlterUserScramCredentials"
_NAMES: Final = {mechanism.number: name for name, mechanism in SCRAM_MECHANISMS.items()}


@frozen
class ScramCredential:
    """A stored credential; brokers never send its salt and keys."""

    mechanism: str
    iterations: int


@frozen
class UserScramCredentials:
    """The stored credentials of one user."""

    user: str
    credentials: tuple[ScramCredential, ...] = ()
    error: KafkaError | None = None


@frozen
class ScramUpsertion:
    """A credential to store; it replaces the user's credential of the same mechanism.

    Attributes:
        password: the password, which does not leave this process. Whoever can read the request can
            log in as the user nevertheless, so use TLS.
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        iterations: from 4096 to 16384. More iterations make stolen credentials harder to crack, and
            logins slower.
        salt: the salt; None for a random one.
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-256"
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@frozen
class ScramDeletion:
    """A credential to delete."""

    user: str
    mechanism: str = "SCRAM-SHA-256"


@frozen
class UserScramAltered:
    """The result of a change of one credential."""

    user: str
    mechanism: str
    error: KafkaError | None = None


_Change: TypeAlias = ScramUpsertion | ScramDeletion
_Key: TypeAlias = tuple[str, str]


async def describe_user_scram_credentials(
    engine: ClusterEngine, users: Sequence[str] | None, *, timeout: float | None
) -> Results[str, UserScramCredentials]:
    """Implement `Admin.describe_user_scram_credentials`."""
    for user in users or ():
        if not isinstance(user, str):
            raise TypeError(f"users must be names (str), not {user!r}")
    if users is not None and not users:
        return Results({})  # in the request, an empty list stands for all users
    names = None if users is None else [UserName(name=user) for user in dict.fromkeys(users)]

    async def ask(remaining: float) -> Results[str, UserScramCredentials]:
        response = await engine.request(
            DescribeUserScramCredentialsRequest(users=names), node=ANY, timeout=remaining
        )
        raise_for(response.error_code, response.error_message, api=_DESCRIBE)
        found = {
            each.user: UserScramCredentials(
                each.user,
                tuple(
                    ScramCredential(_NAMES.get(info.mechanism, "UNKNOWN"), info.iterations)
                    for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
                ),
                error_for(each.error_code, each.error_message, api=_DESCRIBE)
                if each.error_code
                else None,
            )
            for each in sorted(response.results, key=lambda each: each.user)
        }
        return Results(found)

    return await repeated(engine, ask, api=_DESCRIBE, timeout=timeout)


async def alter_user_scram_credentials(
    engine: ClusterEngine, changes: Iterable[_Change], *, timeout: float | None
) -> Results[_Key, UserScramAltered]:
    """Implement `Admin.alter_user_scram_credentials`."""
    wanted: dict[_Key, _Change] = {}
    for change in changes:
        _check(change)
        key = (change.user, change.mechanism)
        if key in wanted:
            raise ConfigError(f"{change.mechanism} of {change.user!r} is changed twice")
        wanted[key] = change
    messages = {
        key: await engine.environment.offload.run(_message, change)
        for key, change in wanted.items()
    }
    unanswered = False

    async def attempt(
        left: Mapping[_Key, ScramCredentialUpsertion | ScramCredentialDeletion], remaining: float
    ) -> dict[_Key, UserScramAltered | KafkaError]:
        nonlocal unanswered
        sent = left.values()
        try:
            response = await engine.request(
                AlterUserScramCredentialsRequest(
                    deletions=[one for one in sent if isinstance(one, ScramCredentialDeletion)],
                    upsertions=[one for one in sent if isinstance(one, ScramCredentialUpsertion)],
                ),
                node=CONTROLLER,
                timeout=remaining,
            )
        except (ConnectionLost, RequestTimeout):
            unanswered = True
            raise
        keys = {key[0]: key for key in left}
        found: dict[_Key, UserScramAltered | KafkaError] = {}
        for result in response.results:
            key = keys.get(result.user)
            if key is None:
                continue
            # An attempt whose response was lost may have deleted the credential.
            if not result.error_code or (unanswered and result.error_code == ResourceNotFound.code):
                found[key] = UserScramAltered(*key)
            else:
                found[key] = error_for(result.error_code, result.error_message, api=_ALTER)
        return found

    outcomes: dict[_Key, UserScramAltered | KafkaError] = {}
    # A broker refuses a request that names a user twice, even with different mechanisms.
    for mechanism in SCRAM_MECHANISMS:
        of_mechanism = {key: message for key, message in messages.items() if key[1] == mechanism}
        if of_mechanism:
            outcomes |= await per_item(engine, of_mechanism, attempt, api=_ALTER, timeout=timeout)
    return results_of(
        {key: outcomes[key] for key in wanted},
        lambda key, error: UserScramAltered(*key, error),
    )


def _check(change: _Change) -> None:
    """Check a change before any password is salted.

    Raises:
        TypeError: `change` is neither an upsertion nor a deletion, or a value has the wrong type.
        ConfigError: a value cannot be stored.
        ValueError: the number of iterations is out of range.
    """
    if not isinstance(change, ScramUpsertion | ScramDeletion):
        raise TypeError(f"changes must be ScramUpsertion or ScramDeletion, not {type(change)}")
    if not isinstance(change.user, str) or not change.user:
        raise ConfigError("the name of a user must be a text that is not empty")
    if change.mechanism not in SCRAM_MECHANISMS:
        known = " or ".join(SCRAM_MECHANISMS)
        raise ConfigError(f"mechanism of {change.user!r} must be {known}, not {change.mechanism!r}")
    if isinstance(change, ScramDeletion):
        return
    if not isinstance(change.password, str) or not change.password:
        raise ConfigError(f"the password of {change.user!r} must be a text that is not empty")
    limits.whole(
        change.iterations, f"iterations of {change.user!r}", LEAST_ITERATIONS, MOST_ITERATIONS
    )


def _message(change: _Change) -> ScramCredentialUpsertion | ScramCredentialDeletion:
    mechanism = SCRAM_MECHANISMS[change.mechanism]
    if isinstance(change, ScramDeletion):
        return ScramCredentialDeletion(name=change.user, mechanism=mechanism.number)
    salt = secrets.token_bytes(SALT_BYTES) if change.salt is None else change.salt
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=mechanism.number,
        iterations=change.iterations,
        salt=salt,
        salted_password=salted_password(mechanism, change.password, salt, change.iterations),
    )
