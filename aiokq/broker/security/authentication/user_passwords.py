"""SCRAM credentials for the users and passwords that `EmbeddedCluster` is given.

Tests: ``tests/unit/broker/security/authentication/test_user_passwords.py``.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.connection.sasl.scram_formulas import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    keys_of_password,
    salted_password,
)
from aiokq.wire.alter_user_scram_credentials import ScramCredentialUpsertion

if TYPE_CHECKING:
    from aiokq.broker.security.authentication.scram import Credentials

__all__ = ["missing_credentials"]


def missing_credentials(
    users: Mapping[str, str], stored: Credentials
) -> list[list[ScramCredentialUpsertion]]:
    """Return the SCRAM credentials that the users lack, as one list for each mechanism.

    A stored credential of the same password is kept. The call takes milliseconds for each user, so
    it has to run in a thread.
    """
    return [
        [
            upsertion
            for name, password in users.items()
            if (upsertion := _upsertion(name, password, mechanism, stored)) is not None
        ]
        for mechanism in SCRAM_MECHANISMS
    ]


def _upsertion(
    name: str, password: str, mechanism_name: str, stored: Credentials
) -> ScramCredentialUpsertion | None:
    mechanism = SCRAM_MECHANISMS[mechanism_name]
    record = stored.get((name, mechanism.number))
    if record is not None:
        keys = keys_of_password(mechanism, password, bytes(record.salt), record.iterations)
        if hmac.compare_digest(keys.stored_key, record.stored_key):
            return None
    salt = secrets.token_bytes(SALT_BYTES)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.number,
        iterations=DEFAULT_ITERATIONS,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, DEFAULT_ITERATIONS),
    )
